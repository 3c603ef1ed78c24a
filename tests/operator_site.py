"""A store with accounts and namespaces as the services make them, small enough to damage by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from doubles.seeded_randomness import SeededRandomness
from signed_calls import certificate_of

from relayer.access.accounts import Access, Accounts, Principal
from relayer.access.store_keys import create_store_key
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.local_key import LocalKey
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody, Manifest
from relayer.domain.operations import Erase, Origin
from relayer.extraction.statements import StatementExtractor
from relayer.lib.work import Deadline
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import LogPorts, ManifestView
from relayer.log.replica import Replica
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.context import Context
from relayer.operator.catalogue import Listed, read_catalogue
from relayer.ports import Found, ObjectStore
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases.memories import forget_memory
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire import codec as ulid
from relayer.wire.codec import NotAccepted
from relayer.wire.schemas import RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Revocations

ROOT = RootKeys(hashlib.sha256(b"a root secret").digest())
RELAYER_KEY = hashlib.sha256(b"a relayer key").digest()
STORE_KEY = hashlib.sha256(b"a store key").digest()
RELAYER_KEYS = RelayerKeys.derive(STORE_KEY)


@dataclass
class Site:
    """One store, what agents do with it, and what an operator does to it."""

    clock: FakeClock
    store: ObjectStore
    calibration: Calibration
    randomness: SeededRandomness = field(default_factory=lambda: SeededRandomness(5))
    embedder: HashingEmbedder = field(default_factory=HashingEmbedder)
    _opened: list[OpenNamespaces] = field(default_factory=list)

    @property
    def ports(self) -> LogPorts:
        return LogPorts(self.store, self.clock, self.randomness, RELAYER_KEYS)

    def over(self, store: ObjectStore) -> Site:
        """A site over another store, which ends with this one."""
        return Site(self.clock, store, self.calibration, SeededRandomness(99), _opened=self._opened)

    def relayer(self) -> Context:
        """A fresh process: it has nothing open."""
        namespaces = OpenNamespaces(self.ports, self.embedder.model, self.calibration)
        self._opened.append(namespaces)
        return Context(self.ports, self.embedder, StatementExtractor(), namespaces)

    def access(self, agent: str, custody: Custody = Custody.AGENT) -> Access:
        keys = ROOT.agent(agent)
        certificate = certificate_of(ROOT, agent)
        principal = Principal(
            certificate, self.randomness.bytes(16), self.clock.now_ms() + 60_000, hashlib.sha256().digest()
        )
        secret = keys.namespace_secret(agent, 1)
        if custody is Custody.RELAYER:
            secret = RELAYER_KEYS.namespace_secret(principal.account, agent, 1)
        return Access(principal, agent, 1, custody, self.clock.now_ms() + 600_000, secret)

    async def revoke(self, agent: str, counter: int = 1) -> None:
        """Have the account take an agent's keys back."""
        listed = Revocations(
            bytes(ROOT.account_identity.verify_key),
            counter,
            agent_keys=(certificate_of(ROOT, agent).agent_key,),
        )
        await Accounts(self.ports).revoke(listed.issue(ROOT.account_identity), account=ROOT.account)

    async def admits(self, agent: str) -> bool:
        """Whether a relayer that just started lets an agent in."""
        try:
            await Accounts(self.ports).admit(certificate_of(ROOT, agent))
        except NotAccepted:
            return False
        return True

    async def begin(self) -> None:
        await create_store_key(self.ports, LocalKey(RELAYER_KEY, self.randomness), STORE_KEY)
        access = self.access("researcher")
        await Accounts(self.ports).make(access.account)

    async def say(self, *texts: str, agent: str = "researcher") -> list[str]:
        """Remember texts, one entry each; returns their ids."""
        context, ids = self.relayer(), []
        for text in texts:
            answer = await remember(
                context, self.access(agent), RememberRequest(items=[{"text": text}]), self.deadline()
            )
            ids.append(answer.memories[0].id)
        return ids

    async def index(self, agent: str = "researcher") -> str:
        """Write a stored index; returns its key."""
        async with self.relayer().namespaces.use(self.access(agent), self.deadline(), create=False) as opened:
            assert (await opened.write_index()).named
            return (await opened.replica.manifest.read()).index_key

    async def opened_from(self, agent: str = "researcher") -> int:
        """Return the entry up to which a process that has nothing open yet reads no log, but a stored index."""
        async with self.relayer().namespaces.use(self.access(agent), self.deadline(), create=False) as opened:
            return opened.from_index

    async def forget(self, memory: str, agent: str = "researcher") -> None:
        await forget_memory(self.relayer(), self.access(agent), memory, self.deadline())

    async def erase(self, *memories: str, agent: str = "researcher") -> None:
        access = self.access(agent)
        async with self.relayer().namespaces.use(access, self.deadline(), create=False) as opened:
            origin = Origin(access.principal.author, access.principal.nonce)
            outcomes = await opened.log.append([Erase(origin, tuple(ulid.parse(item) for item in memories))])
        assert outcomes[0].refusal is None

    async def hears(self, query: str, agent: str = "researcher") -> list[str]:
        """Recall from a process that has nothing open yet."""
        request = RecallRequest(query=query, limit=20, floor=0.0)
        answer = await recall(self.relayer(), self.access(agent), request, self.deadline())
        return sorted(hit.text for hit in answer.memories)

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 30)

    async def listed(self, name: str = "researcher") -> Listed:
        return (await read_catalogue(self.ports)).named(name)[0]

    async def replica(self, name: str = "researcher") -> Replica:
        listed = await self.listed(name)
        replica = Replica(self.ports, listed.account, listed.incarnation)
        await replica.reload()
        return replica

    async def compact(self, entries: int = 1, name: str = "researcher", **limits: int) -> None:
        compactor = Compactor(
            self.ports, await self.replica(name), CompactionLimits(entries=entries, **limits)
        )
        while await compactor.run() is not None:
            pass

    async def collect(self, name: str = "researcher") -> None:
        """Move the watermark to the end of the segments and delete what it covers, as a collection does in the end."""
        listed = await self.listed(name)
        view = ManifestView(self.ports, listed.account, listed.incarnation)
        seen = await view.see()
        old = seen.manifest
        new = msgspec.structs.replace(
            old,
            gc_watermark=old.snap_seq,
            gc_epoch=old.gc_epoch + 1,
            gc_moved_at=1,
            gc_swept=old.gc_epoch + 1,
        )
        await view.swap(seen, new)
        await self.drop([key for key in await self.wal(name) if int(key[-20:]) <= old.snap_seq])

    async def manifest(self, name: str = "researcher") -> Manifest:
        listed = await self.listed(name)
        return await ManifestView(self.ports, listed.account, listed.incarnation).read()

    async def keys(self, start: str = "") -> list[str]:
        return await self.ports.keys_below(start)

    async def wal(self, name: str = "researcher") -> list[str]:
        listed = await self.listed(name)
        return await self.keys(f"ns/{listed.incarnation.hex()}/wal/")

    async def bytes_of(self, key: str) -> bytes:
        found = await self.store.get(key)
        assert isinstance(found, Found)
        return found.data

    async def everything(self) -> dict[str, bytes]:
        return {key: await self.bytes_of(key) for key in await self.keys()}

    async def replace(self, key: str, data: bytes) -> None:
        await self.store.delete(key)
        await self.store.create(key, data)

    async def flip(self, key: str, at: int = -1) -> None:
        data = bytearray(await self.bytes_of(key))
        data[at] ^= 1
        await self.replace(key, bytes(data))

    async def drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.store.delete(key)

    async def close(self) -> None:
        for namespaces in self._opened:
            await namespaces.close(1.0)


async def site_at(folder: Path) -> Site:
    """Return a site over the store of a data directory."""
    clock = FakeClock()
    store = await DirectoryStore.open(folder / "objects", clock=clock, tried=True)
    return Site(clock, store, await calibrate(HashingEmbedder()))


async def fill(folder: Path, *texts: str) -> None:
    """Make a data directory that holds memories, and its key."""
    site = await site_at(folder)
    await site.begin()
    await site.say(*texts)
    await site.close()
    await site.store.close()
    key = folder / "relayer.key"
    key.write_text(RELAYER_KEY.hex() + "\n")
    key.chmod(0o600)
