"""From a sheet of paper to the memories that its secret opens, on a machine that has nothing."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import CLEAN, ran
from typed_commands import Done, machine, run_gateway, run_relayer

from relayer.settings.keys import make_key_file, read_key

TEXT = "The spare key lies under the blue flowerpot"


@pytest.fixture
def first(tmp_path: Path, shared_relayer: str) -> dict[str, str]:
    """A machine whose secret was made there, and a memory."""
    made = empty_machine(tmp_path / "first", shared_relayer)
    assert run_gateway(made, "remember", TEXT).returncode == 0
    return made


def empty_machine(place: Path, url: str) -> dict[str, str]:
    environment = machine(place, url, "")
    del environment["MEMRELAY_SECRET"]
    return environment


def texts(environment: dict[str, str]) -> list[str]:
    listed = json.loads(run_gateway(environment, "list", "--json").stdout)
    return [memory["text"] for memory in listed["memories"]]


def sheet_of(environment: dict[str, str], place: Path) -> Path:
    file = place / "sheet.txt"
    file.write_text(run_gateway(environment, "keys", "recovery").stdout)
    return file


def test_a_sheet_brings_the_same_memories_to_an_empty_machine(
    tmp_path: Path, shared_relayer: str, first: dict[str, str]
) -> None:
    sheet = sheet_of(first, tmp_path)
    second = empty_machine(tmp_path / "second", shared_relayer)
    done = run_gateway(second, "keys", "recover", sheet)
    assert (done.returncode, "recovered: the secret of account 0x" in done.stdout) == (0, True), done.stderr
    assert texts(second) == [TEXT]
    assert (tmp_path / "second/config/memrelay/secret").stat().st_mode & 0o777 == 0o600
    # Once more does no harm.
    assert run_gateway(second, "keys", "recover", sheet).returncode == 0


def test_a_machine_that_makes_a_secret_says_that_memories_of_another_are_not_found(
    tmp_path: Path, shared_relayer: str, first: dict[str, str]
) -> None:
    sheet = sheet_of(first, tmp_path)
    second = empty_machine(tmp_path / "second", shared_relayer)
    began = run_gateway(second, "status")
    assert "created a new secret" in began.stderr
    assert "if this gateway had memories before" in began.stderr
    assert "memrelay-gateway keys recover --replace" in began.stderr
    refused = run_gateway(second, "keys", "recover", sheet, "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (2, "identity")
    assert "with --replace it is moved to a file next to it" in refused.stderr
    done = run_gateway(second, "keys", "recover", sheet, "--replace", "--json")
    assert done.returncode == 0, done.stderr
    kept = Path(json.loads(done.stdout)["kept"])
    assert (len(kept.read_text().strip()), kept.stat().st_mode & 0o777) == (64, 0o600)
    assert texts(second) == [TEXT]


def test_a_machine_whose_secret_was_lost_is_told_that_it_had_one(first: dict[str, str]) -> None:
    assert run_gateway(first, "off").returncode == 0  # which the outbox keeps
    Path(first["XDG_CONFIG_HOME"], "memrelay/secret").unlink()
    told = run_gateway(first, "list").stderr
    assert "this machine had another secret before" in told
    assert "THE NEW SECRET CANNOT OPEN MEMORIES OF AN EARLIER ONE" in told


@pytest.mark.parametrize("line", [1, 6])
def test_the_broken_line_is_named_and_nothing_is_made(
    tmp_path: Path, shared_relayer: str, first: dict[str, str], line: int
) -> None:
    sheet = sheet_of(first, tmp_path)
    rows = sheet.read_text()
    found = re.search(rf"^{line}   (\w+)", rows, re.MULTILINE)
    assert found is not None
    sheet.write_text(rows[: found.start(1)] + "slip" + rows[found.end(1) :])
    second = empty_machine(tmp_path / "second", shared_relayer)
    done = run_gateway(second, "keys", "recover", sheet)
    assert done.returncode == 1
    assert f"word 1 of line {line} of the sheet is not a word of BIP 39" in done.stderr
    assert not (tmp_path / "second/config").exists()


def test_a_secret_of_the_environment_is_not_passed_over(tmp_path: Path, first: dict[str, str]) -> None:
    done = run_gateway(first | {"MEMRELAY_SECRET": "5e" * 32}, "keys", "recover", sheet_of(first, tmp_path))
    assert (done.returncode, "MEMRELAY_SECRET is set and takes precedence over any file" in done.stderr) == (
        2,
        True,
    )


def test_a_sheet_is_piped_in(tmp_path: Path, shared_relayer: str, first: dict[str, str]) -> None:
    second = empty_machine(tmp_path / "second", shared_relayer)
    command = [sys.executable, "-m", "gateway_plugin", "keys", "recover"]
    done = ran(command, env=CLEAN | second, given=sheet_of(first, tmp_path).read_text())
    assert done.returncode == 0, done.stderr
    assert texts(second) == [TEXT]


def test_a_sheet_is_typed_in_and_a_line_with_a_slip_is_asked_for_again(
    tmp_path: Path, shared_relayer: str, first: dict[str, str]
) -> None:
    rows = sheet_of(first, tmp_path).read_text().splitlines()
    lines = [row for row in rows if re.match(r"[1-6] ", row)]
    second = empty_machine(tmp_path / "second", shared_relayer)
    # With the number and without, and with a slip in the second line.
    typed = [lines[0], f"slip {lines[1][4:]}", *(line[4:] for line in lines[1:])]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway_plugin", "keys", "recover"],
        env=CLEAN | second, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, "".join(f"{line}\n" for line in typed).encode())
    assert process.wait(60) == 0
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert shown.count("line 2 of the sheet has 5 words, not 4") == 1
    assert texts(second) == [TEXT]


def test_a_relayer_key_comes_back_from_its_sheet(tmp_path: Path) -> None:
    key, sheet, again = tmp_path / "key", tmp_path / "sheet.txt", tmp_path / "again"
    make_key_file(key)
    sheet.write_text(_relayer("keys", "recovery", key=key).stdout)
    assert _relayer("keys", "recover", again, "--sheet", sheet, key=key).returncode == 0
    assert read_key(again) == read_key(key)
    make_key_file(other := tmp_path / "other")
    refused = _relayer("keys", "recover", other, "--sheet", sheet, key=key)
    assert (refused.returncode, "relayer keys are never overwritten" in refused.stderr) == (2, True)


def _relayer(*arguments: object, key: Path) -> Done:
    return run_relayer({"MEMRELAY_RELAYER_KEY_FILE": str(key)}, *arguments)
