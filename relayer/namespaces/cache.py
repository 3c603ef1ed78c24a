"""The namespaces that are open in this process, and for how long.

A namespace is open while a sealed key for it is live: its log is followed, its memories are readable, its index
answers. When the last live key ends, all of that is dropped; and what was used longest ago is dropped when all together
take more memory than they may, but never what a request is in. Opening is single-flight and outlives the request that
asked for it, so that a namespace too large for one request's deadline is open for the next.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from relayer.access.accounts import Access
from relayer.access.quotas import Quotas
from relayer.domain.namespace import Custody, Pointer
from relayer.errors import (
    CorruptNamespace,
    NamespaceClosed,
    QueueFull,
    RelayerError,
    WrongCustody,
    WrongNamespaceKey,
)
from relayer.lib.work import Deadline
from relayer.log import creation
from relayer.log.namespace_log import begin_reads
from relayer.log.objects import LogPorts, ReadAhead
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import CalibratedModel
from relayer.ports import Embedder, EmbeddingModel
from relayer.search.baseline import Calibration, calibrate

_MIB = 1024 * 1024
_ROUNDS = 3
# How often to look whether the log of a large namespace is read.
_AGAIN_SECONDS = 0.05

_Key = tuple[str, str]
Making: TypeAlias = Callable[[Access], Awaitable[None]]
# Name, secret, custody and generation of who asks, and whether it may be made: what an opening depends on.
_Flight = tuple[_Key, bytes, Custody, int, bool]


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """What may be open without being in use: bytes of memory, as `OpenNamespace.nbytes` counts them, and namespaces."""

    bytes: int = 512 * _MIB
    namespaces: int = 65_536


class OpenNamespaces:
    """Opens, shares and drops namespaces.

    ``making`` is asked before a namespace may be made, and ``quotas`` then and before anything is appended.

    Attributes:
        newest: the model that every memory is to have a vector of.
        former: the one that was used before, as long as namespaces are searched by it.
        embedded: memories that got a vector here after they were stored.
        openings: how many namespaces were opened since the start, those that are closed again included.
        from_indexes: how many of them began with a stored index.
        ignored_indexes: stored indexes that were there and could not be used.
        evictions: how many were dropped to make room.
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
        # In the order of their last use, the latest last.
        self._open: OrderedDict[_Key, OpenNamespace] = OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self._total = 0
        # Used since they were weighed: weighing takes longer than many a request's other steps.
        self._unweighed: set[_Key] = set()
        self._opening: dict[_Flight, asyncio.Task[OpenNamespace | None]] = {}
        # What these flights are opening, as soon as there is something of it.
        self._begun: dict[_Flight, OpenNamespace] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def nbytes(self) -> int:
        """About what the open ones take in memory, as of when each was last used."""
        while self._unweighed:
            self._weigh(self._unweighed.pop())
        return self._total

    def all(self) -> list[OpenNamespace]:
        """Everything that is open now."""
        return list(self._open.values())

    async def calibrate(self, embedder: Embedder) -> None:
        """Complete the calibration of a model, once: the probes by which a namespace's own null is measured.

        Raises:
            EmbedderUnavailable, QueueFull: not now; the shipped prior goes on being all there is.
        """
        async with self._calibrating:
            former = self.former
            known = former if former is not None and embedder.model == former.model else self.newest
            if not known.calibration.probes:
                known.calibration = await calibrate(embedder)
                for opened in self._open.values():
                    opened.view.recalibrate()

    def peek(self, account: str, name: str) -> OpenNamespace | None:
        """Return an open namespace without opening it, for counts."""
        return self._open.get((account, name))

    def holds(self, opened: OpenNamespace) -> bool:
        """Whether it is still what requests get: it was not let go of, as a revocation and an erasure do."""
        return self.peek(opened.account, opened.name) is opened

    def use(
        self, access: Access, deadline: Deadline, *, create: bool
    ) -> AbstractAsyncContextManager[OpenNamespace]:
        """Open a namespace for a request, making it if need be.

        Raises:
            WrongNamespaceKey, WrongCustody, NamespaceClosed: the request's key or custody does not fit.
            QueueFull: too many namespaces are in use at once.
            RelayerError: the log could not be read.
        """
        return _Use(self, access, deadline, create=create)

    def use_if_exists(
        self, access: Access, deadline: Deadline, *, patience: float | None = None
    ) -> AbstractAsyncContextManager[OpenNamespace | None]:
        """Open a namespace for a request, or give None when there is none; never writes. Raises as `use`.

        With ``patience``, one that takes more seconds to open is given while it lags, see `OpenNamespace.lags`.
        """
        return _UseIfExists(self, access, deadline, create=False, patience=patience)

    def begin_use(self, opened: OpenNamespace) -> None:
        """Keep a namespace from being dropped, until as many `end_use`."""
        opened.users += 1
        opened.reserved = False

    def end_use(self, opened: OpenNamespace) -> None:
        """Let go of a namespace, which may have grown."""
        opened.users -= 1
        self._unweighed.add((opened.account, opened.name))

    async def in_each(
        self, work: Callable[[OpenNamespace], Awaitable[object]], on_error: Callable[[BaseException], None]
    ) -> None:
        """Do something in one open namespace after the other; one that fails keeps none from its turn."""
        for opened in self.all():
            opened.users += 1
            try:
                await work(opened)
            except NamespaceClosed:
                continue  # erased meanwhile, perhaps through another relayer: there is nothing left to do
            except RelayerError as error:
                on_error(error)
            finally:
                opened.users -= 1

    async def trim(self) -> None:
        """Drop what was used longest ago until the rest fits the memory that it may take."""
        for opened in self._open.values():
            # Whoever asked for it a round ago has used it or gone away.
            opened.reserved = False
        self._unweighed.update(self._open)
        await self._make_room()

    async def drop_expired(self) -> None:
        """Drop what no live key opens any more."""
        now = self._ports.clock.now_ms()
        for key, opened in list(self._open.items()):
            if opened.key_not_after < now and opened.users == 0:
                await self._drop(key, opened)

    async def drop_agent(self, account: str, agent_namespaces: list[str]) -> None:
        """Drop namespaces at once, because a revocation ended their keys."""
        for name in agent_namespaces:
            opened = self._open.get((account, name))
            if opened is not None:
                await self._drop((account, name), opened)

    async def close(self, patience: float) -> None:
        """Stop opening, commit what is queued for at most ``patience`` seconds, and drop everything."""
        for task in list(self._opening.values()):
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await asyncio.gather(
            *(opened.close(patience) for opened in self._open.values()), return_exceptions=True
        )
        self._open.clear()
        self._sizes.clear()
        self._total = 0

    async def obtain(
        self, access: Access, deadline: Deadline, *, create: bool, patience: float | None = None
    ) -> OpenNamespace | None:
        """Return a namespace for `begin_use`, in the same step of the event loop; None when there is none. Raises as `use`."""
        key = (access.account, access.namespace)
        opened = self._open.get(key)
        if opened is not None and opened.broken:
            await self._drop(key, opened)
            opened = None
        for _ in range(_ROUNDS):
            if opened is None:
                async with deadline.step("open"):
                    opened = await self._open_once(key, access, create=create, patience=patience)
            if opened is None:
                return None
            _check(opened, access)
            if patience is not None and opened.lags and key not in self._open:
                return opened
            if self._open.get(key) is opened:
                self._open.move_to_end(key)
                opened.key_not_after = max(opened.key_not_after, access.key_not_after)
                return opened
            # It was dropped to make room for others before this request could take hold of it.
            opened = self._open.get(key)
        raise QueueFull("more namespaces are asked for than there is memory for", retry_after=1.0)

    async def _open_once(
        self, key: _Key, access: Access, *, create: bool, patience: float | None
    ) -> OpenNamespace | None:
        # The secret is part of the flight's name: a wrong one fails alone and never for somebody else.
        flight = (key, access.secret, access.custody, access.generation, create)
        task = self._opening.get(flight)
        opened = await self._fly(flight, access, patience)
        if opened is None and task is not None:
            # That flight may have looked before a write made the namespace that was acknowledged before this request.
            opened = await self._fly(flight, access)
        return opened

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
        """Read a namespace's log: after a stored index if that fits it, else from the first entry."""
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
        on_manifest = partial(begin_reads, ahead, self._ports.layout, models)
        if create:
            if self._making is not None:
                await self._making(access)
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
            existing = await creation.open_existing(
                self._ports, pointer, access.account, access.secret, on_manifest
            )
            if existing is None:
                return None
            found = existing
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


class _Used:
    """A namespace while a request works with it. Classes, because every request has one, and a generator would take twice as long."""

    __slots__ = ("_access", "_create", "_deadline", "_opened", "_patience", "_spaces")

    def __init__(
        self,
        spaces: OpenNamespaces,
        access: Access,
        deadline: Deadline,
        *,
        create: bool,
        patience: float | None = None,
    ) -> None:
        self._spaces = spaces
        self._access = access
        self._deadline = deadline
        self._create = create
        self._patience = patience
        self._opened: OpenNamespace | None = None

    async def _begin(self) -> OpenNamespace | None:
        opened = await self._spaces.obtain(
            self._access, self._deadline, create=self._create, patience=self._patience
        )
        if opened is not None:
            self._spaces.begin_use(opened)
            self._opened = opened
        return opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            self._spaces.end_use(self._opened)


class _UseIfExists(_Used, AbstractAsyncContextManager[OpenNamespace | None]):
    __slots__ = ()

    async def __aenter__(self) -> OpenNamespace | None:
        return await self._begin()


class _Use(_Used, AbstractAsyncContextManager[OpenNamespace]):
    __slots__ = ()

    async def __aenter__(self) -> OpenNamespace:
        opened = await self._begin()
        if opened is None:
            raise NamespaceClosed("the namespace is being made or erased; try again")
        return opened


def _check(opened: OpenNamespace, access: Access) -> None:
    _check_pointer(opened.namespace.pointer, access)
    if not hmac.compare_digest(opened.secret, access.secret):
        raise WrongNamespaceKey("the secret does not open this namespace")


def _check_pointer(pointer: Pointer, access: Access) -> None:
    if pointer.custody is not access.custody:
        raise WrongCustody(f"this namespace is kept under custody {pointer.custody.value}")
    if pointer.generation != access.generation:
        raise WrongNamespaceKey("this namespace is kept under another generation of its secret")
