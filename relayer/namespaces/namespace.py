"""One open namespace: its log, its keys, and its memories in clear.

The log tells what it applied in one step of the event loop. What is small is indexed in the same step; what is large is
indexed by a task that gives others a turn in between, and every read waits for it: the order is kept, the loop is not
held, and done still means recallable.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.namespace import Manifest, Position
from relayer.domain.operations import Close, Erase, JobFinished, Put, Supersede
from relayer.domain.state import Applied, NamespaceState
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.log import creation
from relayer.log.log_ports import LogPorts
from relayer.log.namespace_log import Allowance, Consistency, NamespaceLog
from relayer.log.replica import Start
from relayer.namespaces.embedding_space import EmbeddingSpace
from relayer.namespaces.projection import NamespaceView
from relayer.namespaces.stored import read_view
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.baseline import Calibration
from relayer.wire import schemas

# Indexing takes about 0.1 ms for a memory and as much for a KiB of its text, up to what is searched of one; after this
# much the others get a turn.
SLICE_BYTES = 6 * 1024
_MEMORY_BYTES = 1024
# What an open namespace takes without a memory in it: measured, the tasks and the log's tables included.
_EMPTY_BYTES = 24 * 1024
# Vectors that are kept of what was embedded alone, and what one takes beside its numbers.
_VECTORS_BYTES = 256 * 1024
_VECTOR_BYTES = 250


def _vector_bytes(vector: NDArray[np.float32]) -> int:
    return vector.nbytes + _VECTOR_BYTES


class _Vectors:
    """Vectors of what was embedded alone, by a keyed digest of model and text: no text stays, and none can be looked up.

    They are one namespace's: whoever asks in another learns nothing from how long his own answer takes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._vectors: LRUCache[bytes, NDArray[np.float32]] = LRUCache(_VECTORS_BYTES, _vector_bytes)
        # Counts what was erased: what was under way then is not kept.
        self.erasures = 0

    @property
    def nbytes(self) -> int:
        return int(self._vectors.currsize)

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, model: EmbeddingModel, text: str) -> NDArray[np.float32] | None:
        return self._vectors.get(self._place(model, text))

    def put(self, model: EmbeddingModel, text: str, vector: NDArray[np.float32]) -> None:
        self._vectors[self._place(model, text)] = vector

    def clear(self) -> None:
        self.erasures += 1
        self._vectors.clear()

    def _place(self, model: EmbeddingModel, text: str) -> bytes:
        data = f"{model.sha256} {text}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._key, digest_size=16).digest()


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenNamespace:
    """A namespace while a key for it is live; ``users`` counts the requests in it.

    Attributes:
        key_not_after: until when it may be held, in ms since the epoch.
        awaited: whether it was opened for requests of which none has come to use it yet.
        trusts_indexes: whether to begin with a stored index if there is one.
        former: what it is searched by until all of its memories have vectors of ``model``; None when nothing is left of it.
        from_index: the entry up to which a stored index was begun with, 0 without one.
        ignored: stored indexes that were there and could not be used.
        allowance: asked before anything is appended; None lets everything be.
    """

    ports: LogPorts
    namespace: creation.OpenedNamespace
    model: EmbeddingModel
    calibration: Calibration
    secret: bytes = field(repr=False)
    key_not_after: int = 0
    trusts_indexes: bool = True
    former: EmbeddingSpace | None = None
    awaited: bool = True
    users: int = 0
    from_index: int = 0
    ignored: int = 0
    allowance: Allowance | None = None
    log: NamespaceLog = field(init=False)
    view: NamespaceView = field(init=False)
    _failure: Exception | None = None
    _behind: deque[Applied] = field(default_factory=deque)
    _indexing: asyncio.Task[None] | None = None
    _measuring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _free: asyncio.Event = field(default_factory=asyncio.Event)
    _tended_at: Position | None = None
    _restored: tuple[NamespaceState, NamespaceView] | None = None
    _vectors: _Vectors = field(init=False)

    def __post_init__(self) -> None:
        self._free.set()
        self._vectors = _Vectors(self.namespace.keys.idempotency_mac("cache of vectors"))
        self.view = self._new_view()
        self.log = NamespaceLog(
            self.ports,
            self.namespace.account,
            self.namespace.pointer,
            begin=self._begin,
            seen=self.namespace.seen,
            allowance=self.allowance,
        )
        self.log.subscribe(self._on_applied, self._on_reset)

    def _new_view(self) -> NamespaceView:
        coming = EmbeddingSpace(self.model, self.calibration)
        if self.former is None:
            return self._view_of(coming)
        view = self._view_of(self.former)
        view.prepare(coming)
        return view

    def _view_of(self, generation: EmbeddingSpace) -> NamespaceView:
        return NamespaceView(
            self.namespace.keys, generation.model, generation.calibration, self.ports.randomness
        )

    @property
    def keys(self) -> NamespaceKeys:
        """The keys of the current epoch."""
        return self.namespace.keys

    @property
    def broken(self) -> bool:
        """Whether it has to be opened anew to be served."""
        return self._failure is not None or self.log.broken or self.log.state.closed

    async def read(
        self, consistency: schemas.Consistency, min_position: schemas.Position | None = None
    ) -> None:
        """Bring log and view up to what the consistency asks for."""
        wanted = Position(min_position.seq, bytes.fromhex(min_position.digest)) if min_position else None
        await self.log.read(Consistency(consistency.value), wanted)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the view has everything that the log has applied.

        Raises:
            NamespaceClosed: the namespace was erased.
            CorruptNamespace: it could not follow; the next request opens the namespace anew.
        """
        while self._indexing is not None:
            # Waited for, not awaited: neither side's cancellation reaches the other.
            await asyncio.wait([self._indexing])
        if self._failure is not None:
            raise CorruptNamespace("the view could not follow the log; it is opened anew") from self._failure
        if self.log.state.closed:
            raise NamespaceClosed("the namespace was erased")
        self.view.cut_over()

    async def judge_alike(self) -> None:
        """Bring the null that relevance is judged by up to date, as every replica has it; `read` first."""
        while self.view.index.null_is_due:
            async with self._measuring:
                await self.view.index.measure_null()
            await self.settle()

    def recalibrate(self, generation: EmbeddingSpace) -> None:
        """Judge what a model finds by another calibration from now on."""
        if generation.model == self.model:
            self.calibration = generation.calibration
        elif self.former is not None:
            self.former = generation
        self.view.recalibrate(generation)

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return _EMPTY_BYTES + self.log.nbytes + self.view.nbytes + self._vectors.nbytes

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts of this namespace as `relayer.ports.Embedder.embed` does; what was asked alone is asked once."""
        if len(texts) != 1:
            return await embedder.embed(texts)
        model, kept, erasures = embedder.model, self._vectors, self._vectors.erasures
        known = kept.get(model, texts[0])
        if known is not None:
            return known.copy()
        found = await embedder.embed(texts)
        if erasures == kept.erasures:
            kept.put(model, texts[0], found.copy())
        return found

    @property
    def needs_tending(self) -> bool:
        """Whether the log has moved since the last round, or that one left something undone."""
        return bool(self.view.lacking) or self.log.position != self._tended_at

    def tended(self) -> None:
        """Note the end of a round: until the log moves there is no need of another, unless something is still promised."""
        if not any(job.state == "pending" for job in self.log.state.jobs.values()):
            self._tended_at = self.log.position

    @property
    def held(self) -> bool:
        """Whether the view is being written down: it must not be changed but by the log, which waits."""
        return not self._free.is_set()

    @asynccontextmanager
    async def still(self) -> AsyncIterator[NamespaceState]:
        """Keep the view as it is, at the state that is yielded; that one goes on, so it is to be read at once.

        What the log applies meanwhile is indexed afterwards, and reads that must see it wait.

        Raises:
            CorruptNamespace: the view could not follow the log.
        """
        await self.settle()
        self._free.clear()
        try:
            yield self.log.state
        finally:
            self._free.set()

    async def changed(self, seconds: float) -> None:
        """Wait until the log moves, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def close(self, patience: float = 10.0) -> None:
        """Commit what is queued for at most ``patience`` seconds, stop, and let go of keys and memories."""
        try:
            await self.log.close(patience)
        finally:
            if self._indexing is not None:
                self._failure = NamespaceClosed("the namespace was let go of while it was indexed")
                self._indexing.cancel()
                await asyncio.wait([self._indexing])
            # The log's projections are methods of this object: without them nothing holds the keys but their users.
            self.log.unsubscribe()
            self._restored = None
            self._behind.clear()
            # Whoever waits for a change here waits in vain.
            self._wake()
            self._vectors.clear()

    async def _begin(self, manifest: Manifest) -> Start | None:
        """Read the index that the manifest names; None when there is none that can be used."""
        self._restored = None
        self.from_index = 0
        if not self.trusts_indexes:
            return None
        for generation in (EmbeddingSpace(self.model, self.calibration), self.former):
            start = None if generation is None else await self._begin_with(manifest, generation)
            if start is not None:
                return start
        return None

    async def _begin_with(self, manifest: Manifest, generation: EmbeddingSpace) -> Start | None:
        """Read the named index if it was made for this model."""
        reader = None
        try:
            reader = await self.log.indexes.open(manifest, generation.model, self.keys.epoch)
            if reader is None:
                return None
            start = await reader.state()
            view = self._view_of(generation)
            await read_view(reader, view, self.keys, generation.calibration, generation.model.dimension)
        except CorruptNamespace:
            # The log has all that an index has: it takes longer, and that is all.
            self.ignored += 1
            return None
        finally:
            if reader is not None:
                await reader.close()
        if generation.model != self.model:
            view.prepare(EmbeddingSpace(self.model, self.calibration))
        self.from_index = start.state.position.seq
        self._restored = (start.state, view)
        return start

    def _on_applied(self, applied: list[Applied]) -> None:
        if any(isinstance(item.operation, Erase | Close) for item in applied):
            # A vector stands for its text, and nobody knows here which were made of what is erased.
            self._vectors.clear()
        if self.log.state.closed:
            # Nobody may be answered from this any more: let go of it now, not when its key ends.
            self._behind.clear()
            self.view = self._new_view()
            self._wake()
            return
        if self._indexing is None and not self.held and sum(map(_weight, applied)) <= SLICE_BYTES:
            self.view.apply(self.log.state, applied)
        else:
            self._behind.extend(applied)
            if self._indexing is None:
                self._indexing = asyncio.create_task(self._index())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _on_reset(self, state: NamespaceState) -> None:
        self._behind.clear()
        restored, self._restored = self._restored, None
        if restored is not None and restored[0] is state:
            self.view = restored[1]
        else:
            self.view = self._new_view()

    async def _index(self) -> None:
        try:
            while self._behind:
                await self._free.wait()
                self.view.apply(self.log.state, list(self._slice()))
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be answered from this view
            self._failure = error
        finally:
            self._indexing = None

    def _slice(self) -> Iterable[Applied]:
        """Take from what is behind at least one operation, and no more than a slice after it."""
        room = SLICE_BYTES
        while self._behind and room > 0:
            item = self._behind.popleft()
            room -= _weight(item)
            yield item


def _weight(item: Applied) -> int:
    """How much there is to index in an operation, in bytes of its sealed text."""
    match item.operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return _MEMORY_BYTES + len(stored.sealed)
        case JobFinished(stored=results):
            return sum(_MEMORY_BYTES + len(stored.sealed) for stored in results)
        case _:
            return 0
