"""Conversations to replay, and the probes that tell whether memory worked.

Two file formats are read.

**The product's own** (``"format": "memrelay-conversation/1"``), of which `sample_conversation.json` is an example::

    {"format": "memrelay-conversation/1",
     "agents": [{"name": "researcher",
                 "sessions": [{"id": "researcher-1",
                               "turns": [{"id": "r1-1", "role": "user", "speaker": "editor",
                                          "occurred_at": "2026-03-02T08:30:00Z", "text": "..."}]}],
                 "probes": [{"kind": "related", "prompt": "...", "expect": "..."},
                            {"kind": "unrelated", "prompt": "..."},
                            {"kind": "cross", "prompt": "...", "forbid": "..."}]}]}

``role`` is ``user`` or ``assistant``. ``expect`` must occur in what is injected for the prompt; for ``unrelated``
nothing may be injected; ``forbid`` is something only another agent was told and may not occur.

**LoCoMo's cleaned form**: ``{"conversations": [{"id", "speakers", "turns", "questions"}]}``. The first two
conversations become two agents. Both speakers are people, so every turn has the role ``user``. Up to fifty questions
with one evidence turn become related probes that expect that turn's text; the unrelated prompts are a list of this module;
the cross probes ask each agent a few questions of the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as checked

from gateway_plugin.errors import GatewayError

SAMPLE = "sample_conversation.json"
FORMAT = "memrelay-conversation/1"
CROSS_PROBES = 5
RELATED_PROBES = 50

UNRELATED_PROMPTS = (
    "Write a Python function that reverses a linked list.",
    "What is the boiling point of ethanol?",
    "Explain the difference between TCP and UDP.",
    "How do I get candle wax out of a woollen carpet?",
    "What is the capital of Mongolia?",
    "Convert 30 degrees Celsius to Fahrenheit.",
)


class ConversationFileError(GatewayError):
    """Raised when a conversation file cannot be used; names the file, the field and what is wrong with it."""


class ProbeKind(StrEnum):
    """What a probe tries."""

    RELATED = "related"
    UNRELATED = "unrelated"
    CROSS = "cross"


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_Moment = Annotated[datetime, AfterValidator(_aware)]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=64 * 1024)]
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_STRICT = ConfigDict(extra="forbid")


@checked(frozen=True, slots=True, config=_STRICT)
class ScriptTurn:
    """One message. ``occurred_at`` is aware."""

    id: _Text
    role: Literal["user", "assistant"]
    occurred_at: _Moment
    text: _Text
    speaker: str = ""


@checked(frozen=True, slots=True, config=_STRICT)
class ScriptSession:
    """Turns of one sitting, in order."""

    id: _Text
    turns: Annotated[tuple[ScriptTurn, ...], Field(min_length=1)]


@checked(frozen=True, slots=True, config=_STRICT)
class ScriptProbe:
    """A later prompt and what must come of it, see above."""

    kind: ProbeKind
    prompt: _Text
    expect: _Text | None = None
    forbid: _Text | None = None

    def __post_init__(self) -> None:
        if (self.expect is not None) != (self.kind is ProbeKind.RELATED):
            raise ValueError("'expect' belongs to related probes, and they need it")
        if (self.forbid is not None) != (self.kind is ProbeKind.CROSS):
            raise ValueError("'forbid' belongs to cross probes, and they need it")


@checked(frozen=True, slots=True, config=_STRICT)
class AgentScript:
    """What one agent lives through, and the probes asked of it afterwards."""

    name: _Name
    sessions: Annotated[tuple[ScriptSession, ...], Field(min_length=1)]
    probes: tuple[ScriptProbe, ...] = ()

    @property
    def turns(self) -> tuple[ScriptTurn, ...]:
        """All turns of all sessions, in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    def probes_of(self, kind: ProbeKind) -> tuple[ScriptProbe, ...]:
        """The probes of one kind, in order."""
        return tuple(probe for probe in self.probes if probe.kind is kind)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The scripts by agent name, in the file's order, and where they came from.

    Attributes:
        curated: the probes were written for this conversation, so that each must come true; those derived from a
            dialogue's questions ask also for what no single memory answers.
    """

    source: str
    agents: Mapping[str, AgentScript]
    curated: bool = True


def load_conversation(path: Path | None = None) -> Conversation:
    """Read a conversation file of either format; without a path, the sample that comes with the plugin.

    Raises:
        ConversationFileError: the file is missing, is no JSON, or a field of it is wrong.
    """
    source = SAMPLE if path is None else path.name
    try:
        text = (path or resources.files(__package__) / SAMPLE).read_text("utf-8")
        data = json.loads(text)
    except OSError as error:
        raise ConversationFileError(f"{source}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConversationFileError(f"{source}: is not UTF-8") from error
    except (json.JSONDecodeError, RecursionError) as error:
        place = "nested too deep"
        if isinstance(error, json.JSONDecodeError):
            place = f"line {error.lineno}: {error.msg}"
        raise ConversationFileError(f"{source}: is not JSON ({place})") from error
    try:
        curated = not (isinstance(data, dict) and "conversations" in data)
        if not curated:
            scripts = _from_dialogues(_DialogueFile.model_validate(data))
        else:
            scripts = _ScriptFile.model_validate(data).agents
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = _place(first["loc"])
        raise ConversationFileError(f"{source}: {place}: {first['msg']}") from error
    return Conversation(source, {script.name: script for script in scripts}, curated)


def _place(location: Sequence[int | str]) -> str:
    """Spell a field's path as a person would: ``agents[0].probes[2].prompt``."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return place.lstrip(".") or "the file"


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _ScriptFile(BaseModel):
    model_config = _STRICT

    format: Literal["memrelay-conversation/1"]
    agents: Annotated[tuple[AgentScript, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_and_ids_are_unique(self) -> _ScriptFile:
        names = [agent.name for agent in self.agents]
        if len(set(names)) < len(names):
            raise ValueError("two agents have the same name")
        for agent in self.agents:
            ids = [turn.id for turn in agent.turns]
            if len(set(ids)) < len(ids):
                raise ValueError(f"two turns of the agent '{agent.name}' have the same id")
        return self


class _DialogueTurnIn(_Lenient):
    id: _Text
    session: int
    date: _Moment
    speaker: _Text
    text: Annotated[str, StringConstraints(max_length=64 * 1024)]


class _QuestionIn(_Lenient):
    q: _Text
    cat: str
    evidence: tuple[str, ...]


class _DialogueIn(_Lenient):
    id: _Name
    turns: Annotated[tuple[_DialogueTurnIn, ...], Field(min_length=1)]
    questions: tuple[_QuestionIn, ...]


class _DialogueFile(_Lenient):
    conversations: Annotated[tuple[_DialogueIn, ...], Field(min_length=2)]


def _from_dialogues(file: _DialogueFile) -> tuple[AgentScript, ...]:
    pair = file.conversations[:2]
    related = [_related_probes(dialogue) for dialogue in pair]
    scripts = []
    for index, dialogue in enumerate(pair):
        unrelated = tuple(ScriptProbe(ProbeKind.UNRELATED, prompt) for prompt in UNRELATED_PROMPTS)
        cross = tuple(
            ScriptProbe(ProbeKind.CROSS, probe.prompt, forbid=probe.expect)
            for probe in _spread(related[1 - index], CROSS_PROBES)
        )
        scripts.append(
            AgentScript(
                dialogue.id,
                _sessions(dialogue),
                (*_spread(related[index], RELATED_PROBES), *unrelated, *cross),
            )
        )
    return tuple(scripts)


def _sessions(dialogue: _DialogueIn) -> tuple[ScriptSession, ...]:
    by_number: dict[int, list[ScriptTurn]] = {}
    for turn in dialogue.turns:
        if turn.text.strip():
            said = ScriptTurn(turn.id, "user", turn.date, turn.text, turn.speaker)
            by_number.setdefault(turn.session, []).append(said)
    return tuple(
        ScriptSession(f"{dialogue.id}-{number}", tuple(turns)) for number, turns in sorted(by_number.items())
    )


def _related_probes(dialogue: _DialogueIn) -> tuple[ScriptProbe, ...]:
    """One probe per question whose evidence is a single turn; adversarial questions have no true answer."""
    texts = {turn.id: turn.text for turn in dialogue.turns if turn.text.strip()}
    return tuple(
        ScriptProbe(ProbeKind.RELATED, question.q, expect=texts[question.evidence[0]])
        for question in dialogue.questions
        if question.cat != "adversarial" and len(question.evidence) == 1 and question.evidence[0] in texts
    )


def _spread(probes: Sequence[ScriptProbe], count: int) -> Sequence[ScriptProbe]:
    step = max(1, -(-len(probes) // count))
    return probes[::step]
