"""`openclaw memory session-backfill` as it is typed: stored chats are shown by day, captured when asked to, and taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openclaw_sessions import write_sessions
from plugin_site import PluginSite
from typed_commands import Done, run_gateway

BOAT = "My boat is called Wilhelmine and lies in Greetsiel."
SISTER = "My sister Ilse repairs clocks in Emden."
SECRET = "My password for the harbour office is Kranich77!moor."
SAID = [
    ("user", BOAT),
    ("assistant", "A fine name for a boat in Greetsiel."),
    ("user", SISTER),
    ("assistant", "Clocks are patient work."),
    ("user", SECRET),
]
DAY = "2026-11-22"


@pytest.fixture
def site(plain_site: PluginSite, tmp_path: Path) -> PluginSite:
    """A gateway of OpenClaw with stored chats, none of which memory has."""
    workspace = tmp_path / "ws"
    workspace.mkdir()
    config = tmp_path / "openclaw.json"
    config.write_text(json.dumps({"agents": {"entries": {"main": {"workspace": str(workspace)}}}}))
    plain_site.environment |= {
        "OPENCLAW_CONFIG_PATH": str(config),
        "OPENCLAW_STATE_DIR": str(tmp_path / "oc"),
        "MEMRELAY_OPENCLAW_FILES": "{}",
        "TZ": "UTC",
    }
    return plain_site


def backfill(site: PluginSite, *arguments: str) -> Done:
    return run_gateway(site.environment, "memory", "session-backfill", *arguments)


@pytest.mark.row("OC-07", level="e2e")
def test_a_preview_changes_nothing_and_shows_no_secret(site: PluginSite, tmp_path: Path) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    before = sorted(str(file) for file in (tmp_path / "oc").rglob("*"))
    shown = json.loads(backfill(site, "--json").stdout)
    assert [(row["day"], row["candidateCount"]) for row in shown["days"]] == [(DAY, 3)]
    assert shown["days"][0]["topCandidates"][:2] == [BOAT, SISTER]
    assert "Kranich" not in json.dumps(shown)
    assert sorted(str(file) for file in (tmp_path / "oc").rglob("*")) == before
    assert site.texts() == []
    assert json.loads(backfill(site, "--to", "2026-11-21", "--json").stdout)["days"] == []
    assert "memory session-backfill --apply" in backfill(site).stdout


@pytest.mark.row("OC-07", level="e2e")
def test_chats_are_captured_once_told_in_the_diary_and_taken_back(site: PluginSite, tmp_path: Path) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    done = backfill(site, "--apply")
    assert done.returncode == 0, done.stderr
    assert {BOAT, SISTER} <= set(site.texts())
    diary = tmp_path / "ws" / "DREAMS.md"
    assert [text in diary.read_text() for text in (DAY, BOAT, SISTER, "Kranich")] == [True, True, True, False]
    assert json.loads(backfill(site, "--json").stdout)["candidateCount"] == 0
    known = sorted(site.texts())
    site.command("memory", "session-backfill", "--apply")
    assert sorted(site.texts()) == known
    gone = json.loads(backfill(site, "--rollback", "--json").stdout)["rollback"]
    assert gone == {"removedDiaryEntries": 1, "removedStagedEntries": len(known)}
    assert site.texts() == []
    assert BOAT not in diary.read_text()


@pytest.mark.row("OC-07", level="e2e")
def test_what_memory_does_not_take_is_offered_again(site: PluginSite, tmp_path: Path) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    diary = tmp_path / "ws" / "DREAMS.md"
    site.command("off")
    refused = backfill(site, "--apply")
    assert (refused.returncode, "skipped" in refused.stderr) == (1, True)
    assert not diary.exists()
    backfill(site, "--rem")
    told = diary.read_text()
    assert BOAT in told
    assert backfill(site, "--apply").returncode == 1
    assert diary.read_text() == told
    site.command("on")
    assert json.loads(backfill(site, "--json").stdout)["candidateCount"] == 3


def test_an_agent_without_chats_has_nothing_to_show_or_take_back(site: PluginSite) -> None:
    assert "nothing new" in backfill(site).stdout
    assert json.loads(backfill(site, "--rollback", "--json").stdout)["rollback"] == {
        "removedDiaryEntries": 0,
        "removedStagedEntries": 0,
    }


def test_chats_of_groups_and_a_broken_database_are_no_candidates(site: PluginSite, tmp_path: Path) -> None:
    write_sessions(tmp_path / "oc", session="agent:main:telegram:group:-1", said=SAID)
    assert "nothing new" in backfill(site).stdout
    (tmp_path / "oc/agents/main/agent/openclaw-agent.sqlite").write_bytes(b"no database at all" * 100)
    broken = backfill(site)
    assert (broken.returncode, "cannot be read just now" in broken.stderr) == (1, True)


ARCHIVED = "My rowing boat Hedwig was sold to a collector in Leer."


def archive(folder: Path, name: str = "old.jsonl", said: str = ARCHIVED, at: int = 1795175000000) -> Path:
    """Write a session log as older versions of OpenClaw did, by default of two days before the stored chats."""
    rows = [
        {"type": "session", "id": "s1"},
        {"type": "message", "id": "a1", "message": {"role": "user", "content": said, "timestamp": at}},
        {"type": "message", "id": "a2", "message": {"role": "assistant", "content": "A fair price, I hope."}},
    ]
    file = folder / name
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


@pytest.mark.row("OC-07", level="e2e")
def test_a_preview_is_written_into_the_diary_without_capture_and_taken_back(
    site: PluginSite, tmp_path: Path
) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    diary = tmp_path / "ws" / "DREAMS.md"
    diary.write_text("# Dream Diary\n\nA dream of the host.\n")
    for _ in range(2):
        done = json.loads(backfill(site, "--rem", "--json").stdout)
        assert [done[name] for name in ("rem", "applied", "writtenDiaryEntries", "stagedEntries")] == [
            True,
            False,
            1,
            0,
        ]
    told = diary.read_text()
    assert [told.count(text) for text in (DAY, BOAT, SISTER, "Kranich")] == [2, 1, 1, 0]
    assert site.texts() == []
    assert json.loads(backfill(site, "--rollback", "--json").stdout)["rollback"]["removedDiaryEntries"] == 1
    assert diary.read_text() == "# Dream Diary\n\nA dream of the host.\n"
    # They are still offered, and once they are in memory the diary tells the day from there.
    backfill(site, "--rem")
    assert json.loads(backfill(site, "--json").stdout)["candidateCount"] == 3
    backfill(site, "--apply")
    told = diary.read_text()
    assert [told.count(text) for text in ("from stored chats", BOAT)] == [0, 1]


@pytest.mark.row("OC-07", level="e2e")
def test_archived_logs_are_shown_and_told_and_never_captured(site: PluginSite, tmp_path: Path) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    one, two = archive(tmp_path), archive(tmp_path, "older.jsonl", "The sails of Hedwig lie in the loft.")
    shown = json.loads(backfill(site, "--archive-files", str(one), str(two), "--json").stdout)["days"]
    assert [(row["day"], row["candidateCount"]) for row in shown] == [("2026-11-20", 2), (DAY, 3)]
    assert ARCHIVED in shown[0]["topCandidates"]
    assert backfill(site, "--rem", "--archive-files", str(one)).returncode == 0
    assert ARCHIVED in (tmp_path / "ws" / "DREAMS.md").read_text()
    refused = backfill(site, "--apply", "--archive-files", str(one))
    assert (refused.returncode, "memrelay-gateway index --sessions" in refused.stderr) == (2, True)
    assert site.texts() == []
    missing = backfill(site, "--archive-files", str(tmp_path / "none.jsonl"))
    assert (missing.returncode, "none.jsonl" in missing.stderr) == (1, True)


@pytest.mark.row("OC-07", level="e2e")
def test_lines_of_archived_logs_stay_in_the_diary_when_their_day_is_captured(
    site: PluginSite, tmp_path: Path
) -> None:
    write_sessions(tmp_path / "oc", said=SAID)
    diary = tmp_path / "ws" / "DREAMS.md"
    log = archive(tmp_path, at=1795312800000)  # the day of the stored chats
    done = json.loads(backfill(site, "--rem", "--archive-files", str(log), "--json").stdout)
    assert [row["day"] for row in done["days"]] == [DAY]
    assert done["writtenDiaryEntries"] == 2
    backfill(site, "--rem")
    assert [diary.read_text().count(text) for text in (BOAT, ARCHIVED)] == [1, 1]
    assert backfill(site, "--apply").returncode == 0
    assert [diary.read_text().count(text) for text in ("from stored chats", BOAT, ARCHIVED)] == [0, 1, 1]
    assert ARCHIVED not in site.texts()
    assert json.loads(backfill(site, "--rollback", "--json").stdout)["rollback"]["removedDiaryEntries"] == 2
    assert not {BOAT, ARCHIVED} & {line.removeprefix("- ") for line in diary.read_text().splitlines()}


@pytest.mark.row("OC-07", level="e2e")
def test_a_secret_across_the_end_of_what_the_diary_quotes_is_left_out_whole(
    site: PluginSite, tmp_path: Path
) -> None:
    config = json.loads((tmp_path / "openclaw.json").read_text())
    allowed = {"capture": {"redaction": {"card_number": "allow"}}}
    config["plugins"] = {"entries": {"memrelay": {"config": allowed}}}
    (tmp_path / "openclaw.json").write_text(json.dumps(config))
    tale = ("The harbour tells long tales. " * 17)[:485]
    one = archive(tmp_path, said=f"{tale} 4111 1111 1111 1111 is the card of the club.")
    two = archive(tmp_path, "older.jsonl", f"{tale.replace('tales', 'songs')} {'and more of them ' * 5}.")
    assert backfill(site, "--rem", "--archive-files", str(one), str(two)).returncode == 0
    told = (tmp_path / "ws" / "DREAMS.md").read_text()
    assert "4111" not in told
    quoted = [line for line in told.splitlines() if "songs" in line]
    assert [len(line) <= 502 for line in quoted] == [True]


def test_options_that_exclude_each_other_are_refused(site: PluginSite) -> None:
    for more in (("--apply",), ("--rem",), ("--from", DAY), ("--to", DAY), ("--archive-files", "old.jsonl")):
        assert backfill(site, "--rollback", *more).returncode == 2
    assert backfill(site, "--from", "yesterday").returncode == 2
    assert backfill(site, "--rem", "--apply").returncode == 2
    assert backfill(site, "old.jsonl").returncode == 2
