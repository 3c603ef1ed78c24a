"""What a person at the chat can do with memories: list, search, show, add and hide them, and who may not."""

from __future__ import annotations

import re

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway
from processes import wait_until

KEPT = "The lock of the boat shed takes the code seven-seven-one."


@pytest.mark.row("MW-22", "MS-12", "OC-10", level="e2e")
def test_the_owner_lists_finds_shows_adds_and_forgets_memories_in_the_chat(
    gateway: Gateway, relayer: Relayer
) -> None:
    assert "Stored" in gateway.command(f"/remember {KEPT}")
    assert KEPT in relayer.memories(gateway)
    listed = gateway.command("/memory list")
    assert KEPT in listed
    assert KEPT in gateway.command("/memory search code of the boat shed")
    (memory,) = [line.split()[0] for line in listed.splitlines() if KEPT in line]
    assert KEPT in gateway.command(f"/memory show {memory}")
    assert "Forgotten" in gateway.command(f"/forget {memory}")
    assert KEPT not in gateway.command("/memory list")
    assert KEPT not in relayer.memories(gateway)
    assert "no such memory" in gateway.command(f"/memory show {memory}")
    assert "/memory remember TEXT" in gateway.command("/memory remember")
    stored = gateway.command("/memory remember My brother Enno repairs organs in Leer.")
    assert re.search("Stored 1", stored)


@pytest.mark.row("OC-10", level="e2e")
def test_groups_and_other_senders_are_told_why_they_may_not(gateway: Gateway, relayer: Relayer) -> None:
    gateway.command("/remember The alarm of the house is called sparrow.")
    group = "agent:main:telegram:group:-100123"
    for text in ("/memory list", "/memory search alarm", "/remember The moon is made of cheese."):
        refused = gateway.command(text, session=group)
        assert "direct chats only" in refused
        refused += gateway.command(text, admin=False)
        assert "is for the owner" in refused
        assert "sparrow" not in refused
    assert not [text for text in relayer.memories(gateway) if "cheese" in text]


@pytest.mark.row("OC-20", level="e2e")
def test_the_owner_switches_dreaming_in_a_direct_chat_and_the_setting_says_so(gateway: Gateway) -> None:
    assert gateway.command("/dreaming status").startswith("Dreaming: off\nschedule: 0 3 * * *")
    group = "agent:main:telegram:group:-100123"
    assert "direct chats only" in gateway.command("/dreaming on", session=group)
    assert "is for the owner" in gateway.command("/dreaming on", admin=False)
    assert "consolidation" not in gateway.settings
    # What the settings say otherwise stays.
    plugins = gateway.config()["plugins"]
    plugins["entries"]["memrelay"]["config"]["consolidation"] = {"schedule": "30 4 * * *"}
    gateway.reload(plugins)
    for word, enabled in (("on", True), ("off", False)):
        assert gateway.command(f"/dreaming {word}").startswith(f"Dreaming is {word}")
        wait_until(lambda on=word: gateway.command("/dreaming status").startswith(f"Dreaming: {on}"))
        assert gateway.settings["consolidation"] == {"schedule": "30 4 * * *", "enabled": enabled}
    helped = gateway.command("/dreaming help")
    assert "/dreaming on | off" in helped
    assert "schedule: 30 4 * * *" in helped
