"""What the plugin remembers of each chat session while it lives: echoes, the block last injected, the last turn's trace."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from gateway_plugin.clock import Clock
from gateway_plugin.outbox import Mark, Outbox, Waiting
from gateway_plugin.status import TurnTrace

_MAX_MEMORIES: Final = 500
_MIN_WORDS: Final = 3
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
# Articles, present copulas, the two who talk, politeness, and how an answer refers to what it remembers. Not "was" and not
# "she": another tense or another person is another fact.
_EMPTY_WORDS: Final = frozenset(
    {
        "a", "an", "the", "that", "is", "are", "am", "i", "you", "we", "me", "us", "my", "your", "our", "mine", "yours",
        "i'm", "you're", "i've", "you've", "user", "assistant", "said", "told", "mentioned", "remember", "know", "so",
        "well", "also", "and", "just", "please", "thanks", "noted", "ok", "okay", "yes", "sure",
    }
)  # fmt: skip


class EchoFilter:
    """The memories injected into one session; the oldest are let go beyond 500."""

    def __init__(self) -> None:
        self._injected: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def injected(self, texts: Iterable[str]) -> None:
        """Note memories that entered the prompt."""
        for text in texts:
            for part in (text, *text.splitlines()):
                gist = _gist(part)
                if len(gist) >= _MIN_WORDS:
                    self._injected[gist] = None
                    self._injected.move_to_end(gist)
        while len(self._injected) > _MAX_MEMORIES:
            self._injected.popitem(last=False)

    def without_echoes(self, text: str) -> str:
        """Return a text without the lines that are echoes; "" when all of it is."""
        if not self._injected:
            return text
        if self._is_echo(text):
            return ""
        lines = text.split("\n")
        kept = [line for line in lines if not self._is_echo(line)]
        return text if len(kept) == len(lines) else "\n".join(kept).strip()

    def _is_echo(self, text: str) -> bool:
        return _gist(text) in self._injected


def _gist(text: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return tuple(word for word in _WORD.findall(folded) if word not in _EMPTY_WORDS)


MAX_SESSIONS: Final = 1000


@dataclass(slots=True)
class Session:
    """One chat session of one namespace.

    ``sticky`` is the block last injected, by the memories in it: the same memories give the same bytes, whatever order
    they were found in and whatever day it has become.
    """

    echoes: EchoFilter = field(default_factory=EchoFilter)
    sticky: tuple[frozenset[str], str] = (frozenset(), "")


class Sessions:
    """Sessions by namespace and key; the least recently used are forgotten."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], Session] = OrderedDict()

    def of(self, namespace: str, key: str) -> Session:
        """Return a session, a new one if it is not known."""
        session = self._known.setdefault((namespace, key), Session())
        self._known.move_to_end((namespace, key))
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
        return session


WHY_MARK: Final = "why"
"""Under this name the outbox keeps the trace of an agent's last turn."""


class LastTurn:
    """The traces of the last turns: ``trace`` is the latest of all, which is no chat's to see.

    Args:
        outbox: where it is noted.
        noted: whether it may be: where capture is switched off, nothing is written.
    """

    def __init__(self, outbox: Outbox, *, noted: bool) -> None:
        self.trace = TurnTrace("")
        self._outbox = outbox
        self._noted = noted
        self._known: OrderedDict[tuple[str, str], TurnTrace] = OrderedDict()
        self._owed: tuple[Waiting, TurnTrace] | None = None

    def of(self, namespace: str, session: str) -> TurnTrace:
        """Return the trace of a session of a namespace; an empty one if none is known."""
        return self._known.get((namespace, session), TurnTrace(""))

    def saw(self, namespace: str, session: str, trace: TurnTrace) -> None:
        """Take the trace of a session's turn, "" being the namespace where it could not be told."""
        self.trace = self._known[namespace, session] = trace
        self._known.move_to_end((namespace, session))
        if len(self._known) > MAX_SESSIONS:
            self._known.popitem(last=False)

    def note(self, owner: Waiting, trace: TurnTrace) -> None:
        """Have a trace written with the next `persist`."""
        self._owed = (owner, trace)

    def persist(self) -> None:
        """Write what was noted since.

        Raises:
            OutboxUnavailable: the file cannot be written; the trace is not tried again.
        """
        owed, self._owed = self._owed, None
        if owed is not None and self._noted:
            owner, trace = owed
            self._outbox.keep(Mark(owner, WHY_MARK, json.dumps(asdict(trace)).encode()))


TURNS: Final = 10
_DAY: Final = 24 * 3600.0


class Watchdog:
    """Counts turns that recalled since the last one whose messages were handed over.

    Args:
        clock: the time.
        notify: told the warning, once a day at most.
        enabled: False where capture is switched off on purpose.
    """

    def __init__(self, clock: Clock, notify: Callable[[str], None], *, enabled: bool) -> None:
        self._clock = clock
        self._notify = notify
        self._enabled = enabled
        self._turns = 0
        self._warned: float | None = None

    @property
    def warning(self) -> str:
        """The warning while it holds, else ""."""
        if not self._enabled or self._turns < TURNS:
            return ""
        return (
            f"{self._turns} turns recalled memories and none was handed over for capture: nothing is being remembered. "
            "The host must deliver the end of a turn (OpenClaw: "
            "plugins.entries.<id>.hooks.allowConversationAccess = true); memrelay-gateway doctor tells more"
        )

    def recalled(self) -> None:
        """Note a turn of a person that recalled, found something or not."""
        self._turns += 1
        warning = self.warning
        now = self._clock.monotonic()
        if warning and (self._warned is None or now - self._warned >= _DAY):
            self._warned = now
            self._notify(f"memrelay: {warning}")

    def handed_over(self) -> None:
        """Note a turn whose messages arrived, worth keeping or not."""
        self._turns = 0
