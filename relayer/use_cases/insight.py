"""Asking a language model about memories: an answer with citations, or a reminder before a turn, checked against them.

Prompts are files, one for each version; a version is never changed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

import msgspec

from relayer.access.accounts import Access
from relayer.errors import DeadlineExceeded, ModelAnswerUnusable, ModelUnavailable, QueueFull, Refused
from relayer.extraction.llm.borrowed import BorrowedModel, ModelToBeAsked
from relayer.extraction.llm.conversation import day_of, json_in
from relayer.extraction.llm.evidence import Doubt, Ground, doubt_of
from relayer.lib.job_queue import DailyLimits, ModelBudget
from relayer.lib.work import Deadline
from relayer.namespaces.context import ChatWork, Context
from relayer.ports import ChatAnswer, ChatMessage, ChatModel
from relayer.use_cases.recall import recall
from relayer.wire import schemas
from relayer.wire.fields import clip, is_no_recall, one_line, remove_invisible
from relayer.wire.memories import (
    ActiveRecallRequest,
    ActiveRecallResponse,
    AskRequest,
    AskResponse,
    FallbackReason,
    StyleName,
)
from relayer.wire.schemas import RecallResponse

_VERSION = "1"


def active_prompt(style: StyleName, characters: int) -> str:
    """Return what a model is told that chooses a reminder: the common rules, then the style's."""
    rules = _read(f"active/{_VERSION}.txt").replace("{characters}", str(characters))
    return f"{rules}\n{_read(f'active/{_VERSION}.{style}.txt')}"


def ask_prompt(characters: int) -> str:
    """Return what a model is told that answers a question."""
    return _read(f"ask/{_VERSION}.txt").replace("{characters}", str(characters))


def _read(name: str) -> str:
    return (files("relayer.use_cases") / "prompts" / name).read_text("utf-8")


# Words that begin a sentence with a capital and name nobody.
_ADDRESS = re.compile(r"\b(?:You|Your|Yours|Yes|No|He|His|She|Her|They|Their|We|Our|According)\b")
_MOST_CHARACTERS = 2000
_MOST_IN_ALL = 24_000


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A memory as a model reads it; ``at_ms`` is when it happened or was stored."""

    text: str
    at_ms: int
    speaker: str = ""

    @property
    def shown(self) -> str:
        """As much of the text as is shown, and as may be evidence."""
        return self.text[:_MOST_CHARACTERS]

    @property
    def day(self) -> str:
        """The day in words and figures."""
        day = day_of(self.at_ms)
        return "" if day is None else f"{day:%A}, {day.day} {day:%B %Y} ({day.date().isoformat()})"


def render(memories: Sequence[Excerpt], **said: str) -> str:
    """Return the user message: what was said, under its names, and the memories, numbered from 1."""
    document: dict[str, object] = {
        "memories": [
            {"number": number, "when": memory.day, "speaker": memory.speaker, "text": memory.shown}
            for number, memory in enumerate(memories, 1)
        ],
    }
    return json.dumps(document | said, ensure_ascii=False, indent=1)


def fitting(memories: Sequence[Excerpt]) -> int:
    """Return how many of the memories, best first, a model is shown: whole ones, within a bound for all."""
    room = _MOST_IN_ALL
    for number, memory in enumerate(memories):
        room -= len(memory.shown)
        if room < 0:
            return max(number, 1)
    return len(memories)


def doubt_about(text: str, memories: Sequence[Excerpt], *said: str) -> Doubt | None:
    """Return why neither the memories nor what was said bear a text out; None when they do.

    Names and numbers must stand in them; see `relayer.extraction.llm.evidence`. How a list is numbered and whom it
    addresses says nothing.
    """
    parts = (part for memory in memories for part in (memory.shown, memory.speaker, memory.day))
    plain = _ADDRESS.sub(lambda match: match[0].lower(), _without_numbering(text))
    return doubt_of(plain, Ground.of([*parts, *said]))


def _without_numbering(text: str) -> str:
    """Take the numbers of a list out, from 1 on in their order: no other number looks like the next item's."""
    kept, rest = "", text.lstrip()
    number = 1
    while (match := re.search(rf"(?:^|\s){number}[.)](?=\s)", rest)) is not None and (
        number > 1 or not match.start()
    ):
        kept += rest[: match.start()]
        rest = rest[match.end() :]
        number += 1
    return kept + rest


# What is left of the time for the answer after the model was given up.
_SPARE_SECONDS = 0.1
_LARGEST_SPARE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked; the fields are those of `relayer.ports.ChatModel.complete`."""

    messages: Sequence[ChatMessage]
    max_tokens: int
    schema: Mapping[str, object] | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """A model's text, and the indexes of the memories that it cites; empty where it says nothing that helps.

    ``doubt`` says why a text was dropped.
    """

    text: str
    citations: tuple[int, ...] = ()
    doubt: str = ""


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


def excerpts_of(hits: Sequence[schemas.RecallHit]) -> list[Excerpt]:
    """Return the hits as the model reads them: as many as it is shown."""
    known = [
        Excerpt(hit.text, hit.created_at if hit.occurred_at is None else hit.occurred_at, hit.source.speaker)
        for hit in hits
    ]
    return known[: fitting(known)]


async def consult(
    ctx: Context,
    work: ChatWork,
    account: str,
    question: Question,
    deadline: Deadline,
    *,
    models: Sequence[ChatModel] = (),
) -> ChatAnswer:
    """Ask a model once and count it for an account; a request that ends takes the question with it.

    ``models`` are asked in their order, each when the one before is not available; none are those of ``work``.

    Raises:
        TimeoutError: the request's time was up first, but for what it takes to answer.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `relayer.ports.ChatModel`.
    """
    order = list(models) or models_for(work)
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
    question: Question,
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
    return replace(answer, model=answer.model or model.name)


CITED_TOKENS = 2048
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "citations": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["answer", "citations"],
    "additionalProperties": False,
}


class _CitedAnswer(msgspec.Struct, frozen=True):
    answer: str | None = None
    citations: list[int] = []


_DECODER = msgspec.json.Decoder(_CitedAnswer)


def ask_for_answer(request: AskRequest, memories: Sequence[Excerpt]) -> tuple[ChatMessage, ...]:
    """Return the messages that ask a question about memories."""
    told = ask_prompt(request.max_chars)
    return ChatMessage("system", told), ChatMessage("user", render(memories, question=request.question))


def read_cited(answer: str, request: AskRequest, memories: Sequence[Excerpt], tokens: int = 0) -> Checked:
    """Read a model's answer; one that cites nothing, or says what its memories do not, is none.

    Raises:
        ModelAnswerUnusable: ``not_json`` or ``wrong_shape``.
    """
    if is_no_recall(answer):
        return Checked("")
    raw = json_in(answer)
    if raw is None:
        raise ModelAnswerUnusable("not_json", tokens)
    try:
        read = _DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise ModelAnswerUnusable("wrong_shape", tokens) from None
    text = remove_invisible(read.answer or "").strip()
    if is_no_recall(text):
        return Checked("")
    cited = tuple(dict.fromkeys(number - 1 for number in read.citations if 1 <= number <= len(memories)))
    if not cited:
        return Checked("", doubt="nothing_cited")
    doubt = doubt_about(text, [memories[index] for index in cited], request.question)
    # An answer is put in words of its own; names and numbers are what must not be made up.
    if doubt is not None and doubt is not Doubt.WORDS:
        return Checked("", doubt=doubt.value)
    return Checked(clip(text, request.max_chars), cited)


async def ask(ctx: Context, access: Access, request: AskRequest, deadline: Deadline) -> AskResponse:
    """Answer a question; when nothing is found, no model is asked.

    Raises:
        Refused: ``no_model`` (none is configured) or ``over_budget``.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: no answer could be had.
        DeadlineExceeded: the model took longer than there was time.
        RelayerError: as `relayer.use_cases.recall.recall`.
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
    memories = excerpts_of(found.memories)
    if not memories:
        return AskResponse.model_validate({"status": "unknown"} | common)
    try:
        question = Question(ask_for_answer(request, memories), CITED_TOKENS, SCHEMA)
        answer = await consult(ctx, work, access.account, question, deadline)
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


# Enough for the longest summary allowed, in any script; what is longer is cut at a word anyway.
REMINDER_TOKENS = 1024


def ask_for_reminder(request: ActiveRecallRequest, memories: Sequence[Excerpt]) -> tuple[ChatMessage, ...]:
    """Return the messages that ask for a reminder."""
    told = request.prompt_override or active_prompt(request.style, request.max_chars)
    if request.prompt_append:
        told = f"{told}\n{request.prompt_append}"
    said = render(memories, conversation=request.context or request.query, latest_message=request.query)
    return ChatMessage("system", told), ChatMessage("user", said)


def read_reminder(answer: str, request: ActiveRecallRequest, memories: Sequence[Excerpt]) -> Checked:
    """Read a model's answer: one line, cut at a word, and nothing that no memory says."""
    line = one_line(answer)
    if is_no_recall(line):
        return Checked("")
    doubt = doubt_about(line, memories, request.query, request.context)
    if doubt is not None:
        return Checked("", doubt=doubt.value)
    return Checked(clip(line, request.max_chars))


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
        RelayerError: as `relayer.use_cases.recall.recall`.
    """
    found = await search(ctx, access, request, request.query, deadline)
    if not found.memories:
        return _answer(found, "empty")
    missing = ctx.chat is not None and bool(request.model) and not _has(ctx.chat, request.model)
    try:
        reminder, model = await _remind(ctx, access, request, found, deadline)
    except ModelToBeAsked as asked:
        return _answer(found, "ask").model_copy(update={"question": asked.question, "model_missing": missing})
    except _Undecided as why:
        answer = _answer(found, "fallback", reason=why.reason)
        return answer.model_copy(update={"model_missing": missing})
    answer = _answer(found, "ok" if reminder else "empty", reminder)
    return answer.model_copy(update={"model": model, "model_missing": missing})


class _Undecided(Exception):
    """Raised when no model says what helps."""

    def __init__(self, reason: FallbackReason) -> None:
        super().__init__(reason)
        self.reason = reason


async def _remind(
    ctx: Context, access: Access, request: ActiveRecallRequest, found: RecallResponse, deadline: Deadline
) -> tuple[str, str]:
    """Return the model's reminder, empty for NONE, and the name of the model.

    Raises:
        ModelToBeAsked: it is the gateway's model that decides, and it has not answered this yet.
        _Undecided: no model says what helps.
    """
    work, models = _reminders(ctx, request)
    if work.budget.wait_ms(access.account, ctx.clock.now_ms()):
        raise _Undecided("over_budget")
    memories = excerpts_of(found.memories)
    thinks = request.thinking in _EFFORTS
    question = Question(
        ask_for_reminder(request, memories),
        REMINDER_TOKENS * (_THOUGHT if thinks else 1),
        effort=request.thinking if thinks else "",
    )
    try:
        answer = await consult(ctx, work, access.account, question, deadline, models=models)
    except TimeoutError as error:
        raise _Undecided("model_timeout") from error
    except (ModelUnavailable, QueueFull) as error:
        raise _Undecided("model_unavailable") from error
    except ModelAnswerUnusable as error:
        if error.reason == "empty":
            return "", ""
        raise _Undecided("model_answer_unusable") from error
    # Words are compared one by one: not on the event loop when there are many.
    reminder = await asyncio.to_thread(read_reminder, answer.text, request, memories)
    if reminder.doubt:
        raise _Undecided("not_proved")
    return reminder.text, answer.model


def _reminders(ctx: Context, request: ActiveRecallRequest) -> tuple[ChatWork, Sequence[ChatModel]]:
    """Return the models to ask: the relayer's, or the gateway's where the relayer has none, or not the one that is meant."""
    if ctx.chat is not None:
        only = request.model_fallback == "resolved-only"
        models = models_for(ctx.chat, request.model, resolved_only=only)
        if models:
            return ctx.chat, models
    if not request.host_model:
        raise _Undecided("no_model")
    borrowed = BorrowedModel(request.answer)
    return ChatWork(borrowed, ModelBudget(DailyLimits())), [borrowed]


def _has(work: ChatWork, named: str) -> bool:
    """Whether a model of this name is here."""
    return any(model.name == named for model in (work.model, work.fallback) if model is not None)


def _answer(
    found: RecallResponse,
    status: Literal["ok", "empty", "fallback", "ask"],
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
