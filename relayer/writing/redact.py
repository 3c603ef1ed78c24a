"""Taking secrets out of what is to be stored: before the extractor, the model and the log see it.

Gateways redact before they send. This is for those that do not: other clients, and older gateways.
"""

from __future__ import annotations

from typing import TypeVar

from relayer.lib.work import weight
from relayer.namespaces.context import Context
from relayer.wire.redaction import redact
from relayer.wire.schemas import MemoryItem, TurnItem

_Said = TypeVar("_Said", MemoryItem, TurnItem)


async def without_secrets(ctx: Context, account: str, said: tuple[_Said, ...]) -> tuple[_Said, ...]:
    """Return what was said without secrets; the same tuple where there are none or redaction is off."""
    given = [one.text for one in said]
    texts = await _redacted(ctx, account, given)
    if texts == given:
        return said
    return tuple(one.model_copy(update={"text": text}) for one, text in zip(said, texts, strict=True))


async def without_secrets_in(ctx: Context, account: str, text: str) -> str:
    """Return a text that holds no secrets; the same one where redaction is off."""
    return (await _redacted(ctx, account, [text]))[0]


async def _redacted(ctx: Context, account: str, texts: list[str]) -> list[str]:
    if not ctx.redacts:
        return texts
    return await ctx.texts.make(account, (redact(text).text for text in texts), weight(texts))
