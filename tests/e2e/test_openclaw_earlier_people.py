"""What people said before the plugin was there keeps its place: told in that group or chat, and to the owner with its label."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

PREFIX = "agent:main:"
# By place: the session, who said it with the name that the platform shows, what was said, and a question about it.
TOLD = {
    "alice": ("telegram:direct:111", ("111", "Alice"), "My salary at the brewery is 4,321 euros a month.", "What is the salary at the brewery?"),
    "choir": ("telegram:group:-100", ("222", "Rosalind"), "The surprise party for Edda is on Friday in the boathouse.", "Where is the surprise party for Edda?"),
    "news": ("discord:channel:900", ("333", "Torben"), "Our launch has the codename Pelican until October.", "What is the codename of our launch?"),
    "owner": ("telegram:direct:777", ("777", "Wren"), "The alarm code of my summer cottage is on the back of the blue clock.", "Where is the alarm code of the summer cottage?"),
}  # fmt: skip
# What somebody wrote in the session of all, from when direct chats were not kept apart.
STRANGER = "The stranger keeps seventeen geese in the courtyard."


def say(gateway: Gateway, session: str, text: str) -> None:
    headers = {
        "x-openclaw-session-key": PREFIX + session,
        "x-openclaw-message-channel": session.partition(":")[0],
    }
    gateway.chat(text, user="", headers=headers)


def sign(gateway: Gateway) -> None:
    """Say in the host's database who wrote each message, as the host does for messages that come over a platform."""
    senders = {text: (sender, name, sender == "777") for _, (sender, name), text, _ in TOLD.values()}
    senders[STRANGER] = ("444", "Udo", False)
    place = gateway.state / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    signed = 0
    with closing(sqlite3.connect(place)) as log:
        # The host's table checks its rows by a function that older versions of SQLite do not have.
        log.create_function("octet_length", 1, lambda value: len(value.encode()), deterministic=True)
        rows = log.execute("SELECT session_id, seq, event_json FROM transcript_events").fetchall()
        for session, seq, text in rows:
            event = json.loads(text)
            message = event.get("message", {})
            words = message.get("content")
            words = words if isinstance(words, str) else "".join(part.get("text", "") for part in words or ())
            known = next((one for fact, one in senders.items() if words.endswith(fact)), None)
            if message.get("role") != "user" or known is None:
                continue
            sender, name, owner = known
            told = {"senderId": sender, "senderName": name, "senderIsOwner": owner}
            message["__openclaw"] = {**message.get("__openclaw", {}), **told}
            compact = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
            log.execute(
                "UPDATE transcript_events SET event_json = ?, navigation_json = NULL WHERE session_id = ? AND seq = ?",
                (compact, session, seq),
            )
            signed += 1
        log.commit()
    assert signed == len(senders)


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway in which people chatted before the plugin was there, and whose memory covers its sessions."""
    folder = tmp_path_factory.mktemp("openclaw-earlier-people")
    before: dict[str, Any] = {"entries": {}}
    gateway = Gateway(openclaw, folder, model.url, plugins=before, agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    apart = {
        "session": {"dmScope": "per-channel-peer"},
        "commands": {"ownerAllowFrom": ["telegram:777"]},
        "memory": {"search": {"sources": ["memory", "sessions"]}},
    }
    gateway.write_config(gateway.config() | apart)
    try:
        gateway.start()
        for session, _, fact, _ in TOLD.values():
            say(gateway, session, fact)
        say(gateway, "main", STRANGER)
        gateway.stop()
        sign(gateway)
        gateway.write_config(gateway.config() | {"plugins": memrelay_plugins(relayer.url)})
        gateway.start()
        facts = {fact for _, _, fact, _ in TOLD.values()}
        wait_until(lambda: facts <= set(relayer.memories(gateway)))
        yield gateway
    finally:
        gateway.stop()


def heard(text: str) -> set[str]:
    words = {"alice": "4,321", "choir": "boathouse", "news": "Pelican", "owner": "blue clock"}
    return {place for place, word in words.items() if word in text}


@pytest.mark.row("OC-07", "OC-01", "OC-02", level="e2e")
def test_what_was_said_before_is_told_in_its_own_place_alone(gateway: Gateway) -> None:
    found = {}
    for place, (session, _, _, _) in TOLD.items():
        answers = [
            gateway.invoke(
                "memory_search", {"query": question, "corpus": "sessions"}, session=PREFIX + session
            )
            for _, _, _, question in TOLD.values()
        ]
        found[place] = heard(json.dumps(answers))
    assert found == {place: {place} for place in TOLD}


@pytest.mark.row("OC-07", "OC-01", level="e2e")
def test_the_group_is_told_with_the_speakers_name_and_the_owner_with_the_group_too(
    gateway: Gateway, model: StubModel
) -> None:
    say(gateway, TOLD["choir"][0], "Where is the surprise party for Edda, once more?")
    prompt = json.dumps(model.asked("Edda, once more?")[-1], ensure_ascii=False)
    assert "boathouse" in prompt
    asked = "What did Rosalind say about the surprise party for Edda?"
    say(gateway, TOLD["owner"][0], asked)
    told = said(model.asked(asked)[-1])
    assert "boathouse" in told
    assert "said by Rosalind in the group telegram:-100" in told
    say(gateway, TOLD["alice"][0], f"{asked} Tell me, please.")
    assert "boathouse" not in json.dumps(model.asked("Tell me, please.")[-1])


def test_what_another_person_said_in_a_session_of_all_is_not_taken_for_the_owners(
    gateway: Gateway, relayer: Relayer
) -> None:
    assert STRANGER not in relayer.memories(gateway)
