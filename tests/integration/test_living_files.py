"""Files that a person edits: what memory knows of them afterwards, over the command line and a relayer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LINES = """\
# Notes

- The staging database is called heron.
- The harbour crane is serviced in March.
- Ana prefers the morning train.
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "memory").mkdir(parents=True)
    (place / "MEMORY.md").write_text(LINES)
    return place


def found(run: Callable[..., str], question: str) -> list[dict[str, Any]]:
    return json.loads(run("memory", "search", question, "--json"))["results"]


def live(run: Callable[..., str]) -> dict[str, str]:
    """Return the live memories: texts and their ids."""
    listed = json.loads(run("list", "--json", "--limit", "100"))["memories"]
    return {memory["text"]: memory["id"] for memory in listed}


@pytest.mark.row("CP-24", "AR-05", "MS-30", level="e2e")
def test_an_edited_line_replaces_and_a_deleted_one_is_gone_from_recall(
    run: Callable[..., str], workspace: Path
) -> None:
    run("index", "--workspace", workspace)
    before = live(run)
    (workspace / "MEMORY.md").write_text(
        LINES.replace("called heron", "called cormorant").replace(
            "- The harbour crane is serviced in March.\n", ""
        )
    )
    said = run("index")
    assert said == "indexed: 1 file, 1 memory replaced, 1 memory forgotten, 1 known already\n"
    hits = found(run, "what is the staging database called")
    assert [(hit["snippet"], hit["path"]) for hit in hits if "staging" in hit["snippet"]] == [
        ("The staging database is called cormorant.", "MEMORY.md#3")
    ]
    assert not [hit for hit in found(run, "when is the harbour crane serviced") if "crane" in hit["snippet"]]
    # The history stays: the new line is a version of the old one, and the line that is gone can be brought back.
    old = before["The staging database is called heron."]
    shown = json.loads(run("show", old, "--json"))
    assert shown["memory"]["state"] == "superseded"
    assert shown["memory"]["superseded_by"] == live(run)["The staging database is called cormorant."]
    run("restore", before["The harbour crane is serviced in March."])
    assert found(run, "when is the harbour crane serviced")


def test_a_moved_line_keeps_its_memory_and_is_cited_where_it_stands_now(
    run: Callable[..., str], workspace: Path
) -> None:
    run("index", "--workspace", workspace)
    before = live(run)
    heading, _, *lines = LINES.splitlines()
    (workspace / "MEMORY.md").write_text(
        "\n".join([heading, "", "- A new first line about oysters.", *reversed(lines)])
    )
    run("index")
    after = live(run)
    assert {text: after[text] for text in before} == before
    (hit,) = [hit for hit in found(run, "what is the staging database called") if "heron" in hit["snippet"]]
    assert (hit["path"], hit["startLine"]) == ("MEMORY.md#6", 6)


def test_a_line_that_moves_to_another_file_keeps_its_memory(run: Callable[..., str], workspace: Path) -> None:
    note, other = workspace / "memory" / "boats.md", workspace / "memory" / "trains.md"
    note.write_text("- The blue boat has a petrol engine.\n- The red boat leaks.\n")
    run("index", "--workspace", workspace)
    before = live(run)
    note.write_text("- The red boat leaks.\n")
    other.write_text("- The blue boat has a petrol engine.\n")
    run("index")
    assert live(run) == before


def test_a_line_that_comes_back_brings_its_memory_back(run: Callable[..., str], workspace: Path) -> None:
    run("index", "--workspace", workspace)
    before = live(run)
    (workspace / "MEMORY.md").unlink()
    assert "3 memories forgotten" in run("index")
    assert live(run) == {}
    (workspace / "MEMORY.md").write_text(LINES)
    assert "3 memories restored" in run("index")
    assert live(run) == before


def test_what_is_merely_not_there_just_now_is_not_forgotten(run: Callable[..., str], workspace: Path) -> None:
    run("index", "--workspace", workspace)
    before = live(run)
    workspace.rename(workspace.with_name("unmounted"))
    run("index")
    assert live(run) == before


def test_a_line_that_stands_twice_is_forgotten_when_both_are_gone(
    run: Callable[..., str], workspace: Path
) -> None:
    line = "- The lighthouse keeper is called Jonna.\n"
    files = [workspace / "memory" / name for name in ("one.md", "two.md")]
    for file in files:
        file.write_text(line)
    run("index", "--workspace", workspace)
    for file, known in zip(files, (1, 0), strict=True):
        file.write_text("- Something else entirely, about gulls.\n" if known else "")
        run("index")
        assert len([text for text in live(run) if "Jonna" in text]) == known


def test_an_edit_of_a_memory_that_was_corrected_meanwhile_replaces_the_correction(
    run: Callable[..., str], workspace: Path
) -> None:
    run("index", "--workspace", workspace)
    run("update", live(run)["The staging database is called heron."], "The staging database is called egret.")
    (workspace / "MEMORY.md").write_text(LINES.replace("heron", "cormorant"))
    run("index")
    assert [text for text in live(run) if "staging" in text] == ["The staging database is called cormorant."]


def test_forced_it_brings_back_what_was_forgotten_by_hand_and_stores_nothing_twice(
    run: Callable[..., str], workspace: Path
) -> None:
    run("index", "--workspace", workspace)
    run("forget", live(run)["Ana prefers the morning train."])
    assert run("index") == "indexed: 0 files, 1 file unchanged\n"
    assert run("index", "--force") == "indexed: 1 file, 1 memory stored, 2 known already\n"
    assert len(live(run)) == 3


def test_a_session_log_that_is_cleared_away_is_remembered(run: Callable[..., str], tmp_path: Path) -> None:
    place = tmp_path / "sessions"
    place.mkdir()
    said = {"role": "user", "content": "My cabin on the Hiddensee ferry is number twelve."}
    (place / "s.jsonl").write_text(json.dumps(said))
    run("index", "--sessions", place)
    before = live(run)
    (place / "s.jsonl").write_text(json.dumps({**said, "content": "The other cabin has a round window."}))
    run("index")
    (place / "s.jsonl").unlink()
    run("index")
    assert {*before} < {*live(run)}
    assert len(live(run)) == 2


def test_the_index_holds_no_word_of_the_files(
    run: Callable[..., str], workspace: Path, tmp_path: Path
) -> None:
    run("index", "--workspace", workspace)
    (kept,) = (tmp_path / "state" / "memrelay").glob("index-*.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert not [word for word in ("heron", "crane", "train") if word in kept.read_text()]


def test_what_of_a_workspace_is_private_is_not_told_in_groups(
    run: Callable[..., str], workspace: Path
) -> None:
    (workspace / "memory" / "open.md").write_text("- The pier opens at nine.\n")
    run("index", "--workspace", workspace)
    listed = json.loads(run("list", "--json", "--limit", "100"))["memories"]
    audiences = {memory["source"]["reference"].partition("#")[0]: memory["audience"] for memory in listed}
    assert audiences == {"MEMORY.md": "direct", "memory/open.md": "agent"}


@pytest.mark.row("CP-46", level="e2e")
def test_a_search_tells_source_line_and_date_and_takes_half_life_and_diversity(
    run: Callable[..., str], workspace: Path
) -> None:
    (workspace / "memory" / "2026-04-01.md").write_text("# 2026-04-01\n\n- The dentist sits in Kiel.\n")
    run("index", "--workspace", workspace)
    assert "memory/2026-04-01.md#3, 2026-04-01" in run("search", "where is the dentist")
    question = ("search", "where is the dentist", "--floor", "0", "--json")
    (plain,) = [hit for hit in json.loads(run(*question))["memories"] if "Kiel" in hit["text"]]
    assert (plain["path"], plain["line"], plain["date"]) == ("memory/2026-04-01.md", 3, "2026-04-01")
    first = json.loads(run(*question))["memories"][0]["id"]
    faded = json.loads(run(*question, "--half-life", "0.1", "--diversity", "0.3"))["memories"]
    assert first == plain["id"] != faded[0]["id"]
    assert "half" in run("search", "x", "--half-life", "0", code=2)


MEMSEARCH = """\
# 2026-03-25

## Session 14:30

### 14:30
<!-- session:abc-123 transcript:/home/ana/.openclaw/abc-123.jsonl -->
- User asked how to deploy the harbour service.
- OpenClaw replied that the window is Tuesday.

### 14:52
<!-- session:abc-123 transcript:/home/ana/.openclaw/abc-123.jsonl -->
- User decided to move it to Friday.
"""


@pytest.mark.row("MS-22", "MS-30", level="e2e")
def test_a_log_of_memsearch_goes_through_the_relayer_and_comes_back_byte_by_byte_with_its_edits(
    run: Callable[..., str], tmp_path: Path
) -> None:
    place = tmp_path / ".memsearch" / "memory"
    place.mkdir(parents=True)
    file, out = place / "2026-03-25.md", tmp_path / "out"
    file.write_text(MEMSEARCH)
    run("index", place)
    run("export", out, "--format", "memsearch")
    assert (out / file.name).read_text() == MEMSEARCH
    edited = MEMSEARCH.replace("is Tuesday", "is Thursday")
    file.write_text(edited)
    run("index")
    run("export", out, "--format", "memsearch")
    assert (out / file.name).read_text() == edited


HERON = """\
---
title: Heron
aliases: [staging db]
tags: [ops, harbour]
status: draft
---
# Heron

- Listens on port 5433.
"""


@pytest.mark.row("OC-05", level="e2e")
def test_tags_and_fields_of_front_matter_are_filters_and_follow_the_page(
    run: Callable[..., str], workspace: Path
) -> None:
    page = workspace / "wiki" / "heron.md"
    page.parent.mkdir()
    page.write_text(HERON)
    run("index", "--workspace", workspace)

    def listed(where: dict[str, object]) -> list[str]:
        rows = json.loads(run("list", "--json", "--where", json.dumps(where)))["memories"]
        return [row["text"] for row in rows]

    text = "Heron (staging db): Listens on port 5433."
    assert listed({"tags": "ops", "status": "draft", "aliases": {"eq": ["staging db"]}}) == [text]
    assert found(run, "on which port does the staging db listen")[0]["snippet"] == text
    before = live(run)[text]
    page.write_text(HERON.replace("draft", "final").replace("harbour", "pier"))
    assert "1 memory replaced" in run("index")
    assert (listed({"tags": "harbour"}), listed({"tags": "pier", "status": "final"})) == ([], [text])
    assert json.loads(run("show", before, "--json"))["memory"]["superseded_by"] == live(run)[text]
    assert "1 file unchanged" in run("index") or "files unchanged" in run("index")


def test_no_secret_of_front_matter_is_stored(run: Callable[..., str], workspace: Path) -> None:
    page = workspace / "wiki" / "keys.md"
    page.parent.mkdir()
    page.write_text("---\npassword: hunter2-Zebra-9981\nowner: Ana\n---\n- Kept in the safe of the office.\n")
    run("index", "--workspace", workspace)
    (row,) = json.loads(run("list", "--json", "--where", '{"owner": "Ana"}'))["memories"]
    assert row["metadata"] == {"owner": "Ana"}


@pytest.mark.row("CP-24", "CP-52", level="e2e")
def test_each_of_many_lines_is_cited_and_edited_as_itself(run: Callable[..., str], workspace: Path) -> None:
    note = workspace / "memory" / "crates.md"
    lines = [f"- Crate {number} holds {number * 7} bolts." for number in range(1, 91)]
    note.write_text("\n".join(lines))
    run("index", "--workspace", workspace)
    before = live(run)
    (hit, *_) = [hit for hit in found(run, "Crate 85 holds bolts") if hit["snippet"].startswith("Crate 85 ")]
    assert hit["path"] == "memory/crates.md#85"
    lines[84] = "- Crate 85 holds nothing but straw."
    note.write_text("\n".join(lines))
    assert "1 memory replaced" in run("index")
    old = json.loads(run("show", before["Crate 85 holds 595 bolts."], "--json"))["memory"]
    assert (old["state"], old["text"]) == ("superseded", "Crate 85 holds 595 bolts.")
    assert "Crate 84 holds 588 bolts." in live(run)
