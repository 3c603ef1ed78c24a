"""Commands and a relayer: what goes out comes in again, once, and nobody else reads the files."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import time

import pytest
from processes import CLEAN

from gateway_plugin import MemoryPlugin

NOTES = "# Me\n\n- I take oat milk coffee.\n- The deploy window is Tuesday.\n"


@pytest.fixture
def process(environment):
    """Starts the real program."""

    def start(*arguments):
        line = [sys.executable, "-m", "gateway_plugin", *arguments, "--agent", "ops"]
        pipe = subprocess.PIPE
        return subprocess.Popen(line, env=CLEAN | environment, stdout=pipe, stderr=pipe, text=True)

    return start


@pytest.fixture
def in_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def listed(command, agent="ops"):
    rows = json.loads(command("list", "--limit", "100", "--json", agent=agent).stdout)["memories"]
    return sorted(row["text"] for row in rows)


def test_what_is_exported_is_imported_whole_and_once(command, tmp_path):
    (tmp_path / "notes.md").write_text("".join(f"- note {number}\n" for number in range(105)))
    assert "105 stored" in command("import", str(tmp_path / "notes.md")).stdout
    file = tmp_path / "out" / "all.jsonl"
    assert "exported: 105 memories" in command("export", str(file)).stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "105 stored" in command("import", str(file), agent="second").stdout
    assert "0 stored, 105 known" in command("import", str(file), agent="second").stdout
    assert json.loads(command("list", "--json", agent="second").stdout)["total"] == 105
    assert command("export", agent="second").stdout.count('"note ') == 105


def test_an_import_says_why_it_skips_a_memory(command, tmp_path):
    known = command("remember", "The harbour opens at six.").stdout.split()[-1]
    command("edit", known, "The harbour opens at seven.")
    file = str(tmp_path / "all.jsonl")
    command("export", file, "--state", "live", "--state", "superseded")
    told = command("import", file, agent="second").stdout
    assert "1 stored, 0 known, 1 skipped: no longer live" in told


def test_kept_turns_are_exported_when_asked_for_and_passed_over_by_an_import(
    command, shared_relayer, secret, tmp_path
):
    settings = {"url": shared_relayer, "capture": {"storeTranscript": True}}
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    said = [{"role": "user", "content": "Our dinghy lies at berth seven of the old harbour."}]
    with MemoryPlugin(settings=settings, agent="ops", secret=secret, environ=environ) as plugin:
        plugin.after_turn(said, session_key="agent:ops:one")
        assert plugin.flush(30)
    assert '"turn"' not in command("export").stdout
    file = tmp_path / "all.jsonl"
    assert "exported: 1 memories and 1 turns" in command("export", str(file), "--transcripts").stdout
    (turn,) = [row["turn"] for row in map(json.loads, file.read_text().splitlines()) if "turn" in row]
    assert [line["text"] for line in turn["lines"]] == [said[0]["content"]]
    assert "1 stored" in command("import", str(file), agent="second").stdout
    refused = command("export", str(tmp_path), "--format", "daily-md", "--transcripts", check=False)
    assert (refused.returncode, "--transcripts" in refused.stderr) == (2, True)


@pytest.mark.row("CP-24")
def test_a_workspaces_memory_files_are_found_by_their_meaning(command, tmp_path):
    workspace = tmp_path / "workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "MEMORY.md").write_text(
        "# Me\n\n- The physician told me to avoid peanuts.\n- The deploy window is Tuesday.\n"
    )
    (workspace / "memory" / "2026-03-25.md").write_text("# 2026-03-25\n\n- We hired a new gardener, Olga.\n")
    command("import", str(workspace))
    for question, text in (
        ("Which food does my doctor forbid me?", "The physician told me to avoid peanuts."),
        ("Who looks after the plants?", "We hired a new gardener, Olga."),
    ):
        hits = json.loads(command("search", question, "--json").stdout)["memories"]
        assert hits[0]["text"] == text, question
        assert hits[0]["kind"] == "imported"


@pytest.mark.row("CP-40")
@pytest.mark.usefixtures("in_berlin")
def test_daily_logs_are_written_by_the_days_of_this_machine_and_read_back(command, tmp_path):
    (tmp_path / "memory").mkdir()
    log = "# 2026-03-25\n\n## Session 23:30\n\n### 23:30\n<!-- session:s1 -->\n- User likes tea.\n"
    (tmp_path / "memory" / "2026-03-25.md").write_text(log)
    command("import", str(tmp_path / "memory"))
    command("export", str(tmp_path / "back"), "--format", "memsearch")
    assert (tmp_path / "back" / "2026-03-25.md").read_text() == log
    command("export", str(tmp_path / "daily"), "--format", "daily-md")
    assert (tmp_path / "daily" / "2026-03-25.md").read_text() == "# 2026-03-25\n\n- User likes tea.\n"


def test_a_watched_folder_is_imported_and_again_when_it_changes(command, process, tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "MEMORY.md").write_text(NOTES)
    watching = process("watch", str(folder), "--every", "0.2")
    try:
        assert "watching" in watching.stdout.readline()
        assert "2 stored" in watching.stdout.readline()
        (folder / "MEMORY.md").write_text(NOTES + "- Ana likes tea.\n")
        assert "1 stored, 2 known" in watching.stdout.readline()
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(20)
        watching.stdout.close()
        watching.stderr.close()
    assert listed(command) == ["Ana likes tea.", "I take oat milk coffee.", "The deploy window is Tuesday."]


def test_a_dry_run_counts_and_sends_nothing(command, tmp_path):
    (tmp_path / "MEMORY.md").write_text(NOTES)
    assert "2 found" in command("import", "--dry-run", str(tmp_path / "MEMORY.md")).stdout
    assert listed(command) == []


def test_the_program_answers_and_ends_as_its_commands_do_here(command, process, tmp_path):
    command("remember", "The deploy window is Tuesday.")
    for arguments in (
        ("list",),
        ("search", "when is the deploy window?", "--json"),
        ("export", "--format", "daily-md"),
        ("import", "/nowhere.md"),
        ("consolidate", "--apply", "nonsense"),
        ("profile", "--audience", "friends"),
        ("list", "--url", "http://127.0.0.1:9"),
    ):
        here, there = command(*arguments, check=False), process(*arguments)
        stdout, stderr = there.communicate(timeout=60)
        assert (there.returncode, stdout, stderr) == (here.returncode, here.stdout, here.stderr), arguments
