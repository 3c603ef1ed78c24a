"""What a user of OpenClaw sees: one gateway with two agents, through its own HTTP endpoint."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from openclaw_gateway import BRIDGE, Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

from gateway_plugin.demo.relayer_process import RelayerProcess

FACT = "I always park my bicycle behind the red library on Elm Street."
QUESTION = "Where do I always park my bicycle?"


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: RelayerProcess, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("openclaw")
    gateway = Gateway(openclaw, folder, model.url, plugins=memrelay_plugins(relayer.url))
    gateway.start()
    yield gateway
    gateway.stop()


def memories(gateway: Gateway, relayer: RelayerProcess, agent: str | None = None) -> list[dict[str, Any]]:
    """Ask the relayer, with the gateway's own keys."""
    command = [str(BRIDGE), "list", "--json", "--limit", "100", *(["--agent", agent] if agent else [])]
    environment = gateway.environment | {"MEMRELAY_URL": relayer.url}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(answer.stdout)["memories"]


@pytest.fixture(scope="module")
def told(gateway: Gateway, relayer: RelayerProcess) -> Gateway:
    """A gateway that was told a fact in one session, which is stored by now."""
    gateway.chat(FACT, user="telling")
    wait_until(lambda: any(FACT in memory["text"] for memory in memories(gateway, relayer)))
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
def test_each_turn_is_captured_once_and_alone(told: Gateway, relayer: RelayerProcess) -> None:
    sayings = [f"My {pet} was named after the {place} district." for pet, place in (("parrot", "harbour"), ("tortoise", "station"), ("hamster", "castle"))]  # fmt: skip
    for saying in sayings:
        told.chat(saying, user="pets")
    wait_until(lambda: any(sayings[-1] in memory["text"] for memory in memories(told, relayer)))
    texts = [memory["text"] for memory in memories(told, relayer)]
    assert [texts.count(saying) for saying in sayings] == [1, 1, 1]
