"""Mistakes that a person makes at a command line: for each, one line that says what is wrong, and the exit code of its kind.

The table is ``mistakes.txt``: what is typed after ``$``, then the exit code and the line. In it ``DIR`` is a directory with the files
made here, and ``...`` is what differs from time to time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typed_commands import Done, machine, run_gateway, run_relayer

SECRET = "7b" * 32


@dataclass(frozen=True)
class Mistake:
    """A line of the table: what is typed, how it ends, and what is said."""

    typed: str
    code: int
    line: str


def _table() -> list[Mistake]:
    text = Path(__file__).with_name("mistakes.txt").read_text("utf-8")
    found = re.findall(r"^\$ (.+)\n(\d+) (.+)$", text, re.MULTILINE)
    return [Mistake(typed, int(code), line) for typed, code, line in found]


MISTAKES = _table()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory that the table calls DIR."""
    key = tmp_path / "open.key"
    key.write_text("5e" * 32)
    key.chmod(0o644)
    (tmp_path / "short.key").write_text("5e5e\n")
    (tmp_path / "short.key").chmod(0o600)
    (tmp_path / "notes.docx").write_bytes(b"PK\x03\x04")
    (tmp_path / "bad.toml").write_text("port = \n")
    (tmp_path / "odd.toml").write_text("prot = 8787\n")
    (tmp_path / "secret.toml").write_text('relayer_key = "5e"\n')
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "sheet.txt").write_text("1   abandon ability able about\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def type_in(typed: str, place: Path, url: str) -> Done:
    """Type a line, with variables before the command as a shell takes them."""
    words = shlex.split(typed.replace("DIR", str(place)))
    set_here = {}
    while re.match(r"[A-Za-z_0-9]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        set_here[name] = value
    program, *arguments = words
    environment = machine(place, url, SECRET) | set_here
    if program == "memrelay-gateway":
        return run_gateway({name: value for name, value in environment.items() if value}, *arguments)
    own = {"HOME": str(place), "MEMRELAY_DATA": str(place / "none")}
    return run_relayer(own | set_here, *arguments)


@pytest.mark.tier("all")
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.typed for mistake in MISTAKES])
def test_a_mistake_is_told_in_a_line(mistake: Mistake, place: Path, shared_relayer: str) -> None:
    done = type_in(mistake.typed, place, shared_relayer)
    said = [line for line in done.stderr.splitlines() if line.startswith("memrelay")]
    assert done.returncode == mistake.code, done.stderr
    wanted = re.escape(mistake.line.replace("DIR", str(place)))
    assert re.fullmatch(wanted.replace(re.escape("..."), ".*"), said[0]), said[0]
    assert "Traceback" not in done.stdout + done.stderr
    if "--json" in mistake.typed:
        error = json.loads(done.stdout)["error"]
        assert (f"{mistake.typed.split()[0]}: {error['message']}", error["exit_code"]) == (
            said[0],
            mistake.code,
        )
    assert SECRET not in done.stdout + done.stderr
    assert os.environ.get("MEMRELAY_SECRET") is None
