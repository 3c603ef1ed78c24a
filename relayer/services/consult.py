"""Asking the language model about memories that were found: within the account's budget and the request's time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relayer.answering.material import Known, fitting
from relayer.errors import ModelAnswerUnusable, ModelUnavailable, QueueFull
from relayer.ports import ChatAnswer, ChatMessage, ChatModel
from relayer.services.access import Access
from relayer.services.context import ChatWork, Context
from relayer.services.deadline import Deadline
from relayer.services.recall import recall
from relayer.wire import schemas
from relayer.wire.answers import ActiveRecallRequest, AskRequest

__all__ = ["consult", "known_of", "models_for", "search"]

# What is left of the time for the answer after the model was given up.
_SPARE_SECONDS = 0.1
_LARGEST_SPARE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class _Question:
    messages: Sequence[ChatMessage]
    schema: Mapping[str, object] | None
    max_tokens: int
    effort: str


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
    models: Sequence[ChatModel] = (),
) -> ChatAnswer:
    """Ask a model once and count it; a request that ends takes the question with it.

    Args:
        ctx: the relayer.
        work: whose budget and bound hold.
        account: who pays.
        messages: as for `relayer.ports.ChatModel.complete`, as are the schema, the tokens and the effort.
        schema: see there.
        max_tokens: see there.
        deadline: of the request.
        effort: see there.
        models: in the order in which they are asked, each when the one before is not available; none are those of
            ``work``.

    Raises:
        TimeoutError: the request's time was up first, but for what it takes to answer.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `relayer.ports.ChatModel`.
    """
    order = list(models) or models_for(work)
    question = _Question(messages, schema, max_tokens, effort)
    for model in order[:-1]:
        with suppress(ModelUnavailable, QueueFull):
            return await _ask(ctx, work, account, model, question, deadline)
    return await _ask(ctx, work, account, order[-1], question, deadline)


def models_for(work: ChatWork, named: str = "", *, resolved_only: bool = False) -> list[ChatModel]:
    """Return the models to ask, in order: the one that was named if it is here, else the relayer's own; then the other one.

    Args:
        work: with the models that there are.
        named: by the request; empty for no wish.
        resolved_only: whether no other model than the named one, or without a name the relayer's own, is good enough.
    """
    known = [work.model, *([work.fallback] if work.fallback is not None else [])]
    wished = [model for model in known if model.name == named]
    if resolved_only:
        return wished if named else known[:1]
    return [*wished, *(model for model in known if model not in wished)]


async def _ask(  # noqa: PLR0917 - private, and called twice with the same names
    ctx: Context,
    work: ChatWork,
    account: str,
    model: ChatModel,
    question: _Question,
    deadline: Deadline,
) -> ChatAnswer:
    left = deadline.remaining()
    seconds = min(work.seconds, left - min(_SPARE_SECONDS, left * _LARGEST_SPARE_SHARE))
    spent = 0
    try:
        async with asyncio.timeout(seconds):
            answer = await model.complete(
                question.messages,
                schema=question.schema,
                max_tokens=question.max_tokens,
                seconds=seconds,
                effort=question.effort,
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
