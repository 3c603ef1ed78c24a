"""Fact extraction: ask the model once for a batch of turns, parse and check its response, and return the proven facts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from relayer.extraction.llm.conversation import (
    SCHEMA,
    ConversationLine,
    FactsRead,
    ProposedFact,
    RelationName,
    day_of,
    read_answer,
    render,
)
from relayer.extraction.llm.evidence import (
    Doubt,
    Ground,
    MessageWords,
    doubt_of,
    doubt_of_fact,
    find_passage,
    fold,
    said_of,
)
from relayer.ports import ChatMessage, ChatModel
from relayer.wire.fields import Kind, Role

EXTRACT = "extract/1"
SUMMARISE = "summarise/1"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for the model. ``name`` is ``purpose/version``, and is recorded with the memories that the model made."""

    name: str
    text: str


def extract_prompt(*, summary: bool) -> Prompt:
    """Return the newest prompt that extracts facts, with or without a summary of the turn."""
    folder = files("relayer.extraction") / "prompts"
    ending = "summary" if summary else "no-summary"
    parts = (f"{EXTRACT}.txt", f"{EXTRACT}.{ending}.txt")
    text = "\n".join((folder / part).read_text("utf-8") for part in parts)
    return Prompt(EXTRACT + ("+summary" if summary else ""), text)


def summary_prompt() -> Prompt:
    """Return the newest version of the prompt that asks a language model to summarise a session."""
    return Prompt(
        SUMMARISE, (files("relayer.extraction") / "prompts" / f"{SUMMARISE}.txt").read_text("utf-8")
    )


_MAX_TOKENS = 2048
_IMPORTANCE = {"vital": 0.9, "standard": 0.5, "trivial": 0.2}
# Everything that `Extraction.dropped` counts.
DROPPED = ("malformed", *Doubt, *(f"summary_{doubt}" for doubt in Doubt))


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """A fact that the conversation says.

    Attributes:
        text: one sentence.
        kind: fact, preference, decision, event or task.
        importance: 0.9, 0.5 or 0.2.
        line: index of the message that says it.
        span: the evidence, in characters of that message.
        occurred_at_ms: the day of which it speaks if that could be checked, else the message's own time.
        relation: what it does to a known memory; ``new`` when to none.
        known: index of that memory; None for ``new``.
    """

    text: str
    kind: Kind
    importance: float
    line: int
    span: tuple[int, int]
    occurred_at_ms: int | None
    relation: RelationName = "new"
    known: int | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of one call; ``dropped`` counts facts by `Doubt` and ``malformed``, without any text."""

    facts: tuple[ExtractedFact, ...]
    summary: str
    tokens: int
    dropped: Counter[str] = field(default_factory=Counter)


class LlmExtractor:
    """Extracts with a chat model; which turns may be shown to it is the caller's to decide.

    Args:
        model: is asked once for each call of `extract`.
        summaries: whether to ask for a summary of the turns as well.
        max_tokens: of an answer; one that is longer is no answer.
    """

    def __init__(self, model: ChatModel, *, summaries: bool = False, max_tokens: int = _MAX_TOKENS) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._prompt = extract_prompt(summary=summaries)

    @property
    def name(self) -> str:
        """Return ``llm``."""
        return "llm"

    @property
    def version(self) -> str:
        """Return the prompt's name and version."""
        return self._prompt.name

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self._model.name

    async def extract(
        self, lines: Sequence[ConversationLine], known: Sequence[str], *, seconds: float
    ) -> Extraction:
        """Ask for the facts of some messages, given memories that are known already.

        Raises:
            ModelUnavailable, QueueFull: trying again later may work.
            ModelAnswerUnusable: the answer is none.
        """
        messages = (ChatMessage("system", self._prompt.text), ChatMessage("user", render(lines, known)))
        answer = await self._model.complete(
            messages, schema=SCHEMA, max_tokens=self._max_tokens, seconds=seconds
        )
        read = read_answer(answer.text, answer.tokens)
        # Characters are compared one by one: too long for the event loop when the capture is long.
        return await asyncio.to_thread(_proved, read, lines, len(known), answer.tokens)


def _proved(read: FactsRead, lines: Sequence[ConversationLine], known: int, tokens: int) -> Extraction:
    """Return the part of a response that the conversation proves."""
    ground = Ground.from_texts(part for line in lines for part in (line.shown, line.speaker))
    dropped: Counter[str] = Counter()
    if read.malformed:
        dropped["malformed"] = read.malformed
    facts: dict[str, ExtractedFact] = {}
    # Of the messages that facts cite alone: a long one takes a tenth of a second.
    said = cache(lambda number: MessageWords.from_message(lines[number].shown, lines[number].speaker))
    for proposal in read.facts:
        checked = _check(proposal, lines, known, ground, said)
        if isinstance(checked, Doubt):
            dropped[checked.value] += 1
        else:
            facts.setdefault(fold(checked.text), checked)
    summary = " ".join(read.summary.split())
    if summary and (doubt := doubt_of(summary, ground)) is not None:
        dropped[f"summary_{doubt.value}"] += 1
        summary = ""
    return Extraction(tuple(facts.values()), summary, tokens, dropped)


def _check(
    proposal: ProposedFact,
    lines: Sequence[ConversationLine],
    known: int,
    ground: Ground,
    said: Callable[[int], MessageWords],
) -> ExtractedFact | Doubt:
    """Return the fact if its message says it."""
    if not 1 <= proposal.message <= len(lines):
        return Doubt.NO_SUCH_MESSAGE
    line = lines[proposal.message - 1]
    span = find_passage(line.shown, proposal.evidence)
    if span is None:
        return Doubt.NO_EVIDENCE
    text = " ".join(proposal.text.split())
    day = said_of(proposal.time, line.shown, day_of(line.occurred_at_ms)) if proposal.time else None
    doubt = doubt_of_fact(text, ground, said(proposal.message - 1), span, day)
    if doubt is not None:
        return doubt
    relation: RelationName = proposal.relation if 1 <= proposal.known <= known else "new"
    if relation == "supersedes" and line.role is not Role.USER:
        # What an assistant said never replaces a memory: both stay, and the new one is marked as contradicting the old.
        relation = "contradicts"
    return ExtractedFact(
        text=text,
        kind=Kind(proposal.kind),
        importance=_IMPORTANCE[proposal.importance],
        line=proposal.message - 1,
        span=span,
        occurred_at_ms=line.occurred_at_ms if day is None else int(day.timestamp() * 1000),
        relation=relation,
        known=None if relation == "new" else proposal.known - 1,
    )
