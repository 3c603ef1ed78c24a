"""Active recall: search, let a model say what to remind of, and fall back to the hits when it cannot."""

from __future__ import annotations

import asyncio
from typing import Literal

from relayer.answering.reminder import MAX_TOKENS, ask_for_reminder, read_reminder
from relayer.errors import ModelAnswerUnusable, ModelUnavailable, QueueFull
from relayer.services.access import Access
from relayer.services.consult import consult, known_of, models_for, search
from relayer.services.context import Context
from relayer.services.deadline import Deadline
from relayer.wire.answers import ActiveRecallRequest, ActiveRecallResponse, FallbackReason
from relayer.wire.schemas import RecallResponse

__all__ = ["active_recall"]

# What a server is told as it is; the others leave it to the model.
_EFFORTS = frozenset({"minimal", "low", "medium", "high", "xhigh"})
# Models that reason take it out of the length of their answer.
_THOUGHT = 8


async def active_recall(
    ctx: Context, access: Access, request: ActiveRecallRequest, deadline: Deadline
) -> ActiveRecallResponse:
    """Answer with a reminder, with silence, or with what a direct recall would have answered.

    The model is asked about what was found, and not at all when nothing was. Whatever goes wrong with it, the hits are in
    hand and are answered within the deadline.

    Raises:
        RelayerError: as `relayer.services.recall.recall`.
    """
    found = await search(ctx, access, request, request.query, deadline)
    if not found.memories:
        return _answer(found, "empty")
    try:
        reminder = await _remind(ctx, access, request, found, deadline)
    except _Undecided as why:
        return _answer(found, "fallback", reason=why.reason)
    return _answer(found, "ok" if reminder else "empty", reminder)


class _Undecided(Exception):
    """Raised when no model says what helps."""

    def __init__(self, reason: FallbackReason) -> None:
        super().__init__(reason)
        self.reason = reason


async def _remind(
    ctx: Context, access: Access, request: ActiveRecallRequest, found: RecallResponse, deadline: Deadline
) -> str:
    """Return the model's reminder, empty for NONE."""
    work = ctx.chat
    if work is None:
        raise _Undecided("no_model")
    if work.budget.wait_ms(access.account, ctx.clock.now_ms()):
        raise _Undecided("over_budget")
    models = models_for(work, request.model, resolved_only=request.model_fallback == "resolved-only")
    if not models:
        raise _Undecided("no_model")
    memories = known_of(found.memories)
    messages = ask_for_reminder(request, memories)
    try:
        answer = await consult(
            ctx,
            work,
            access.account,
            messages,
            schema=None,
            max_tokens=MAX_TOKENS * (_THOUGHT if request.thinking in _EFFORTS else 1),
            deadline=deadline,
            models=models,
            effort=request.thinking if request.thinking in _EFFORTS else "",
        )
    except TimeoutError as error:
        raise _Undecided("model_timeout") from error
    except (ModelUnavailable, QueueFull) as error:
        raise _Undecided("model_unavailable") from error
    except ModelAnswerUnusable as error:
        if error.reason == "empty":
            return ""
        raise _Undecided("model_answer_unusable") from error
    # Words are compared one by one: not on the event loop when there are many.
    reminder = await asyncio.to_thread(read_reminder, answer.text, request, memories)
    if reminder.doubt:
        raise _Undecided("not_proved")
    return reminder.text


def _answer(
    found: RecallResponse,
    status: Literal["ok", "empty", "fallback"],
    summary: str = "",
    *,
    reason: FallbackReason | None = None,
) -> ActiveRecallResponse:
    return ActiveRecallResponse(
        status=status,
        summary=summary,
        reason=reason,
        memories=found.memories,
        position=found.position,
        degraded=found.degraded,
        considered=found.considered,
    )
