"""Writes stored indexes of namespaces that have grown since the last one.

An index spares an opening the entries that it covers. Written each time the namespace has doubled, the last one is half of
all that was ever written, and an opening replays at most as much as the index holds. A handful of memories is opened from
the log about as fast, and gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

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
    """

    least: int = 32
    growth: float = 2.0


@dataclass(slots=True)
class _IndexedUpTo:
    """What is known of a namespace's index: the entry it goes up to, and the records there were then."""

    seq: int
    records: int
    # How many records there must be before it is looked at again.
    look_again_at: int = 0


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
        self._known: WeakKeyDictionary[OpenNamespace, _IndexedUpTo] = WeakKeyDictionary()
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
        known = self._known.get(opened)
        if records < (self._limits.least if known is None else known.look_again_at) or opened.broken:
            return False
        if opened.converting:
            # An index holds vectors of one model: those of the next that were collected so far would be missed.
            return False
        return await self._is_due(opened, records) and await self._write(opened)

    async def _is_due(self, opened: OpenNamespace, records: int) -> bool:
        """Ask the manifest what is indexed, if it could be time, and note when to ask again."""
        least = self._limits.least
        known = self._known.get(opened)
        if known is None and (begun := opened.own_index):
            # What it was opened from is known without asking; only others may have written another since.
            up_to = opened.records_up_to(begun)
            known = self._known[opened] = _IndexedUpTo(begun, up_to, self._due_at(up_to))
            if records < known.look_again_at:
                return False
        seq = await opened.indexed()
        if known is None or seq > known.seq:
            known = self._known[opened] = _IndexedUpTo(seq, opened.records_up_to(seq))
        due_at = self._due_at(known.records)
        # Also after this attempt, whatever becomes of it: what cannot be written is not tried every few seconds.
        known.look_again_at = due_at if records < due_at else records + max(least, records // 2)
        return records >= due_at

    async def _write(self, opened: OpenNamespace) -> bool:
        index = await opened.write_index()
        self.bytes_written += index.nbytes
        self.written += index.named
        self.lost += not index.named
        if index.named:
            self._known[opened] = _IndexedUpTo(index.seq, index.records, self._due_at(index.records))
        return index.named

    def _due_at(self, records: int) -> int:
        return records + max(self._limits.least, int(records * (self._limits.growth - 1)))
