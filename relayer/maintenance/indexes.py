"""Writes stored indexes of namespaces that have grown since the last one.

An index spares an opening the entries that it covers. Written each time the namespace has doubled, the last one is half of
all that was ever written, and an opening replays at most as much as the index holds. A small namespace is opened from its
log as fast as from an index, and gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from weakref import WeakKeyDictionary

from relayer.domain.snapshot import write_state
from relayer.errors import NamespaceClosed, RelayerError
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.stored import write_view
from relayer.ports import EmbeddingModel

INTERVAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """When an index is written.

    Attributes:
        least: records that a namespace must have gained since the last index, or since its beginning.
        growth: by which factor it must have grown since the last one.
    """

    least: int = 1000
    growth: float = 2.0


@dataclass(slots=True)
class _Known:
    """What is known of a namespace's index: the entry it goes up to, and the records there were then."""

    seq: int
    records: int
    # How many records there must be before it is looked at again.
    look_again_at: int = 0


class IndexKeeper:
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
        for opened in self._ctx.namespaces.all():
            try:
                await self.keep(opened)
            except NamespaceClosed:
                continue  # erased meanwhile: there is nothing to index
            except RelayerError as error:
                on_error(error)

    async def keep(self, opened: OpenNamespace) -> bool:
        """Write an index of a namespace if it is time; returns whether the manifest names it now.

        Raises:
            RelayerError: it was not written, or it is not known whether it is named; both are harmless.
        """
        records = len(opened.view.roster)
        known = self._known.get(opened)
        if records < (self._limits.least if known is None else known.look_again_at) or opened.broken:
            return False
        if opened.view.converting:
            # An index holds vectors of one model: those of the next that were collected so far would be missed.
            return False
        opened.users += 1
        try:
            if not await self._is_due(opened, records):
                return False
            return await self._write(opened)
        finally:
            opened.users -= 1

    async def _is_due(self, opened: OpenNamespace, records: int) -> bool:
        """Ask the manifest what is indexed, and note when to ask again."""
        least = self._limits.least
        known = self._known.get(opened)
        seq = await opened.log.indexes.indexed(self._model)
        if known is None or seq > known.seq:
            known = self._known[opened] = _Known(seq, _covered(opened, seq))
        due_at = self._due_at(known.records)
        # Also after this attempt, whatever becomes of it: what cannot be written is not tried every few seconds.
        known.look_again_at = due_at if records < due_at else records + max(least, records // 2)
        return records >= due_at

    async def _write(self, opened: OpenNamespace) -> bool:
        ctx, indexes = self._ctx, opened.log.indexes
        async with opened.still() as state:
            erased, records = len(state.erased), len(opened.view.roster)
            builder = indexes.begin(self._model, opened.keys.epoch)
            for page in write_state(state):
                builder.add_page(page)
            await write_view(opened.view, builder, opened.keys, ctx.randomness)
        data = builder.finish()
        named = await indexes.publish(builder, self._model, data, erased)
        self.bytes_written += len(data)
        self.written += named
        self.lost += not named
        if named:
            self._known[opened] = _Known(builder.position.seq, records, self._due_at(records))
        return named

    def _due_at(self, records: int) -> int:
        return records + max(self._limits.least, int(records * (self._limits.growth - 1)))

    @property
    def _model(self) -> EmbeddingModel:
        return self._ctx.embedder.model


def _covered(opened: OpenNamespace, seq: int) -> int:
    """Return how many records are of entries up to one; only the newest are looked at, for the others are not read yet."""
    if not seq:
        return 0
    records = opened.log.state.records
    return len(records) - sum(1 for _ in takewhile(lambda one: one.seq > seq, reversed(records.values())))
