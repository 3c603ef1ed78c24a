"""Ask: answer a question from memories alone, with the memories that the answer rests on, or say that they do not tell."""

from __future__ import annotations

import asyncio

from relayer.answering.cited import MAX_TOKENS, SCHEMA, ask_for_answer, read_cited
from relayer.errors import DeadlineExceeded, Refused
from relayer.services.access import Access
from relayer.services.consult import consult, known_of, search
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.wire.answers import AskRequest, AskResponse

__all__ = ["ask"]


async def ask(ctx: Context, access: Access, request: AskRequest, deadline: Deadline) -> AskResponse:
    """Answer a question; when nothing is found, no model is asked.

    Raises:
        Refused: ``no_model`` (none is configured) or ``over_budget``.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: no answer could be had.
        DeadlineExceeded: the model took longer than there was time.
        RelayerError: as `relayer.services.recall.recall`.
    """
    work = ctx.chat
    if work is None:
        raise Refused(
            "no_model",
            "this relayer has no language model: its operator starts it with --model-url and --model-name",
        )
    if work.budget.wait_ms(access.account, ctx.clock.now_ms()):
        raise Refused(
            "over_budget", "this account's use of the language model is up for today: ask tomorrow (UTC)"
        )
    found = await search(ctx, access, request, request.question, deadline)
    common = {"position": found.position, "degraded": found.degraded, "considered": found.considered}
    memories = known_of(found.memories)
    if not memories:
        return AskResponse.model_validate({"status": "unknown"} | common)
    try:
        answer = await consult(
            ctx,
            work,
            access.account,
            ask_for_answer(request, memories),
            schema=SCHEMA,
            max_tokens=MAX_TOKENS,
            deadline=deadline,
        )
    except TimeoutError as error:
        raise DeadlineExceeded("model") from error
    # Words are compared one by one: not on the event loop when there are many.
    cited = await asyncio.to_thread(read_cited, answer.text, request, memories, answer.tokens)
    if not cited.text:
        reason = "not_proved" if cited.doubt else None
        return AskResponse.model_validate({"status": "unknown", "reason": reason} | common)
    citations = tuple(found.memories[index] for index in cited.citations)
    return AskResponse.model_validate(
        {"status": "answered", "answer": cited.text, "citations": citations} | common
    )
