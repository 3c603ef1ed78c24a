"""The objects of a log in the store: where each lies, how it is sealed for its place, the manifest, and the slots.

A key shows no name and no text: accounts and namespaces stand in it as keyed hashes, incarnations are random. Slots and
epochs are padded with zeros, so that the order of keys is the order of the log.

Everything is sealed under the metadata key, for one place: the context of an object is its type, its account, its incarnation
and its key, so that a pointer, manifest or entry that is moved to another tenant, namespace or slot does not open.

The collector moves the watermark before it deletes (I2) and deletes no sooner than an hour later by the store's time, so
an answer of the manifest vouches for the slots above its watermark for ten minutes (I11). Both times are settings, and
the second is always the shorter one.

The log is a chain: an entry carries the SHA-256 of the stored bytes of the one before it, so that no entry can be left
out, exchanged or put elsewhere unnoticed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import msgspec

from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Keyring, Manifest, Pointer, Position, decode, decode_manifest, encode
from relayer.domain.operations import Entry, decode_entry, encode_entry
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, StoreUnavailable
from relayer.lib.work import together
from relayer.ports import (
    Absent,
    Clock,
    Found,
    GetOutcome,
    ObjectInfo,
    ObjectStore,
    Randomness,
    SwapOutcome,
    Swapped,
    Unchanged,
    check_key,
)
from relayer.wire.codec import render
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal


@dataclass(frozen=True, slots=True)
class Layout:
    """Object keys below ``prefix``, which may be empty.

    Every method returns the key without the prefix: that is the object's id inside its seal, so that a bucket copied
    under another prefix still opens. `at` makes the key that the store is asked for.

    Raises:
        ValueError: the prefix is neither empty nor an object key.
    """

    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix:
            check_key(self.prefix)

    def at(self, key: str) -> str:
        """Return the key in the store."""
        return f"{self.prefix}/{key}" if self.prefix else key

    @staticmethod
    def relayer() -> str:
        """The sealed constant that says whose store this is."""
        return "relayer"

    @staticmethod
    def probed(probe_tag: str) -> str:
        """The record of a passed probe."""
        return f"probed/{probe_tag}"

    @staticmethod
    def backed_up() -> str:
        """The note of the last backup that held everything."""
        return "backed_up"

    @staticmethod
    def fleet(day: str) -> str:
        """The relayers' key pair of a day (``YYYYMMDD``)."""
        return f"fleet/{day}"

    @staticmethod
    def account(account_tag: str) -> str:
        """The account object."""
        return f"acct/{account_tag}/account"

    @staticmethod
    def revoked(account_tag: str) -> str:
        """The account's list of revocations once more, so that neither object can be put back alone."""
        return f"acct/{account_tag}/revoked"

    @staticmethod
    def usage(account_tag: str) -> str:
        """The object in which relayers add up what an account keeps."""
        return f"usage/{account_tag}"

    @staticmethod
    def pointers(account_tag: str) -> str:
        """What the keys of all pointers of an account start with."""
        return f"acct/{account_tag}/ns/"

    @staticmethod
    def pointer(account_tag: str, namespace_tag: str) -> str:
        """The pointer of a name."""
        return f"acct/{account_tag}/ns/{namespace_tag}"

    @staticmethod
    def erasing() -> str:
        """What the keys of all erasures that are under way start with."""
        return "erasing/"

    @staticmethod
    def erased() -> str:
        """What the keys of all confirmed erasures start with."""
        return "erased/"

    @staticmethod
    def report(account_tag: str, erasure: bytes, *, confirmed: bool) -> str:
        """The report of an erasure: of one that is under way, or of one that is over."""
        return f"{'erased' if confirmed else 'erasing'}/{account_tag}/{render(erasure)}"

    @staticmethod
    def incarnation(incarnation: bytes) -> str:
        """What the keys of everything in an incarnation start with."""
        return f"ns/{incarnation.hex()}/"

    @staticmethod
    def keyrings(incarnation: bytes) -> str:
        """What the keys of all keyrings start with."""
        return f"ns/{incarnation.hex()}/keyring/"

    @staticmethod
    def keyring(incarnation: bytes, epoch: int) -> str:
        """The keyring of an epoch."""
        return f"ns/{incarnation.hex()}/keyring/{epoch:08d}"

    @staticmethod
    def manifest(incarnation: bytes) -> str:
        """The manifest."""
        return f"ns/{incarnation.hex()}/manifest"

    @staticmethod
    def entries(incarnation: bytes) -> str:
        """What the keys of all entries start with."""
        return f"ns/{incarnation.hex()}/wal/"

    @staticmethod
    def segments(incarnation: bytes) -> str:
        """What the keys of all segments start with."""
        return f"ns/{incarnation.hex()}/seg/"

    @staticmethod
    def segment(incarnation: bytes, first_seq: int, ulid: bytes) -> str:
        """A segment; the ULID keeps apart what several relayers make of the same entries."""
        return f"ns/{incarnation.hex()}/seg/{first_seq:020d}-{render(ulid)}"

    @staticmethod
    def indexes(incarnation: bytes) -> str:
        """What the keys of all stored indexes start with."""
        return f"ns/{incarnation.hex()}/index/"

    @staticmethod
    def index(incarnation: bytes, seq: int, ulid: bytes) -> str:
        """An index of the state after an entry."""
        return f"ns/{incarnation.hex()}/index/{seq:020d}-{render(ulid)}"

    @staticmethod
    def entry(incarnation: bytes, seq: int) -> str:
        """The entry in a slot."""
        return f"ns/{incarnation.hex()}/wal/{seq:020d}"


TRUST_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogPorts:
    """The store and where in it, the clock, the randomness, and the relayer's keys.

    Attributes:
        trust_ms: for how long an answer of the manifest vouches for slots, by the store's time; 0 reads it again for
            every answer. Must be well below the time that any relayer of this store lets pass before it deletes.
    """

    store: ObjectStore
    clock: Clock
    randomness: Randomness
    keys: RelayerKeys = field(repr=False)
    layout: Layout = field(default_factory=Layout)
    trust_ms: int = TRUST_MS

    async def get(self, key: str) -> Found | None:
        """Return the object at a key of the layout, None if it is absent; raises `StoreError`."""
        found = await self.store.get(self.layout.at(key))
        return found if isinstance(found, Found) else None

    async def rows_below(self, start: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys begin so, with keys of the layout, in no order; raises `StoreError`."""
        strip = len(self.layout.at("x")) - 1
        async for row in self.store.list(self.layout.at(start)):
            yield replace(row, key=row.key[strip:])

    async def keys_below(self, start: str) -> list[str]:
        """Return the keys of the layout that begin so, in order; raises `StoreError`."""
        return sorted([row.key async for row in self.rows_below(start)])


class ReadAhead:
    """Reads for whoever opens a log, some of them begun before they are asked for; each of those is given once.

    What is given is the store's answer of its own time: no earlier than `began`, and what it says of slots is vouched for
    by the time it names (I11).

    Attributes:
        began: before any of the reads, by the clock's `monotonic`.
    """

    def __init__(self, ports: LogPorts) -> None:
        self.began = ports.clock.monotonic()
        self._store = ports.store
        self._begun: dict[tuple[str, tuple[int, int] | None], asyncio.Task[GetOutcome]] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is an answer that nobody has come for."""
        return bool(self._begun)

    def begin(self, at: str, byte_range: tuple[int, int] | None = None) -> None:
        """Ask the store for an object, or a part of it, that `get` is going to be asked for; ``at`` is the store's key."""
        if (at, byte_range) not in self._begun:
            read = asyncio.ensure_future(self._store.get(at, byte_range=byte_range))
            self._begun[at, byte_range] = read

    async def get(self, at: str, *, byte_range: tuple[int, int] | None = None) -> GetOutcome:
        """Read as the store does, or return what was begun; raises `StoreError`."""
        begun = self._begun.pop((at, byte_range), None) if self._begun else None
        return await (self._store.get(at, byte_range=byte_range) if begun is None else begun)

    async def end(self) -> None:
        """Let go of what nobody came for; later reads ask the store."""
        left = list(self._begun.values())
        self._begun.clear()
        for read in left:
            read.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class RollbackDetected(RelayerError):
    """Raised when a remembered position is above the log's head, or is in the log with another digest."""


class PositionUnknown(RelayerError):
    """Raised when a remembered position is older than every digest that is kept.

    Attributes:
        current: the log's position, which the caller may remember instead.
    """

    def __init__(self, current: Position) -> None:
        super().__init__("the remembered position is older than what this relayer keeps")
        self.current = current


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object belongs: ``key`` is without the store's prefix, ``incarnation`` is empty for a pointer."""

    kind: ObjectType
    account: str
    incarnation: bytes
    key: str


class ObjectSealer:
    """Seals and opens the log's objects."""

    def __init__(self, ports: LogPorts) -> None:
        self._metadata = ports.keys.metadata
        self._randomness = ports.randomness

    def seal(self, place: Place, plaintext: bytes) -> bytes:
        """Seal bytes for a place."""
        salt = self._randomness.bytes(SALT_SIZE)
        return seal(self._metadata, place.kind, _context(place), plaintext, salt=salt)

    def unseal(self, place: Place, sealed: bytes | memoryview) -> bytes:
        """Open what the store holds at a place.

        Raises:
            CorruptNamespace: it was made for another place, by another relayer key, or was changed.
        """
        try:
            return unseal(self._metadata, place.kind, _context(place), sealed)
        except UnsealError as error:
            kind = place.kind.name.lower()
            raise CorruptNamespace(f"the {kind} at {place.key} does not open in its place") from error

    def seal_pointer(self, account: str, key: str, pointer: Pointer) -> bytes:
        """Seal a name's pointer."""
        return self.seal(_pointer(account, key), encode(pointer))

    def unseal_pointer(self, account: str, key: str, sealed: bytes) -> Pointer:
        """Open a pointer; raises `CorruptNamespace`."""
        return decode(self.unseal(_pointer(account, key), sealed), Pointer)

    def seal_keyring(self, account: str, incarnation: bytes, key: str, keyring: Keyring) -> bytes:
        """Seal an epoch's keyring."""
        return self.seal(Place(ObjectType.KEYRING, account, incarnation, key), encode(keyring))

    def unseal_keyring(self, account: str, incarnation: bytes, key: str, sealed: bytes) -> Keyring:
        """Open a keyring; raises `CorruptNamespace`."""
        return decode(self.unseal(Place(ObjectType.KEYRING, account, incarnation, key), sealed), Keyring)

    def seal_manifest(self, account: str, incarnation: bytes, key: str, manifest: Manifest) -> bytes:
        """Seal a manifest."""
        return self.seal(Place(ObjectType.MANIFEST, account, incarnation, key), encode(manifest))

    def unseal_manifest(self, account: str, incarnation: bytes, key: str, sealed: bytes) -> Manifest:
        """Open a manifest; raises `CorruptNamespace` and `UpgradeRequired`."""
        return decode_manifest(self.unseal(Place(ObjectType.MANIFEST, account, incarnation, key), sealed))


def _pointer(account: str, key: str) -> Place:
    return Place(ObjectType.POINTER, account, b"", key)


def _context(place: Place) -> bytes:
    return context(place.kind, place.account, place.incarnation, place.key)


@dataclass(frozen=True, slots=True)
class SeenManifest:
    """A manifest as the store showed it: what a swap is made from. ``store_time`` is in ms."""

    manifest: Manifest
    etag: str
    store_time: int


class ManifestView:
    """The newest manifest that this process has seen. Times are the store's, in ms."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation
        self._key = ports.layout.manifest(incarnation)
        self._at = ports.layout.at(self._key)
        self._manifest: Manifest | None = None
        self._etag: str | None = None
        self._validated_at: int | None = None
        # Two answers that overtake each other would look like a rollback.
        self._one_at_a_time = asyncio.Lock()

    @property
    def validated_at(self) -> int | None:
        """The store's time of the last answer, None before the first."""
        return self._validated_at

    @property
    def watermark(self) -> int:
        """The collector's watermark as last read; -1 before the first answer."""
        return -1 if self._manifest is None else self._manifest.gc_watermark

    def recently_validated(self, store_time: int) -> bool:
        """Whether an answer given at ``store_time`` may be trusted without reading the manifest again (I11)."""
        return self._validated_at is not None and 0 <= store_time - self._validated_at < self._ports.trust_ms

    @property
    def snap_seq(self) -> int:
        """The last entry that is in a segment, as last read; 0 before the first answer."""
        return 0 if self._manifest is None else self._manifest.snap_seq

    def adopt(self, seen: SeenManifest) -> None:
        """Begin with what another reader of this manifest was shown, before anything was read here."""
        self._manifest, self._etag, self._validated_at = seen.manifest, seen.etag, seen.store_time

    async def read(self) -> Manifest:
        """Read the manifest and return it; raises as `see`."""
        return (await self.see()).manifest

    async def see(self) -> SeenManifest:
        """Read the manifest and return it with what a swap needs.

        Raises:
            CorruptNamespace: it does not open, or is older than one seen before.
            UpgradeRequired: its format is unknown (I12).
            NamespaceClosed: it is gone, which an erasure does last.
            StoreError: the store did not answer.
        """
        async with self._one_at_a_time:
            outcome = await self._ports.store.get(self._at, if_none_match=self._etag)
            if isinstance(outcome, Unchanged):
                assert self._manifest is not None, "an etag was given"
                assert self._etag is not None, "an etag was given"
                self._validated_at = outcome.store_time
                return SeenManifest(self._manifest, self._etag, outcome.store_time)
            try:
                return self._take(outcome)
            except CorruptNamespace:
                # An answer that was cut short looks like that, once.
                return self._take(await self._ports.store.get(self._at))

    async def swap(self, seen: SeenManifest, new: Manifest) -> SwapOutcome:
        """Replace the manifest if, and only if, it is still the one that was ``seen``.

        What this view knows stays as it is: only `see` tells what the store holds now.

        Raises:
            StoreError: the store did not take it.
        """
        sealed = self._sealer.seal_manifest(self._account, self._incarnation, self._key, new)
        return await self._ports.store.swap(self._at, sealed, seen.etag)

    async def settle(self, seen: SeenManifest, new: Manifest, mine: Callable[[Manifest], bool]) -> bool:
        """Swap as `swap` does, and find out whether it happened: whatever the answer, the manifest says (I9).

        What ``new`` names must have been uploaded after ``seen`` was read: only then has a collector not taken it for
        something that nobody will name any more.

        Args:
            seen: what the store held before the upload.
            new: what it is to hold.
            mine: whether a manifest has what this swap was made for.

        Returns:
            False if others were first, or have replaced it since.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `see` and `swap`; it may have happened.
        """
        try:
            outcome = await self.swap(seen, new)
        except StoreUnavailable:
            outcome = None
        now = await self.read()
        return isinstance(outcome, Swapped) or mine(now)

    async def name_index(self, seen: SeenManifest, key: str, seq: int, model: str) -> bool:
        """Name an index of the state after entry ``seq``, uploaded at ``key`` after ``seen`` was read; as `settle`.

        An index of the same model that is named already and knows as much stays; then this returns False.
        """
        old = seen.manifest
        if old.index_key and old.index_model == model and old.index_seq >= seq:
            return False
        new = msgspec.structs.replace(old, index_key=key, index_seq=seq, index_model=model)
        return await self.settle(seen, new, lambda now: now.index_key == key)

    def _take(self, outcome: GetOutcome) -> SeenManifest:
        if not isinstance(outcome, Found):
            raise NamespaceClosed("the namespace has no manifest: it was erased")
        manifest = self._sealer.unseal_manifest(self._account, self._incarnation, self._key, outcome.data)
        self._refuse_rollback(manifest)
        self._manifest, self._etag = manifest, outcome.etag
        self._validated_at = outcome.store_time
        return SeenManifest(manifest, outcome.etag, outcome.store_time)

    def _refuse_rollback(self, manifest: Manifest) -> None:
        seen = self._manifest
        if seen is None:
            return
        if (
            manifest.gc_epoch < seen.gc_epoch
            or manifest.snap_seq < seen.snap_seq
            or manifest.gc_watermark < seen.gc_watermark
            or manifest.key_epoch < seen.key_epoch
        ):
            raise CorruptNamespace("the store shows a manifest that is older than one seen before")


@dataclass(frozen=True, slots=True)
class FoundSlot:
    """The stored bytes of a slot."""

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Tail:
    """Slots in order, up to the first absent one; ``ended`` says whether that was reached.

    ``times`` are the store's, of every answer that counts, in ms.
    """

    slots: tuple[FoundSlot, ...]
    ended: bool
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkedEntry:
    """An entry that belongs where it was found, and the digest that the next one carries.

    ``size`` is that of its stored bytes, 0 when it comes from a segment.
    """

    entry: Entry
    digest: bytes
    size: int = 0


class Slots:
    """The slots of one incarnation; ``ahead`` is asked for them, see `ReadAhead`."""

    def __init__(
        self, ports: LogPorts, account: str, incarnation: bytes, ahead: ReadAhead | None = None
    ) -> None:
        self._ports = ports
        self._ahead = ahead or ReadAhead(ports)
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation

    def key(self, seq: int) -> str:
        """Return the slot's key in the store."""
        return self._ports.layout.at(self._ports.layout.entry(self._incarnation, seq))

    async def read(self, start: int, count: int) -> Tail:
        """Read ``count`` slots from ``start`` on at the same time; raises `StoreError`."""
        answers = await together([self._get(seq) for seq in range(start, start + count)])
        slots: list[FoundSlot] = []
        times: list[int] = []
        for seq, answer in enumerate(answers, start):
            times.append(answer.store_time)
            if isinstance(answer, Absent):
                return Tail(tuple(slots), ended=True, times=tuple(times))
            slots.append(FoundSlot(seq, answer.data))
        return Tail(tuple(slots), ended=False, times=tuple(times))

    async def _get(self, seq: int) -> Found | Absent:
        outcome = await self._ahead.get(self.key(seq))
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return outcome

    async def link(self, slot: FoundSlot, after: Position) -> LinkedEntry:
        """Open the entry that follows ``after``.

        An answer that was cut short is read once more, before the namespace is called corrupt.

        Raises:
            CorruptNamespace: it does not open in this slot or does not follow.
            UpgradeRequired: its version is unknown (I12).
            StoreError: the store did not answer.
        """
        try:
            return self._link(slot, after)
        except CorruptNamespace:
            again = await self._get(slot.seq)
            if isinstance(again, Absent) or again.data == slot.data:
                raise
            return self._link(FoundSlot(slot.seq, again.data), after)

    def _link(self, slot: FoundSlot, after: Position) -> LinkedEntry:
        linked = self._open(slot)
        if slot.seq != after.seq + 1:
            raise CorruptNamespace(f"slot {slot.seq} holds an entry of another slot")
        if linked.entry.previous != after.digest:
            raise CorruptNamespace(f"the entry in slot {slot.seq} does not follow the one before it")
        return linked

    def _open(self, slot: FoundSlot) -> LinkedEntry:
        entry = decode_entry(self._sealer.unseal(self._place(slot.seq), slot.data))
        if entry.seq != slot.seq:
            raise CorruptNamespace(f"slot {slot.seq} holds an entry of another slot")
        return LinkedEntry(entry, digest_of(slot.data), len(slot.data))

    async def read_alone(self, seq: int) -> tuple[bytes, LinkedEntry] | None:
        """Return the stored bytes of a slot and the entry in them, whatever it follows; None when it is absent.

        Raises:
            CorruptNamespace: what is there does not open in this slot; it was read twice.
            UpgradeRequired: its version is unknown (I12).
            StoreError: the store did not answer.
        """
        found = await self._get(seq)
        if isinstance(found, Absent):
            return None
        try:
            return found.data, self._open(FoundSlot(seq, found.data))
        except CorruptNamespace:
            found = await self._get(seq)
            return None if isinstance(found, Absent) else (found.data, self._open(FoundSlot(seq, found.data)))

    def seal(self, entry: Entry) -> bytes:
        """Return the bytes to store for an entry."""
        return self._sealer.seal(self._place(entry.seq), encode_entry(entry))

    def _place(self, seq: int) -> Place:
        key = self._ports.layout.entry(self._incarnation, seq)
        return Place(ObjectType.ENTRY, self._account, self._incarnation, key)


def digest_of(stored: bytes) -> bytes:
    """Return what the next entry carries of the entry stored in these bytes."""
    return hashlib.sha256(stored).digest()
