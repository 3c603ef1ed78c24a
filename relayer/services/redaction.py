"""Taking secrets out of what is to be stored: before the extractor, the model and the log see it.

Gateways redact before they send. This is for those that do not: other clients, and older gateways.
"""

from __future__ import annotations

import asyncio

from relayer.services.context import Context
from relayer.wire.redaction import redact
from relayer.wire.schemas import AnalyzeRequest, RememberRequest

__all__ = ["without_secrets", "without_secrets_in", "without_secrets_said"]

# Above this, the search leaves the event loop: it takes a few ms for a thousand characters on a busy core.
_INLINE_CHARACTERS = 4096


async def without_secrets(ctx: Context, request: RememberRequest) -> RememberRequest:
    """Return a request whose texts hold no secrets; the same one where there are none or redaction is off."""
    if not ctx.redacts:
        return request
    given = [item.text for item in request.items]
    texts = await _redacted(given)
    if texts == given:
        return request
    items = [item.model_copy(update={"text": text}) for item, text in zip(request.items, texts, strict=True)]
    return request.model_copy(update={"items": tuple(items)})


async def without_secrets_said(ctx: Context, request: AnalyzeRequest) -> AnalyzeRequest:
    """Return a request whose turns hold no secrets; the same one where there are none or redaction is off."""
    if not ctx.redacts:
        return request
    given = [turn.text for turn in request.turns]
    texts = await _redacted(given)
    if texts == given:
        return request
    turns = [turn.model_copy(update={"text": text}) for turn, text in zip(request.turns, texts, strict=True)]
    return request.model_copy(update={"turns": tuple(turns)})


async def without_secrets_in(ctx: Context, text: str) -> str:
    """Return a text that holds no secrets; the same one where redaction is off."""
    return (await _redacted([text]))[0] if ctx.redacts else text


async def _redacted(texts: list[str]) -> list[str]:
    def work() -> list[str]:
        return [redact(text).text for text in texts]

    return work() if sum(map(len, texts)) <= _INLINE_CHARACTERS else await asyncio.to_thread(work)
