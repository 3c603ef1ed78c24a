"""The scheduling of pending jobs, and the daily budget of a language model.

The jobs themselves are in the log. `JobQueue` keeps only what this process knows of the pending ones: which are running,
which are to be retried and when. It gives a free slot to the account that holds the fewest, then to the account that has
waited longest, and within an account to the namespace that has waited longest. If there are several slots, one account
never holds all of them, and a namespace never holds more than one. `ModelBudget` counts calls and tokens of each account.
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
from relayer.wire.calls import doubled
from relayer.wire.fields import DAY_MS

_FIRST_PAUSE = 2.0
_LONGEST_PAUSE = 300.0
_MOST_NOTES = 20_000

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of jobs in one process.

    Attributes:
        at_once: jobs that run concurrently.
        per_namespace: jobs of one namespace that may be pending.
        per_account: jobs of one account that may be pending, in all of its namespaces that are open here.
        bad_answers: unusable responses of the model before a job fails.
        takeover_ms: the age from which a job is run here although another replica accepted it.
    """

    at_once: int = 4
    per_namespace: int = 64
    per_account: int = 256
    bad_answers: int = 3
    takeover_ms: int = 90_000


@dataclass(slots=True)
class JobProgress:
    """The progress of a pending job in this process.

    Attributes:
        attempts: how often it was started.
        bad_answers: unusable responses of the model so far.
        not_before: the time of the next attempt; monotonic, in seconds.
        reason: why it was last put off.
    """

    attempts: int = 0
    bad_answers: int = 0
    not_before: float = float("-inf")
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A pending job of an open namespace; ``place`` is account and namespace."""

    place: Place
    job: JobState

    @property
    def account(self) -> str:
        """The account's id."""
        return self.place[0]


class JobQueue:
    """Chooses which pending job runs next, and keeps the progress of each; see the module.

    Attributes:
        running: the account and namespace of each job that runs here, by the job's id.
        counts: numbers of finished, failed and delayed jobs and of dropped facts, for metrics; they identify no account.
        wake: set when there may be work.
    """

    def __init__(self, clock: Clock, limits: JobLimits | None = None) -> None:
        self.limits = limits or JobLimits()
        self.running: dict[bytes, Place] = {}
        self.counts: Counter[str] = Counter()
        self.wake = Wake()
        self._clock = clock
        # These are bounded, because the end of a job in another process is not seen unless its namespace is open here.
        self._accepted: LRUCache[bytes, None] = LRUCache(_MOST_NOTES)
        self._progress: LRUCache[bytes, JobProgress] = LRUCache(_MOST_NOTES)
        self._turn = 0
        self._last_turn: LRUCache[str | Place, int] = LRUCache(_MOST_NOTES)

    def check_room(self, in_namespace: int, in_account: int) -> None:
        """Check that another job may be accepted, given the pending jobs of its namespace and account; raises `QueueFull`."""
        if in_namespace >= self.limits.per_namespace or in_account >= self.limits.per_account:
            raise QueueFull("too many jobs of this account wait for the model", retry_after=5.0)

    def accepted(self, job: bytes) -> None:
        """Record that this process accepted a job, which is then run here without waiting for `JobLimits.takeover_ms`."""
        self._accepted[job] = None
        self.wake.set()

    def choose(self, candidates: Iterable[PendingJob]) -> PendingJob | None:
        """Return the job to start now, None if there is none; the caller starts it and calls `started`."""
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

    def started(self, item: PendingJob) -> None:
        """Record that a job was started."""
        self._turn += 1
        for name in (item.account, item.place):
            self._last_turn[name] = self._turn
        self.running[item.job.job] = item.place
        self._of(item.job.job).attempts += 1

    def stopped(self, job: bytes) -> None:
        """Record that a job is no longer running, whether or not it ended."""
        self.running.pop(job, None)
        self.wake.set()

    def ended(self, job: bytes, how: str) -> None:
        """Record the end of a job; ``how`` is ``done`` or ``failed``."""
        self.counts[how] += 1
        self._accepted.pop(job, None)
        self._progress.pop(job, None)

    def put_off(
        self, job: bytes, reason: str, at_least: float = 0.0, *, bad_answer: bool = False
    ) -> JobProgress:
        """Delay the next attempt of a job, by at least ``at_least`` seconds and with exponential backoff; return its progress.

        ``bad_answer`` says that the model's response was unusable.
        """
        progress = self._of(job)
        progress.bad_answers += bad_answer
        progress.reason = reason
        pause = doubled(_FIRST_PAUSE, progress.attempts, _LONGEST_PAUSE)
        progress.not_before = self._clock.monotonic() + max(pause, at_least)
        self.counts["put_off"] += 1
        return progress

    def look(self, job: bytes) -> tuple[Literal["queued", "running", "waiting"], JobProgress, float]:
        """Return the status of a pending job, its progress, and the seconds until its next attempt."""
        progress = self._progress.get(job) or JobProgress()
        if job in self.running:
            return "running", progress, 0.0
        wait = max(0.0, progress.not_before - self._clock.monotonic())
        return ("waiting" if wait else "queued"), progress, wait

    def _of(self, job: bytes) -> JobProgress:
        return self._progress.setdefault(job, JobProgress())

    def _is_due(self, job: JobState) -> bool:
        progress = self._progress.get(job.job)
        if job.job in self.running or (progress and progress.not_before > self._clock.monotonic()):
            return False
        return job.job in self._accepted or self._clock.now_ms() - job.accepted_at >= self.limits.takeover_ms

    def _rank(self, item: PendingJob, held: Counter[str]) -> tuple[int, int, int, int]:
        turns = self._last_turn
        return held[item.account], turns.get(item.account, 0), turns.get(item.place, 0), item.job.accepted_at


_MOST_ACCOUNTS = 20_000


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """The maximum calls and tokens of one account in a day of UTC; 0 for no limit."""

    calls: int = 0
    tokens: int = 0


class ModelBudget:
    """Counts a model's calls and tokens by account, in this process only; the counts start at 0 when it is restarted."""

    def __init__(self, limits: DailyLimits) -> None:
        self._limits = limits
        # The day, and the account's calls and tokens on that day.
        self._spent: LRUCache[str, tuple[int, int, int]] = LRUCache(_MOST_ACCOUNTS)

    def wait_ms(self, account: str, now_ms: int) -> int:
        """Return the milliseconds until the account may call the model: 0, or the rest of the day."""
        calls, tokens = self._today(account, now_ms)
        over = 0 < self._limits.calls <= calls or 0 < self._limits.tokens <= tokens
        return DAY_MS - now_ms % DAY_MS if over else 0

    def spend(self, account: str, tokens: int, now_ms: int) -> None:
        """Record one call and its tokens."""
        calls, spent = self._today(account, now_ms)
        self._spent[account] = now_ms // DAY_MS, calls + 1, spent + tokens

    def _today(self, account: str, now_ms: int) -> tuple[int, int]:
        day, calls, tokens = self._spent.get(account, (-1, 0, 0))
        return (calls, tokens) if day == now_ms // DAY_MS else (0, 0)
