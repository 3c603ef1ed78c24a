"""The cache of the namespaces that are open in this process.

A namespace stays open while a sealed key for it is live: its log is followed, its memories are decrypted on access, and
its index can be searched. It is closed when the last live key expires. If all open namespaces together exceed the memory
limit, the least recently used ones are evicted, but never one that a request is using. Concurrent requests share one
opening, which continues after the request that started it has ended: a namespace that takes longer to open than one
request's deadline is open for the next one.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar, cast

from relayer.access.accounts import Access
from relayer.access.quotas import Quotas
from relayer.domain.namespace import Custody, Pointer, PointerState
from relayer.errors import (
    CorruptNamespace,
    KeysAreRotated,
    NamespaceClosed,
    QueueFull,
    RelayerError,
    WrongCustody,
    WrongGeneration,
    WrongNamespaceKey,
)
from relayer.lib.work import Deadline, cancel_all
from relayer.log import creation
from relayer.log.namespace_log import begin_reads
from relayer.log.objects import LogPorts, ReadAhead
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import CalibratedModel
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.baseline import Calibration, calibrate

_ROUNDS = 3
# Seconds between two checks whether the log of a large namespace has been read.
_AGAIN_SECONDS = 0.05
# Longest time in seconds that a request waits for a rotation of the keys, and the time between two looks at the pointer.
_ROTATION_SECONDS = 5.0
_LOOK_SECONDS = 0.1

T = TypeVar("T")
Opened = TypeVar("Opened")
_Key = tuple[str, str]
Making: TypeAlias = Callable[[Access], Awaitable[None]]
# Everything that an opening depends on: namespace, secret, custody, generation, and whether it may be created.
_Flight = tuple[_Key, bytes, Custody, int, bool]


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The limits above which unused namespaces are evicted.

    Attributes:
        bytes: memory of all open namespaces, as `OpenNamespace.nbytes` counts it.
    """

    bytes: int = 512 * 1024 * 1024
    namespaces: int = 65_536


class OpenNamespaces:
    """Opens namespaces, shares them among requests, and closes them.

    Args:
        ports: the store, and what logs need to use it.
        model: the newest embedding model, with its calibration.
        limits: see `CacheLimits`.
        former: the previous model and its calibration, if namespaces may still have its vectors.
        making: called before a namespace is created, for example to create its account.
        quotas: checked before a namespace is created and before operations are appended; None for no quotas.

    Attributes:
        newest: the model of which every memory is to have a vector.
        former: the previous model, as long as namespaces are searched by it.
        embedded: number of memories whose vector was computed by this process after they were stored.
        openings: number of namespaces opened since the start, including those that were closed again.
        from_indexes: number of openings from a stored index.
        ignored_indexes: number of stored indexes that existed and could not be used.
        evictions: number of namespaces closed to free memory.
    """

    def __init__(
        self,
        ports: LogPorts,
        model: EmbeddingModel,
        calibration: Calibration,
        limits: CacheLimits | None = None,
        *,
        former: CalibratedModel | None = None,
        making: Making | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._ports = ports
        self._making = making
        self._quotas = quotas
        self.newest = CalibratedModel(model, calibration)
        self.former = former
        self.embedded = 0
        self.openings = 0
        self.from_indexes = 0
        self.ignored_indexes = 0
        self.evictions = 0
        self._limits = limits or CacheLimits()
        self._calibrating = asyncio.Lock()
        # In the order of their last use, the most recent last.
        self._open: OrderedDict[_Key, OpenNamespace] = OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self._total = 0
        # Used since their size was computed. That takes longer than many other steps of a request, so it is done lazily.
        self._unweighed: set[_Key] = set()
        self._opening: dict[_Flight, asyncio.Task[OpenNamespace | None]] = {}
        # The namespaces that are being opened, from the moment at which their objects exist.
        self._begun: dict[_Flight, OpenNamespace] = {}
        # The rotations of keys in this process.
        self._rotations: dict[_Key, asyncio.Task[object]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def nbytes(self) -> int:
        """Return the approximate size in bytes of all open namespaces, each as of its last use."""
        while self._unweighed:
            self._weigh(self._unweighed.pop())
        return self._total

    def all(self) -> list[OpenNamespace]:
        """Return all namespaces that are open now."""
        return list(self._open.values())

    async def calibrate(self, embedder: Embedder) -> None:
        """Complete the calibration of a model with the probes by which each namespace measures its own baseline.

        Does nothing if that has been done. Raises `EmbedderUnavailable` or `QueueFull`: the model cannot be used now; the
        shipped prior remains the only baseline.
        """
        async with self._calibrating:
            former = self.former
            known = former if former is not None and embedder.model == former.model else self.newest
            if not known.calibration.probes:
                known.calibration = await calibrate(embedder)
                for opened in self._open.values():
                    opened.view.recalibrate()

    def peek(self, account: str, name: str) -> OpenNamespace | None:
        """Return a namespace if it is open, without opening it or counting as a use; else None."""
        return self._open.get((account, name))

    def holds(self, opened: OpenNamespace) -> bool:
        """Return whether requests still get this object: it has not been closed, for example after a revocation or erasure."""
        return self.peek(opened.account, opened.name) is opened

    def use(
        self, access: Access, deadline: Deadline, *, create: bool
    ) -> AbstractAsyncContextManager[OpenNamespace]:
        """Open a namespace for a request, and with ``create`` create it if it does not exist.

        Raises:
            WrongNamespaceKey, WrongGeneration, WrongCustody, NamespaceClosed: the request's key or custody does not fit.
            KeysAreRotated: a rotation of the keys does not end.
            QueueFull: too many namespaces are in use at the same time.
            RelayerError: the log could not be read.
        """
        return _Use(self, access, deadline, create=create, must_exist=True)

    def use_if_exists(
        self, access: Access, deadline: Deadline, *, patience: float | None = None
    ) -> AbstractAsyncContextManager[OpenNamespace | None]:
        """Open a namespace for a request, or yield None if it does not exist; never writes. Raises as `use`.

        If opening takes more than ``patience`` seconds, the namespace is yielded while it still lags, see
        `OpenNamespace.lags`.
        """
        return _Use(self, access, deadline, patience=patience)

    async def make_account(self, access: Access) -> None:
        """Create the account of a request if it does not exist, before anything is stored for it."""
        if self._making is not None:
            await self._making(access)

    def end_use(self, opened: OpenNamespace) -> None:
        """End one use of a namespace, and compute its size again when that is needed next."""
        opened.users -= 1
        self._unweighed.add((opened.account, opened.name))

    async def in_each(
        self, work: Callable[[OpenNamespace], Awaitable[object]], on_error: Callable[[BaseException], None]
    ) -> None:
        """Run ``work`` for each open namespace, one after the other.

        A `RelayerError` is passed to ``on_error``, and the others are processed all the same. A namespace that was erased
        meanwhile is skipped.
        """
        for opened in self.all():
            opened.users += 1
            try:
                await work(opened)
            except NamespaceClosed:
                continue  # it was erased meanwhile, perhaps through another relayer
            except RelayerError as error:
                on_error(error)
            finally:
                opened.users -= 1

    async def trim(self) -> None:
        """Close the least recently used namespaces until the limits are met."""
        for opened in self._open.values():
            # The request that it was opened for before the last round has used it by now, or has ended.
            opened.reserved = False
        self._unweighed.update(self._open)
        await self._make_room()

    async def drop_expired(self) -> None:
        """Close namespaces whose last live key has expired and that no request is using."""
        now = self._ports.clock.now_ms()
        for key, opened in list(self._open.items()):
            if opened.key_not_after < now and opened.users == 0:
                await self._drop(key, opened)

    async def drop_agent(self, account: str, agent_namespaces: list[str]) -> None:
        """Close namespaces immediately, because a revocation ended their keys."""
        for name in agent_namespaces:
            opened = self._open.get((account, name))
            if opened is not None:
                await self._drop((account, name), opened)

    async def rotate(self, access: Access, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Rotate the keys of a namespace by ``work`` and return its result, then close the namespace.

        Cancelling the caller does not stop the rotation. If a rotation of the namespace runs already, ``work`` is not called,
        and the result is that of the running rotation. Exceptions of it are raised.
        """
        key = (access.account, access.namespace)
        task = self._rotations.get(key)
        if task is None:
            task = self._rotations[key] = asyncio.create_task(work(), name="rotation")
            task.add_done_callback(lambda _: self._rotations.pop(key, None))
        try:
            return cast("T", await asyncio.shield(task))
        finally:
            await self.drop_agent(access.account, [access.namespace])

    async def explain(self, access: Access, deadline: Deadline) -> None:
        """Wait for the end of a rotation of the keys that has closed a namespace; return if it was erased instead.

        Raises:
            WrongGeneration: the rotation has ended.
            KeysAreRotated: it has not.
        """
        patience = Deadline.after(self._ports.clock, min(_ROTATION_SECONDS, deadline.remaining() / 2))
        task = self._rotations.get((access.account, access.namespace))
        if task is not None:
            await asyncio.wait([task], timeout=patience.remaining())
        while True:
            pointer = await creation.find(self._ports, access.account, access.namespace)
            if pointer is None or pointer.state is not PointerState.LIVE:
                return
            if pointer.generation != access.generation:
                raise WrongGeneration(pointer.generation)
            if not pointer.next:
                return
            if not patience.remaining():
                raise KeysAreRotated("the keys of this namespace are being rotated")
            await self._ports.clock.sleep(_LOOK_SECONDS)

    async def close(self, patience: float) -> None:
        """Cancel rotations and openings, commit queued operations for at most ``patience`` seconds, and close all namespaces."""
        await cancel_all([*self._rotations.values(), *self._opening.values()])
        await asyncio.gather(
            *(opened.close(patience) for opened in self._open.values()), return_exceptions=True
        )
        self._open.clear()
        self._sizes.clear()
        self._total = 0

    async def obtain(
        self, access: Access, deadline: Deadline, *, create: bool, patience: float | None = None
    ) -> OpenNamespace | None:
        """Return a namespace, or None if it does not exist; raises as `use`.

        The caller must count itself among its users without awaiting in between, so that it cannot be evicted before that.
        """
        key = (access.account, access.namespace)
        if key in self._rotations:
            await self.explain(access, deadline)
        opened = await self._usable(key, access)
        for _ in range(_ROUNDS):
            if opened is None:
                async with deadline.step("open"):
                    # The secret is part of the key: a request with a wrong one fails alone and never makes another request fail.
                    flight = (key, access.secret, access.custody, access.generation, create)
                    task = self._opening.get(flight)
                    opened = await self._fly(flight, access, patience)
                    if opened is None and task is not None:
                        # The shared opening may have read the store before another request's write, acknowledged before this request,
                        # created the namespace.
                        opened = await self._fly(flight, access)
            if opened is None:
                return None
            _check_pointer(opened.namespace.pointer, access)
            if not hmac.compare_digest(opened.secret, access.secret):
                raise WrongNamespaceKey("the secret does not open this namespace")
            if patience is not None and opened.lags and key not in self._open:
                return opened
            if self._open.get(key) is opened:
                self._open.move_to_end(key)
                opened.key_not_after = max(opened.key_not_after, access.key_not_after)
                return opened
            # It was evicted before this request could mark it as in use.
            opened = self._open.get(key)
        raise QueueFull("more namespaces are asked for than there is memory for", retry_after=1.0)

    async def _usable(self, key: _Key, access: Access) -> OpenNamespace | None:
        """Return the namespace if it is open and can be used; close one that has to be opened again."""
        opened = self._open.get(key)
        if opened is None:
            return None
        stale = opened.broken
        if opened.namespace.pointer.generation < access.generation:
            # Another relayer may have rotated the keys.
            pointer = await creation.find(self._ports, *key)
            stale = pointer is None or pointer.incarnation != opened.incarnation
        if not stale:
            return opened
        await self._drop(key, opened)
        return None

    async def _fly(
        self, flight: _Flight, access: Access, patience: float | None = None
    ) -> OpenNamespace | None:
        task = self._opening.get(flight)
        if task is None:
            task = asyncio.create_task(self._load(flight, access))
            self._opening[flight] = task
            task.add_done_callback(lambda _: self._end_flight(flight))
        while patience is not None:
            await asyncio.wait([task], timeout=patience)
            if task.done():
                break
            if (begun := self._begun.get(flight)) is not None and begun.lags:
                return begun
            patience = _AGAIN_SECONDS
        return await asyncio.shield(task)

    def _end_flight(self, flight: _Flight) -> None:
        self._opening.pop(flight, None)
        self._begun.pop(flight, None)

    async def _load(self, flight: _Flight, access: Access) -> OpenNamespace | None:
        key, ahead = flight[0], ReadAhead(self._ports)
        try:
            found = await self._find(access, ahead, create=flight[-1])
            if found is None:
                return None
            if (raced := self._open.get(key)) is not None:
                return raced
            opened = await self._started(flight, found, access, ahead)
        finally:
            await ahead.end()
        if (raced := self._open.get(key)) is not None:
            await opened.close()
            return raced
        opened.view.recalibrate()
        self._open[key] = opened
        self._weigh(key)
        self.openings += 1
        self.from_indexes += opened.from_index > 0
        self.ignored_indexes += opened.ignored
        await self._make_room()
        return opened

    async def _started(
        self, flight: _Flight, found: creation.OpenedNamespace, access: Access, ahead: ReadAhead
    ) -> OpenNamespace:
        """Read a namespace's log: from a stored index if it matches the log, else from the first entry."""
        opened = self._begun[flight] = self._new(found, access, ahead)
        try:
            await opened.start()
        except CorruptNamespace:
            if not opened.from_index:
                raise
            self.ignored_indexes += 1
            opened = self._begun[flight] = self._new(found, access, ahead)
            opened.trusts_indexes = False
            await opened.start()
        return opened

    def _new(self, found: creation.OpenedNamespace, access: Access, ahead: ReadAhead) -> OpenNamespace:
        return OpenNamespace(
            ports=self._ports,
            namespace=found,
            newest=self.newest,
            secret=access.secret,
            key_not_after=access.key_not_after,
            former=self.former,
            ahead=ahead,
            allowance=None if self._quotas is None else partial(self._quotas.take, access.account),
        )

    async def _find(
        self, access: Access, ahead: ReadAhead, *, create: bool
    ) -> creation.OpenedNamespace | None:
        models = [known.model for known in (self.newest, self.former) if known is not None]
        on_manifest = partial(begin_reads, ahead, models)
        found: creation.OpenedNamespace | None
        if create:
            await self.make_account(access)
            new = creation.NewNamespace(access.account, access.namespace, access.custody, access.generation)
            found = await creation.open_or_create(
                self._ports,
                new,
                access.secret,
                on_manifest,
                on_new=None if self._quotas is None else partial(self._quotas.take_namespace, access.account),
            )
        else:
            pointer = await creation.find(self._ports, access.account, access.namespace)
            if pointer is None:
                return None
            _check_pointer(pointer, access)
            found = await creation.open_existing(
                self._ports, pointer, access.account, access.secret, on_manifest
            )
        if found is not None:
            _check_pointer(found.pointer, access)
        return found

    async def _make_room(self) -> None:
        while self.nbytes > self._limits.bytes or len(self._open) > self._limits.namespaces:
            latest = next(reversed(self._open))
            idle = (
                key
                for key, opened in self._open.items()
                if opened.users == 0 and not opened.reserved and key != latest
            )
            key = next(idle, None)
            if key is None:
                return
            self.evictions += 1
            await self._drop(key, self._open[key])

    def _weigh(self, key: _Key) -> None:
        opened = self._open.get(key)
        if opened is not None:
            size = opened.nbytes
            self._total += size - self._sizes.get(key, 0)
            self._sizes[key] = size

    async def _drop(self, key: _Key, opened: OpenNamespace) -> None:
        if self._open.get(key) is opened:
            del self._open[key]
            self._total -= self._sizes.pop(key, 0)
        with suppress(RelayerError):
            await opened.close()


@dataclass(slots=True, eq=False, repr=False)
class _Use(AbstractAsyncContextManager[Opened]):
    """One use of a namespace; ``must_exist`` says that none is an error.

    It is a class because every request uses one, and a generator-based context manager would take twice as long.
    """

    spaces: OpenNamespaces
    access: Access
    deadline: Deadline
    _: KW_ONLY
    create: bool = False
    must_exist: bool = False
    patience: float | None = None
    opened: OpenNamespace | None = field(init=False, default=None)

    async def __aenter__(self) -> Opened:
        try:
            opened = await self.spaces.obtain(
                self.access, self.deadline, create=self.create, patience=self.patience
            )
        except NamespaceClosed:
            await self.spaces.explain(self.access, self.deadline)
            raise
        if opened is not None:
            opened.users += 1
            opened.reserved = False
            self.opened = opened
        elif self.must_exist:
            raise NamespaceClosed("the namespace is being made or erased; try again")
        return cast("Opened", opened)

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if self.opened is not None:
            self.spaces.end_use(self.opened)
            if isinstance(error, NamespaceClosed):
                await self.spaces.explain(self.access, self.deadline)


def _check_pointer(pointer: Pointer, access: Access) -> None:
    if pointer.custody is not access.custody:
        raise WrongCustody(f"this namespace is kept under custody {pointer.custody.value}")
    if pointer.generation != access.generation:
        raise WrongGeneration(pointer.generation)
