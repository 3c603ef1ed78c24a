"""Files of other systems become memories with their times, and daily logs come back as they were."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from gateway_plugin.files.exports import ImportProblem, files_of, read_file
from gateway_plugin.files.markdown import read_markdown, render_daily, render_memsearch
from relayer.wire.schemas import Memory

BERLIN = ZoneInfo("Europe/Berlin")
LOG = """\
# 2026-03-25

## Session 14:30

### 14:30
<!-- session:abc-123 transcript:/home/ana/.openclaw/abc-123.jsonl -->
- User asked how to deploy the harbour service.
- OpenClaw replied that the window is Tuesday.

### 14:52
<!-- session:abc-123 transcript:/home/ana/.openclaw/abc-123.jsonl -->
- User decided to move it to Friday.

## Session 18:05

### 18:05
<!-- session:def-456 -->
- User likes oat milk coffee.
"""


def remembered(items):
    """What a relayer would show of imported items."""
    return [
        Memory(
            id=f"{number:026d}",
            created_at=1,
            **item.model_dump(exclude={"id", "created_at", "state", "expires_at", "context_of"}),
        )
        for number, item in enumerate(items)
    ]


def at(*moment, place=BERLIN):
    return round(datetime(*moment, tzinfo=place).timestamp() * 1000)


@pytest.mark.row("MS-22")
def test_a_daily_log_of_memsearch_is_read_with_its_times_and_sessions():
    items = read_markdown(LOG, "memory/2026-03-25.md", BERLIN)
    assert [(item.text, item.occurred_at) for item in items] == [
        ("User asked how to deploy the harbour service.", at(2026, 3, 25, 14, 30)),
        ("OpenClaw replied that the window is Tuesday.", at(2026, 3, 25, 14, 30)),
        ("User decided to move it to Friday.", at(2026, 3, 25, 14, 52)),
        ("User likes oat milk coffee.", at(2026, 3, 25, 18, 5)),
    ]
    assert items[0].source.session == "abc-123"
    assert items[0].source.transcript == "/home/ana/.openclaw/abc-123.jsonl"
    assert items[0].source.reference == "memory/2026-03-25.md#7"
    assert (items[3].source.session, items[3].source.transcript) == ("def-456", "")


@pytest.mark.row("MS-22")
@pytest.mark.row("MS-30")
def test_a_daily_log_comes_back_as_it_was():
    items = read_markdown(LOG, "memory/2026-03-25.md", BERLIN)
    assert render_memsearch(remembered(items), BERLIN) == {"2026-03-25.md": LOG}


@pytest.mark.row("CP-40")
def test_the_daily_layout_has_a_file_a_day_of_the_readers_calendar():
    items = read_markdown(LOG, "memory/2026-03-25.md", BERLIN)
    files = render_daily(remembered(items), timezone(timedelta(hours=8)))
    assert list(files) == ["2026-03-25.md", "2026-03-26.md"]
    assert files["2026-03-26.md"] == "# 2026-03-26\n\n- User likes oat milk coffee.\n"


@pytest.mark.row("CP-40")
def test_the_daily_layout_is_read_back():
    items = read_markdown(LOG, "memory/2026-03-25.md", BERLIN)
    (text,) = render_daily(remembered(items), BERLIN).values()
    again = read_markdown(text, "2026-03-25.md", BERLIN)
    assert [item.text for item in again] == [item.text for item in items]
    assert {item.occurred_at for item in again} == {at(2026, 3, 25)}


def test_notes_become_a_memory_for_each_bullet_and_each_paragraph():
    notes = (
        "# Me\n\nI live in Lisbon\nsince May.\n\n- oat milk coffee\n  - never after 2 pm\n- tea\n\n"
        "```\n- not a bullet\n\n# no heading\n```\n\n<!-- a remark -->\n"
    )
    items = read_markdown(notes, "MEMORY.md", UTC)
    assert [item.text for item in items] == [
        "I live in Lisbon\nsince May.",
        "oat milk coffee\n  - never after 2 pm",
        "tea",
    ]
    assert {item.occurred_at for item in items} == {None}
    assert {(item.kind, item.trust) for item in items} == {("imported", "imported")}
    assert items[0].source.reference == "MEMORY.md#3"


@pytest.mark.parametrize(
    ("notes", "kept"),
    [
        ("The backup runs.\n\n    rota = 'day'\n\n    print(rota)\n\nIda does it.\n", ["The backup runs.", "Ida does it."]),
        ("## Rota\n\trota = 'day'\n\nIda does it.\n", ["Rota: Ida does it."]),
        ("- call Ida\n\n        rota = 'day'\n\n- pay rent\n", ["call Ida", "pay rent"]),
        ("- pay rent\n\nThat is all.\n\n    rota = 'day'\n", ["pay rent", "That is all."]),
        ("To do:\n- call Ida\n\n    about the roof\n", ["To do:", "call Ida", "about the roof"]),
        ("1. The key is in the shed,\n\n    behind a box.\n", ["1. The key is in the shed,", "behind a box."]),
        ("Ida keeps the rota\n    of the house.\n", ["Ida keeps the rota\n    of the house."]),
        ("- the house\n\n    - the roof leaks\n", ["the house", "the roof leaks"]),
    ],
)  # fmt: skip
def test_indented_code_is_no_memory_and_indented_text_of_a_list_is_one(notes, kept):
    assert [item.text for item in read_markdown(notes, "MEMORY.md", UTC)] == kept


@pytest.mark.parametrize(
    "text",
    [
        "", "\n\n", "# only a heading\n", "- \n", "<!-- nothing -->", "---\n", "- **Pronouns:** _(optional)_\n",
        "* * *\n",
    ],
)  # fmt: skip
def test_what_says_nothing_gives_nothing(text):
    assert read_markdown(text, "MEMORY.md", UTC) == []


def test_a_text_cannot_grow_lines_of_its_own_in_a_log():
    (item,) = read_markdown("- one", "2026-03-25.md", BERLIN)
    sly = item.model_copy(update={"text": "one\n## Session 10:00\n- two"})
    (text,) = render_memsearch(remembered([sly]), BERLIN).values()
    assert [one.text for one in read_markdown(text, "2026-03-25.md", BERLIN)] == [
        "one ## Session 10:00 - two"
    ]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


@pytest.mark.parametrize("frame", [lambda rows: rows, lambda rows: {"results": rows}])
def test_mem0s_export_is_read_with_its_times(tmp_path, frame):
    rows = [
        {"id": "m-1", "memory": "Likes tea", "user_id": "ana", "created_at": "2026-01-02T03:04:05-08:00"},
        {"id": "m-2", "text": "Lives in Lisbon", "updated_at": "2026-02-01T00:00:00", "metadata": {"a": 1}},
        {"id": "m-3", "memory": " "},
    ]
    first, second = read_file(write(tmp_path, "mem0.json", frame(rows)), "mem0.json")
    assert (first.text, first.source.speaker, first.source.reference) == ("Likes tea", "ana", "mem0:m-1")
    assert first.occurred_at == at(2026, 1, 2, 11, 4, 5, place=UTC)
    assert second.occurred_at == at(2026, 2, 1, place=UTC)


def test_the_blocks_of_a_letta_agent_are_read_line_by_line_without_its_description_of_itself(tmp_path):
    document = {
        "agents": [{"id": "agent-0", "block_ids": ["block-0", "block-1"], "messages": []}],
        "blocks": [
            {"id": "block-0", "label": "human", "value": "- Ana is vegan.\n- Lives in Lisbon.", "limit": 20_000},
            {"id": "block-1", "label": "persona", "value": "I am a helpful agent."},
            {"id": "block-2", "label": "project", "value": "The boat is called Mabel."},
        ],
        "groups": [], "files": [], "sources": [], "tools": [], "mcp_servers": [],
    }  # fmt: skip
    items = read_file(write(tmp_path, "agent.af", document), "agent.af")
    assert [(item.text, item.trust) for item in items] == [
        ("Ana is vegan.", "imported"),
        ("Lives in Lisbon.", "imported"),
        ("The boat is called Mabel.", "imported"),
    ]
    assert [item.source.reference for item in items] == [
        "letta/human#1", "letta/human#2", "letta/project#1"
    ]  # fmt: skip


@pytest.mark.parametrize("frame", [lambda rows: rows, lambda rows: {"edges": rows}])
def test_facts_of_zep_and_graphiti_are_read_while_they_are_true(tmp_path, frame):
    rows = [
        {"uuid": "e-1", "name": "LIVES_IN", "fact": "Ana lives in Porto.", "valid_at": "2026-01-02T00:00:00Z", "invalid_at": "9000-01-01T00:00:00Z"},
        {"uuid": "e-2", "fact": "Ana lives in Lisbon.", "created_at": "2025-01-02T00:00:00Z", "invalid_at": "2026-01-02T00:00:00Z"},
        {"uuid": "e-3", "fact": "Ana rows.", "created_at": "2025-03-04T00:00:00Z", "expired_at": "2025-05-01T00:00:00Z"},
        {"uuid": "e-4", "fact": "Ana owns a boat.", "created_at": "2025-03-04T00:00:00Z"},
    ]  # fmt: skip
    items = read_file(write(tmp_path, "edges.json", frame(rows)), "edges.json")
    assert [(item.text, item.source.reference, item.occurred_at) for item in items] == [
        ("Ana lives in Porto.", "zep:e-1", at(2026, 1, 2, place=UTC)),
        ("Ana owns a boat.", "zep:e-4", at(2025, 3, 4, place=UTC)),
    ]


def test_an_own_export_that_was_cut_short_is_not_taken_for_whole(tmp_path):
    head, line, end = {"memrelay_export": 1}, {"memory": {"text": "one"}}, {"end": True, "memories": 1}
    whole = "\n".join(map(json.dumps, (head, line, end)))
    assert [item.text for item in read_file(write(tmp_path, "a.jsonl", whole), "a.jsonl")] == ["one"]
    for broken in ((head, line), (head, end), (head, line, line, end)):
        with pytest.raises(ImportProblem, match="cut short"):
            read_file(write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, broken))), "a.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "{", "line 1 is not JSON"),
        ("a.json", {"x": 1}, "results"),
        ("a.json", [7], "not a JSON object"),
        ("a.jsonl", '{"memory": {"text": "one", "importance": 7}}', "importance"),
        ("a.jsonl", "[]", "object"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_fix_and_without_its_text(tmp_path, name, content, said):
    with pytest.raises(ImportProblem, match=said) as caught:
        read_file(write(tmp_path, name, content), name)
    assert name in str(caught.value)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path):
    (tmp_path / "a.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.docx").write_bytes(b"PK\x03\x04\x00\x00 a document")
    for name, said in (("a.md", "UTF-8"), ("b.md", "No such file"), ("c.docx", "not a text file")):
        with pytest.raises(ImportProblem, match=said):
            read_file(tmp_path / name, name)


def test_a_directory_is_read_below_and_without_what_is_hidden(tmp_path):
    for name in ("MEMORY.md", "memory/2026-03-25.md", "memory/.draft.md", "notes.txt", "old/mem0.json"):
        write(tmp_path, name, "x")
    assert [path.relative_to(tmp_path).as_posix() for path, _ in files_of(tmp_path).files] == [
        "MEMORY.md", "memory/2026-03-25.md", "old/mem0.json"
    ]  # fmt: skip


def test_an_answer_of_a_relayer_that_was_kept_as_it_came_is_read_without_its_proofs(tmp_path):
    lines = [
        '{"memrelay_export": 1, "namespace": "ops", "memories": 1}',
        '{"memory": {"text": "one\u2028line"}}',
        '{"proof":"AAAA"}',
        '{"end": true, "memories": 1}',
        '{"proof":"BBBB"}',
    ]
    assert [item.text for item in read_file(write(tmp_path, "a.jsonl", "\n".join(lines)), "a.jsonl")] == [
        "one\u2028line"
    ]


def test_an_entry_holds_since_it_was_observed_and_not_when_its_line_says_that_it_is_over():
    text = """\
---
summary: for programs
---
# USER.md

<!-- observed: 2026-02-03 | status: active -->

- Prefer short answers.

<!-- observed: 2026-01-01 | status: superseded -->
- Prefer long answers.

- Always greet in Frisian.
"""
    items = read_markdown(text, "USER.md", BERLIN)
    assert [(item.text, item.occurred_at, item.source.reference) for item in items] == [
        ("Prefer short answers.", at(2026, 2, 3), "USER.md#8"),
        ("Always greet in Frisian.", None, "USER.md#13"),
    ]


def test_a_line_begins_with_the_headings_that_say_whom_it_is_about():
    notes = "# Notes\n\n## Family\n\n### Grandma\n- Has a pacemaker\n\n### Tom\n- Likes chess\n\n## Me\n- Likes tea\n"
    texts = [item.text for item in read_markdown(notes, "notes.md", BERLIN)]
    assert texts == ["Family: Grandma: Has a pacemaker", "Family: Tom: Likes chess", "Me: Likes tea"]


# The front matter of a Markdown page: tags, metadata, date, and the names before each line.
PAGE = """\
---
title: Heron
aliases: [staging db, "port database"]
tags: [ops/database, "#harbour"]
date: 2026-02-03
owner: Ana
since: 2024
nested: {left: out}
---
# Heron

Runs on port 5433.

## Backups
- Every night at two.
"""


def test_it_becomes_tags_metadata_date_and_the_names_before_each_line():
    first, second = read_markdown(PAGE, "wiki/heron.md", BERLIN)
    assert first.text == "Heron (staging db, port database): Runs on port 5433."
    assert second.text == "Heron (staging db, port database): Backups: Every night at two."
    assert first.tags == second.tags == ("ops/database", "harbour")
    assert first.metadata == {
        "title": "Heron",
        "aliases": ["staging db", "port database"],
        "date": "2026-02-03",
        "owner": "Ana",
        "since": 2024,
    }
    written = round(datetime(2026, 2, 3, tzinfo=BERLIN).timestamp() * 1000)
    assert (first.occurred_at, first.source.reference) == (written, "wiki/heron.md#12")


def test_an_obsidian_page_with_other_names_is_titled_by_its_file():
    (item,) = read_markdown("---\nalias: staging db\ntags: ops, harbour\n---\nPort 5433.\n", "Heron.md", UTC)
    assert (item.text, item.tags) == ("Heron (staging db): Port 5433.", ("ops", "harbour"))


@pytest.mark.parametrize(
    "front",
    [
        "tags: [a",
        "- a\n- list",
        "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "tags: {a: b}",
        f"k: {'9' * 40}",
        "- " * 200,
    ],
)
def test_front_matter_that_says_nothing_usable_is_passed_over(front):
    (item,) = read_markdown(f"---\n{front}\n---\nPort 5433.\n", "heron.md", UTC)
    assert (item.text, item.tags) == ("Port 5433.", ())
    assert item.source.reference == f"heron.md#{front.count(chr(10)) + 4}"


def test_metadata_stays_within_its_bounds_and_takes_no_reserved_name():
    many = "\n".join(f"field{number}: {'x' * 200}" for number in range(90))
    (item,) = read_markdown(f"---\nsession: mine\n{many}\n---\nPort 5433.\n", "heron.md", UTC)
    assert "session" not in item.metadata
    assert 10 < len(item.metadata) < 21


def test_trigger_phrases_are_found_with_their_line_and_kept_with_its_weight():
    line = (
        "- Keep the gateway on loopback. <!-- trigger: network setup; loopback --> <!-- importance: 9 -->\n"
    )
    (item,) = read_markdown(line, "MEMORY.md", UTC)
    assert item.text == "Keep the gateway on loopback. (network setup)"
    assert item.metadata == {"triggers": ["network setup", "loopback"], "importance": 9}
    (plain,) = read_markdown("- Plain. <!-- importance: 99 -->\n", "MEMORY.md", UTC)
    assert (plain.text, plain.metadata) == ("Plain.", {})


def test_a_line_is_noted_for_its_repositories_unless_it_is_about_the_user():
    line = "- Sign with cosign. <!-- project: GitHub.com/Harbour/heron; path:/srv/Quay -->\n"
    (item,) = read_markdown(line, "MEMORY.md", UTC)
    assert item.text == "Sign with cosign."
    assert item.metadata == {"project_scope": "github.com/Harbour/heron; path:/srv/Quay"}
    (own,) = read_markdown(line, "USER.md", UTC)
    assert (own.text, own.metadata) == ("Sign with cosign.", {})
    (unclear,) = read_markdown("- Sign with cosign. <!-- project: -->\n", "MEMORY.md", UTC)
    assert unclear.metadata == {"project_scope": "!"}
