import json
import os
import time

from bench.http_servers import Server
from bench.locomo import conversations
from bench.material import items, queries, unit_vectors
from bench.quality import recall_quality
from bench.report import Lab, Section, machine, write


def test_texts_are_all_different_and_the_same_for_the_same_seed():
    rows = unit_vectors(500, 3)
    assert items(rows, 3) == items(unit_vectors(500, 3), 3)
    assert len({item["text"] for item in items(rows, 3)}) == 500
    assert len(set(queries(500, 3)) | set(queries(500, 4))) == 1_000


def test_cpu_time_of_another_process_is_read_from_its_own_clock():
    own = Server("http://127.0.0.1:1", os.getpid())
    before, start = own.cpu_seconds(), time.process_time()
    sum(range(2_000_000))
    used = time.process_time() - start
    assert used * 0.9 <= own.cpu_seconds() - before <= used * 1.5 + 0.05


async def test_without_the_conversations_the_quality_part_says_so_and_measures_nothing(tmp_path):
    lab = Lab(tmp_path, True, print, tmp_path / "absent.json")
    (section,) = await recall_quality(lab)
    assert "skipped" in section.title
    assert "absent.json is not there" in section.rows[0][0]


def test_questions_without_evidence_and_of_the_fifth_category_are_left_out(tmp_path):
    turn = {"id": "D1:1", "session": 1, "date": "2024-02-03T10:00", "speaker": "Ada", "text": "I sail."}
    asked = [
        {"q": "Who sails?", "cat": "single_hop", "evidence": ["D1:1", "D1:1"]},
        {"q": "Who flies?", "cat": "adversarial", "evidence": ["D1:1"]},
        {"q": "Who swims?", "cat": "temporal", "evidence": ["D9:9"]},
    ]
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"conversations": [{"id": "c", "turns": [turn], "questions": asked}]}))
    (conversation,) = conversations(path)
    assert [(question.text, question.evidence) for question in conversation.questions] == [
        ("Who sails?", ("D1:1",))
    ]
    assert conversation.turns[0].occurred_at == "2024-02-03T10:00:00Z"


def test_numbers_are_written_unrounded_beside_the_machine_they_come_from(tmp_path):
    section = Section("Speed", ("what", "how much"), [("a", "1.2")], {"a": 1.23456789})
    write(tmp_path / "out" / "run.json", machine(tmp_path), [section])
    written = json.loads((tmp_path / "out" / "run.json").read_text())
    assert written["parts"] == {"Speed": {"a": 1.23456789}}
    assert written["machine"]["file_system"] != "unknown"
