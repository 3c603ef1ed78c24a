"""A gateway's day with a bridge that is killed, hangs or is away: no turn is lost, and the log says what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_relayer import Relayer
from fault_proxy import FaultProxy
from openclaw_gateway import PLUGIN, RELOADED, Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

SLOW = "Take your time."
WHERES = ("attic", "cellar", "garden", "barn", "kitchen", "hallway", "stable", "chapel")


@pytest.fixture
def slow(model: StubModel) -> Iterator[Callable[[float], None]]:
    """Has the model take its time for prompts that ask for it."""

    def taking(seconds: float) -> None:
        def answer(request: dict[str, object]) -> str | None:
            if SLOW not in said(request):
                return None
            time.sleep(seconds)
            return "Noted, slowly."

        model.answer_with(answer)

    yield taking
    model.answer_with(lambda _request: None)


def signalled(gateway: Gateway, number: signal.Signals) -> None:
    for pid in gateway.bridges():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def remembered_once(gateway: Gateway, relayer: Relayer, facts: list[str]) -> None:
    wait_until(lambda: all(any(fact in text for text in relayer.memories(gateway)) for fact in facts))
    texts = relayer.memories(gateway)
    assert [sum(fact in text for text in texts) for fact in facts] == [1] * len(facts)


def test_a_bridge_that_is_killed_while_the_model_answers_costs_no_turn(
    gateway: Gateway, relayer: Relayer, slow: Callable[[float], None]
) -> None:
    slow(3)
    fact = "My harpsichord was tuned by Benedikt on the ninth of March."
    turn = threading.Thread(target=lambda: gateway.chat(f"{fact} {SLOW}", user="killed"))
    turn.start()
    time.sleep(1.5)
    signalled(gateway, signal.SIGKILL)
    turn.join()
    remembered_once(gateway, relayer, [fact])


def test_no_turn_of_a_bridges_restart_pauses_is_lost(gateway: Gateway, relayer: Relayer) -> None:
    facts = [
        f"The brass kettle number {number} stands in the {where} of our house."
        for number, where in enumerate(WHERES)
    ]
    for fact in facts:
        signalled(gateway, signal.SIGKILL)
        gateway.chat(fact, user="pauses")
    remembered_once(gateway, relayer, facts)
    assert "memrelay: the bridge ended with SIGKILL" in gateway.log_text()


def test_a_bridge_that_hangs_at_the_end_of_a_turn_costs_no_turn(gateway: Gateway, relayer: Relayer) -> None:
    fact = "Our sundial was carved by Ignatius from grey slate."
    wait_until(lambda: bool(gateway.bridges()))
    signalled(gateway, signal.SIGSTOP)
    gateway.chat(fact, user="hanging")
    signalled(gateway, signal.SIGCONT)
    remembered_once(gateway, relayer, [fact])


def test_a_turn_of_many_tool_calls_is_captured(gateway: Gateway, relayer: Relayer, model: StubModel) -> None:
    fact = "Our beehives were moved to the meadow behind the mill."
    calls = iter(range(35))

    def call(request: dict[str, object]) -> tuple[str, dict[str, object]] | None:
        number = next(calls, None) if fact in str(request["messages"]) else None
        return None if number is None else ("memory_search", {"query": f"hive number {number}"})

    reply = model.reply
    model.reply = lambda request: _calling(call(request)) or reply(request)  # type: ignore[method-assign]
    try:
        gateway.chat(fact, user="many-tools")
    finally:
        model.reply = reply  # type: ignore[method-assign]
    assert next(calls, None) is None
    remembered_once(gateway, relayer, [fact])


def _calling(wanted: tuple[str, dict[str, object]] | None) -> dict[str, object] | None:
    if wanted is None:
        return None
    function = {"name": wanted[0], "arguments": json.dumps(wanted[1])}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"index": 0, "id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}
        ],
    }


def test_settings_that_change_during_a_turn_hold_once_it_has_ended(
    gateway: Gateway, relayer: Relayer, slow: Callable[[float], None]
) -> None:
    slow(5)
    turn = threading.Thread(target=lambda: gateway.chat(SLOW, user="reloading"))
    turn.start()
    time.sleep(1.5)
    before = len(gateway.log_text())
    changed = memrelay_plugins(relayer.url, recall={"position": "system-append"})
    gateway.write_config(gateway.config() | {"plugins": changed})
    turn.join()
    wait_until(lambda: RELOADED in gateway.log_text()[before:])


@pytest.mark.row("CP-30", level="e2e")
def test_an_outage_is_told_within_a_minute_and_so_is_its_end(
    gateway: Gateway, relayer: Relayer, line: FaultProxy
) -> None:
    before = len(gateway.log_text())
    line.lead(None)
    try:
        assert gateway.chat("Where does the brass kettle stand, by the way?", user="outage") == "Noted."
        wait_until(lambda: "memory does not work (unavailable)" in gateway.log_text()[before:])
    finally:
        relayer.reachable()
    # A relayer that was too slow several times in a row is spared for up to a minute; nobody writes meanwhile.
    back = "answers again: memory works"
    end = time.monotonic() + 80
    while back not in gateway.log_text()[before:] and time.monotonic() < end:
        time.sleep(0.5)
    assert back in gateway.log_text()[before:]


@pytest.mark.row("MW-27", level="e2e")
def test_a_key_that_names_an_unset_variable_is_named_and_the_gateway_starts(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path
) -> None:
    reference = {"source": "env", "provider": "default", "id": "NOT_SET_ANYWHERE"}
    host = Gateway(openclaw, tmp_path, model.url, plugins=memrelay_plugins(relayer.url, key=reference))
    host.start()
    try:
        assert host.chat("Does this gateway answer without memory?") == "Noted."
        wait_until(lambda: "NOT_SET_ANYWHERE, which is not set" in host.log_text())
    finally:
        host.stop()


@pytest.mark.row("CP-08", level="e2e")
def test_an_uninstalled_plugin_leaves_memory_core_and_comes_back_with_its_memories(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path
) -> None:
    fact = "The lifeboat drill is held by Captain Oyelaran every fourth Sunday."
    question = "Who holds the lifeboat drill every fourth Sunday?"
    host = Gateway(openclaw, tmp_path, model.url, plugins=memrelay_plugins(relayer.url))
    settings = host.config()["plugins"]["entries"]["memrelay"]
    host.write_config(host.config() | {"plugins": {}})

    def run(*arguments: str) -> str:
        done = host.cli(*arguments, patience=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install() -> None:
        run("plugins", "install", "--link", str(PLUGIN), "--force", "--accept-capabilities")
        whole = host.config()
        whole["plugins"]["entries"] = {**whole["plugins"].get("entries", {}), "memrelay": settings}
        host.write_config(whole)

    install()
    host.start()
    try:
        host.chat(fact, user="told")
        wait_until(lambda: fact in relayer.memories(host))
        host.stop()
        run("plugins", "uninstall", "memrelay", "--force")
        host.start()
        host.chat("Hello again after the uninstall.", user="without")
        tools = {tool["function"]["name"] for tool in model.turns[-1]["tools"]}
        assert "memory_store" not in tools
        answer = host.invoke("memory_search", {"query": question})
        assert answer["ok"] is True
        assert fact not in str(answer)
        host.stop()
        install()
        run("plugins", "enable", "memrelay", "--accept-capabilities")
        host.start()
        wait_until(lambda: fact in str(host.invoke("memory_search", {"query": question})))
        host.chat(question, user="asking-again")
        assert "Oyelaran" in said(model.asked(question)[-1])
    finally:
        host.stop()
