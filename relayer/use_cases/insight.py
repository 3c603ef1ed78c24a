"""Use cases that ask a language model about memories: an answer with citations (`ask`), a reminder for a turn (`active_recall`).

Both search with `relayer.use_cases.recall` and do not ask a model if nothing was found. They render the hits as a numbered
document, send it with one prompt (`consult`), and check the completion against the memories: `doubt_about` drops a text whose
names or numbers do not occur in them. `ask` then returns no answer, and `active_recall` returns the hits themselves. Prompts are
files, one for each version; a version is never changed.
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
from relayer.extraction.llm.conversation import day_of, decode_answer
from relayer.extraction.llm.evidence import Doubt, Ground, doubt_of
from relayer.lib.job_queue import DailyLimits, ModelBudget
from relayer.lib.work import Deadline
from relayer.namespaces.context import ChatWork, Context
from relayer.ports import ChatAnswer, ChatMessage, ChatModel
from relayer.use_cases.recall import recall
from relayer.wire import schemas as wire
from relayer.wire.fields import clip, is_no_recall, one_line, remove_invisible

_VERSION = "1"


def active_prompt(style: wire.StyleName, characters: int) -> str:
    """Return the system prompt for a reminder of up to ``characters`` characters: the common rules, then those of the style."""
    rules = _read(f"active/{_VERSION}.txt").replace("{characters}", str(characters))
    return f"{rules}\n{_read(f'active/{_VERSION}.{style}.txt')}"


def _read(name: str) -> str:
    return (files("relayer.use_cases") / "prompts" / name).read_text("utf-8")


# Words that begin a sentence with a capital letter and are not names.
_ADDRESS = re.compile(r"\b(?:You|Your|Yours|Yes|No|He|His|She|Her|They|Their|We|Our|According)\b")
# Maximum characters of one memory, and of all memories, in a prompt.
_MOST_CHARACTERS = 2000
_MOST_IN_ALL = 24_000


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A memory as it appears in a prompt; ``at_ms`` is when it happened or else was stored, in ms since the epoch."""

    text: str
    at_ms: int
    speaker: str = ""

    @property
    def shown(self) -> str:
        """The part of the text that the model reads, and that its completion is checked against."""
        return self.text[:_MOST_CHARACTERS]

    @property
    def day(self) -> str:
        """The day as a date, in words and in ISO format; empty if ``at_ms`` is no valid date."""
        day = day_of(self.at_ms)
        return "" if day is None else f"{day:%A}, {day.day} {day:%B %Y} ({day.date().isoformat()})"


def render(memories: Sequence[Excerpt], **said: str) -> str:
    """Return the user message as JSON: the memories, numbered from 1, and the texts in ``said`` under their names."""
    document: dict[str, object] = {
        "memories": [
            {"number": number, "when": memory.day, "speaker": memory.speaker, "text": memory.shown}
            for number, memory in enumerate(memories, 1)
        ]
    }
    return json.dumps(document | said, ensure_ascii=False, indent=1)


def doubt_about(text: str, memories: Sequence[Excerpt], *said: str) -> Doubt | None:
    """Return why a text is not supported by the memories and by what was said; None if it is supported.

    Its names and numbers must occur in them, see `relayer.extraction.llm.evidence`. The numbering of a list and capitalized words
    such as "You" and "Yes" are ignored.
    """
    parts = (part for memory in memories for part in (memory.shown, memory.speaker, memory.day))
    plain = _ADDRESS.sub(lambda match: match[0].lower(), _without_numbering(text))
    return doubt_of(plain, Ground.from_texts([*parts, *said]))


def _without_numbering(text: str) -> str:
    """Remove the numbers of a list, from 1 on in ascending order, so that other numbers of the text remain."""
    kept, rest = "", text.lstrip()
    number = 1
    while (match := re.search(rf"(?:^|\s){number}[.)](?=\s)", rest)) is not None and (
        number > 1 or not match.start()
    ):
        kept += rest[: match.start()]
        rest = rest[match.end() :]
        number += 1
    return kept + rest


# Seconds, and the largest share of the remaining time, that are reserved for the response if the model is too slow.
_SPARE_SECONDS = 0.1
_LARGEST_SPARE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt for a model: what the system tells it, what the user says, and options of `relayer.ports.ChatModel.complete`."""

    told: str
    said: str
    max_tokens: int
    schema: Mapping[str, object] | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked completion of a model.

    Attributes:
        text: empty if the model found nothing helpful, or if its text was dropped.
        citations: indexes of the memories that the text cites.
        doubt: why a text was dropped; empty if none was.
    """

    text: str
    citations: tuple[int, ...] = ()
    doubt: str = ""


async def search(
    ctx: Context,
    access: Access,
    request: wire.ActiveRecallRequest | wire.AskRequest,
    query: str,
    deadline: Deadline,
) -> wire.RecallResponse:
    """Search the memories that the model is to read, with the options of the request; raises as `recall`."""
    shared = {
        name: getattr(request, name) for name in wire.RecallRequest.model_fields if hasattr(request, name)
    }
    # An answer is asked for, a reminder is not.
    shared |= {"query": query, "unasked": isinstance(request, wire.ActiveRecallRequest)}
    return await recall(ctx, access, wire.RecallRequest.model_validate(shared), deadline)


def excerpts_of(hits: Sequence[wire.RecallHit]) -> list[Excerpt]:
    """Return the hits as they appear in a prompt, as many as fit; at least one if there is any."""
    known: list[Excerpt] = []
    room = _MOST_IN_ALL
    for hit in hits:
        at = hit.created_at if hit.occurred_at is None else hit.occurred_at
        excerpt = Excerpt(hit.text, at, hit.source.speaker)
        room -= len(excerpt.shown)
        if known and room < 0:
            break
        known.append(excerpt)
    return known


async def consult(
    ctx: Context,
    work: ChatWork,
    account: str,
    question: Question,
    deadline: Deadline,
    *,
    models: Sequence[ChatModel] = (),
) -> ChatAnswer:
    """Complete a prompt and count the tokens for an account. If the request is cancelled, so is the completion.

    The ``models`` are tried in this order, each if the one before is not available; empty for those of ``work``.

    Raises:
        TimeoutError: the model took longer than the remaining time, less a reserve for the response.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `relayer.ports.ChatModel`.
    """
    order = list(models) or models_for(work)
    for model in order[:-1]:
        with suppress(ModelUnavailable, QueueFull):
            return await _ask(ctx, work, account, model, question, deadline)
    return await _ask(ctx, work, account, order[-1], question, deadline)


def models_for(work: ChatWork, named: str = "", *, resolved_only: bool = False) -> list[ChatModel]:
    """Return the models to try, in order: the named one if the relayer has it, otherwise its main model; then the other one.

    With ``resolved_only``, only the named model is returned, or only the main model if none is named.
    """
    known = [work.model, *([work.fallback] if work.fallback is not None else [])]
    wished = [model for model in known if model.name == named]
    if resolved_only:
        return wished if named else known[:1]
    return [*wished, *(model for model in known if model not in wished)]


async def _ask(  # noqa: PLR0917 - private, and called twice with the same names
    ctx: Context, work: ChatWork, account: str, model: ChatModel, question: Question, deadline: Deadline
) -> ChatAnswer:
    left = deadline.remaining()
    seconds = min(work.seconds, left - min(_SPARE_SECONDS, left * _LARGEST_SPARE_SHARE))
    spent = 0
    try:
        async with asyncio.timeout(seconds):
            answer = await model.complete(
                [ChatMessage("system", question.told), ChatMessage("user", question.said)],
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
        # The endpoint has the same timeout and may raise first.
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


def read_cited(
    answer: str, request: wire.AskRequest, memories: Sequence[Excerpt], tokens: int = 0
) -> Checked:
    """Parse and check a completion; the text is dropped if it cites nothing, or has names or numbers that its memories lack.

    The error says how many ``tokens`` the completion cost. Raises `ModelAnswerUnusable`: ``not_json`` or ``wrong_shape``.
    """
    if is_no_recall(answer):
        return Checked("")
    read = decode_answer(answer, tokens, _DECODER)
    if read is None:  # "silent" and the like; what means "nothing to recall" was returned above
        raise ModelAnswerUnusable("not_json", tokens)
    text = remove_invisible(read.answer or "").strip()
    if is_no_recall(text):
        return Checked("")
    cited = tuple(dict.fromkeys(number - 1 for number in read.citations if 1 <= number <= len(memories)))
    if not cited:
        return Checked("", doubt="nothing_cited")
    doubt = doubt_about(text, [memories[index] for index in cited], request.question)
    # An answer may use words that do not occur in the memories, but its names and numbers must not be invented.
    if doubt is not None and doubt is not Doubt.WORDS:
        return Checked("", doubt=doubt.value)
    return Checked(clip(text, request.max_chars), cited)


async def ask(ctx: Context, access: Access, request: wire.AskRequest, deadline: Deadline) -> wire.AskResponse:
    """Answer a question from memories, with citations. No model is asked if nothing is found.

    Raises:
        Refused: ``no_model`` (none is configured) or ``over_budget``.
        ModelUnavailable, ModelAnswerUnusable, QueueFull: the model returned no usable completion.
        DeadlineExceeded: the model took longer than the remaining time.
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
        return wire.AskResponse.model_validate({"status": "unknown"} | common)
    try:
        told = _read(f"ask/{_VERSION}.txt").replace("{characters}", str(request.max_chars))
        question = Question(told, render(memories, question=request.question), CITED_TOKENS, SCHEMA)
        answer = await consult(ctx, work, access.account, question, deadline)
    except TimeoutError as error:
        raise DeadlineExceeded("model") from error
    # Comparing many words would block the event loop.
    cited = await asyncio.to_thread(read_cited, answer.text, request, memories, answer.tokens)
    if not cited.text:
        reason = "not_proved" if cited.doubt else None
        return wire.AskResponse.model_validate({"status": "unknown", "reason": reason} | common)
    citations = tuple(found.memories[index] for index in cited.citations)
    return wire.AskResponse.model_validate(
        {"status": "answered", "answer": cited.text, "citations": citations} | common
    )


# Enough for the longest reminder allowed, in any script. A longer one is cut after a word.
REMINDER_TOKENS = 1024


def read_reminder(answer: str, request: wire.ActiveRecallRequest, memories: Sequence[Excerpt]) -> Checked:
    """Check a completion and return it as one line, cut after a word; it is dropped if the memories do not support it."""
    line = one_line(answer)
    if is_no_recall(line):
        return Checked("")
    doubt = doubt_about(line, memories, request.query, request.context)
    if doubt is not None:
        return Checked("", doubt=doubt.value)
    return Checked(clip(line, request.max_chars))


# Values of ``thinking`` that are sent to the server unchanged. For all others, the effort is left to the model.
_EFFORTS = frozenset({"minimal", "low", "medium", "high", "xhigh"})
# Factor of the token limit for models that reason, because their reasoning counts towards it.
_THOUGHT = 8


async def active_recall(
    ctx: Context, access: Access, request: wire.ActiveRecallRequest, deadline: Deadline
) -> wire.ActiveRecallResponse:
    """Let a language model summarise the memories that matter for the next turn.

    The model gets the hits of a search; it is not called if there are none. If the model fails or is too
    slow, the response contains the hits instead.

    Returns:
        A response whose ``status`` is ``ok`` (with the summary), ``empty`` (nothing to recall), ``fallback``
        (the hits, and the reason), or ``ask`` (the question for a model that the client runs).

    Raises:
        RelayerError: as `relayer.use_cases.recall.recall`.
    """
    found = await search(ctx, access, request, request.query, deadline)
    if not found.memories:
        return _answer(found, "empty")
    missing = False
    if ctx.chat is not None and request.model:
        missing = not models_for(ctx.chat, request.model, resolved_only=True)
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
    """Raised if no model could decide which memories help; ``reason`` says why."""

    def __init__(self, reason: wire.FallbackReason) -> None:
        super().__init__(reason)
        self.reason = reason


async def _remind(
    ctx: Context,
    access: Access,
    request: wire.ActiveRecallRequest,
    found: wire.RecallResponse,
    deadline: Deadline,
) -> tuple[str, str]:
    """Return the model's reminder, empty if the model found nothing helpful, and the name of the model.

    Raises:
        ModelToBeAsked: the gateway's model is to decide, and the request does not have its completion yet.
        _Undecided: no model could decide.
    """
    work, models = _reminders(ctx, request)
    if work.budget.wait_ms(access.account, ctx.clock.now_ms()):
        raise _Undecided("over_budget")
    memories = excerpts_of(found.memories)
    told = request.prompt_override or active_prompt(request.style, request.max_chars)
    if request.prompt_append:
        told = f"{told}\n{request.prompt_append}"
    thinks = request.thinking in _EFFORTS
    question = Question(
        told,
        render(memories, conversation=request.context or request.query, latest_message=request.query),
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
    # Comparing many words would block the event loop.
    reminder = await asyncio.to_thread(read_reminder, answer.text, request, memories)
    if reminder.doubt:
        raise _Undecided("not_proved")
    return reminder.text, answer.model


def _reminders(ctx: Context, request: wire.ActiveRecallRequest) -> tuple[ChatWork, Sequence[ChatModel]]:
    """Return the models to try: the relayer's, or the gateway's if the relayer has none, or has not the one that is required."""
    if ctx.chat is not None:
        only = request.model_fallback == "resolved-only"
        models = models_for(ctx.chat, request.model, resolved_only=only)
        if models:
            return ctx.chat, models
    if not request.host_model:
        raise _Undecided("no_model")
    borrowed = BorrowedModel(request.answer)
    return ChatWork(borrowed, ModelBudget(DailyLimits())), [borrowed]


def _answer(
    found: wire.RecallResponse,
    status: Literal["ok", "empty", "fallback", "ask"],
    summary: str = "",
    *,
    reason: wire.FallbackReason | None = None,
) -> wire.ActiveRecallResponse:
    return wire.ActiveRecallResponse(
        status=status,
        summary=summary,
        reason=reason,
        memories=found.memories,
        position=found.position,
        degraded=found.degraded,
        considered=found.considered,
    )
