"""Who is told what in a real gateway at default settings: two people, two groups, and the owner, each in their chats."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel

PREFIX = "agent:main:telegram:"
# By place: the session, what is said there, the word by which it is known, and a question about it.
TOLD = {
    "alice": ("direct:111", "My salary at the brewery is 4,321 euros a month.", "4,321", "What is the salary at the brewery?"),
    "bob": ("direct:222", "I am allergic to hazelnuts since my school days.", "hazelnuts", "Which allergy is there since school days?"),
    "choir": ("group:-100", "The surprise party for Rosa is on Friday in the boathouse.", "boathouse", "Where is the surprise party for Rosa?"),
    "crew": ("group:-200", "Our launch has the codename Pelican until October.", "Pelican", "What is the codename of our launch?"),
    "owner": ("direct:777", "The alarm code of my summer cottage is on the back of the blue clock.", "blue clock", "Where is the alarm code of the summer cottage?"),
}  # fmt: skip


def say(gateway: Gateway, place: str, text: str) -> None:
    headers = {"x-openclaw-session-key": PREFIX + TOLD[place][0], "x-openclaw-message-channel": "telegram"}
    gateway.chat(text, user="", headers=headers)


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway that keeps direct chats apart, in which each fact was told in its place."""
    folder = tmp_path_factory.mktemp("openclaw-people")
    gateway = Gateway(openclaw, folder, model.url, plugins=memrelay_plugins(relayer.url), agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    apart = {"session": {"dmScope": "per-channel-peer"}, "commands": {"ownerAllowFrom": ["telegram:777"]}}
    gateway.write_config(gateway.config() | apart)
    gateway.start()
    for place, (_, fact, _, _) in TOLD.items():
        say(gateway, place, fact)
    wait_until(lambda: {fact for _, fact, _, _ in TOLD.values()} <= set(stored(gateway, relayer)))
    yield gateway
    gateway.stop()


def stored(gateway: Gateway, relayer: Relayer) -> list[str]:
    return [text for place in (None,) for text in relayer.memories(gateway, place)]


def heard(text: str) -> set[str]:
    return {place for place, (_, _, word, _) in TOLD.items() if word in text}


@pytest.mark.row("OC-01", "OC-02", level="e2e")
def test_what_is_said_in_a_chat_is_in_no_prompt_of_another_chat(gateway: Gateway, model: StubModel) -> None:
    crossed, missing = [], []
    for place in TOLD:
        for subject, (_, _, _, question) in TOLD.items():
            asked = f"{question} I ask that in {place}."
            say(gateway, place, asked)
            request = json.dumps(model.asked(asked)[-1]["messages"], ensure_ascii=False)
            # The chat's own history has what was said in it: only what others said counts.
            crossed += [(other, place) for other in heard(request) - {place}]
            if place == subject and place not in heard(request):
                missing.append(place)
    assert (crossed, missing) == ([], [])


@pytest.mark.row("OC-01", "OC-02", level="e2e")
def test_the_tools_find_in_a_chat_what_was_said_in_it_alone(gateway: Gateway) -> None:
    found = {}
    for place, (session, _, _, _) in TOLD.items():
        texts = [
            json.dumps(
                gateway.invoke("memory_search", {"query": question, "limit": 20}, session=PREFIX + session)
            )
            for _, _, _, question in TOLD.values()
        ]
        found[place] = heard("".join(texts))
    # The owner's search says what was said in a group, if the question is about it.
    assert found == {place: {place} for place in TOLD if place != "owner"} | {"owner": {"owner"}}


@pytest.mark.row("OC-02", level="e2e")
def test_doctor_says_how_people_are_kept_apart_and_who_is_the_owner(gateway: Gateway) -> None:
    told = gateway.cli("memrelay", "doctor", "--host", "openclaw").stdout
    assert "direct chats are kept apart, and so are their memories; the owner is telegram:777" in told
