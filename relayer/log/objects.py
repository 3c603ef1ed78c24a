"""The objects of a log in the store: their keys, how they are sealed, the manifest, and the slots.

`Layout` has the keys. They contain no names and no text: accounts and namespaces appear as keyed hashes, and incarnations
are random. The numbers of slots are padded with zeros, so that the order of keys is the order of the log.

`ObjectSealer` seals every object under the metadata key for one place: the context is its type, account, incarnation and
key, so that a pointer, manifest or entry that is moved to another tenant, namespace or slot cannot be unsealed.

`ManifestView` reads and swaps the manifest. The collector moves the watermark before it deletes (I2) and deletes no sooner
than an hour later by the store's time. So a read of the manifest confirms for ten minutes that the slots above its watermark
were not collected (I11). Both times are settings, and the second is always the shorter one.

`Slots` reads and verifies entries. The log is a chain: an entry has the SHA-256 of the stored bytes of the one before it, so
that no entry can be left out, exchanged or moved unnoticed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Keyring, LogPosition, Manifest, Pointer, decode, decode_manifest
from relayer.domain.operations import Entry, decode_entry, encode_stored
from relayer.errors import CorruptNamespace, NamespaceClosed, RelayerError, StoreUnavailable
from relayer.lib.work import cancel_all, together
from relayer.ports import (
    Absent,
    Clock,
    Found,
    GetOutcome,
    ObjectStore,
    Randomness,
    SwapOutcome,
    Swapped,
    Unchanged,
)
from relayer.wire.codec import UnsealError, render
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal


class Layout:
    """The keys of objects in a store, which are also the places that objects are sealed for."""

    @staticmethod
    def relayer() -> str:
        """Return the key of the object that contains the store key, wrapped under the relayer key."""
        return "relayer"

    @staticmethod
    def probed(probe_tag: str) -> str:
        """Return the key of the record of a passed probe."""
        return f"probed/{probe_tag}"

    @staticmethod
    def backed_up() -> str:
        """Return the key of the record of the last complete backup."""
        return "backed_up"

    @staticmethod
    def fleet(day: str) -> str:
        """Return the key of the relayers' key pair of a day (``YYYYMMDD``).

        Example:
            >>> Layout.fleet("20261124")
            'fleet/20261124'
        """
        return f"fleet/{day}"

    @staticmethod
    def account(account_tag: str) -> str:
        """Return the key of the account object.

        Example:
            >>> Layout.account("0a1b")
            'acct/0a1b/account'
        """
        return f"acct/{account_tag}/account"

    @staticmethod
    def revoked(account_tag: str) -> str:
        """Return the key of the second copy of the account's list of revocations.

        With two copies, restoring an old version of only one of the objects is detected.

        Example:
            >>> Layout.revoked("0a1b")
            'acct/0a1b/revoked'
        """
        return f"acct/{account_tag}/revoked"

    @staticmethod
    def usage(account_tag: str) -> str:
        """Return the key of the object in which relayers add up how much an account stores.

        Example:
            >>> Layout.usage("0a1b")
            'usage/0a1b'
        """
        return f"usage/{account_tag}"

    @staticmethod
    def pointers(account_tag: str) -> str:
        """Return the prefix of the keys of all pointers of an account."""
        return f"acct/{account_tag}/ns/"

    @staticmethod
    def pointer(account_tag: str, namespace_tag: str) -> str:
        """Return the key of the pointer of a name.

        Example:
            >>> Layout.pointer("0a1b", "2c3d")
            'acct/0a1b/ns/2c3d'
        """
        return f"acct/{account_tag}/ns/{namespace_tag}"

    @staticmethod
    def erasing() -> str:
        """Return the prefix of the keys of the reports of all erasures in progress."""
        return "erasing/"

    @staticmethod
    def erased() -> str:
        """Return the prefix of the keys of the reports of all confirmed erasures."""
        return "erased/"

    @staticmethod
    def report(account_tag: str, erasure: bytes, *, confirmed: bool) -> str:
        """Return the key of the report of an erasure, which is either in progress or confirmed.

        Example:
            >>> Layout.report("0a1b", bytes(16), confirmed=True)
            'erased/0a1b/00000000000000000000000000'
        """
        return f"{'erased' if confirmed else 'erasing'}/{account_tag}/{render(erasure)}"

    @staticmethod
    def incarnation(incarnation: bytes) -> str:
        """Return the prefix of the keys of all objects of an incarnation."""
        return f"ns/{incarnation.hex()}/"

    @staticmethod
    def keyring(incarnation: bytes) -> str:
        """Return the key of the keyring.

        Example:
            >>> Layout.keyring(bytes(16))
            'ns/00000000000000000000000000000000/keyring'
        """
        return f"ns/{incarnation.hex()}/keyring"

    @staticmethod
    def manifest(incarnation: bytes) -> str:
        """Return the key of the manifest.

        Example:
            >>> Layout.manifest(bytes(16))
            'ns/00000000000000000000000000000000/manifest'
        """
        return f"ns/{incarnation.hex()}/manifest"

    @staticmethod
    def entries(incarnation: bytes) -> str:
        """Return the prefix of the keys of all entries."""
        return f"ns/{incarnation.hex()}/wal/"

    @staticmethod
    def segments(incarnation: bytes) -> str:
        """Return the prefix of the keys of all segments."""
        return f"ns/{incarnation.hex()}/seg/"

    @staticmethod
    def segment(incarnation: bytes, first_seq: int, ulid: bytes) -> str:
        """Return the key of a segment; the ULID distinguishes segments that several relayers write of the same entries.

        Example:
            >>> Layout.segment(bytes(16), 1, bytes(16))
            'ns/00000000000000000000000000000000/seg/00000000000000000001-00000000000000000000000000'
        """
        return f"ns/{incarnation.hex()}/seg/{first_seq:020d}-{render(ulid)}"

    @staticmethod
    def indexes(incarnation: bytes) -> str:
        """Return the prefix of the keys of all stored indexes."""
        return f"ns/{incarnation.hex()}/index/"

    @staticmethod
    def index(incarnation: bytes, seq: int, ulid: bytes) -> str:
        """Return the key of an index of the state after entry ``seq``.

        Example:
            >>> Layout.index(bytes(16), 640, bytes(16))
            'ns/00000000000000000000000000000000/index/00000000000000000640-00000000000000000000000000'
        """
        return f"ns/{incarnation.hex()}/index/{seq:020d}-{render(ulid)}"

    @staticmethod
    def entry(incarnation: bytes, seq: int) -> str:
        """Return the key of a log entry; ``seq`` counts from 1.

        Example:
            >>> Layout.entry(bytes(16), 1)
            'ns/00000000000000000000000000000000/wal/00000000000000000001'
        """
        return f"ns/{incarnation.hex()}/wal/{seq:020d}"


TRUST_MS = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogPorts:
    """The ports that a log needs: the store, the clock, the randomness, and the relayer's keys.

    Attributes:
        trust_ms: for how long in ms a read of the manifest confirms slots, by the store's time; 0 reads the manifest for
            every response. It must be well below the time that every relayer of this store waits before it deletes.
    """

    store: ObjectStore
    clock: Clock
    randomness: Randomness
    keys: RelayerKeys = field(repr=False)
    trust_ms: int = TRUST_MS

    async def get(self, key: str) -> Found | None:
        """Return the object at a key, None if it is absent; raises `StoreError`."""
        found = await self.store.get(key)
        return found if isinstance(found, Found) else None

    def pointer_key(self, account: str, name: str) -> str:
        """Return the key of a namespace's pointer."""
        return Layout.pointer(self.keys.tag("account", account), self.keys.tag("namespace", account, name))

    async def keys_below(self, start: str) -> list[str]:
        """Return the keys that begin with ``start``, sorted; raises `StoreError`."""
        return sorted([row.key async for row in self.store.list(start)])


class ReadAhead:
    """Prefetching reads for opening a log: some reads begin before their results are needed, and each result is used once.

    A prefetched result is a response of the store of some time after `began`. As for any response, whether its slots can
    be trusted is decided by the store's time in it (I11).

    Attributes:
        began: a time before all of the reads, by the clock's `monotonic`.
    """

    def __init__(self, ports: LogPorts) -> None:
        self.began = ports.clock.monotonic()
        self._store = ports.store
        self._begun: dict[tuple[str, tuple[int, int] | None], asyncio.Task[GetOutcome]] = {}

    @property
    def waiting(self) -> bool:
        """Return whether there is a prefetched read that was not used yet."""
        return bool(self._begun)

    def begin(self, at: str, byte_range: tuple[int, int] | None = None) -> None:
        """Begin to read an object, or a byte range of it, for a later `get`; ``at`` is the key in the store."""
        if (at, byte_range) not in self._begun:
            read = asyncio.ensure_future(self._store.get(at, byte_range=byte_range))
            self._begun[at, byte_range] = read

    async def get(self, at: str, *, byte_range: tuple[int, int] | None = None) -> Found | Absent:
        """Return the result of a read that was begun, or read from the store; raises `StoreError`."""
        begun = self._begun.pop((at, byte_range), None) if self._begun else None
        outcome = await (self._store.get(at, byte_range=byte_range) if begun is None else begun)
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return outcome

    async def end(self) -> None:
        """Cancel the prefetched reads that were not used; later reads go to the store."""
        left = list(self._begun.values())
        self._begun.clear()
        await cancel_all(left)


class RollbackDetected(RelayerError):
    """Raised when a remembered position is above the log's head, or the log has another digest at that position."""


class PositionUnknown(RelayerError):
    """Raised when a remembered position is older than every digest that is kept.

    Attributes:
        current: the log's position, which the caller may remember instead.
    """

    def __init__(self, current: LogPosition) -> None:
        super().__init__("the remembered position is older than what this relayer keeps")
        self.current = current


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """The place that an object is sealed for; ``key`` is without the store's prefix, ``incarnation`` is empty for a pointer."""

    kind: ObjectType
    account: str
    incarnation: bytes
    key: str


class ObjectSealer:
    """The sealer of the log's objects."""

    def __init__(self, ports: LogPorts) -> None:
        self._metadata = ports.keys.metadata
        self._randomness = ports.randomness

    def seal(self, place: ObjectLocation, plaintext: bytes) -> bytes:
        """Seal bytes for a place."""
        salt = self._randomness.bytes(SALT_SIZE)
        return seal(self._metadata, place.kind, _context(place), plaintext, salt=salt)

    def unseal(self, place: ObjectLocation, sealed: bytes | memoryview) -> bytes:
        """Unseal the bytes that the store has at a place.

        Raises:
            CorruptNamespace: they were sealed for another place or with another relayer key, or were changed.
        """
        try:
            return unseal(self._metadata, place.kind, _context(place), sealed)
        except UnsealError as error:
            kind = place.kind.name.lower()
            raise CorruptNamespace(f"the {kind} at {place.key} does not open in its place") from error

    def seal_pointer(self, account: str, key: str, pointer: Pointer) -> bytes:
        """Seal a name's pointer."""
        return self.seal(_pointer(account, key), encode_stored(pointer))

    def unseal_pointer(self, account: str, key: str, sealed: bytes) -> Pointer:
        """Unseal a pointer; raises `CorruptNamespace`."""
        return decode(self.unseal(_pointer(account, key), sealed), Pointer)

    def seal_keyring(self, account: str, incarnation: bytes, key: str, keyring: Keyring) -> bytes:
        """Seal an incarnation's keyring."""
        place = ObjectLocation(ObjectType.KEYRING, account, incarnation, key)
        return self.seal(place, encode_stored(keyring))

    def unseal_keyring(self, account: str, incarnation: bytes, key: str, sealed: bytes) -> Keyring:
        """Unseal a keyring; raises `CorruptNamespace`."""
        place = ObjectLocation(ObjectType.KEYRING, account, incarnation, key)
        return decode(self.unseal(place, sealed), Keyring)

    def seal_manifest(self, account: str, incarnation: bytes, key: str, manifest: Manifest) -> bytes:
        """Seal a manifest."""
        place = ObjectLocation(ObjectType.MANIFEST, account, incarnation, key)
        return self.seal(place, encode_stored(manifest))

    def unseal_manifest(self, account: str, incarnation: bytes, key: str, sealed: bytes) -> Manifest:
        """Unseal a manifest; raises `CorruptNamespace` and `UpgradeRequired`."""
        place = ObjectLocation(ObjectType.MANIFEST, account, incarnation, key)
        return decode_manifest(self.unseal(place, sealed))


class PartSealer:
    """The sealer of the parts of one object, each under a name of its own; ``key`` is that of the object."""

    def __init__(self, sealer: ObjectSealer, place: ObjectLocation) -> None:
        self.key = place.key
        self._sealer = sealer
        self._place = place

    def seal(self, part: str, plaintext: bytes) -> bytes:
        """Seal a part."""
        return self._sealer.seal(replace(self._place, key=f"{self.key}/{part}"), plaintext)

    def unseal(self, part: str, sealed: memoryview) -> bytes:
        """Unseal a part; raises `CorruptNamespace`."""
        return self._sealer.unseal(replace(self._place, key=f"{self.key}/{part}"), sealed)


def _pointer(account: str, key: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.POINTER, account, b"", key)


def _context(place: ObjectLocation) -> bytes:
    return context(place.kind, place.account, place.incarnation, place.key)


@dataclass(frozen=True, slots=True)
class SeenManifest:
    """A manifest as it was read from the store, with the etag that a swap needs. ``store_time`` is in ms."""

    manifest: Manifest
    etag: str
    store_time: int


class ManifestView:
    """A view of the manifest: the newest one that was read through it. Times are the store's, in ms."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation
        self._key = Layout.manifest(incarnation)
        self._manifest: Manifest | None = None
        self._etag: str | None = None
        self._validated_at: int | None = None
        # Two responses that arrive in the wrong order would look like a rollback.
        self._one_at_a_time = asyncio.Lock()

    @property
    def validated_at(self) -> int | None:
        """Return the store's time of the last response, None before the first."""
        return self._validated_at

    @property
    def watermark(self) -> int:
        """Return the collector's watermark as last read; -1 before the first read."""
        return -1 if self._manifest is None else self._manifest.gc_watermark

    def recently_validated(self, store_time: int) -> bool:
        """Return whether a response given at ``store_time`` may be trusted without reading the manifest again (I11)."""
        return self._validated_at is not None and 0 <= store_time - self._validated_at < self._ports.trust_ms

    @property
    def snap_seq(self) -> int:
        """Return the last entry that is in a segment, as last read; 0 before the first read."""
        return 0 if self._manifest is None else self._manifest.snap_seq

    def adopt(self, seen: SeenManifest) -> None:
        """Start from a manifest that was read elsewhere. To be called before the first read through this view."""
        self._manifest, self._etag, self._validated_at = seen.manifest, seen.etag, seen.store_time

    async def read(self) -> Manifest:
        """Read the manifest and return it; raises as `see`."""
        return (await self.see()).manifest

    async def see(self) -> SeenManifest:
        """Read the manifest and return it with the etag that a swap needs.

        Raises:
            CorruptNamespace: it cannot be unsealed, or is older than one that was read before.
            NamespaceClosed: it does not exist, because the namespace was erased.
        """
        async with self._one_at_a_time:
            outcome = await self._ports.store.get(self._key, if_none_match=self._etag)
            if isinstance(outcome, Unchanged):
                assert self._manifest is not None, "an etag was given"
                assert self._etag is not None, "an etag was given"
                self._validated_at = outcome.store_time
                return SeenManifest(self._manifest, self._etag, outcome.store_time)
            try:
                return self._take(outcome)
            except CorruptNamespace:
                # A truncated response causes the same error, so the manifest is read once more.
                return self._take(await self._ports.store.get(self._key))

    async def swap(self, seen: SeenManifest, new: Manifest) -> SwapOutcome:
        """Replace the manifest if, and only if, it is still the one that was ``seen``.

        The view is not updated: only `see` shows what the store has now. Raises `StoreError`: the store did not accept the
        write.
        """
        sealed = self._sealer.seal_manifest(self._account, self._incarnation, self._key, new)
        return await self._ports.store.swap(self._key, sealed, seen.etag)

    async def settle(self, seen: SeenManifest, new: Manifest, mine: Callable[[Manifest], bool]) -> bool:
        """Swap like `swap`, and read the manifest afterwards to find out whether it happened, whatever the outcome (I9).

        The objects that ``new`` names must have been uploaded after ``seen`` was read: otherwise a collector may have deleted
        them as objects that will not be named any more.

        Args:
            seen: the manifest as it was read before the upload.
            new: the new manifest.
            mine: returns whether a manifest contains the change that this swap is to make.

        Returns:
            False if others were first, or have replaced the change since.

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
        """Name an index of the state after entry ``seq``, uploaded at ``key`` after ``seen`` was read; see `settle`.

        If the manifest already names an index of the same model that covers as many entries, that stays, and this returns
        False.
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
        seen = self._manifest
        if seen is not None and (
            manifest.gc_epoch < seen.gc_epoch
            or manifest.snap_seq < seen.snap_seq
            or manifest.gc_watermark < seen.gc_watermark
        ):
            raise CorruptNamespace("the store shows a manifest that is older than one seen before")
        self._manifest, self._etag = manifest, outcome.etag
        self._validated_at = outcome.store_time
        return SeenManifest(manifest, outcome.etag, outcome.store_time)


@dataclass(frozen=True, slots=True)
class FoundSlot:
    """A slot that exists, with its stored bytes."""

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Tail:
    """The slots that were read, in order, up to the first absent one; ``ended`` says whether there was an absent one.

    ``times`` are the store's times, in ms, of the responses about these slots and the first absent one.
    """

    slots: tuple[FoundSlot, ...]
    ended: bool
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkedEntry:
    """An entry that was verified to belong in its slot, with the digest that the next entry has.

    ``size`` is the number of its stored bytes, 0 if it comes from a segment.
    """

    entry: Entry
    digest: bytes
    size: int = 0


class IncarnationObjects:
    """Objects of one incarnation, which are read through ``ahead``, see `ReadAhead`."""

    def __init__(
        self, ports: LogPorts, account: str, incarnation: bytes, ahead: ReadAhead | None = None
    ) -> None:
        self._ports = ports
        self._ahead = ahead or ReadAhead(ports)
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation


class Slots(IncarnationObjects):
    """The slots of one incarnation."""

    def key(self, seq: int) -> str:
        """Return the slot's key in the store."""
        return Layout.entry(self._incarnation, seq)

    async def read(self, start: int, count: int) -> Tail:
        """Read ``count`` slots from ``start`` on concurrently; raises `StoreError`."""
        reads = [self._ahead.get(self.key(seq)) for seq in range(start, start + count)]
        answers = await together(reads)
        slots: list[FoundSlot] = []
        times: list[int] = []
        for seq, answer in enumerate(answers, start):
            times.append(answer.store_time)
            if isinstance(answer, Absent):
                return Tail(tuple(slots), ended=True, times=tuple(times))
            slots.append(FoundSlot(seq, answer.data))
        return Tail(tuple(slots), ended=False, times=tuple(times))

    async def link(self, slot: FoundSlot, after: LogPosition) -> LinkedEntry:
        """Unseal an entry and verify that it follows ``after``.

        If that fails, the slot is read once more before the namespace counts as corrupt, because a response may be truncated.
        Raises `CorruptNamespace`: the entry cannot be unsealed for this slot or does not follow ``after``.
        """
        try:
            return self._link(slot, after)
        except CorruptNamespace:
            again = await self._ahead.get(self.key(slot.seq))
            if isinstance(again, Absent) or again.data == slot.data:
                raise
            return self._link(FoundSlot(slot.seq, again.data), after)

    def _link(self, slot: FoundSlot, after: LogPosition) -> LinkedEntry:
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
        """Return the stored bytes of a slot and its entry, without checking what it follows; None if it is absent.

        Raises:
            CorruptNamespace: the bytes cannot be unsealed for this slot; it was read twice.
        """
        found = await self._ahead.get(self.key(seq))
        if isinstance(found, Absent):
            return None
        try:
            return found.data, self._open(FoundSlot(seq, found.data))
        except CorruptNamespace:
            found = await self._ahead.get(self.key(seq))
            return None if isinstance(found, Absent) else (found.data, self._open(FoundSlot(seq, found.data)))

    def seal(self, entry: Entry) -> bytes:
        """Return the bytes to store for an entry."""
        return self._sealer.seal(self._place(entry.seq), encode_stored(entry))

    def _place(self, seq: int) -> ObjectLocation:
        key = Layout.entry(self._incarnation, seq)
        return ObjectLocation(ObjectType.ENTRY, self._account, self._incarnation, key)


def digest_of(stored: bytes) -> bytes:
    """Return the SHA-256 of an entry's stored bytes, which the next entry has as ``previous``.

    Example:
        >>> digest_of(b"entry").hex()[:16]
        '923fe53966c6cd93'
    """
    return hashlib.sha256(stored).digest()
