"""What a user of OpenClaw notices when memory fails: a turn answered in time, and a status that says why."""

from __future__ import annotations

import contextlib
import html
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
from processes import wait_until
from stub_model import StubModel, said

BOILER = "Our boiler is serviced by Mrs Lindqvist every October."
FACT = "My grandmother's piano stands in the attic of the yellow house."
# What a turn waits for memory at most, with room for a busy machine. The host's own part of a turn is not ours to bound.
IN_TIME_MS = 4000
# Status and why speak of the session that asks.
ASKING = "agent:main:openai-user:asking"


@pytest.fixture(scope="module")
def facts(running: Gateway, relayer: Relayer) -> tuple[str, ...]:
    """What the gateway was told and the relayer holds."""
    running.reload(memrelay_plugins(relayer.url))
    for fact in (FACT, BOILER):
        running.chat(fact, user="telling")
    wait_until(lambda: {FACT, BOILER} <= set(relayer.memories(running)))
    return FACT, BOILER


@pytest.fixture
def cut(gateway: Gateway, relayer: Relayer, line: FaultProxy, facts: tuple[str, ...]) -> Iterator[FaultProxy]:
    """The line, for a test that breaks it; afterwards the relayer answers, and the bridge has not learnt to spare it."""
    del facts
    yield line
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
    status = gateway.command("/memory status", session=ASKING)
    took = re.search(r"last recall: \S+ in (\d+) ms", status)
    assert took is None or int(took[1]) < IN_TIME_MS
    return status


def test_one_bridge_serves_turns_and_commands(gateway: Gateway) -> None:
    gateway.chat("Does anything here need a second process?", user="asking")
    assert gateway.command("/memory why", session=ASKING).startswith("last turn: ")
    assert len(gateway.bridges()) == 1


@pytest.mark.row("CP-22", "AR-13", level="e2e")
def test_with_no_relayer_the_turn_is_answered_and_the_status_says_so(
    gateway: Gateway, cut: FaultProxy
) -> None:
    cut.lead(None)
    status = turn_in_time(gateway, "Where does the piano of my grandmother stand?")
    assert "last recall: unavailable" in status
    assert "note: the connection to" in status


@pytest.mark.row("AR-13", level="e2e")
def test_a_relayer_that_stalls_costs_the_turn_its_deadline_and_no_more(
    gateway: Gateway, cut: FaultProxy, relayer: Relayer
) -> None:
    cut.lead(relayer.port, stalled=True)
    status = turn_in_time(gateway, "In which house is my grandmother's piano?")
    assert "last recall: timeout" in status
    assert "the deadline passed during" in status


def test_a_relayer_of_another_identity_is_sent_nothing_and_named_in_the_status(
    gateway: Gateway, cut: FaultProxy, tmp_path: Path
) -> None:
    with Relayer(tmp_path, cut):
        replace_bridge(gateway)  # a new process: it asks who the relayer is
        status = turn_in_time(gateway, "Is the piano of my grandmother in the attic?")
    assert "last recall: untrusted" in status


def test_what_was_said_while_the_relayer_was_gone_arrives_when_it_is_back(
    gateway: Gateway, cut: FaultProxy, relayer: Relayer
) -> None:
    said_meanwhile = "My cousin moved to the lighthouse near Ostende last spring."
    cut.lead(None)
    gateway.chat(said_meanwhile, user="meanwhile")
    relayer.reachable()
    kill_bridges(gateway)
    wait_until(lambda: said_meanwhile in relayer.memories(gateway))


def test_a_bridge_that_was_killed_is_replaced_and_memory_comes_back(
    gateway: Gateway, model: StubModel, facts: tuple[str, ...]
) -> None:
    kill_bridges(gateway)
    assert gateway.chat("Who services the boiler while memory is away?", user="asking") == "Noted."
    replace_bridge(gateway)
    gateway.chat("Who services our boiler every October?", user="back")
    assert facts[1] in said(model.asked("boiler every October?")[-1])


@pytest.mark.row("AR-23", "AR-10", "MS-27", level="e2e")
def test_switched_off_or_absent_the_prompt_is_the_same_and_no_request_leaves(
    gateway: Gateway, model: StubModel, line: FaultProxy, facts: tuple[str, ...]
) -> None:
    question = f"Where is the piano today, if not there: {len(facts)}?"
    plugins = gateway.config()["plugins"]
    entry = plugins["entries"]["memrelay"]
    # Off by the environment; by the entry; and no such plugin at all.
    disabled = plugins | {"entries": plugins["entries"] | {"memrelay": entry | {"enabled": False}}}
    without = {"slots": {"memory": "none"}, "entries": {"memory-core": {"enabled": False}}}
    gateway.stop()
    asked = line.connections
    gateway.environment["MEMRELAY_DISABLE"] = "1"
    gateway.start()
    prompts = []
    for user, configuration in (("switch", plugins), ("disabled", disabled), ("without", without)):
        gateway.reload(configuration)
        gateway.chat(question, user=user)
        prompts.append(normal(model.asked(question)[-1], user))
        if user == "switch":
            assert gateway.command("/memory status").startswith("Memory: off (MEMRELAY_DISABLE)")
    left = line.connections - asked
    gateway.environment["MEMRELAY_DISABLE"] = ""
    gateway.write_config(gateway.config() | {"plugins": plugins})
    gateway.restart()
    assert left == 0
    assert prompts[1] == prompts[2]
    assert prompts[0] == prompts[2]


@pytest.mark.row("CP-19", "AR-01", "AR-02", "CP-31", "CP-50", level="e2e")
@pytest.mark.row("CP-05")
def test_what_was_said_before_a_restart_is_in_the_prompt_of_another_session_after_it(
    gateway: Gateway, model: StubModel, facts: tuple[str, ...]
) -> None:
    question = "Where does my grandmother's piano stand, please?"
    # A gateway that has just started takes its time for everything; a turn's two seconds are not what is tested here.
    wait_until(lambda: "yellow house" in json.dumps(gateway.invoke("memory_search", {"query": question})))
    gateway.chat(question, user="after-restart")
    # What is recalled is escaped on its way into a prompt.
    assert facts[0] in html.unescape(said(model.asked(question)[-1]))


def normal(request: dict[str, object], user: str) -> str:
    """Return a request to the model without what differs from run to run: ids and the time of day."""
    text = repr(sorted(request.items()))
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)
    return text.replace(f"openai-user:{user}", "openai-user:USER")
