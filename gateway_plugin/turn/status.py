"""Results and status reports of the plugin.

`Injection` is the result of a recall and `CaptureReport` that of a capture; `TurnTrace` explains the last turn, and
`PluginStatus` describes the plugin as a whole. Except for the injection, none of them contains text of memories.
`NotifyOnce` prints messages for a person on standard error.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.settings.crosswalk import WITHOUT_EFFECT
from gateway_plugin.settings.model import PluginSettings, PromptPosition
from gateway_plugin.text.wrappers import strip
from gateway_plugin.turn.gates import Decision
from relayer.wire.fields import clip, one_line
from relayer.wire.schemas import RecallHit
from relayer.wire.service import StandingLine

_DEBUG_CHARS: Final = 500
# Recall was skipped because of a problem and not because of a setting, so a person has to be shown it.
_WANTED: Final = frozenset({"skipped:outbox", "skipped:identity"})


def defect(error: Exception) -> str:
    """Return a message for an unexpected error. It names the type only, since the text of the error may contain secrets."""
    return f"memory failed inside the plugin ({type(error).__name__})"


@dataclass(frozen=True, slots=True)
class Injection:
    """The result of a recall: the text to put into the prompt of a turn, which is `prompt`.

    A host that places the parts of the prompt apart uses ``standing``, ``instruction`` and ``text`` instead.

    Attributes:
        text: the block of recalled memories; "" if there are none.
        position: where in the prompt the block belongs.
        status: ``ok`` (there are memories), ``empty`` (nothing relevant was found), ``skipped:<gate>`` (a gate prevented
            the recall; ``skipped:outbox``: the outbox, which stores the switches, cannot be read), ``timeout``,
            ``unavailable`` (no relayer answers), ``untrusted`` (the relayer cannot prove its identity),
            ``refused:<code>`` (by the relayer) or ``failed`` (an error inside the plugin or a wrong argument).
        hits: the memories in the block, best first.
        detail: the reason for the status, as a sentence for people; "" if all is well.
        degraded: whether the relayer searched by terms alone, because embeddings were not available.
        milliseconds: how long the recall took.
        active: in active mode, how much conversation the model read: ``message``, ``recent`` or ``full``.
        summary: in active mode, the model's text without the frame around it.
        instruction: a sentence for the system prompt that names the namespace; "" unless the settings ask for it. It is
            set even if nothing was found or the search failed (MW-10).
        standing: the standing block, which belongs into every prompt of the session, preferably into the system prompt.
            Its bytes stay the same from turn to turn, so that the provider can cache the prompt. "" if there is none.
        always: the memories in the standing block, in order; none of them is among the hits.
    """

    text: str
    position: PromptPosition
    status: str
    hits: tuple[RecallHit, ...] = field(default=(), repr=False)
    detail: str = ""
    degraded: bool = False
    milliseconds: int = 0
    active: str = ""
    summary: str = field(default="", repr=False)
    instruction: str = ""
    standing: str = field(default="", repr=False)
    always: tuple[StandingLine, ...] = field(default=(), repr=False)

    @property
    def prompt(self) -> str:
        """All text for the prompt of this turn: the standing block, the instruction and the recalled memories; "" if none."""
        return "\n".join(filter(None, (self.standing, self.instruction, self.text)))

    @property
    def line(self) -> str:
        """A one-line summary for people; in active mode in the format of the active-memory plugin (AM-08)."""
        if self.active:
            chars = f" {len(self.summary)} chars" if self.summary else ""
            return f"🧩 Active Memory: {self.status} {self.milliseconds}ms {self.active}{chars}"
        count = len(self.hits)
        memories = f" {count} {'memory' if count == 1 else 'memories'}" if count else ""
        return f"🧩 memory: {self.status} {self.milliseconds}ms{memories}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that a host shows below the answer in verbose mode: the outcome of recall, and what it found.

        Empty if a gate prevented the recall, unless that was due to a problem that a person has to solve.
        """
        if self.status.startswith("skipped:") and self.status not in _WANTED:
            return ()
        return tuple(filter(None, (self.line, self.debug_line)))

    @property
    def debug_line(self) -> str:
        """The recalled text as one line for people, without tags or control characters; "" if there is none (AM-08)."""
        said = [self.summary] if self.active else [hit.text for hit in self.hits]
        shown = clip("; ".join(filter(None, (one_line(strip(text)) for text in said))), _DEBUG_CHARS)
        return f"🔎 {'Active Memory Debug' if self.active else 'memory debug'}: {shown}" if shown else ""


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """The result of a capture.

    Attributes:
        status: ``queued`` (the turn is in the outbox and will be delivered), ``empty`` (nothing new was worth keeping),
            ``skipped:<gate>`` (a gate prevented the capture), ``full`` (the outbox is full), ``unwritable`` (its file
            cannot be written, e.g. because the disk is full) or ``failed``. After ``full``, ``unwritable`` and
            ``skipped:outbox``, the next capture tries these messages again.
        new: number of messages that were not captured before.
        queued: number of messages that were put into the outbox.
        dropped: number of messages that were left out, by reason.
        waiting: number of turns in the outbox, including this one.
        detail: the reason for the status, as a sentence for people.
        redacted: the classes of secrets that were removed before anything was stored.
        ended: whether the relayer will be notified that the session ended.
    """

    status: str
    new: int = 0
    queued: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    detail: str = ""
    redacted: tuple[str, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class HitTrace:
    """The outcome of one memory that was found.

    Attributes:
        id: the memory's id.
        relevance: 0..1.
        outcome: ``injected``, or the filter that removed it.
        voice: a label that says who said it, and where.
        wish: the id of the wish not to be reminded that kept it out, if its outcome is ``unmentioned``; "" otherwise.
    """

    id: str
    relevance: float
    outcome: str
    voice: str = ""
    wish: str = ""


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """The trace of a turn: why it got the memories that it got.

    Attributes:
        status: as in `Injection`.
        detail: as in `Injection`.
        agent: the agent's normalized name; "" if it could not be determined.
        namespace: the namespace that was searched.
        gates: the decision of every gate, in order.
        query_chars: the length of the text that was searched for, in characters.
        cached: whether the response came from the cache.
        hits: the outcome of each memory that was found.
        milliseconds: how long the recall took.
        active: the outcome of active mode: ``ok``, ``empty``, ``fallback:<reason>``, ``skipped:<gate>``; "" in direct mode.
        cold_start: the number of recent memories that the session began with.
    """

    status: str
    detail: str = ""
    agent: str = ""
    namespace: str = ""
    gates: tuple[Decision, ...] = ()
    query_chars: int = 0
    cached: bool = False
    hits: tuple[HitTrace, ...] = ()
    milliseconds: int = 0
    active: str = ""
    cold_start: int = 0


@dataclass(frozen=True, slots=True)
class HostModelStatus:
    """The use of the host's model since this process started.

    Attributes:
        calls_this_hour: number of calls in the last 60 minutes.
        calls_per_hour: maximum number of calls per hour, from the settings.
        calls: total number of calls.
        tokens: total number of tokens of prompts and completions.
        cost_usd: total cost in US dollars as far as the host reports it; None if it never did.
        facts: number of facts that were verified and stored.
        dropped: number of facts that could not be verified.
        model: the name of the last model that answered.
        trouble: why the model is not called at present, as a sentence; "" if nothing prevents it.
    """

    calls_this_hour: int
    calls_per_hour: int
    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    facts: int = 0
    dropped: int = 0
    model: str = ""
    trouble: str = ""

    @property
    def line(self) -> str:
        """A one-line summary for people."""
        spent = f"; {self.tokens} tokens" if self.calls else ""
        if self.cost_usd is not None:
            spent += f", about ${self.cost_usd:.4f}"
        named = f" ({self.model})" if self.model else ""
        said = (
            f"host's model{named}: {self.calls_this_hour} of {self.calls_per_hour} calls this hour, "
            f"{self.calls} since the start{spent}; {self.facts} facts stored, {self.dropped} dropped without evidence"
        )
        return f"{said}; {self.trouble}" if self.trouble else said


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """The status of the plugin as a whole.

    Attributes:
        url: the URL of the relayer.
        account: the account's id; "" while memory is switched off.
        last_recall: the status of the last turn's recall; "" before the first turn.
        recalls: number of turns for which a recall was sent to the relayer.
        waiting: number of captured turns that are not delivered yet.
        delivered: number of captured turns that this process delivered.
        refused: number of captured turns that the relayer refused permanently.
        paused_seconds: seconds for which no request is sent because earlier ones kept failing; 0 if requests are sent.
        last_error: why waiting turns are not delivered, as a sentence; "" if nothing failed.
        last_refusal: the agent whose turn was refused permanently last, and the reason; "" if there is none.
        durable: whether waiting turns survive the end of this process.
        relayer_trouble: a message if the local relayer keeps failing; "" if it does not, or another relayer is used.
        warning: a problem that a person should look into; "" if there is none.
        notes: settings that have no effect, each with the reason.
        host_model: the use of the host's own model; None if the host provides none, or the settings do not use it.
    """

    url: str
    account: str
    last_recall: str
    recalls: int
    waiting: int
    delivered: int
    refused: int
    paused_seconds: float
    last_error: str
    last_refusal: str = ""
    durable: bool = False
    relayer_trouble: str = ""
    warning: str = ""
    notes: tuple[str, ...] = ()
    host_model: HostModelStatus | None = None


REASONS: Final = {
    "active.fastMode": "the model belongs to the relayer; its speed is set there",
    "active.toolsAllow": "the relayer runs the search for the model, which gets no tools",
    "accountId": "the account follows from this gateway's secret",
    **WITHOUT_EFFECT,
}
"""Settings without effect, by name, with the reason. They are accepted so that configurations of earlier plugins keep working."""


def without_effect(settings: PluginSettings, account: str) -> tuple[str, ...]:
    """Return a message for each setting that is set and has no effect. The messages do not contain values."""
    told = {
        "active.fastMode": settings.active.fast_mode,
        "active.toolsAllow": "tools_allow" in settings.active.model_fields_set,
        "accountId": settings.account_id is not None and settings.account_id.lower() != account,
        **dict.fromkeys(settings.unused, True),
    }
    return tuple(f"{name} has no effect: {REASONS[name]}" for name, is_set in told.items() if is_set)


def notify(sentence: str) -> None:
    """Print a message on standard error."""
    sys.stderr.write(f"{sentence}\n")


class NotifyOnce:
    """Prints each message once, so that a lasting condition does not fill the terminal."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, sentence: str) -> None:
        """Print a message with the prefix ``memrelay:``, unless this object has printed it before."""
        if sentence not in self._told:
            self._told.add(sentence)
            notify(f"memrelay: {sentence}")
