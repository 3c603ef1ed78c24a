"""What becomes of memory when a gateway's life changes: settings edited while it runs, sessions that end, one-shot runs, side-car."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from e2e_relayer import Relayer
from fault_proxy import FaultProxy
from openclaw_gateway import BRIDGE, Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said, system

from gateway_plugin.hosts.openclaw.manifest import package_files
from gateway_plugin.keys.gateway_secret import secret_path
from gateway_plugin.tools.arguments import TOOL_NAMES
from relayer.wire.sealing import RootKeys, parse_secret

FACT = "Our sailing dinghy lies at berth forty-one of the old harbour."


@pytest.fixture(scope="module")
def fact(running: Gateway, relayer: Relayer) -> str:
    running.reload(memrelay_plugins(relayer.url))
    running.chat(FACT, user="telling-life")
    wait_until(lambda: FACT in relayer.memories(running))
    return FACT


@pytest.mark.row("CP-09", level="e2e")
def test_settings_that_are_edited_hold_from_the_next_turn_on_without_a_restart(
    gateway: Gateway, relayer: Relayer, model: StubModel, fact: str
) -> None:
    question = "At which berth does our sailing dinghy lie?"
    process = gateway.pid
    gateway.reload(memrelay_plugins(relayer.url, recall={"position": "system-append"}))
    gateway.chat(question, user="reload-1")
    gateway.reload(memrelay_plugins(relayer.url, autoRecall=False))
    gateway.chat(question, user="reload-2")
    gateway.reload(memrelay_plugins(relayer.url))
    gateway.chat(question, user="reload-3")
    prompts = model.asked(question)[-3:]
    assert [fact in said(request) for request in prompts] == [False, False, True]
    assert [fact in system(request) for request in prompts] == [True, False, False]
    assert (gateway.pid, len(gateway.bridges())) == (process, 1)


@pytest.mark.row("MW-35", level="e2e")
def test_a_session_that_is_reset_is_told_to_the_relayer_and_goes_on_remembering(
    gateway: Gateway, model: StubModel, line: FaultProxy, fact: str
) -> None:
    session = "agent:main:openai-user:resetting"
    gateway.chat("The mooring lines of the dinghy were renewed by Anselm in May.", user="resetting")
    gateway.call("sessions.reset", {"key": session})
    wait_until(lambda: _ended(gateway, line, session))
    gateway.chat("At which berth is the dinghy, once more?", user="resetting")
    request = model.asked("once more?")[-1]
    assert fact in said(request)
    assert "Anselm" not in json.dumps(request["messages"][1:-2])


def test_a_session_whose_history_is_cut_short_is_not_captured_again(
    gateway: Gateway, relayer: Relayer
) -> None:
    sayings = [f"Locker {number} of the boathouse belongs to the {name} family." for number, name in ((3, "Okafor"), (4, "Brandt"))]  # fmt: skip
    session = "agent:main:openai-user:compacting"
    for saying in sayings:
        gateway.chat(saying, user="compacting")
    assert gateway.call("sessions.compact", {"key": session, "maxLines": 2})["compacted"] is True
    gateway.chat("The boathouse is locked at nine in the evening.", user="compacting")
    wait_until(lambda: "The boathouse is locked at nine in the evening." in relayer.memories(gateway))
    texts = relayer.memories(gateway)
    assert [texts.count(saying) for saying in sayings] == [1, 1]


@pytest.mark.row("CP-47", level="e2e")
def test_what_could_not_be_captured_is_caught_up_with_before_the_host_compacts_the_conversation(
    gateway: Gateway, relayer: Relayer
) -> None:
    told = "The slipway itself was tarred by Ottoline in the year of the flood."
    gateway.chat("Which month comes after the month of March?", user="flushing")
    [bridge] = gateway.bridges()
    before = resource.prlimit(bridge, resource.RLIMIT_FSIZE)
    at = len(gateway.log_text())
    # The disk is full: nothing that the bridge writes may grow.
    resource.prlimit(bridge, resource.RLIMIT_FSIZE, (1, before[1]))
    gateway.chat(told, user="flushing")
    # The answer is there before the turn is captured.
    wait_until(lambda: "the outbox cannot take a captured turn" in gateway.log_text()[at:])
    resource.prlimit(bridge, resource.RLIMIT_FSIZE, before)
    compacted = gateway.call("sessions.compact", {"key": "agent:main:openai-user:flushing"})
    assert compacted["compacted"] is True, compacted
    wait_until(lambda: told in relayer.memories(gateway))
    # The plugin's own second place for turns, or the host's store of the chat, may have brought it, too.
    assert relayer.memories(gateway).count(told) == 1
    assert gateway.bridges() == [bridge]


@pytest.mark.row("AR-24", "MW-03", level="e2e")
def test_the_sidecar_recalls_and_captures_without_slot_and_without_tools(
    gateway: Gateway, relayer: Relayer, model: StubModel, fact: str, tmp_path: Path
) -> None:
    for name, content in package_files(sidecar=True).items():
        (tmp_path / name).write_bytes(content)
    entry = {
        "enabled": True,
        "hooks": {"allowConversationAccess": True},
        "config": {"url": relayer.url, "command": str(BRIDGE)},
    }
    entries = {"memrelay-sidecar": entry, "memory-core": {"enabled": False}}
    gateway.reload({"load": {"paths": [str(tmp_path)]}, "slots": {"memory": "none"}, "entries": entries})
    question = "At which berth of the old harbour is our dinghy?"
    new = "The rudder of the dinghy is stored in the cellar of the clubhouse."
    gateway.chat(question, user="beside")
    gateway.chat(new, user="beside")
    wait_until(lambda: new in relayer.memories(gateway))
    request = model.asked(question)[-1]
    assert fact in said(request)
    assert not {tool["function"]["name"] for tool in request["tools"]} & set(TOOL_NAMES)
    assert "Long-term memory" not in system(request)


@pytest.mark.row("MS-05", level="e2e")
def test_a_one_shot_run_without_a_gateway_is_captured_once(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path
) -> None:
    saying = "The tiller extension of the dinghy was made by Fredrika from ash wood."
    plugins = memrelay_plugins(relayer.url, capture={"strategy": "debounce"})
    host = Gateway(openclaw, tmp_path, model.url, plugins=plugins)
    done = host.cli("agent", "--local", "--agent", "main", "-m", saying, "--json", patience=400)
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: saying in relayer.memories(host))
    assert relayer.memories(host).count(saying) == 1


def _ended(gateway: Gateway, line: FaultProxy, session: str) -> bool:
    """Tell whether the relayer was told that a session ended."""
    root = RootKeys(parse_secret(secret_path(gateway.environment).read_text()))
    asked = line.bodies(root)
    return any(b'"session_end":true' in body and session.encode() in body for body in asked)
