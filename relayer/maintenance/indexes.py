"""Writes stored indexes of namespaces that have grown since the last one.

An index spares an opening the entries that it covers: the others are opened and indexed one by one, in six times the time
that it takes to write them down. While a namespace is written to, an index is written each time it has doubled, and the last
one is half of all that was ever written. When nobody has written for a while, a quarter more is enough: what comes next may be
an opening. A handful of memories is opened from the log about as fast, and gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from relayer.domain.namespace import Position
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace

INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """When an index is written.

    Attributes:
        least: records that a namespace must have gained since the last index, or since its beginning. With so many,
            opening from the log takes three to five times the work of opening from an index, and as much as writing one
            and opening from that.
        growth: by which factor it must have grown since the last one.
        quiet_growth: the same, where nobody has written for ``quiet`` seconds.
        quiet: see there.
    """

    least: int = 32
    growth: float = 2.0
    quiet_growth: float = 1.25
    quiet: float = 10.0

    def needed(self, records: int, *, quiet: bool) -> int:
        """How many records there are to be on top of those that an index has."""
        growth = self.quiet_growth if quiet else self.growth
        return max(self.least, int(records * (growth - 1)))


@dataclass(slots=True)
class _Known:
    """What is known of a namespace: the entry that its index goes up to, the records there were then, when it was written to.

    ``not_before`` is how many records there must be before another attempt is made; ``since`` is by the clock's
    `monotonic`.
    """

    seq: int
    records: int
    position: Position
    since: float
    not_before: int = 0


class IndexMaintenance:
    """Looks after the indexes of everything that is open in this process, one namespace at a time.

    Attributes:
        written: indexes that the manifest named in the end.
        lost: indexes that were written in vain: somebody was quicker, or erased something meanwhile.
        bytes_written: of both.
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
        """What the scheduler runs."""
        return Periodic("index", self.round, INTERVAL_SECONDS, uneven=True)

    async def round(self, on_error: OnError) -> None:
        """Look after each once; what fails is reported and tried again when the namespace has grown further."""
        await self._ctx.namespaces.in_each(self.keep, on_error)

    async def keep(self, opened: OpenNamespace) -> bool:
        """Write an index of a namespace if it is time; returns whether the manifest names it now.

        Raises:
            RelayerError: it was not written, or it is not known whether it is named; both are harmless.
        """
        records = opened.records_ever
        if records < self._limits.least or opened.broken or opened.converting:
            # An index holds vectors of one model: those of the next that were collected so far would be missed.
            return False
        known = self._known.get(opened) or self._opened_with(opened)
        return await self._is_due(opened, known, records) and await self._write(opened, known)

    def _opened_with(self, opened: OpenNamespace) -> _Known:
        """Note what a namespace was opened with: that is known without asking; only others may have written more since."""
        seq, now = opened.own_index, self._ctx.clock.monotonic()
        known = self._known[opened] = _Known(seq, opened.records_up_to(seq), opened.position, now)
        return known

    async def _is_due(self, opened: OpenNamespace, known: _Known, records: int) -> bool:
        """Whether it is time by what is known, and by what the manifest says then."""
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
        # Whatever becomes of this attempt: what cannot be written is not tried every few seconds.
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
