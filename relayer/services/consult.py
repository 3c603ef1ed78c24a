"""Asking the language model about memories that were found: within the account's budget and the request's time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from relayer.answering.material import Known, fitting
from relayer.errors import ModelAnswerUnusable, ModelUnavailable
from relayer.ports import ChatAnswer, ChatMessage
from relayer.services.access import Access
from relayer.services.context import ChatWork, Context
from relayer.services.deadline import Deadline
from relayer.services.recall import recall
from relayer.wire import schemas
from relayer.wire.answers import ActiveRecallRequest, AskRequest

__all__ = ["consult", "known_of", "search"]

# What is left of the time for the answer after the model was given up.
_SPARE_SECONDS = 0.1
_LARGEST_SPARE_SHARE = 0.1


async def search(
    ctx: Context, access: Access, request: ActiveRecallRequest | AskRequest, query: str, deadline: Deadline
) -> schemas.RecallResponse:
    """Find what the model is to read; raises as `recall`."""
    shared = {
        name: getattr(request, name) for name in schemas.RecallRequest.model_fields if hasattr(request, name)
    }
    return await recall(
        ctx, access, schemas.RecallRequest.model_validate(shared | {"query": query}), deadline
    )


def known_of(hits: Sequence[schemas.RecallHit]) -> list[Known]:
    """Return the hits as the model reads them: as many as it is shown."""
    known = [
        Known(hit.text, hit.created_at if hit.occurred_at is None else hit.occurred_at, hit.source.speaker)
        for hit in hits
    ]
    return known[: fitting(known)]


async def consult(
    ctx: Context,
    work: ChatWork,
    account: str,
    messages: Sequence[ChatMessage],
    *,
    schema: Mapping[str, object] | None,
    max_tokens: int,
    deadline: Deadline,
    effort: str = "",
) -> ChatAnswer:
    """Ask the model once and count it; a request that ends takes the question with it.

    Raises:
        TimeoutError: the request's time was up first, but for what it takes to answer.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `relayer.ports.ChatModel`.
    """
    left = deadline.remaining()
    seconds = min(work.seconds, left - min(_SPARE_SECONDS, left * _LARGEST_SPARE_SHARE))
    spent = 0
    try:
        async with asyncio.timeout(seconds):
            answer = await work.model.complete(
                messages, schema=schema, max_tokens=max_tokens, seconds=seconds, effort=effort
            )
        spent = answer.tokens
    except ModelAnswerUnusable as error:
        spent = error.tokens
        raise
    except ModelUnavailable as error:
        # The endpoint's own bound is the same; whichever came first, the time was up.
        if deadline.remaining() <= left - seconds:
            raise TimeoutError from error
        raise
    finally:
        work.budget.spend(account, spent, ctx.clock.now_ms())
    return answer
