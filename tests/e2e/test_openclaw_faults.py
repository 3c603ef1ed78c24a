"""What a user of OpenClaw notices when memory fails: a turn answered in time, and a status that says why."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_relayer import Relayer
from fault_proxy import FaultProxy
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

BOILER = "Our boiler is serviced by Mrs Lindqvist every October."
FACT = "My grandmother's piano stands in the attic of the yellow house."
# What a turn waits for memory at most, with room for a busy machine. The host's own part of a turn is not ours to bound.
IN_TIME_MS = 4000


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("openclaw")
    gateway = Gateway(openclaw, folder, model.url, plugins=memrelay_plugins(relayer.url))
    gateway.start()
    for fact in (FACT, BOILER):
        gateway.chat(fact, user="telling")
    wait_until(lambda: {FACT, BOILER} <= set(relayer.memories(gateway)))
    yield gateway
    gateway.stop()


@pytest.fixture(autouse=True)
def well(gateway: Gateway, relayer: Relayer) -> Iterator[None]:
    """Begin and end with a relayer that answers, and with a bridge that has not learnt to spare it."""
    yield
    relayer.reachable()
    replace_bridge(gateway)


def kill_bridges(gateway: Gateway) -> None:
    for pid in gateway.bridges():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def replace_bridge(gateway: Gateway) -> None:
    """Kill the bridge and wait until its successor answers."""
    before = gateway.bridges()
    kill_bridges(gateway)
    wait_until(lambda: bool(gateway.bridges()) and gateway.bridges() != before)
    wait_until(lambda: "not available" not in json.dumps(gateway.invoke("memory_get", {"ref": "nothing"})))


def turn_in_time(gateway: Gateway, text: str) -> str:
    """Have a turn answered, see that memory took no longer than it may, and return how memory says it stands."""
    assert gateway.chat(text, user="asking") == "Noted."
    status = gateway.command("/memory status")
    took = re.search(r"last recall: \S+ in (\d+) ms", status)
    assert took is None or int(took[1]) < IN_TIME_MS
    return status


def test_one_bridge_serves_turns_and_commands(gateway: Gateway) -> None:
    gateway.chat("Does anything here need a second process?", user="asking")
    assert gateway.command("/memory why").startswith("last turn: ")
    assert len(gateway.bridges()) == 1


def test_with_no_relayer_the_turn_is_answered_and_the_status_says_so(
    gateway: Gateway, line: FaultProxy
) -> None:
    line.lead(None)
    status = turn_in_time(gateway, "Where does the piano of my grandmother stand?")
    assert "last recall: unavailable" in status
    assert "note: the connection to" in status


def test_a_relayer_that_stalls_costs_the_turn_its_deadline_and_no_more(
    gateway: Gateway, line: FaultProxy, relayer: Relayer
) -> None:
    line.lead(relayer.port, stalled=True)
    status = turn_in_time(gateway, "In which house is my grandmother's piano?")
    assert "last recall: timeout" in status
    assert "the deadline passed during" in status


def test_a_relayer_of_another_identity_is_sent_nothing_and_named_in_the_status(
    gateway: Gateway, line: FaultProxy, tmp_path: Path
) -> None:
    with Relayer(tmp_path, line):
        replace_bridge(gateway)  # a new process: it asks who the relayer is
        status = turn_in_time(gateway, "Is the piano of my grandmother in the attic?")
    assert "last recall: untrusted" in status


def test_what_was_said_while_the_relayer_was_gone_arrives_when_it_is_back(
    gateway: Gateway, line: FaultProxy, relayer: Relayer
) -> None:
    said_meanwhile = "My cousin moved to the lighthouse near Ostende last spring."
    line.lead(None)
    gateway.chat(said_meanwhile, user="meanwhile")
    relayer.reachable()
    kill_bridges(gateway)
    wait_until(lambda: said_meanwhile in relayer.memories(gateway))


def test_a_bridge_that_was_killed_is_replaced_and_memory_comes_back(
    gateway: Gateway, model: StubModel
) -> None:
    kill_bridges(gateway)
    assert gateway.chat("Who services the boiler while memory is away?", user="asking") == "Noted."
    replace_bridge(gateway)
    gateway.chat("Who services our boiler every October?", user="back")
    assert BOILER in said(model.asked("boiler every October?")[-1])


@pytest.mark.row("AR-23", "AR-10")
def test_disabled_the_prompt_is_that_of_a_gateway_without_the_plugin_and_no_request_leaves(
    gateway: Gateway, model: StubModel, line: FaultProxy
) -> None:
    question = "Where is the piano of my grandmother today?"
    whole = gateway.config()
    without = {"slots": {"memory": "none"}, "entries": {"memory-core": {"enabled": False}}}
    disabled = whole["plugins"] | {"entries": whole["plugins"]["entries"] | {"memrelay": {"enabled": False}}}
    asked, prompts = line.connections, []
    for user, plugins in (("without", without), ("disabled", disabled)):
        gateway.stop()
        gateway.write_config(whole | {"plugins": plugins})
        gateway.start()
        gateway.chat(question, user=user)
        prompts.append(normal(model.asked(question)[-1], user))
    assert line.connections == asked
    gateway.write_config(whole)
    gateway.restart()
    assert prompts[1] == prompts[0]


def test_the_switch_of_the_environment_leaves_the_message_as_it_was_and_lets_no_request_leave(
    gateway: Gateway, model: StubModel, line: FaultProxy
) -> None:
    question = "Where is the piano of my grandmother tonight?"
    gateway.stop()
    asked = line.connections
    gateway.environment["MEMRELAY_DISABLE"] = "1"
    gateway.start()
    gateway.chat(question, user="switch")
    [request] = model.asked(question)
    status = gateway.command("/memory status")
    gateway.environment["MEMRELAY_DISABLE"] = ""
    assert line.connections == asked
    gateway.restart()
    assert "memrelay-memories" not in said(request)
    assert "memory_search" not in {tool["function"]["name"] for tool in request["tools"]}
    assert status.startswith("Memory: off (MEMRELAY_DISABLE)")


def normal(request: dict[str, object], user: str) -> str:
    """Return a request to the model without what differs from run to run: ids and the time of day."""
    text = repr(sorted(request.items()))
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)
    return text.replace(f"openai-user:{user}", "openai-user:USER")
