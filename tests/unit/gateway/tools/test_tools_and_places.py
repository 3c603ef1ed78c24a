"""The model's memory tools where several people talk with one agent: what they may change there, and what a list shows."""

from __future__ import annotations

import html

import pytest

from gateway_plugin import AsyncMemoryPlugin
from gateway_plugin.hosts.openclaw.turns import host_turn
from gateway_plugin.tools import toolbox
from gateway_plugin.turn.gates import HostTurn
from relayer.testing.local_relayer import local_relayer

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
OWNER, BEN, MIA = "777", "302", "301"
WIFI, CORRECTED = (
    "The wifi in the cottage is called Seagull.",
    "The wifi in the cottage is called Albatross.",
)


class Chats:
    def __init__(self, plugin: AsyncMemoryPlugin) -> None:
        self.plugin = plugin

    async def says(self, sender: str, text: str, key: str) -> None:
        turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
        await self.plugin.after_turn(turn, session_key=key, host=_by(sender))
        assert await self.plugin.flush(60)

    async def call(self, tool: str, sender: str, key: str | None, **arguments: object):
        host = _by(sender) if key else HostTurn()
        return await self.plugin.tool(tool, arguments, session_key=key, host=host)

    async def listed(self, sender: str, key: str) -> dict[str, str]:
        """Return the ids of the memories that a list shows, by their texts."""
        told = (await self.call("memory_list", sender, key)).details["memories"]
        return {html.unescape(one["text"]): one["id"] for one in told}


def _by(sender: str) -> HostTurn:
    return host_turn({"channel": "telegram", "senderId": sender, "trigger": "user"})


def _direct(sender: str) -> str:
    return f"agent:main:telegram:direct:{sender}"


@pytest.fixture
async def chats(environ):
    async with (
        local_relayer(rate_limits="off") as relayer,
        AsyncMemoryPlugin(
            relayer.url, secret="11" * 32, environ=environ, settings={"owners": [f"telegram:{OWNER}"]}
        ) as made,
    ):
        yield Chats(made)


async def test_a_correction_stays_where_the_memory_was_said_and_with_who_said_it(chats):
    await chats.says(OWNER, f"Olga ({OWNER}): {WIFI}", GROUP)
    known = (await chats.listed(OWNER, MAIN))[WIFI]
    assert not (await chats.call("memory_update", OWNER, MAIN, ref=known, text=CORRECTED)).failed
    for sender, key in ((MIA, GROUP), (OWNER, MAIN)):
        assert list(await chats.listed(sender, key)) == [CORRECTED]
    (told,) = (await chats.call("memory_list", OWNER, MAIN)).details["memories"]
    # A model wrote the text, to the same person in the same group.
    assert told["voice"] == "said by the assistant in the group telegram:-100"


@pytest.mark.parametrize("tool", ["memory_update", "memory_forget"])
async def test_in_a_group_each_changes_what_they_said_themselves(chats, tool):
    await chats.says(OWNER, f"Olga ({OWNER}): {WIFI}", GROUP)
    await chats.says(BEN, f"Ben ({BEN}): I'm allergic to cats.", GROUP)
    await chats.call("memory_store", "", None, text="The office door opens at 8 and closes at 18.")
    text = {"text": "Something quite different."} if tool == "memory_update" else {}
    known = await chats.listed(BEN, GROUP)
    assert len(known) == 3
    for said, by in (("The office door opens at 8 and closes at 18.", BEN), (WIFI, BEN), (WIFI, MIA)):
        refused = await chats.call(tool, by, GROUP, ref=known[said], **text)
        assert refused.failed
        assert "only the person who said a memory may change it" in refused.text
    assert await chats.listed(BEN, GROUP) == known
    for said, by, key in (
        ("I'm allergic to cats.", BEN, GROUP),
        (WIFI, OWNER, GROUP),
        ("The office door opens at 8 and closes at 18.", OWNER, MAIN),
    ):
        assert not (await chats.call(tool, by, key, ref=known[said], **text)).failed


@pytest.mark.parametrize("tool", ["memory_update", "memory_forget"])
async def test_in_their_direct_chat_people_change_what_they_said_there_and_in_groups(chats, tool):
    await chats.says(BEN, f"Ben ({BEN}): I'm allergic to cats.", GROUP)
    await chats.says(BEN, "My locker number is 4711.", _direct(BEN))
    text = {"text": "Something quite different."} if tool == "memory_update" else {}
    known = await chats.listed(BEN, _direct(BEN))
    assert len(known) == 2
    for one in known.values():
        assert not (await chats.call(tool, BEN, _direct(BEN), ref=one, **text)).failed


async def test_a_list_goes_on_until_it_is_full_and_counts_nothing_of_others(chats, monkeypatch):
    lockers = [f"My locker number at the gym is {number}." for number in (4711, 5822, 6933)]
    for text in lockers[:2]:
        await chats.says(BEN, text, _direct(BEN))
    for number in range(5):
        await chats.says(MIA, f"Invoice {1000 + number} of the printing house is due.", _direct(MIA))
    await chats.says(BEN, lockers[2], _direct(BEN))
    first = await chats.call("memory_list", BEN, _direct(BEN), limit=2)
    assert [one["text"] for one in first.details["memories"]] == [lockers[2], lockers[1]]
    cursor = first.details["next_cursor"]
    assert f"(more with cursor {cursor})" in first.text
    rest = await chats.call("memory_list", BEN, _direct(BEN), limit=2, cursor=cursor)
    assert [one["text"] for one in rest.details["memories"]] == [lockers[0]]
    assert "next_cursor" not in rest.details
    assert "total" not in first.details
    assert "memories" not in (await chats.call("memory_status", BEN, _direct(BEN))).details
    assert (await chats.call("memory_list", OWNER, MAIN)).details["total"] == 8
    # A list ends before its time if there is too much of others.
    monkeypatch.setattr(toolbox, "_MOST_PAGES", 1)
    none = await chats.call(
        "memory_list", BEN, _direct(BEN), limit=2, cursor=first.details["memories"][0]["id"]
    )
    assert none.text == f"No memories up to here.\n(more with cursor {none.details['next_cursor']})"


async def test_a_memory_that_was_corrected_is_read_as_such(chats):
    await chats.says(OWNER, "The car is red.", MAIN)
    (known,) = (await chats.listed(OWNER, MAIN)).values()
    newer = (await chats.call("memory_update", OWNER, MAIN, ref=known, text="The car is blue.")).details["id"]
    read = await chats.call("memory_get", OWNER, MAIN, ref=known)
    assert read.text.splitlines()[0] == f"(today, corrected since by {newer}) The car is red."
    assert "corrected" not in (await chats.call("memory_get", OWNER, MAIN, ref=newer)).text
