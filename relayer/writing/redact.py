"""Taking secrets out of what is to be stored: before the extractor, the model and the log see it.

Gateways redact before they send. This is for those that do not: other clients, and older gateways.
"""

from __future__ import annotations

from typing import TypeVar

from relayer.lib.shares import weight
from relayer.namespaces.context import Context
from relayer.wire.redaction import redact
from relayer.wire.schemas import AnalyzeRequest, MemoryItem, RememberRequest, TurnItem

_Said = TypeVar("_Said", MemoryItem, TurnItem)


async def without_secrets(ctx: Context, account: str, request: RememberRequest) -> RememberRequest:
    """Return a request whose texts hold no secrets; the same one where there are none or redaction is off."""
    items = await _without_secrets(ctx, account, request.items)
    return request if items is request.items else request.model_copy(update={"items": items})


async def without_secrets_said(ctx: Context, account: str, request: AnalyzeRequest) -> AnalyzeRequest:
    """Return a request whose turns hold no secrets; the same one where there are none or redaction is off."""
    turns = await _without_secrets(ctx, account, request.turns)
    return request if turns is request.turns else request.model_copy(update={"turns": turns})


async def without_secrets_in(ctx: Context, account: str, text: str) -> str:
    """Return a text that holds no secrets; the same one where redaction is off."""
    return (await _redacted(ctx, account, [text]))[0] if ctx.redacts else text


async def _without_secrets(ctx: Context, account: str, said: tuple[_Said, ...]) -> tuple[_Said, ...]:
    """Return the same tuple where there are no secrets or redaction is off."""
    given = [one.text for one in said]
    texts = await _redacted(ctx, account, given) if ctx.redacts else given
    if texts == given:
        return said
    return tuple(one.model_copy(update={"text": text}) for one, text in zip(said, texts, strict=True))


async def _redacted(ctx: Context, account: str, texts: list[str]) -> list[str]:
    return await ctx.texts.make(account, (redact(text).text for text in texts), weight(texts))
