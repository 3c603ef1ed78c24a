"""What a user of OpenClaw sees: one gateway with two agents, through its own HTTP endpoint."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from processes import wait_until
from stub_model import StubModel, said, system

from gateway_plugin import __version__

FACT = "I always park my bicycle behind the red library on Elm Street."
QUESTION = "Where do I always park my bicycle?"


@pytest.fixture(scope="module")
def fact(running: Gateway, relayer: Relayer) -> str:
    """A fact that was told in one session and is stored by now."""
    running.reload(memrelay_plugins(relayer.url))
    running.chat(FACT, user="telling-turns")
    wait_until(lambda: FACT in relayer.memories(running))
    return FACT


@pytest.fixture
def told(gateway: Gateway, fact: str) -> Gateway:
    del fact
    return gateway


def test_what_was_said_in_one_session_is_in_the_prompt_of_another(told: Gateway, model: StubModel) -> None:
    told.chat(QUESTION, user="asking-turns")
    assert FACT in said(model.asked(QUESTION)[-1])


@pytest.mark.row("MS-08", level="e2e")
def test_another_agent_is_not_given_it(told: Gateway, model: StubModel) -> None:
    question = "Do you know where my bicycle is parked?"
    told.chat(question, agent="research", user="other")
    assert "Elm Street" not in json.dumps(model.asked(question)[-1])


@pytest.mark.row("AR-22", level="e2e")
def test_each_turn_of_a_session_is_given_what_its_own_message_is_about(
    told: Gateway, model: StubModel, relayer: Relayer
) -> None:
    other = "The vet of our cat Minka has her practice in Linden Lane."
    asked = ("Where do I always park my bicycle, again?", "In which lane is the practice of our cat's vet?")
    told.chat(asked[0], user="changing")
    # Told elsewhere, between two turns of this session.
    told.chat(other, user="telling-more")
    wait_until(lambda: other in relayer.memories(told))
    told.chat(asked[1], user="changing")
    first, second = (model.asked(question)[-1] for question in asked)
    assert (FACT in said(first), other in json.dumps(first)) == (True, False)
    assert other in said(second)
    # Nothing of either stands in what is the same for every turn.
    assert not [text for text in map(system, (first, second)) if FACT in text or other in text]


def test_recalled_text_is_not_kept_in_the_history(told: Gateway, model: StubModel) -> None:
    told.chat("Remind me where my bicycle is parked, please.", user="history")
    told.chat("And is it a good place for a bicycle, do you think?", user="history")
    request = model.asked("a good place for a bicycle")[-1]
    earlier = [message for message in request["messages"][:-2] if message["role"] == "user"]
    assert earlier
    assert "memrelay-memories" not in json.dumps(earlier)


@pytest.mark.row("MW-12", level="e2e")
def test_each_turn_is_captured_once_and_alone(told: Gateway, relayer: Relayer) -> None:
    sayings = [f"My {pet} was named after the {place} district." for pet, place in (("parrot", "harbour"), ("tortoise", "station"), ("hamster", "castle"))]  # fmt: skip
    for saying in sayings:
        told.chat(saying, user="pets")
    wait_until(lambda: sayings[-1] in relayer.memories(told))
    texts = relayer.memories(told)
    assert [texts.count(saying) for saying in sayings] == [1, 1, 1]


def test_what_was_only_asked_is_not_remembered(told: Gateway, relayer: Relayer) -> None:
    said_last = "My canoe is painted in the colours of the rowing club."
    for text in ("Do you know where my bicycle could be?", "Which colour has my canoe?", said_last):
        told.chat(text, user="asking-only")
    wait_until(lambda: said_last in relayer.memories(told))
    assert not [text for text in relayer.memories(told) if text.endswith("?")]


@pytest.mark.row("MS-08", "MW-31", level="e2e")
def test_turns_of_two_agents_at_once_never_cross(told: Gateway, model: StubModel, relayer: Relayer) -> None:
    colours = {
        (agent, user): f"My {thing} of {agent} is kept in the {colour} shed."
        for (agent, user), thing, colour in (
            (("main", "p1"), "ladder", "crimson"), (("research", "p1"), "ladder", "turquoise"),
            (("main", "p2"), "saw", "ochre"), (("research", "p2"), "saw", "indigo"),
        )
    }  # fmt: skip
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: told.chat(one[1], agent=one[0][0], user=one[0][1]), colours.items()))
        for agent in ("main", "research"):
            wanted = {text for (whose, _), text in colours.items() if whose == agent}
            wait_until(
                lambda wanted=wanted, agent=agent: (
                    wanted <= set(relayer.memories(told, None if agent == "main" else agent))
                )
            )
        # Each in a session of its own: OpenClaw refuses two requests that begin one session at the same instant.
        asked = [
            (agent, user, f"In which shed do I, {agent}, keep my ladder and my saw?")
            for user in ("ask-1", "ask-2")
            for agent in ("main", "research")
        ]
        list(threads.map(lambda one: told.chat(one[2], agent=one[0], user=one[1]), asked))
    for agent, _, question in asked:
        prompts = " ".join(json.dumps(request["messages"]) for request in model.asked(question))
        for (whose, _), text in colours.items():
            assert (text in prompts) is (whose == agent)


@pytest.mark.row("AM-06", level="e2e")
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


@pytest.mark.row("MW-24", level="e2e")
def test_the_commands_of_the_plugin_print_what_memrelay_gateway_prints(told: Gateway) -> None:
    found = told.cli("memrelay", "search", QUESTION, "--json")
    assert found.returncode == 0, found.stderr
    (first, *_) = json.loads(found.stdout)["memories"]
    assert first["text"] == FACT
    assert first["id"]
    assert 0.3 <= first["relevance"] <= 1
    other = told.cli("memrelay", "search", QUESTION, "--agent", "research", "--limit", "5", "--json")
    assert FACT not in other.stdout


@pytest.mark.row("MS-13", level="e2e")
def test_the_skill_is_offered_while_memory_is_on(told: Gateway, model: StubModel) -> None:
    told.chat("Is there a skill for looking into memory?", user="skill")
    assert "memory-recall" in system(model.asked("a skill for looking into memory?")[-1])


@pytest.mark.row("MW-25", level="e2e")
def test_the_plugins_status_names_relayer_account_key_agent_and_switches(
    told: Gateway, relayer: Relayer
) -> None:
    told.reload(memrelay_plugins(relayer.url, autoCapture=False))
    try:
        shown = json.loads(told.cli("memrelay", "stats", "--agent", "research", "--json").stdout)
    finally:
        told.reload(memrelay_plugins(relayer.url))
    assert (shown["relayer"], shown["agent"], shown["namespace"]) == (relayer.url, "research", "research")
    assert shown["accepted"].startswith("yes")
    assert shown["version"] == __version__
    assert shown["account"].startswith("0x")
    assert re.fullmatch(r"[0-9a-f]{4}\.\.\.[0-9a-f]{4}", shown["key"])
    assert (shown["recall"], shown["capture"]) == ("on", "off in the host's settings")


def test_the_command_of_the_plugin_ends_with_the_code_of_what_it_ran(told: Gateway) -> None:
    assert told.cli("memrelay", "forget", "no-such-id").returncode == 1


@pytest.mark.row("AM-07")
def test_memory_is_switched_off_for_everyone_by_who_may_and_by_nobody_else(
    told: Gateway, model: StubModel
) -> None:
    assert "operator.admin" in told.command("/memory off --global", admin=False)
    assert told.command("/memory off --global") == "Memory is off for every session of this gateway."
    # A person finds it in the configuration as well.
    assert told.settings["enabled"] is False
    told.chat("Where do I park my bicycle in winter?", user="everyone")
    told.chat("Where do I park my bicycle in spring?", agent="research", user="everyone")
    assert told.command("/memory on --global") == "Memory is on for every session of this gateway."
    assert "enabled" not in told.settings
    wait_until(lambda: told.command("/memory status").startswith("Memory: on"))
    told.chat("Where do I park my bicycle in summer?", user="everyone")
    given = [
        FACT in said(model.asked(f"my bicycle in {when}?")[-1]) for when in ("winter", "spring", "summer")
    ]
    assert given == [False, False, True]
    assert told.config()["plugins"]["entries"]["memrelay"]["enabled"] is True


@pytest.mark.row("MS-31", level="e2e")
@pytest.mark.row("CP-04")
def test_doctor_finds_nothing_wrong_and_proves_recall_and_capture_for_each_agent(told: Gateway) -> None:
    examined = told.cli("memrelay", "doctor", "--host", "openclaw", "--json")
    checks = {check["name"]: check for check in json.loads(examined.stdout)}
    assert {name: check["found"] for name, check in checks.items() if not check["ok"]} == {}
    for agent in ("main", "research"):
        assert "written and recalled" in checks[f"openclaw agent {agent}"]["found"]


@pytest.mark.row("CP-18", "MW-26", level="e2e")
def test_the_log_tells_which_hooks_run_and_that_the_relayer_answers(told: Gateway) -> None:
    log = told.log_text()
    assert "memrelay: registered hooks: auto-recall, auto-capture" in log
    shown = json.loads(told.cli("memrelay", "stats", "--json").stdout)
    assert f"memrelay: connected (ok, {shown['version']})" in log
