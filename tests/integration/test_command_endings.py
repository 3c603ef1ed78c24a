"""How commands end where something about their process is not as usual: each in one line, and never in a traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import CLEAN
from typed_commands import machine

SECRET = "7a" * 32
ODD = "Zoë trinkt «grünen» Tee → 😀"
# An interrupt at the n-th call or return of a function, so that each run is interrupted where the one before was. Python ignores what is
# raised in the weak references of its import system, so that an interrupt there has no effect whatever the program does.
INTERRUPTED = """
import importlib, os, signal, sys
seen, at = 0, int(sys.argv.pop(1))
def count(frame, event, argument):
    global seen
    seen += 1
    if seen >= at and "importlib" not in frame.f_code.co_filename:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)
main = importlib.import_module(f"{sys.argv.pop(1)}.__main__").main
sys.setprofile(count)
main()
"""
ROOT_WITHOUT_ITS_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]


def run(
    program: str,
    *arguments: object,
    environment: dict[str, str],
    stdout: int = subprocess.PIPE,
    before: Sequence[str] = (),
    encoding: str = "utf-8",
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", program, *map(str, arguments)]
    return subprocess.run(
        command,
        env=CLEAN | environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding=encoding,
        timeout=120,
        check=False,
    )


@pytest.fixture
def gateway(tmp_path: Path, shared_relayer: str) -> dict[str, str]:
    """The environment of a gateway's machine."""
    return machine(tmp_path, shared_relayer, SECRET)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_is_not_utf_8_is_shown_what_it_can_show(
    gateway: dict[str, str], encoding: str
) -> None:
    narrow = gateway | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    assert run("gateway_plugin", "remember", ODD, environment=narrow).returncode == 0
    listed = run("gateway_plugin", "list", environment=narrow, encoding=encoding)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\\u2192 \\U0001f600" in listed.stdout
    answer = json.loads(run("gateway_plugin", "list", "--json", environment=narrow, encoding=encoding).stdout)
    assert [memory["text"] for memory in answer["memories"]] == [ODD]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("gateway_plugin", ["version"]),
        ("gateway_plugin", ["--help"]),
        ("gateway_plugin", ["list", "--json"]),
        ("gateway_plugin", ["keys", "recovery"]),
        ("relayer", ["version"]),
        ("relayer", ["init", "-h"]),
    ],
)
def test_what_cannot_be_printed_ends_in_one_line(
    gateway: dict[str, str], program: str, arguments: list[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(program, *arguments, environment=gateway, stdout=full.fileno())
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "standard output cannot be written (No space left on device)" in done.stderr


@pytest.mark.parametrize("at", [9, 90, 1_000, 30_000, 100_000, 300_000, 400_000, 500_000])
@pytest.mark.parametrize("program", ["gateway_plugin", "relayer"])
def test_an_interrupt_at_any_instant_leaves_no_traceback(
    gateway: dict[str, str], tmp_path: Path, program: str, at: int
) -> None:
    arguments = {"gateway_plugin": ["list"], "relayer": ["init", str(tmp_path / "new")]}[program]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(at), program, *arguments],
        env=CLEAN | gateway,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # By the signal before and after the command, in one line while it runs; later than its end there is none.
    assert done.returncode in {-signal.SIGINT, 130, 0}, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr
    assert "stopped" not in done.stderr or done.returncode == 130


def test_a_secret_file_that_is_a_directory_is_said_to_be_one(gateway: dict[str, str], tmp_path: Path) -> None:
    del gateway["MEMRELAY_SECRET"]
    done = run("gateway_plugin", "status", environment=gateway | {"MEMRELAY_SECRET_FILE": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"memrelay-gateway: {tmp_path} is a directory: give the file in it\n"


@pytest.mark.parametrize("below", ["", "new"])
@pytest.mark.parametrize("command", ["serve", "stats", "keys recovery"])
def test_somebody_elses_data_directory_is_named(tmp_path: Path, command: str, below: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("only setpriv takes from root what root may do")
        os.chown(theirs, 65534, 65534)
    else:
        theirs.chmod(0)
    before = ROOT_WITHOUT_ITS_RIGHTS if os.geteuid() == 0 else []
    data = str(theirs / below)
    done = run("relayer", *command.split(), environment={"MEMRELAY_DATA": data}, before=before)
    theirs.chmod(0o700)
    assert done.returncode == 2, done.stderr
    assert (data in done.stderr, done.stderr.count("\n")) == (True, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["missing/ready", "."])
def test_a_ready_file_that_cannot_be_written_is_refused_before_anything_is_served(
    tmp_path: Path, name: str
) -> None:
    options = ["--data", tmp_path / "data", "--port", "0", "--ready-file", tmp_path / name]
    done = run("relayer", "serve", *options, environment={})
    assert done.returncode == 2
    assert (done.stderr.count("\n"), done.stderr.startswith("memrelay: --ready-file: ")) == (1, True)
    assert " serves " not in done.stdout
    assert not (tmp_path / "data").exists()
