"""Which promised job is next, what can be said about each, and how much of a model an account may use.

The queue itself is the log: this keeps only what one process knows of jobs that are pending there. Slots go to the
account that holds the fewest, then to the one that waited longest; within an account likewise by namespace. One account
never holds all of several slots, and a namespace never more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cachetools import LRUCache

from relayer.domain.operations import JobState
from relayer.errors import QueueFull
from relayer.lib.scheduler import Wake
from relayer.ports import Clock
from relayer.wire.retries import doubled

_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
_MOST_NOTES = 20_000

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Bounds of one process.

    Attributes:
        at_once: jobs that run.
        per_namespace: jobs of one namespace that may be pending.
        per_account: jobs of one account that may be pending, in all of its namespaces that are open here.
        bad_answers: answers of the model that may be unusable before a job fails.
        patience_ms: how long a job may wait for a model that does not answer, before it fails.
        takeover_ms: after this, a job is taken up here although another replica accepted it.
    """

    at_once: int = 4
    per_namespace: int = 64
    per_account: int = 256
    bad_answers: int = 3
    patience_ms: int = 24 * 3600 * 1000
    takeover_ms: int = 90_000


@dataclass(slots=True)
class Progress:
    """What this process knows of a pending job; ``not_before`` is monotonic, in seconds."""

    attempts: int = 0
    bad_answers: int = 0
    not_before: float = float("-inf")
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pending job of an open namespace; ``place`` is account and namespace."""

    place: Place
    job: JobState

    @property
    def account(self) -> str:
        """The account's id."""
        return self.place[0]


class JobQueue:
    """Chooses, counts and remembers; see the module.

    Attributes:
        running: the place of each job that runs here.
        counts: of ends and of dropped facts, for metrics; no name of anybody.
        wake: given when there may be work.
    """

    def __init__(self, clock: Clock, limits: JobLimits | None = None) -> None:
        self.limits = limits or JobLimits()
        self.running: dict[bytes, Place] = {}
        self.counts: Counter[str] = Counter()
        self.wake = Wake()
        self._clock = clock
        # Bounded: a job that ended elsewhere, in a namespace that nobody opens here, is never heard of again.
        self._accepted: LRUCache[bytes, None] = LRUCache(_MOST_NOTES)
        self._progress: LRUCache[bytes, Progress] = LRUCache(_MOST_NOTES)
        self._turn = 0
        self._last_turn: LRUCache[str | Place, int] = LRUCache(_MOST_NOTES)

    def check_room(self, in_namespace: int, in_account: int) -> None:
        """Refuse another job when too many are pending.

        Raises:
            QueueFull: come back later.
        """
        if in_namespace >= self.limits.per_namespace or in_account >= self.limits.per_account:
            raise QueueFull("too many jobs of this account wait for the model", retry_after=5.0)

    def accepted(self, job: bytes) -> None:
        """Note that this process promised a job: it is run here, at once."""
        self._accepted[job] = None
        self.wake.set()

    def choose(self, candidates: Iterable[Candidate]) -> Candidate | None:
        """Return the job to start now; the caller starts it."""
        if len(self.running) >= self.limits.at_once:
            return None
        held = Counter(account for account, _ in self.running.values())
        busy = set(self.running.values())
        most = max(1, self.limits.at_once - 1)
        due = [
            item
            for item in candidates
            if item.place not in busy and held[item.account] < most and self._is_due(item.job)
        ]
        return min(due, key=lambda item: self._rank(item, held), default=None)

    def started(self, item: Candidate) -> None:
        """Note that a job runs."""
        self._turn += 1
        for name in (item.account, item.place):
            self._last_turn[name] = self._turn
        self.running[item.job.job] = item.place
        self._of(item.job.job).attempts += 1

    def stopped(self, job: bytes) -> None:
        """Note that a job runs no longer, whatever came of it."""
        self.running.pop(job, None)
        self.wake.set()

    def ended(self, job: bytes, how: str) -> None:
        """Note the end of a job; ``how`` is ``done`` or ``failed``."""
        self.counts[how] += 1
        self._accepted.pop(job, None)
        self._progress.pop(job, None)

    def put_off(
        self, job: bytes, reason: str, at_least: float = 0.0, *, bad_answer: bool = False
    ) -> Progress:
        """Let a job wait before it is tried again, longer each time; returns what is known of it now."""
        progress = self._of(job)
        progress.bad_answers += bad_answer
        progress.reason = reason
        pause = doubled(_FIRST_PAUSE, progress.attempts, _LONGEST_PAUSE)
        progress.not_before = self._clock.monotonic() + max(pause, at_least)
        self.counts["put_off"] += 1
        return progress

    def look(self, job: bytes) -> tuple[Literal["queued", "running", "waiting"], Progress, float]:
        """Return what a pending job does, and the seconds until it is tried again."""
        progress = self._progress.get(job) or Progress()
        if job in self.running:
            return "running", progress, 0.0
        wait = max(0.0, progress.not_before - self._clock.monotonic())
        return ("waiting" if wait else "queued"), progress, wait

    def _of(self, job: bytes) -> Progress:
        return self._progress.setdefault(job, Progress())

    def _is_due(self, job: JobState) -> bool:
        progress = self._progress.get(job.job)
        if job.job in self.running or (progress and progress.not_before > self._clock.monotonic()):
            return False
        return job.job in self._accepted or self._clock.now_ms() - job.accepted_at >= self.limits.takeover_ms

    def _rank(self, item: Candidate, held: Counter[str]) -> tuple[int, int, int, int]:
        turns = self._last_turn
        return held[item.account], turns.get(item.account, 0), turns.get(item.place, 0), item.job.accepted_at


DAY_MS = 24 * 3600 * 1000
_MOST_ACCOUNTS = 20_000


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """Calls and tokens of one account in a day of UTC; 0 sets no limit."""

    calls: int = 0
    tokens: int = 0


class ModelBudget:
    """Counts calls and tokens by account. What a restart or another process counted is not known here."""

    def __init__(self, limits: DailyLimits) -> None:
        self._limits = limits
        # The day, and the calls and tokens on it.
        self._spent: LRUCache[str, tuple[int, int, int]] = LRUCache(_MOST_ACCOUNTS)

    def wait_ms(self, account: str, now_ms: int) -> int:
        """Return the milliseconds until the account may ask again: 0, or what is left of the day."""
        calls, tokens = self._today(account, now_ms)
        over = 0 < self._limits.calls <= calls or 0 < self._limits.tokens <= tokens
        return DAY_MS - now_ms % DAY_MS if over else 0

    def spend(self, account: str, tokens: int, now_ms: int) -> None:
        """Note one call and what it cost."""
        calls, spent = self._today(account, now_ms)
        self._spent[account] = now_ms // DAY_MS, calls + 1, spent + tokens

    def _today(self, account: str, now_ms: int) -> tuple[int, int]:
        day, calls, tokens = self._spent.get(account, (-1, 0, 0))
        return (calls, tokens) if day == now_ms // DAY_MS else (0, 0)
