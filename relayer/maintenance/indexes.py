"""Maintenance of stored indexes: writing a new one when a namespace has grown enough since the last one.

A process that opens a namespace from a stored index need not read the entries that it covers; all others are decrypted and
indexed one by one, which takes six times as long as writing them to an index. While a namespace is being written to, an
index is written each time the namespace has doubled, so that the last index is half of all index bytes ever written. Once
no writes have come for a while, growth by a quarter is enough, because the next thing may be an opening. A small namespace
is opened from its log about as fast, and gets no index.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from relayer.domain.namespace import LogPosition
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace

INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """The growth of a namespace from which an index is written.

    Attributes:
        least: number of records that a namespace must have gained since the last index, or since its creation. With this
            many, opening from the log takes three to five times the work of opening from an index, and as much as writing
            an index and opening from it.
        growth: the factor by which it must have grown since the last index.
        quiet_growth: the same, for a namespace without writes for ``quiet`` seconds.
        quiet: the seconds after which ``quiet_growth`` applies.
    """

    least: int = 32
    growth: float = 2.0
    quiet_growth: float = 1.25
    quiet: float = 10.0

    def needed(self, records: int, *, quiet: bool) -> int:
        """Return how many new records a namespace needs for another index, if the last one has ``records`` records."""
        growth = self.quiet_growth if quiet else self.growth
        return max(self.least, int(records * (growth - 1)))


@dataclass(slots=True)
class _Known:
    """The last index of a namespace, and its last write.

    Attributes:
        seq: the last entry that the index covers; 0 if there is no index.
        records: the number of records up to that entry.
        position: the position of the log when it was last checked.
        since: when a change of the position was last noticed, by the clock's `monotonic`.
        not_before: the number of records from which the next attempt is made.
    """

    seq: int
    records: int
    position: LogPosition
    since: float
    not_before: int = 0


class IndexMaintenance:
    """Writes stored indexes of the namespaces that are open in this process, one at a time.

    Attributes:
        written: number of indexes written that the manifest then named.
        lost: number of indexes written in vain, because another process was faster or a memory was erased meanwhile.
        bytes_written: the size of both kinds in bytes.
    """

    def __init__(self, ctx: Context, limits: IndexLimits | None = None) -> None:
        self._ctx = ctx
        self._limits = limits or IndexLimits()
        self._known: WeakKeyDictionary[OpenNamespace, _Known] = WeakKeyDictionary()
        self.written = 0
        self.lost = 0
        self.bytes_written = 0

    @property
    def task(self) -> Periodic:
        """The periodic task for the scheduler."""
        return Periodic("index", self.round, INTERVAL_SECONDS, uneven=True)

    async def round(self, on_error: OnError) -> None:
        """Call `keep` for each open namespace; a failure is passed to ``on_error`` and retried after further growth."""
        await self._ctx.namespaces.in_each(self.keep, on_error)

    async def keep(self, opened: OpenNamespace) -> bool:
        """Write an index of a namespace if one is due, and return whether the manifest names it now.

        Raises:
            RelayerError: it was not written, or it is unknown whether the manifest names it; both are harmless.
        """
        records = opened.records_ever
        if records < self._limits.least or opened.broken or opened.converting:
            # An index has vectors of only one model: those of the new one that have been computed so far would be lost.
            return False
        known = self._known.get(opened) or self._opened_with(opened)
        return await self._is_due(opened, known, records) and await self._write(opened, known)

    def _opened_with(self, opened: OpenNamespace) -> _Known:
        """Return the index that a namespace was opened from; others may have written a newer one since."""
        seq = opened.from_index if opened.former is None else 0
        now = self._ctx.clock.monotonic()
        known = self._known[opened] = _Known(seq, opened.records_up_to(seq), opened.position, now)
        return known

    async def _is_due(self, opened: OpenNamespace, known: _Known, records: int) -> bool:
        """Return whether an index is due, first by the cached state and then by the manifest."""
        now = self._ctx.clock.monotonic()
        if opened.position != known.position:
            known.position, known.since = opened.position, now
        quiet = now - known.since >= self._limits.quiet
        if records < max(known.not_before, known.records + self._limits.needed(known.records, quiet=quiet)):
            return False
        seq = await opened.indexed()
        if seq > known.seq:
            known.seq, known.records = seq, opened.records_up_to(seq)
            if records < known.records + self._limits.needed(known.records, quiet=quiet):
                return False
        # This holds also if the attempt fails, so that an index that cannot be written is not retried every few seconds.
        known.not_before = records + max(self._limits.least, records // 2)
        return True

    async def _write(self, opened: OpenNamespace, known: _Known) -> bool:
        index = await opened.write_index()
        self.bytes_written += index.nbytes
        self.written += index.named
        self.lost += not index.named
        if index.named:
            known.seq, known.records, known.not_before = index.seq, index.records, 0
        return index.named
