"""A real gateway when room, a relayer or a plugin to move from is missing, and beside a very long file."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

from gateway_plugin.calls.local_relayer import folder_of


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway for which nobody named a relayer: one comes with it."""
    folder = tmp_path_factory.mktemp("openclaw-keeps-running")
    plugins = memrelay_plugins("")
    del plugins["entries"]["memrelay"]["config"]["url"]
    gateway = Gateway(openclaw, folder, model.url, plugins=plugins, agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    gateway.start()
    yield gateway
    gateway.stop()


def stored(gateway: Gateway) -> str:
    return gateway.cli("memrelay", "list", "--json", "--limit", "100").stdout


def found(gateway: Gateway, question: str) -> str:
    return json.dumps(gateway.invoke("memory_search", {"query": question}), ensure_ascii=False)


def kept_turns(gateway: Gateway) -> list[Path]:
    return list(gateway.state.rglob("*.turn"))


@pytest.mark.row("AR-28", level="e2e")
def test_the_relayer_that_comes_with_a_gateway_is_started_again_however_often_it_dies(
    gateway: Gateway, model: StubModel
) -> None:
    told = "The ferry to the island leaves from pier fifty-three."
    gateway.chat(told, user="dying")
    wait_until(lambda: told in stored(gateway))
    ready = folder_of(gateway.environment) / "ready.json"
    seen: set[int] = set()

    def killed() -> bool:
        """Kill the relayer as often as it comes back, until it has died four times."""
        try:
            process = int(json.loads(ready.read_text())["pid"])
            if process not in seen:
                os.kill(process, signal.SIGKILL)
                seen.add(process)
        except (FileNotFoundError, ProcessLookupError, ValueError):
            pass
        return len(seen) == 4

    wait_until(killed)
    wait_until(lambda: "in a row" in gateway.command("/memory status"))
    meanwhile = "The ferry was painted yellow by Ottoline in the spring."
    assert gateway.chat(meanwhile, user="dying") == "Noted."
    wait_until(lambda: meanwhile in stored(gateway))
    wait_until(lambda: "in a row" not in gateway.command("/memory status"))
    question = "From which pier does the ferry to the island leave?"
    gateway.chat(question, user="asking-after-deaths")
    assert told in said(model.asked(question)[-1])


def test_a_turn_for_which_the_outbox_has_no_room_waits_in_the_other_place_and_outlives_a_restart(
    gateway: Gateway,
) -> None:
    told = "The rope of the bell tower was replaced by Wendelin."
    gateway.chat("Is everything in order here?", user="full")
    [bridge] = gateway.bridges()
    before = resource.prlimit(bridge, resource.RLIMIT_FSIZE)
    # The disk is full: nothing that the bridge writes may grow.
    resource.prlimit(bridge, resource.RLIMIT_FSIZE, (1, before[1]))
    at = len(gateway.log_text())
    gateway.chat(told, user="full")
    wait_until(lambda: bool(kept_turns(gateway)))
    assert "the outbox cannot take a captured turn" in gateway.log_text()[at:]
    assert "1 not taken by the outbox is kept in" in gateway.command("/memory status")
    assert b"Wendelin" not in kept_turns(gateway)[0].read_bytes()
    gateway.restart()
    wait_until(lambda: told in stored(gateway))
    wait_until(lambda: not kept_turns(gateway))
    assert stored(gateway).count("Wendelin") == 1


@pytest.mark.parametrize("origin", ["memory-core-plus", "memsearch", "memwal"])
def test_a_move_from_a_plugin_that_is_not_there_changes_nothing(gateway: Gateway, origin: str) -> None:
    before = gateway.config_file.read_text()
    refused = gateway.cli("memrelay", "migrate", "--from", origin, "--yes")
    assert refused.returncode == 2
    assert "that plugin is not installed here" in refused.stdout + refused.stderr
    assert gateway.config_file.read_text() == before


def test_a_move_from_memwal_names_the_missing_key_before_anything_is_imported(gateway: Gateway) -> None:
    whole = gateway.config()
    kept = gateway.config_file.read_text()
    config = {
        "privateKey": "${NO_SUCH_MEMWAL_KEY}",
        "accountId": "0x" + "ab" * 32,
        "serverUrl": "http://127.0.0.1:9",
    }
    whole["plugins"]["entries"]["memory-memwal"] = {"enabled": False, "config": config}
    other = gateway.folder / "with-memwal.json"
    other.write_text(json.dumps(whole))
    before = stored(gateway)
    refused = gateway.cli("memrelay", "migrate", "--from", "memwal", "--config", str(other), "--yes")
    assert refused.returncode == 2
    assert "NO_SUCH_MEMWAL_KEY is not set" in refused.stdout + refused.stderr
    assert stored(gateway) == before
    assert gateway.config_file.read_text() == kept


@pytest.mark.row("OC-21", level="e2e")
def test_a_file_of_four_thousand_lines_holds_up_no_other_file(gateway: Gateway) -> None:
    notes = gateway.folder / "ws" / "main" / "memory"
    notes.mkdir(exist_ok=True)
    lines = [f"- Crate {number} of the cargo holds {number * 7} bolts." for number in range(4_000)]
    (notes / "a-long.md").write_text("\n".join(lines))
    (notes / "b-short.md").write_text("- The cook of the ferry is called Eilika.\n")
    wait_until(lambda: "Eilika" in found(gateway, "what is the cook of the ferry called"))
    # The end of the long file is still to come: the short one did not wait for it.
    assert "Crate 3999" not in found(gateway, "how many bolts does crate 3999 of the cargo hold")
