"""The model's tools, the host's own memory search, and the bundled active-memory, through a real gateway."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import PLUGIN, Gateway, memrelay_plugins
from stub_model import StubModel, latest, said, text_of

from gateway_plugin.tools.arguments import TOOL_NAMES
from relayer.wire.sealing import RootKeys

FACT = "The spare key of our allotment hangs behind the blue watering can."


def configuration(url: str) -> dict[str, Any]:
    """With the host's own memory and active-memory beside us, the secret a reference, and without capture: what is asked of
    the tools would itself be remembered, and found."""
    key = {"source": "env", "provider": "default", "id": "MY_MEMORY_SECRET"}
    plugins = memrelay_plugins(url, core=True, autoCapture=False, key=key)
    plugins["entries"]["active-memory"] = {
        "enabled": True,
        "config": {
            "agents": ["research"],
            "mode": "always",
            "toolsAllow": ["memory_search"],
            "timeoutMs": 60_000,
        },
    }
    return plugins


@pytest.fixture(scope="module")
def known(running: Gateway, relayer: Relayer) -> str:
    """What both agents were told to remember."""
    running.reload(configuration(relayer.url))
    for agent in ("main", "research"):
        call(running, "memory_store", agent=agent, user="telling-tools", text=FACT)
    return FACT


@pytest.fixture
def gateway(running: Gateway, relayer: Relayer, known: str) -> Gateway:
    del known
    running.reload(configuration(relayer.url))
    return running


def call(gateway: Gateway, tool: str, *, agent: str = "main", user: str = "tools", **arguments: Any) -> str:
    """Have the model call a tool, and return what the tool said."""
    return gateway.chat(f"CALL {tool} {json.dumps(arguments)}", agent=agent, user=user)


@pytest.mark.row("MS-10", "MS-12", "MW-02", "MW-21", level="e2e")
@pytest.mark.row("MW-22")
def test_the_model_stores_finds_reads_corrects_and_forgets(gateway: Gateway) -> None:
    assert "Stored 1 fact(s)" in call(
        gateway, "memory_store", text="The seed catalogue is in the tin drawer."
    )
    found = call(gateway, "memory_search", query="Where is the seed catalogue?")
    # What else the agent was told may stand behind what the question is about.
    assert re.search(r"Found \d memor(?:y|ies):\s+1\. The seed catalogue is in the tin drawer\.", found)
    [memory] = re.findall(r"1 = ([\w-]+)", found)
    assert "tin drawer" in call(gateway, "memory_get", ref=memory)
    corrected = call(gateway, "memory_update", ref=memory, text="The seed catalogue is in the oak chest.")
    assert "Updated" in corrected
    found = call(gateway, "memory_search", query="Where is the seed catalogue kept?")
    assert "oak chest" in found
    assert "tin drawer" not in found
    [memory] = re.findall(r"1 = ([\w-]+)", found)
    assert "Forgotten" in call(gateway, "memory_forget", ref=memory)
    assert "oak chest" not in call(gateway, "memory_search", query="Where is the catalogue of seeds?")


@pytest.mark.row("MW-23", level="e2e")
def test_the_model_sees_all_tools_directly_and_each_once(gateway: Gateway, model: StubModel) -> None:
    gateway.chat("Which tools do you have for remembering?", user="tools")
    [*names] = [tool["function"]["name"] for tool in model.asked("for remembering?")[-1]["tools"]]
    offered = (*TOOL_NAMES, "intent")
    assert {name: names.count(name) for name in offered} == dict.fromkeys(offered, 1)
    # The host gives a model no tool of a plugin that the plugin's manifest does not list.
    listed = json.loads((PLUGIN / "openclaw.plugin.json").read_text())["contracts"]["tools"]
    assert sorted(listed) == sorted(offered)


@pytest.mark.row("CP-09", "CP-18", level="e2e")
def test_with_capture_switched_off_the_log_names_recall_alone_and_turns_are_not_kept(
    gateway: Gateway, relayer: Relayer
) -> None:
    gateway.chat("My bicycle bell is made of brass, by the way.", user="uncaptured")
    assert "memrelay: registered hooks: auto-recall\n" in gateway.log_text()
    assert gateway.settings["autoCapture"] is False
    assert not [text for text in relayer.memories(gateway) if "brass" in text]


@pytest.mark.row("CP-48", level="e2e")
def test_a_memory_that_does_not_exist_is_an_empty_answer_and_no_error(gateway: Gateway) -> None:
    answer = gateway.invoke("memory_get", {"path": "memory/2020-01-01.md"})
    assert answer["ok"] is True


@pytest.mark.row("CP-43", level="e2e")
def test_each_tool_serves_the_agent_whose_session_calls_it(gateway: Gateway) -> None:
    call(gateway, "memory_store", user="whose", text="Only the main agent knows of the copper kettle.")
    question = {"query": "Who knows of the copper kettle?"}
    mine = json.dumps(gateway.invoke("memory_search", question))
    theirs = json.dumps(gateway.invoke("memory_search", question, session="agent:research:main"))
    assert ("copper kettle." in mine, "copper kettle." in theirs) == (True, False)
    found = call(gateway, "memory_search", user="whose", **question)
    [memory] = re.findall(r"1 = ([\w-]+)", found)
    read = {
        agent: call(gateway, "memory_get", agent=agent, user="whose", ref=memory)
        for agent in ("main", "research")
    }
    assert {agent: "copper kettle." in text for agent, text in read.items()} == {
        "main": True,
        "research": False,
    }


def test_beside_the_hosts_own_memory_the_search_is_still_ours(gateway: Gateway) -> None:
    found = gateway.invoke("memory_search", {"query": "Where hangs the spare key of the allotment?"})
    assert FACT in json.dumps(found)


def test_a_secret_that_is_a_reference_is_used_for_another_account_than_the_usual_one(
    gateway: Gateway, relayer: Relayer
) -> None:
    assert FACT in call(gateway, "memory_search", query="Where hangs the spare key?")
    assert FACT in relayer.memories(gateway)
    shown = json.loads(gateway.cli("memrelay", "keys", "show", "--json").stdout)
    assert shown["account"] == RootKeys(bytes.fromhex("7b" * 32)).account


@pytest.mark.row("AM-10", level="e2e")
def test_active_memorys_own_run_searches_through_us_and_its_summary_is_injected(
    gateway: Gateway, model: StubModel
) -> None:
    question = "Where did we hang the spare key of the allotment?"

    def recall(request: dict[str, Any]) -> str | None:
        if not _is_recall(request) or latest(request)["role"] != "tool":
            return None
        found = "watering can" in text_of(latest(request))
        return "The spare key hangs behind the blue watering can." if found else "NONE"

    model.answer_with(recall)
    model.call_with(lambda request: _recall_call(request, question))
    gateway.chat(question, agent="research", user="active")
    given = said([one for one in model.asked(question) if not _is_recall(one)][-1])
    model.answer_with(lambda _request: None)
    model.call_with(lambda _request: None)
    assert "The spare key hangs behind the blue watering can." in given
    assert "<active_memory_plugin>" in given


def _is_recall(request: dict[str, Any]) -> bool:
    """Tell the run of active-memory from a turn: it has the tools for searching alone."""
    names = {tool["function"]["name"] for tool in request.get("tools", [])}
    return "memory_search" in names and "exec" not in names


def _recall_call(request: dict[str, Any], question: str) -> tuple[str, dict[str, Any]] | None:
    asks = _is_recall(request) and latest(request)["role"] == "user"
    return ("memory_search", {"query": question}) if asks else None
