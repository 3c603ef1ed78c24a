"""What a user of OpenClaw sees: one gateway with two agents, through its own HTTP endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

FACT = "I always park my bicycle behind the red library on Elm Street."
QUESTION = "Where do I always park my bicycle?"


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("openclaw")
    gateway = Gateway(openclaw, folder, model.url, plugins=memrelay_plugins(relayer.url))
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="module")
def told(gateway: Gateway, relayer: Relayer) -> Gateway:
    """A gateway that was told a fact in one session, which is stored by now."""
    gateway.chat(FACT, user="telling")
    wait_until(lambda: FACT in relayer.memories(gateway))
    return gateway


@pytest.mark.row("CP-19", "AR-01", "AR-02", "CP-31", "CP-05")
def test_what_was_said_in_one_session_is_in_the_prompt_of_another_after_a_restart(
    told: Gateway, model: StubModel
) -> None:
    told.restart()
    told.chat(QUESTION, user="asking")
    assert FACT in said(model.asked(QUESTION)[-1])


@pytest.mark.row("MS-08")
def test_another_agent_is_not_given_it(told: Gateway, model: StubModel) -> None:
    question = "Do you know where my bicycle is parked?"
    told.chat(question, agent="research", user="other")
    assert "Elm Street" not in json.dumps(model.asked(question)[-1])


def test_recalled_text_is_not_kept_in_the_history(told: Gateway, model: StubModel) -> None:
    told.chat("Remind me where my bicycle is parked, please.", user="history")
    told.chat("And is it a good place for a bicycle, do you think?", user="history")
    request = model.asked("a good place for a bicycle")[-1]
    earlier = [message for message in request["messages"][:-2] if message["role"] == "user"]
    assert earlier
    assert "memrelay-memories" not in json.dumps(earlier)


@pytest.mark.row("MW-12")
def test_each_turn_is_captured_once_and_alone(told: Gateway, relayer: Relayer) -> None:
    sayings = [f"My {pet} was named after the {place} district." for pet, place in (("parrot", "harbour"), ("tortoise", "station"), ("hamster", "castle"))]  # fmt: skip
    for saying in sayings:
        told.chat(saying, user="pets")
    wait_until(lambda: sayings[-1] in relayer.memories(told))
    texts = relayer.memories(told)
    assert [texts.count(saying) for saying in sayings] == [1, 1, 1]


@pytest.mark.row("AM-06")
def test_memory_is_switched_off_and_on_by_the_chat_for_that_chat_alone(
    told: Gateway, model: StubModel
) -> None:
    session = "agent:main:openai-user:quiet"
    assert told.command("/memory off", session=session) == "Memory is off for this session."
    assert told.command("/memory status", session=session).startswith("Memory: off for this session")
    told.chat("Where do I park my bicycle these days?", user="quiet")
    told.chat("Where do I park my bicycle at night?", user="loud")
    assert told.command("/memory on", session=session) == "Memory is on for this session."
    told.chat("Where do I park my bicycle at noon?", user="quiet")
    given = [
        FACT in said(model.asked(f"my bicycle {when}?")[-1]) for when in ("these days", "at night", "at noon")
    ]
    assert given == [False, True, True]


def test_the_commands_of_the_plugin_print_what_memrelay_gateway_prints(told: Gateway) -> None:
    found = told.cli("memrelay", "search", QUESTION, "--json")
    assert found.returncode == 0, found.stderr
    assert [memory["text"] for memory in json.loads(found.stdout)["memories"]][:1] == [FACT]


@pytest.mark.row("MW-25")
def test_the_plugins_status_names_relayer_account_and_agent(told: Gateway, relayer: Relayer) -> None:
    told_status = json.loads(told.cli("memrelay", "status", "--json").stdout)
    assert told_status["relayer"] == relayer.url
    assert told_status["account"].startswith("0x")


def test_the_command_of_the_plugin_ends_with_the_code_of_what_it_ran(told: Gateway) -> None:
    assert told.cli("memrelay", "forget", "no-such-id").returncode == 1


@pytest.mark.row("CP-18", "MW-26")
def test_the_log_tells_which_hooks_run_and_that_the_relayer_answers(told: Gateway) -> None:
    log = told.log_text()
    assert "memrelay: registered hooks: auto-recall, auto-capture" in log
    assert "memrelay: connected (ok, " in log
