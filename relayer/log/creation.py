"""Finding, opening, creating and listing namespaces.

A namespace consists of a pointer, a keyring and a manifest. They are created in this order, each only if it is absent, and
each is read back and used as read. If a process dies in between, the next one finds the existing objects and creates the
missing ones. If several processes create a namespace at the same time, all use the objects of the first one. `find` and
`open_existing` never write; `open_or_create` creates what is missing; `mark` changes a pointer's state during an erasure; `begin_succession` and `succeed` exchange an incarnation for
another one while keys are rotated, see `relayer.log.rotation`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from relayer.crypto import KEY_ID_SIZE, NO_MAC_KEYS, SALT_SIZE, MacKeys, NamespaceKeys, make_keyring
from relayer.domain.namespace import (
    MANIFEST_FORMAT,
    Custody,
    Keyring,
    Manifest,
    Pointer,
    PointerState,
    genesis,
)
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable, WrongCustody, WrongGeneration
from relayer.lib.work import Backoff, both, in_windows
from relayer.log.objects import Layout, LogPorts, ObjectSealer, SeenManifest
from relayer.ports import Absent, Found, Throttled, Unchanged

INCARNATION_SIZE = 16
_ATTEMPTS = 8
_ROUNDS = 5
# A pointer goes through the states in this order.
_STATES = tuple(PointerState)


@dataclass(frozen=True, slots=True)
class NewNamespace:
    """The properties of a namespace to be created if it does not exist; ``generation`` is that of the secret."""

    account: str
    name: str
    custody: Custody
    generation: int = 0


@dataclass(frozen=True, slots=True)
class OpenedNamespace:
    """A namespace of which all objects exist, with its keys.

    Attributes:
        seen: the manifest, if it existed already, so that a replica need not read it again immediately.
    """

    account: str
    pointer: Pointer
    keys: NamespaceKeys
    seen: SeenManifest | None = field(default=None, repr=False, compare=False)


async def find(ports: LogPorts, account: str, name: str) -> Pointer | None:
    """Return the pointer of a name, live or being erased; None if there is none. Never writes."""
    found = await _Creation(ports, account).read_pointer(name)
    return None if found is None or found.pointer.state is PointerState.ERASED else found.pointer


async def find_tagged(ports: LogPorts, account: str, tag: str) -> Pointer | None:
    """Return the pointer of the name with this tag, see `RelayerKeys.tag`. Like `find`, and raises the same."""
    key = Layout.pointer(ports.keys.tag("account", account), tag)
    found = await _Creation(ports, account).read_pointer_at(key)
    return None if found is None or found.pointer.state is PointerState.ERASED else found.pointer


# Called with an incarnation and its manifest as soon as that was read: what it names can be read while keys are being opened.
OnManifest = Callable[[bytes, Manifest], None]


async def open_existing(
    ports: LogPorts, pointer: Pointer, account: str, secret: bytes, on_manifest: OnManifest | None = None
) -> OpenedNamespace | None:
    """Open a namespace that `find` found; None if its creation was never finished. Never writes.

    Raises:
        NamespaceClosed: it is being erased.
        WrongNamespaceKey: the secret is not its secret.
    """
    if pointer.state is not PointerState.LIVE:
        raise NamespaceClosed("the namespace is being erased")
    creation = _Creation(ports, account)
    seen = await creation.read_manifest(pointer)
    if seen is None:
        await creation.check_unbegun(pointer)
        return None
    if on_manifest is not None:
        on_manifest(pointer.incarnation, seen.manifest)
    keys = await creation.open_seen(pointer, seen.manifest, secret)
    if keys is None:
        raise NamespaceClosed("the namespace is being erased")
    return OpenedNamespace(account, pointer, keys, seen)


# Called before a pointer is written; may raise. It returns a function that is called after the attempt to write it.
OnNew = Callable[[], Awaitable[Callable[[], None]]]


async def open_or_create(
    ports: LogPorts,
    new: NewNamespace,
    secret: bytes,
    on_manifest: OnManifest | None = None,
    *,
    on_new: OnNew | None = None,
) -> OpenedNamespace:
    """Open a namespace, creating the objects of it that are missing.

    The keys are derived from the ``secret`` of 32 bytes, which is not kept. ``on_manifest`` is called with the incarnation and
    the manifest if the manifest existed already, and ``on_new`` before a new namespace is created; it may raise.

    Raises:
        WrongCustody: it exists under the other custody; nothing was written.
        WrongGeneration: it exists, or existed, with a later generation of its secret; nothing was written.
        WrongNamespaceKey: it exists with another secret; nothing was written.
        NamespaceClosed: it is being erased.
    """
    creation = _Creation(ports, new.account)
    for _ in range(_ROUNDS):
        pointer = await creation.settle_pointer(new, on_new)
        seen = await creation.read_manifest(pointer)
        if seen is not None:
            if on_manifest is not None:
                on_manifest(pointer.incarnation, seen.manifest)
            keys = await creation.open_seen(pointer, seen.manifest, secret)
        else:
            made, was_there = await creation.settle_keyring(pointer, secret)
            if was_there:
                await creation.check_unbegun(pointer)
                # An empty listing may mean that the namespace was erased while it was being checked.
                if not await creation.is_current(pointer):
                    continue
            await creation.settle_manifest(pointer)
            keys = made if await creation.is_current(pointer) else None
        if keys is not None:
            return OpenedNamespace(new.account, pointer, keys, seen)
    raise StoreUnavailable("the namespace is being made and erased by others; try again")


async def list_pointers(ports: LogPorts, account: str) -> list[Pointer]:
    """Return the pointers of an account, in any state, sorted by name; one that is deleted meanwhile is left out."""
    pointers, _ = await page_pointers(ports, account)
    return sorted(pointers, key=lambda pointer: pointer.name)


async def page_pointers(
    ports: LogPorts, account: str, *, after: str = "", limit: int | None = None
) -> tuple[list[Pointer], str]:
    """Return a page of an account's pointers, in any state, and the tag of the last one that was read.

    They are in the order of their tags, the keyed hashes of their names: no other order is known without unsealing all of
    them. The returned tag is empty if there are no more. A pointer that is deleted meanwhile is left out.

    A page begins after the tag ``after``, with which the page before ended, and has at most ``limit`` pointers; None reads
    all.
    """
    creation = _Creation(ports, account)
    start = Layout.pointers(ports.keys.tag("account", account))
    keys = [key for key in await ports.keys_below(start) if key > start + after]
    page = keys[:limit]
    read = await in_windows(creation.read_pointer_at, page)
    last = page[-1].removeprefix(start) if len(keys) > len(page) else ""
    return [found.pointer for found in read if found is not None], last


async def mark(ports: LogPorts, account: str, pointer: Pointer, state: PointerState) -> None:
    """Set the state of an incarnation's pointer; it is not changed if it has this state or a later one already.

    Nothing is changed either if the name has no pointer, or one to another incarnation. Raises `StoreUnavailable`: it is not
    certain that the pointer was written; a retry is safe.
    """
    creation = _Creation(ports, account)
    for _ in range(_ATTEMPTS):
        found = await creation.read_pointer(pointer.name)
        if found is None or found.pointer.incarnation != pointer.incarnation:
            return
        if _STATES.index(found.pointer.state) >= _STATES.index(state):
            return
        await creation.write_pointer(found, msgspec.structs.replace(found.pointer, state=state))
    raise StoreUnavailable("the pointer of a namespace could not be written; trying again is safe")


async def begin_succession(ports: LogPorts, account: str, pointer: Pointer, generation: int) -> Pointer:
    """Record in a live pointer which incarnation and generation follow, unless that is recorded already; return the pointer.

    Raises:
        NamespaceClosed: the name does not have this incarnation any more.
        StoreUnavailable: it is not certain that the pointer was written; a retry is safe.
    """
    creation = _Creation(ports, account)
    for _ in range(_ATTEMPTS):
        found = await creation.read_pointer(pointer.name)
        if found is None or not _is_same(found.pointer, pointer):
            raise NamespaceClosed("the namespace was erased, or its keys were rotated meanwhile")
        if found.pointer.next:
            return found.pointer
        incarnation = ports.randomness.bytes(INCARNATION_SIZE)
        begun = msgspec.structs.replace(found.pointer, next=incarnation, next_generation=generation)
        await creation.write_pointer(found, begun)
    raise StoreUnavailable("the pointer of a namespace could not be written; trying again is safe")


async def succeed(ports: LogPorts, account: str, name: str, former: bytes) -> Pointer | None:
    """Exchange an incarnation for the one that follows it; nothing is changed if that was done, or if none is complete.

    An incarnation that follows is complete when it has a manifest, which is written last.

    Returns:
        The pointer as it is then; None if there is none.

    Raises:
        StoreUnavailable: it is not certain that the pointer was written; a retry is safe.
    """
    creation = _Creation(ports, account)
    for _ in range(_ATTEMPTS):
        found = await creation.read_pointer(name)
        if found is None:
            return None
        pointer = found.pointer
        if pointer.incarnation != former or pointer.state is not PointerState.LIVE or not pointer.next:
            return pointer
        new = successor_of(pointer)
        if await creation.read_manifest(new) is None:
            return pointer
        await creation.write_pointer(found, new)
    raise StoreUnavailable("the pointer of a namespace could not be written; trying again is safe")


def successor_of(pointer: Pointer) -> Pointer:
    """Return the pointer that a rotation of the keys ends with."""
    return msgspec.structs.replace(
        pointer, incarnation=pointer.next, generation=pointer.next_generation, next=b"", next_generation=0
    )


async def settle_successor(
    ports: LogPorts, account: str, pointer: Pointer, secret: bytes, earlier: MacKeys
) -> NamespaceKeys:
    """Create the keyring of the incarnation that follows ``pointer``, unless it exists, and derive its keys.

    Raises:
        WrongNamespaceKey: it exists with another secret.
    """
    keys, _ = await _Creation(ports, account).settle_keyring(successor_of(pointer), secret, earlier)
    return keys


async def complete_successor(ports: LogPorts, account: str, pointer: Pointer, manifest: Manifest) -> None:
    """Create the manifest of the incarnation that follows ``pointer``, unless another relayer did; raises `StoreError`."""
    await _Creation(ports, account).settle_manifest(successor_of(pointer), manifest)


def _is_same(one: Pointer, other: Pointer) -> bool:
    return (one.incarnation, one.state) == (other.incarnation, other.state)


@dataclass(frozen=True, slots=True)
class _ReadPointer:
    pointer: Pointer
    etag: str


class _Creation:
    """The steps of creating and opening a namespace. Each may be repeated by any relayer at any time."""

    def __init__(self, ports: LogPorts, account: str) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account

    async def read_pointer(self, name: str) -> _ReadPointer | None:
        found = await self.read_pointer_at(self._ports.pointer_key(self._account, name))
        if found is not None and found.pointer.name != name:
            raise CorruptNamespace("a pointer belongs to another namespace than its key")
        return found

    async def read_pointer_at(self, key: str) -> _ReadPointer | None:
        found = await self._get(key)
        if isinstance(found, Absent):
            return None
        return _ReadPointer(self._sealer.unseal_pointer(self._account, key, found.data), found.etag)

    async def is_current(self, pointer: Pointer) -> bool:
        """Return whether the name still has this pointer. To be called after the manifest was read or created.

        The namespace may have been erased since its pointer was read, and then objects that were just created belong to no
        namespace. A manifest that names segments is too old for that, but a new one may have been created by a process that
        came too late.
        """
        current = await self.read_pointer(pointer.name)
        return current is not None and _is_same(current.pointer, pointer)

    async def read_manifest(self, pointer: Pointer) -> SeenManifest | None:
        key = Layout.manifest(pointer.incarnation)
        found = await self._get(key)
        if isinstance(found, Absent):
            return None
        manifest = self._sealer.unseal_manifest(self._account, pointer.incarnation, key, found.data)
        return SeenManifest(manifest, found.etag, found.store_time)

    async def open_seen(self, pointer: Pointer, manifest: Manifest, secret: bytes) -> NamespaceKeys | None:
        """Derive the keys; None if the name does not have this pointer any more, see `is_current`."""
        opening = self._open_keyring(pointer, secret)
        try:
            if manifest.snap_seq:
                return await opening
            keys, current = await both(opening, self.is_current(pointer))
        except CorruptNamespace:
            # An erasure changes the pointer and then deletes the keyrings before anything else. In that case a missing
            # keyring is no corruption.
            if await self.is_current(pointer):
                raise
            return None
        return keys if current else None

    async def _open_keyring(self, pointer: Pointer, secret: bytes) -> NamespaceKeys:
        key = Layout.keyring(pointer.incarnation)
        found = await self._get(key)
        if isinstance(found, Absent):
            raise CorruptNamespace("a namespace has a manifest and no keyring")
        return self._open(pointer, key, found.data, secret)

    def _open(self, pointer: Pointer, key: str, sealed: bytes, secret: bytes) -> NamespaceKeys:
        keyring = self._sealer.unseal_keyring(self._account, pointer.incarnation, key, sealed)
        return NamespaceKeys.open(secret, keyring, account=self._account, incarnation=pointer.incarnation)

    async def settle_pointer(self, new: NewNamespace, on_new: OnNew | None = None) -> Pointer:
        """Return the live pointer of the name, after creating it, or replacing an erased one, if necessary."""
        key = self._ports.pointer_key(self._account, new.name)
        backoff = Backoff(self._ports.randomness)
        with ExitStack() as tried:
            for _ in range(_ATTEMPTS):
                found = await self._get(key)
                if isinstance(found, Found):
                    pointer = self._sealer.unseal_pointer(self._account, key, found.data)
                    if pointer.state is not PointerState.ERASED:
                        return _usable(pointer, new)
                    if new.custody is Custody.AGENT and pointer.generation > new.generation:
                        # Otherwise gateways that know of the rotation would not find what those write that do not.
                        raise WrongGeneration(pointer.generation)
                if on_new is not None:
                    tried.callback(await on_new())
                    on_new = None
                etag = found.etag if isinstance(found, Found) else None
                fresh = Pointer(
                    incarnation=self._ports.randomness.bytes(INCARNATION_SIZE),
                    custody=new.custody,
                    state=PointerState.LIVE,
                    name=new.name,
                    generation=new.generation,
                    created_at=found.store_time,
                )
                sealed = self._sealer.seal_pointer(self._account, key, fresh)
                await self._write(key, sealed, etag, backoff)
        raise StoreUnavailable("the pointer of a namespace could not be written; trying again is safe")

    async def write_pointer(self, found: _ReadPointer, new: Pointer) -> None:
        """Try once to replace the pointer of a name; the next read shows whether it succeeded."""
        key = self._ports.pointer_key(self._account, found.pointer.name)
        sealed = self._sealer.seal_pointer(self._account, key, new)
        await self._write(key, sealed, found.etag, Backoff(self._ports.randomness))

    async def settle_keyring(
        self, pointer: Pointer, secret: bytes, earlier: MacKeys = NO_MAC_KEYS
    ) -> tuple[NamespaceKeys, bool]:
        """Create the keyring unless it exists, and derive the keys from the one in the store.

        Returns:
            The keys, and whether the keyring had been created before. If it had, there may be other
            objects of the namespace too.
        """
        random = self._ports.randomness.bytes
        keyring: Keyring = make_keyring(
            secret,
            pointer.incarnation,
            salt=random(SALT_SIZE),
            key_id=random(KEY_ID_SIZE),
            account=self._account,
            earlier=earlier,
        )
        key = Layout.keyring(pointer.incarnation)
        sealed = self._sealer.seal_keyring(self._account, pointer.incarnation, key, keyring)
        settled = await self._settle(key, sealed)
        return self._open(pointer, key, settled, secret), settled != sealed

    async def check_unbegun(self, pointer: Pointer) -> None:
        """Check that the creation of a namespace without a manifest was never finished, and that the manifest was not lost.

        If it was lost, a new manifest would begin a new log, and the objects that the lost one named would be collected.
        Entries and segments are written after the manifest, so a namespace that has any of them has lost it, unless it is
        being erased; an erasure changes the pointer first.

        Raises:
            CorruptNamespace: there are entries or segments, but no manifest.
            NamespaceClosed: it was erased since its pointer was read.
        """
        incarnation = pointer.incarnation
        for start in (Layout.entries(incarnation), Layout.segments(incarnation)):
            async for _ in self._ports.store.list(start):
                if await self.read_manifest(pointer) is not None:
                    return  # another process has just created it
                if not await self.is_current(pointer):
                    raise NamespaceClosed("the namespace is being erased")
                raise CorruptNamespace("a log has entries but no manifest")

    async def settle_manifest(self, pointer: Pointer, manifest: Manifest | None = None) -> Manifest:
        """Create a manifest, empty unless one is given, if none exists, and return the one in the store."""
        if manifest is None:
            manifest = Manifest(format=MANIFEST_FORMAT, chain_digest=genesis(pointer.incarnation))
        key = Layout.manifest(pointer.incarnation)
        sealed = self._sealer.seal_manifest(self._account, pointer.incarnation, key, manifest)
        found = await self._settle(key, sealed)
        return self._sealer.unseal_manifest(self._account, pointer.incarnation, key, found)

    async def _settle(self, key: str, data: bytes) -> bytes:
        """Create an object unless it exists; return the bytes in the store, which another process may have written."""
        backoff = Backoff(self._ports.randomness)
        for _ in range(_ATTEMPTS):
            found = await self._get(key)
            if isinstance(found, Found):
                return found.data
            await self._write(key, data, None, backoff)
        raise StoreUnavailable("a namespace could not be made; trying again is safe")

    async def _write(self, key: str, data: bytes, etag: str | None, backoff: Backoff) -> None:
        """Try once to write. The next read shows whether it succeeded, so only throttling is handled here, by a pause."""
        store = self._ports.store
        outcome = await (store.create(key, data) if etag is None else store.swap(key, data, etag))
        if isinstance(outcome, Throttled):
            await self._ports.clock.sleep(backoff.next_delay(outcome.retry_after))

    async def _get(self, key: str) -> Found | Absent:
        outcome = await self._ports.store.get(key)
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return outcome


def _usable(pointer: Pointer, new: NewNamespace) -> Pointer:
    if pointer.name != new.name:
        raise CorruptNamespace("a pointer belongs to another namespace than its key")
    if pointer.state is PointerState.ERASING:
        raise NamespaceClosed("the namespace is being erased")
    if pointer.custody is not new.custody:
        raise WrongCustody(f"the namespace is kept under custody {pointer.custody.value}")
    if pointer.generation != new.generation:
        raise WrongGeneration(pointer.generation)
    return pointer
