"""What commands promise a person: whose switch it is, how much is new, that nothing is left behind, and which part is down."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer, recall
from processes import CLEAN
from typed_commands import run_gateway

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
