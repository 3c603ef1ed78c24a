"""What a client did not redact, the relayer does, before anything is extracted or stored."""

from __future__ import annotations

from dataclasses import replace

from relayer.wire.schemas import MemoryItem, TurnItem
from relayer.writing.drafts import without_secrets, without_secrets_in

TOKEN = "gh" + "p_" + "Z9" * 18
TEXT = f"I push to the mirror with {TOKEN} every Monday."


async def test_items_and_turns_lose_their_secrets_and_nothing_else(house):
    (item,) = await without_secrets(house.ctx, "a", (MemoryItem(text=TEXT, pinned=True),))
    (turn,) = await without_secrets(house.ctx, "a", (TurnItem(role="user", text=TEXT),))
    for text in (item.text, turn.text, await without_secrets_in(house.ctx, "a", TEXT)):
        assert text == "I push to the mirror with [github token removed] every Monday."
    assert item.pinned


async def test_where_redaction_is_off_everything_is_kept(house):
    ctx = replace(house.ctx, redacts=False)
    items = (MemoryItem(text=TEXT),)
    assert await without_secrets(ctx, "a", items) is items
    assert await without_secrets_in(ctx, "a", TEXT) == TEXT


async def test_a_long_request_is_redacted_too(house):
    turns = tuple(TurnItem(role="user", text=f"{TEXT} " * 40) for _ in range(10))
    said = await without_secrets(house.ctx, "a", turns)
    assert not any(TOKEN in turn.text for turn in said)
