"""What the plugin says about itself: after each turn, about the last one, and as a whole.

No text of a memory is in it, except in the injection itself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.crosswalk import WITHOUT_EFFECT
from gateway_plugin.settings import PluginSettings, Position
from gateway_plugin.text.wrappers import strip
from gateway_plugin.turn import Decision
from relayer.wire.fields import clip, one_line
from relayer.wire.schemas import RecallHit
from relayer.wire.service import StandingLine

_DEBUG_CHARS: Final = 500
# Skipped although nobody wished it: a person must put something right.
_WANTED: Final = frozenset({"skipped:outbox", "skipped:identity"})


def defect(error: Exception) -> str:
    """Return the sentence for an error that nobody foresaw; its text may hold anything, and stays out."""
    return f"memory failed inside the plugin ({type(error).__name__})"


@dataclass(frozen=True, slots=True)
class Injection:
    """What goes into a prompt.

    Attributes:
        text: the block, or "" when there is nothing to say.
        position: where the block goes.
        status: ``ok``, ``empty``, ``skipped:<gate>`` (``skipped:outbox``: the outbox cannot be read, and with it whether
            memory is switched off), ``timeout``, ``unavailable``, ``untrusted``, ``refused:<code>``
            or ``failed``.
        hits: the memories in the block, best first.
        detail: the reason, in a sentence for people; "" when all is well.
        degraded: the relayer searched by words alone.
        milliseconds: how long it took.
        active: in active mode, how much conversation the model read: ``message``, ``recent`` or ``full``.
        summary: in active mode, what the model said, without its frame.
        instruction: a sentence for the system prompt that names the namespace, where the settings ask for one; it
            stands also when nothing was found, or nothing could be searched (MW-10).
        standing: what stands in every prompt of the session, best in its system part: the bytes stay the same; "" for none.
        always: the memories in it, in their order; none of them is among the hits.
    """

    text: str
    position: Position
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
    def line(self) -> str:
        """One line for a person; in active mode of the shape that active-memory's users know (AM-08)."""
        if self.active:
            chars = f" {len(self.summary)} chars" if self.summary else ""
            return f"🧩 Active Memory: {self.status} {self.milliseconds}ms {self.active}{chars}"
        count = len(self.hits)
        memories = f" {count} {'memory' if count == 1 else 'memories'}" if count else ""
        return f"🧩 memory: {self.status} {self.milliseconds}ms{memories}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What a person is shown behind the answer who asked to see it: how recall went, and what it found.

        A turn that a gate stopped has nothing to show: one that memory should have had, and could not, does.
        """
        if self.status.startswith("skipped:") and self.status not in _WANTED:
            return ()
        return tuple(filter(None, (self.line, self.debug_line)))

    @property
    def debug_line(self) -> str:
        """What was recalled, for a person who asked to see it; one line without tags or control characters, or "" (AM-08)."""
        said = [self.summary] if self.active else [hit.text for hit in self.hits]
        shown = clip("; ".join(filter(None, (one_line(strip(text)) for text in said))), _DEBUG_CHARS)
        return f"🔎 {'Active Memory Debug' if self.active else 'memory debug'}: {shown}" if shown else ""


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What became of a turn's messages.

    Attributes:
        status: ``queued`` (the relayer will have it), ``empty`` (nothing new worth keeping), ``skipped:<gate>``,
            ``full`` (the outbox takes no more) or ``unwritable`` (its file cannot be written, e.g. because the disk is
            full; after either, and after ``skipped:outbox``, the next turn tries again), or ``failed``.
        new: messages not captured before.
        queued: messages on their way.
        dropped: messages left out, by reason.
        waiting: turns in the outbox, this one included.
        detail: the reason, in a sentence for people.
        redacted: the classes of secrets that were taken out before anything was kept.
        ended: the relayer will be told that the session ended.
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
    """What became of one memory found: ``injected``, or the filter that kept it out; ``voice`` says who spoke, and where."""

    id: str
    relevance: float
    outcome: str
    voice: str = ""


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """Why the last turn was given what it was given.

    Attributes:
        status: as in `Injection`.
        detail: as in `Injection`.
        agent: whose turn it was, in normal form; "" when that could not be told.
        namespace: where was searched.
        gates: every gate's decision, in order.
        query_chars: the length of what was searched for.
        cached: the answer was at hand.
        hits: memory by memory.
        milliseconds: how long it took.
        active: what became of active mode: ``ok``, ``empty``, ``fallback:<reason>``, ``skipped:<gate>``; "" in direct mode.
        cold_start: how many recent memories the session began with.
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
    """What was asked of the host's model, since this process began but for ``calls_this_hour``.

    Attributes:
        calls_this_hour: of ``calls_per_hour``, which the settings allow.
        calls: in all.
        tokens: of questions and answers.
        cost_usd: as far as the host knows it; None where it never said.
        facts: that were proved and kept.
        dropped: that were not proved.
        model: the last one that answered.
        trouble: why it is not asked now, in a sentence; "" when nothing is in the way.
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
        """One line for a person."""
        spent = f"; {self.tokens} tokens" if self.calls else ""
        if self.cost_usd is not None:
            spent += f", about ${self.cost_usd:.4f}"
        named = f" ({self.model})" if self.model else ""
        said = (
            f"host's model{named}: {self.calls_this_hour} of {self.calls_per_hour} calls this hour, "
            f"{self.calls} since the start{spent}; {self.facts} facts kept, {self.dropped} not proved"
        )
        return f"{said}; {self.trouble}" if self.trouble else said


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """The plugin as a whole.

    Attributes:
        url: the relayer.
        account: the account's id; "" while memory is switched off.
        last_recall: status of the last turn; "" before the first.
        recalls: turns for which the relayer was asked.
        waiting: captured turns that the relayer does not have yet.
        delivered: captured turns that it has.
        refused: captured turns that it will never take.
        paused_seconds: how long nothing is asked because it kept failing.
        last_error: why what waits is not delivered, in a sentence, of the latest failure; "" when nothing failed.
        last_refusal: the agent whose turn was refused for good last, and the reason; "" when none was.
        durable: whether what waits survives this process.
        warning: what a person should look at now; "" when nothing.
        notes: settings that were made and change nothing, each with the reason.
        host_model: what was asked of the host's own model; None where it lends none, or the settings use none.
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
    warning: str = ""
    notes: tuple[str, ...] = ()
    host_model: HostModelStatus | None = None


REASONS: Final = {
    "active.fastMode": "the model is the relayer's; how fast it is served is set there",
    "active.toolsAllow": "the relayer searches for the model, which is given no tools",
    "accountId": "the account is the one of this gateway's secret",
    **WITHOUT_EFFECT,
}
"""Settings that are accepted, so that a configuration of an earlier plugin keeps working, and that change nothing here; and why."""


def without_effect(settings: PluginSettings, account: str) -> tuple[str, ...]:
    """Return a sentence for each setting that was made and changes nothing, without its value.

    Args:
        settings: those of the gateway.
        account: the account of the gateway's secret; an ``accountId`` that says the same is no surprise.
    """
    told = {
        "active.fastMode": settings.active.fast_mode,
        "active.toolsAllow": "tools_allow" in settings.active.model_fields_set,
        "accountId": settings.account_id is not None and settings.account_id.lower() != account,
        **dict.fromkeys(settings.unused, True),
    }
    return tuple(f"{name} has no effect: {REASONS[name]}" for name, is_set in told.items() if is_set)


def notify(sentence: str) -> None:
    """Say something on standard error."""
    sys.stderr.write(f"{sentence}\n")


class NotifyOnce:
    """Says each sentence once in a process's life: a condition that lasts must not fill the terminal."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, sentence: str) -> None:
        """Say it, unless it was said before."""
        if sentence not in self._told:
            self._told.add(sentence)
            notify(f"memrelay: {sentence}")
