"""A folder that somebody else may write to leads an import, an index or a profile to no file outside of it, and holds up none."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from processes import CLEAN

CANARY = "The canary of the harbour safe is 4711-heliotrope."
NOTE = "- The deploy window is Tuesday.\n"


class Cli:
    """The command line as a person of one agent calls it, over a real relayer."""

    def __init__(self, relayer, home: Path, agent: str) -> None:
        self.agent = agent
        self.environment = CLEAN | {
            "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state"),
            "MEMRELAY_URL": relayer.url, "MEMRELAY_SECRET": "6b" * 32, "COLUMNS": "300",
        }  # fmt: skip

    def line(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "gateway_plugin", *map(str, arguments), "--agent", self.agent]

    def __call__(self, *arguments: object, code: int = 0) -> str:
        done = subprocess.run(
            self.line(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def texts(self) -> list[str]:
        return sorted(one["text"] for one in json.loads(self("list", "--limit", "100", "--json"))["memories"])


@pytest.fixture
def cli(relayer, tmp_path, request) -> Cli:
    return Cli(relayer, tmp_path / "home", f"a{abs(hash(request.node.name)) % 10**9}")


@pytest.fixture
def outside(tmp_path) -> Path:
    """What nobody named: notes and a session log with the canary."""
    place = tmp_path / "outside"
    (place / "memory").mkdir(parents=True)
    (place / "secret.md").write_text(f"- {CANARY}\n")
    (place / "memory" / "secret.md").write_text(f"- {CANARY}\n")
    (place / "log.jsonl").write_text(json.dumps({"role": "user", "content": CANARY}))
    return place


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "workspace"
    (place / "memory").mkdir(parents=True)
    (place / "MEMORY.md").write_text(NOTE)
    return place


def plant(place: Path, outside: Path, suffix: str = ".md") -> list[str]:
    """Put everything that leads elsewhere, or nowhere, into a folder; return what must be said of it."""
    (place / f"file{suffix}").symlink_to(outside / ("log.jsonl" if suffix == ".jsonl" else "secret.md"))
    (place / f"up{suffix}").symlink_to("../../outside/secret.md")
    (place / "deep").symlink_to(outside)
    (place / f"gone{suffix}").symlink_to(outside / "nothing")
    os.mkfifo(place / f"pipe{suffix}")
    with socket.socket(socket.AF_UNIX) as end:
        here = Path.cwd()
        os.chdir(place)  # the path of a socket must be short
        try:
            end.bind(f"socket{suffix}")
        finally:
            os.chdir(here)
    links = [
        f"{place}/{name}: it is a symbolic link, and"
        for name in (f"file{suffix}", f"up{suffix}", "deep", f"gone{suffix}")
    ]
    return [*links, f"pipe{suffix}: it is not a regular file", f"socket{suffix}: it is not a regular file"]


def plant_gibibyte(place: Path) -> str:
    with (place / "huge.md").open("wb") as file:
        file.truncate(1024**3)
    return "huge.md: it has 1,073,741,824 bytes, and 67,108,864 are read at most"


@pytest.mark.parametrize("command", ["import", "index", "index --workspace"])
def test_what_was_planted_in_a_folder_is_named_and_left_out(cli, folder, outside, command):
    said = [*plant(folder / "memory", outside), plant_gibibyte(folder / "memory")]
    shown = cli(*command.split(), folder, code=1)
    assert [sentence for sentence in said if sentence not in shown] == []
    assert cli.texts() == ["The deploy window is Tuesday."]


def test_a_workspaces_folder_that_is_a_link_is_named_and_left_out(cli, folder, outside):
    (folder / "memory").rmdir()
    (folder / "memory").symlink_to(outside / "memory")
    assert f"{folder}/memory: it is a symbolic link" in cli("index", "--workspace", folder, code=1)
    assert cli.texts() == ["The deploy window is Tuesday."]


def test_a_watched_folder_leads_nowhere_else_and_is_watched_on(cli, folder, outside):
    said = [*plant(folder / "memory", outside), plant_gibibyte(folder / "memory")]
    watching = subprocess.Popen(
        cli.line("watch", folder, "--every", "0.2"), env=cli.environment, stdout=subprocess.PIPE, text=True
    )
    lines: Queue[str] = Queue()
    reader = Thread(target=lambda: [lines.put(line) for line in watching.stdout])
    reader.start()
    try:
        heard = "".join(lines.get(timeout=30) for _ in range(len(said) + 2))
        assert [sentence for sentence in [*said, "watching", "1 stored"] if sentence not in heard] == []
        (folder / "MEMORY.md").write_text(NOTE + "- Ana likes tea.\n")
        # What is left out is said once, and not at every look.
        assert "1 stored, 1 known" in lines.get(timeout=30)
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(20)
        reader.join(20)
        watching.stdout.close()
    assert cli.texts() == ["Ana likes tea.", "The deploy window is Tuesday."]


def test_a_directory_of_session_logs_leads_nowhere_else(cli, tmp_path, outside):
    logs = tmp_path / "sessions"
    (logs / "s").mkdir(parents=True)
    (logs / "own.jsonl").write_text(json.dumps({"role": "user", "content": "Ana prefers the morning train."}))
    said = plant(logs / "s", outside, ".jsonl")
    # Of a long log the end is read, whatever its length.
    with (logs / "long.jsonl").open("wb") as file:
        file.truncate(1024**3)
        file.seek(0, os.SEEK_END)
        file.write(
            b"\n"
            + json.dumps({"role": "user", "content": "Ana prefers the upper berth of the ferry."}).encode()
        )
    shown = cli("index", "--sessions", logs, code=1)
    assert [sentence for sentence in said if sentence not in shown] == []
    assert cli.texts() == ["Ana prefers the morning train.", "Ana prefers the upper berth of the ferry."]


@pytest.mark.parametrize("command", [["import"], ["index"], ["transcript"]])
def test_a_link_that_is_named_is_no_name_of_what_it_leads_to(cli, folder, outside, command):
    (folder / "log.jsonl").symlink_to(outside / "log.jsonl")
    line = [*command, folder / "log.jsonl"]
    done = subprocess.run(
        cli.line(*line)[: None if command != ["transcript"] else -2],
        env=cli.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, CANARY in done.stdout) == (1, False), done.stderr
    assert "it is a symbolic link" in done.stdout + done.stderr
    assert cli.texts() == []


def test_a_root_that_became_a_link_after_it_was_indexed_leads_nowhere_else(cli, folder, outside):
    notes = folder / "notes"
    notes.mkdir()
    (notes / "a.md").write_text(NOTE)
    cli("index", notes)
    notes.rename(folder / "moved")
    notes.symlink_to(outside)
    assert f"{notes}: it is a symbolic link" in cli("index", code=1)
    assert cli.texts() == ["The deploy window is Tuesday."]


def test_a_folder_that_a_person_names_by_a_link_is_read(cli, folder, tmp_path):
    (tmp_path / "mine").symlink_to(folder)
    cli("import", tmp_path / "mine")
    cli("index", tmp_path / "mine")
    assert cli.texts() == ["The deploy window is Tuesday."]


def test_a_folder_of_more_files_than_are_read_says_so(cli, folder):
    for number in range(10_001):
        (folder / "memory" / f"{number}.md").touch()
    shown = cli("import", "--dry-run", "--json", folder, code=1)
    assert "it holds more than 10,000 files; give folders below it" in shown


def test_a_profile_is_written_through_no_link_and_reads_none(cli, folder, outside):
    cli("remember", "Ana lives in Lisbon.", "--kind", "profile")
    (folder / "USER.md").symlink_to(outside / "secret.md")
    assert "USER.md: it is a symbolic link" in cli("profile", "--out", folder / "USER.md", code=1)
    assert (outside / "secret.md").read_text() == f"- {CANARY}\n"
    (folder / "USER.md").unlink()
    os.mkfifo(folder / "USER.md")
    assert "USER.md: it is not a regular file" in cli("profile", "--out", folder / "USER.md", code=1)


def test_an_export_takes_the_place_of_a_link_and_leaves_what_it_leads_to(cli, folder, outside):
    cli("remember", "Ana lives in Lisbon.")
    (folder / "all.jsonl").symlink_to(outside / "secret.md")
    cli("export", folder / "all.jsonl")
    assert (outside / "secret.md").read_text() == f"- {CANARY}\n"
    assert ((folder / "all.jsonl").is_symlink(), (folder / "all.jsonl").stat().st_mode & 0o777) == (
        False,
        0o600,
    )
