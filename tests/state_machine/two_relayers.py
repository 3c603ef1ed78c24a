"""Two relayers without HTTP over one store, and an agent that asks them: each call runs to its end before the next."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from doubles.seeded_randomness import SeededRandomness
from signed_calls import certificate_of

from relayer.access.accounts import Access, Principal
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.errors import NamespaceClosed, Refused
from relayer.extraction.statements import StatementExtractor
from relayer.lib.work import Deadline
from relayer.log.collector import Collector
from relayer.log.compactor import CompactionLimits
from relayer.log.objects import LogPorts
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.context import Context
from relayer.search.baseline import Calibration
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases.erase import erase_memory, erase_namespace
from relayer.use_cases.lifecycle import restore, supersede
from relayer.use_cases.memories import forget_memory, get_memory, list_memories
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.schemas import EraseNamespaceRequest, SupersedeRequest
from relayer.wire.sealing import RootKeys

__all__ = ["AGENT", "TwoRelayers"]

T = TypeVar("T")

AGENT = "researcher"
# The nonce of reads, which nobody counts.
READ = b"read" * 4
KEYS = RelayerKeys.derive(hashlib.sha256(b"a relayer key").digest())
ROOT = RootKeys(hashlib.sha256(b"a root secret").digest())
SECRET = ROOT.agent(AGENT).namespace_secret(AGENT, 0)
CERTIFICATE = certificate_of(ROOT, AGENT, AGENT, f"{AGENT}/*")
_TAIL = CompactionLimits(entries=1, most_small=1)
ALL_STATES = ("live", "superseded", "forgotten")


def _fail(error: BaseException) -> None:
    raise error


class TwoRelayers:
    """Everything that can be asked, by the number of the relayer. Time stands still unless `pass_time` is called.

    Attributes:
        former: the incarnations that were erased.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.clock = FakeClock()
        self._calibration = calibration
        self._store = MemoryStore(self.clock)
        self._embedder = HashingEmbedder()
        self._loop = asyncio.new_event_loop()
        self._started = 0
        self.former: list[str] = []
        self._unaware: set[int] = set()
        self._relayers = [self._start(), self._start()]

    def _start(self) -> Context:
        self._started += 1
        ports = LogPorts(self._store, self.clock, SeededRandomness(self._started), KEYS)
        namespaces = OpenNamespaces(ports, self._embedder.model, self._calibration)
        return Context(ports, self._embedder, StatementExtractor(), namespaces)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(self.clock.run(work))

    def close(self) -> None:
        for relayer in self._relayers:
            self.run(relayer.namespaces.close(1.0))
        self._loop.close()

    def restart(self, which: int) -> None:
        """Let a relayer go, and start one that knows nothing but the store."""
        self.run(self._relayers[which].namespaces.close(0.0))
        self._relayers[which] = self._start()
        self._unaware.discard(which)

    async def _ask(self, which: int, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask a relayer; one that had the namespace open when another one erased it says so, once."""
        try:
            return await ask()
        except NamespaceClosed:
            if which not in self._unaware:
                raise
            self._unaware.discard(which)
            return await ask()

    def pass_time(self, seconds: float) -> None:
        """Let time pass; namespaces whose keys ended meanwhile are let go, as a relayer does in the background."""
        self._loop.run_until_complete(self.clock.advance(seconds))
        for relayer in self._relayers:
            self.run(relayer.namespaces.drop_expired())

    def now(self) -> int:
        return self.clock.now_ms()

    def access(self, nonce: bytes, body: bytes = b"") -> Access:
        signed = Principal(CERTIFICATE, nonce, self.now() + 120_000, hashlib.sha256(body).digest())
        return Access(signed, AGENT, 0, Custody.AGENT, self.now() + 600_000, SECRET)

    def remember(
        self, which: int, nonce: bytes, request: schemas.RememberRequest
    ) -> schemas.RememberResponse:
        """Store items.

        Raises:
            Refused: as the use case.
        """
        return self.run(self._remember(which, nonce, request))

    async def _remember(
        self, which: int, nonce: bytes, request: schemas.RememberRequest
    ) -> schemas.RememberResponse:
        access = self.access(nonce, request.model_dump_json().encode())
        return await self._ask(
            which, lambda: remember(self._relayers[which], access, request, self._deadline())
        )

    def remember_at_once(
        self, nonces: tuple[bytes, bytes], requests: tuple[schemas.RememberRequest, schemas.RememberRequest]
    ) -> list[schemas.RememberResponse]:
        """Store through both relayers at the same time."""

        async def both() -> list[schemas.RememberResponse]:
            writes = (
                self._remember(which, nonces[which], requests[which]) for which in range(len(self._relayers))
            )
            return await asyncio.gather(*writes)

        return self.run(both())

    def remember_without_vectors(
        self, which: int, nonce: bytes, request: schemas.RememberRequest
    ) -> schemas.RememberResponse:
        """Store while no embedding can be had; the other relayer keeps the promise of a vector."""
        self._embedder.down = True
        try:
            answer = self.remember(which, nonce, request)
        finally:
            self._embedder.down = False
        other = self._relayers[1 - which]
        self.list(1 - which)  # what nobody opened is not looked after
        self.run(maintain(other))
        return answer

    def forget(self, which: int, nonce: bytes, memory: str) -> str:
        return self._told(forget_memory, which, nonce, memory, take=attrgetter("state"))

    def get(self, which: int, memory: str) -> schemas.Memory | str:
        return self._told(get_memory, which, READ, memory, take=attrgetter("memory"))

    def list(self, which: int) -> list[schemas.Memory]:
        """Return everything, whatever its state, newest first."""
        memories: list[schemas.Memory] = []
        cursor: str | None = None
        while True:
            page = self.run(self._ask(which, partial(self._page, which, cursor)))
            memories += page.memories
            cursor = page.next_cursor
            if cursor is None:
                return memories

    def _page(self, which: int, cursor: str | None) -> Coroutine[Any, Any, schemas.ListResponse]:
        return list_memories(
            self._relayers[which],
            self.access(READ),
            limit=3,
            cursor=cursor,
            kinds=(),
            states=ALL_STATES,
            deadline=self._deadline(),
        )

    def recall(self, which: int, query: str, as_of: int | None = None) -> list[schemas.RecallHit]:
        """Find by words and meaning, after the relayer did what it does every second: compute missing vectors."""
        self.list(which)  # what nobody opened is not looked after
        self.run(maintain(self._relayers[which]))
        request = schemas.RecallRequest(query=query, limit=schemas.MAX_LIMIT, floor=0, as_of=as_of)
        access = self.access(READ)
        return list(self.run(recall(self._relayers[which], access, request, self._deadline())).memories)

    def supersede(self, which: int, nonce: bytes, head: str, request: SupersedeRequest) -> tuple[str, str]:
        """Put a new version in a memory's place; returns what came of it and the new id."""
        made = self._told(supersede, which, nonce, head, request)
        return (made, "") if isinstance(made, str) else ("superseded", made.id)

    def restore(self, which: int, nonce: bytes, memory: str) -> str:
        return self._told(restore, which, nonce, memory, take=attrgetter("state"))

    def erase(self, which: int, nonce: bytes, memory: str) -> str:
        return self._told(erase_memory, which, nonce, memory, take=attrgetter("state"))

    def go_on_erasing(self, which: int) -> None:
        """Do what a relayer does about erasures every second."""
        self.run(self._relayers[which].erasures.round(_fail))

    def care(self, which: int, care: Callable[[TwoRelayers, int], None]) -> None:
        """Do something beside the requests; it ends in a namespace that another relayer erased."""
        with suppress(NamespaceClosed) if which in self._unaware else nullcontext():
            care(self, which)

    def compact(self, which: int) -> None:
        """Make a segment of what a relayer has open."""

        async def work() -> None:
            for opened in self._relayers[which].namespaces.all():
                await opened.log.compact(_TAIL)

        self.run(work())

    def collect(self, which: int) -> None:
        """Collect as far as time allows."""

        async def work() -> None:
            context = self._relayers[which]
            for opened in context.namespaces.all():
                found = opened.namespace
                await Collector(context.ports, found.account, found.pointer.incarnation).tidy()

        self.run(work())

    def store_index(self, which: int) -> None:
        """Have what a relayer has open begin with an index the next time."""
        context = self._relayers[which]
        keeper = IndexMaintenance(context, IndexLimits(least=1, growth=1.0))

        async def work() -> None:
            for opened in context.namespaces.all():
                await keeper.keep(opened)

        self.run(work())

    def erase_namespace(
        self, which: int, nonce: bytes, request: schemas.RememberRequest | None = None
    ) -> schemas.RememberResponse | str | None:
        """Erase everything through a relayer, while a write is under way through the other one, if one is given.

        Returns:
            What the write was told; or a code, if there is nothing to erase.
        """
        asked = self._told(erase_namespace, which, nonce, EraseNamespaceRequest())
        if isinstance(asked, str):
            return asked
        other = 1 - which
        if self._relayers[other].namespaces.peek(self.access(nonce).account, AGENT) is not None:
            self._unaware.add(other)

        async def write() -> schemas.RememberResponse | None:
            with suppress(NamespaceClosed):
                return await self._remember(other, nonce, request) if request is not None else None

        async def both() -> schemas.RememberResponse | None:
            erasing = EraseNamespaceRequest(dry_run=False, confirm=asked.confirm)
            erase = erase_namespace(self._relayers[which], self.access(nonce), erasing, self._deadline())
            _, told = await asyncio.gather(erase, write())
            return told

        told = self.run(both())
        self.former.append(ulid.parse(asked.confirm).hex())
        return told

    def left_of_the_past(self) -> list[str]:
        """Let the erasures of all former lives come to their end, and return what the store still holds of those."""
        for _ in range(2):
            self.pass_time(4000)
            self.go_on_erasing(0)
            self.go_on_erasing(0)

        async def keys() -> list[str]:
            found: list[str] = []
            for life in self.former:
                found += [row.key async for row in self._store.list(f"ns/{life}/")]
            return found

        return self.run(keys())

    def _told(
        self,
        use_case: Callable[..., Coroutine[Any, Any, Any]],
        which: int,
        nonce: bytes,
        *given: Any,
        take: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """Ask for something; returns what is taken of the answer, or the code of a refusal."""

        def ask() -> Coroutine[Any, Any, Any]:
            return use_case(self._relayers[which], self.access(nonce), *given, self._deadline())

        try:
            return take(self.run(self._ask(which, ask)))
        except Refused as error:
            return error.code

    def _deadline(self) -> Deadline:
        return Deadline.after(self.clock, 30)
