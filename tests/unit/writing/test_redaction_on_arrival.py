"""What a client did not redact, the relayer does, before anything is extracted or stored."""

from __future__ import annotations

from dataclasses import replace

from relayer.wire.schemas import AnalyzeRequest, MemoryItem, RememberRequest, TurnItem
from relayer.writing.redact import without_secrets, without_secrets_said

TOKEN = "gh" + "p_" + "Z9" * 18
TEXT = f"I push to the mirror with {TOKEN} every Monday."


async def test_items_and_turns_lose_their_secrets_and_nothing_else(house):
    remembered = await without_secrets(
        house.ctx, "a", RememberRequest(items=(MemoryItem(text=TEXT, pinned=True),))
    )
    said = await without_secrets_said(
        house.ctx, "a", AnalyzeRequest(turns=(TurnItem(role="user", text=TEXT),))
    )
    for text in (remembered.items[0].text, said.turns[0].text):
        assert text == "I push to the mirror with [redacted: github_token] every Monday."
    assert remembered.items[0].pinned


async def test_where_redaction_is_off_everything_is_kept(house):
    ctx = replace(house.ctx, redacts=False)
    request = RememberRequest(items=(MemoryItem(text=TEXT),))
    assert await without_secrets(ctx, "a", request) is request


async def test_a_long_request_is_redacted_too(house):
    turns = tuple(TurnItem(role="user", text=f"{TEXT} " * 40) for _ in range(10))
    said = await without_secrets_said(house.ctx, "a", AnalyzeRequest(turns=turns))
    assert not any(TOKEN in turn.text for turn in said.turns)
