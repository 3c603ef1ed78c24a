"""What commands promise a person: whose switch it is, how much is new, that nothing is left behind, and which part is down."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer, recall
from processes import CLEAN, ran
from typed_commands import machine, run_gateway

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.errors import StoreUnavailable
from relayer.ports import CreateOutcome

PARAGRAPH = "The ferry to the island leaves at nine. " * 12


class _DownStore(MemoryStore):
    """A store whose server went away after the relayer had started."""

    down = False

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        if self.down:
            raise StoreUnavailable("the store s3://memories does not answer: connection refused")
        return await super().create(key, data)


def test_one_agent_is_switched_off_and_no_other(site: PluginSite) -> None:
    plugin = site.plugin()
    coder, ops = "agent:coder:main", "agent:ops:main"
    said = site.command("off", "--agent", "coder").stdout
    assert "every session of agent coder" in said
    assert recall(plugin, "When does the ferry leave?", session_key=coder).status == "skipped:session_toggle"
    assert recall(plugin, "When does the ferry leave?", session_key=ops).status == "empty"
    assert (
        "off for agent coder: memrelay-gateway on --agent coder"
        in site.command("status", "--agent", "coder").stdout
    )
    assert site.json("status", "--agent", "ops")["memory"] == "on"
    assert site.json("on", "--agent", "coder") == {"memory": "on", "agent": "coder", "session": None}
    assert recall(plugin, "When does the ferry leave?", session_key=coder).status == "empty"


def test_an_import_says_what_is_new_and_the_same_again_that_nothing_is(
    site: PluginSite, tmp_path: Path
) -> None:
    file = tmp_path / "MEMORY.md"
    file.write_text("- The ferry leaves at nine\n- The harbour closes in winter\n- Anna steers the ferry\n")
    assert site.command("import", file).stdout == f"{file}: 3 stored, 0 known\n"
    assert site.command("import", file).stdout == f"{file}: 0 stored, 3 known\n"
    assert site.json("import", file) == {"files": 1, "stored": 0, "duplicate": 3, "problems": []}


def test_a_canary_leaves_nothing(site: PluginSite) -> None:
    site.command("remember", "The ferry leaves at nine")
    before = site.json("namespaces")
    for command in ("canary", "canary", "doctor"):
        assert "written and recalled in" in site.command(command).stdout
    after = site.json("namespaces")
    assert [view["name"] for view in after["namespaces"] if view["state"] == "live"] == [
        view["name"] for view in before["namespaces"]
    ]
    for state in ("live", "forgotten", "superseded"):
        listed = site.json("list", "--state", state, "--agent", "main/memrelay-canary")
        assert listed["memories"] == []


def test_canaries_with_exported_keys_leave_nothing_live_and_the_root_secret_deletes_them(
    site: PluginSite,
) -> None:
    exported = site.command("keys", "export", "--agent", "coder").stdout.split()
    host = {name: value for name, value in site.environment.items() if name != "MEMRELAY_SECRET"}
    host |= dict(line.split("=", 1) for line in exported)
    # What a canary left that could not take itself away.
    left = run_gateway(host, "remember", "The canary of yesterday", "--agent", "coder/memrelay-canary")
    assert left.returncode == 0, left.stderr
    done = run_gateway(host, "doctor", "--canary", "--agent", "coder")
    assert "written and recalled in" in done.stdout, done.stderr
    assert site.json("list", "--agent", "coder/memrelay-canary")["memories"] == []
    assert site.json("list", "--state", "forgotten", "--agent", "coder/memrelay-canary")["memories"]
    site.command("doctor", "--canary", "--agent", "coder")
    listed = site.json("namespaces", "--agent", "coder")["namespaces"]
    assert not [
        view for view in listed if view["name"] == "coder/memrelay-canary" and view["state"] == "live"
    ]


def test_an_id_of_another_agent_is_looked_for_in_the_named_ones_ids(site: PluginSite) -> None:
    site.command("remember", "The ferry leaves at nine", "--agent", "coder")
    site.command("remember", "The harbour closes in winter", "--agent", "ops")
    wanted = site.memories("coder")[0]["id"]
    for command in (["forget", wanted], ["show", wanted], ["pin", wanted]):
        done = run_gateway(site.environment, *command, "--agent", "ops", "--json")
        assert (done.returncode, "ops has no memory with this id" in done.stderr) == (1, True), done.stderr
        assert json.loads(done.stdout)["error"]["code"] == "not_found"
    assert site.texts("coder") == ["The ferry leaves at nine"]


def test_a_row_is_a_line_for_a_program_and_clipped_on_a_terminal(site: PluginSite) -> None:
    site.command("remember", PARAGRAPH)
    shown = site.command("list").stdout.splitlines()
    assert (len(shown), shown[1].endswith(PARAGRAPH.strip())) == (3, True)
    found = site.command("search", "when does the ferry leave?", "--floor", "0").stdout.splitlines()
    assert (len(found), PARAGRAPH.strip() in found[1]) == (2, True)
    on_terminal = _on_terminal(site, "list").splitlines()
    assert [len(line) <= 80 for line in on_terminal] == [True] * 3
    assert on_terminal[1].rstrip().endswith("…")
    whole = _on_terminal(site, "show", site.memories()[0]["id"])
    assert whole.count("ferry") == 12


@pytest.mark.tier("all")  # half a minute, as a person would wait
def test_with_the_store_down_remember_fails_in_its_time_and_names_the_store(tmp_path: Path) -> None:
    store = _DownStore(SystemClock())
    with own_relayer(store) as relayer, PluginSite(tmp_path, relayer.url, "5e" * 32) as site:
        site.command("remember", "The ferry leaves at nine")
        store.down = True
        began = time.monotonic()
        done = run_gateway(site.environment, "remember", "The harbour closes in winter", "--json")
        took = time.monotonic() - began
    assert done.returncode in {1, 3}
    assert "the store did not take it" in done.stderr
    assert json.loads(done.stdout)["error"]["exit_code"] == done.returncode
    assert took < 40


def _on_terminal(site: PluginSite, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    environment = CLEAN | site.environment | {"COLUMNS": "80", "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway_plugin", *arguments],
        env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    assert process.wait(60) == 0
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    return shown.replace("\r", "")


# How commands end where something about their process is not as usual: each in one line, and never in a traceback.
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
    done = ran([sys.executable, "-c", INTERRUPTED, at, program, *arguments], env=CLEAN | gateway)
    # By the signal before and after the command, in one line while it runs; later than its end there is none.
    assert done.returncode in {-signal.SIGINT, 130, 0}, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr
    assert "stopped" not in done.stderr or done.returncode == 130


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
