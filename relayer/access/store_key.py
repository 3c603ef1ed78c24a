"""The store key: 32 random bytes from which the relayers of a store derive all their keys.

The first relayer of a store generates it. The object ``relayer`` of the store contains it, wrapped (encrypted) by a
`KeyProvider`, that is by the relayer key. So the relayer key can be replaced without touching anything else:
`rotate_relayer_key` writes this one object. With a wrong key, a relayer would find no objects under its own hashed names and
show every user an empty memory that looks healthy; `open_store_key` therefore refuses to start instead.

The object also contains a state, sealed with the store key, which `probe` reads for readiness without the relayer key. While
a backup is being restored, the state names the run, so that no relayer serves a partial restore.
"""

from __future__ import annotations

import hmac

import msgspec

from relayer.access.fleet import create_or_read
from relayer.crypto import RelayerKeys
from relayer.errors import (
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRequired,
    VersionsHidden,
    WrongRelayerKey,
)
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Clock, Found, KeyProvider, ObjectStore, Randomness, Swapped, Throttled
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, SECRET_SIZE, ObjectType, context, seal, unseal

_FORMAT = 1
_IN_USE = b"memrelay/v1/relayer"
# The prefix of the state while a backup is being restored. The run's name follows.
_RESTORING = b"memrelay/v1/relayer/restoring/"
_PLACE = context(ObjectType.CONSTANT, "", b"", Layout.relayer())
_NEVER_WRITTEN = "probe/absent"
_ANOTHER_KEY = (
    "this bucket belongs to another relayer key; if that was replaced (memrelay keys rotate), start with the new one, "
    "and compare a key with its sheet by memrelay keys recovery --verify"
)
_BRING_IT_BACK = "copy the object store-key of a backup to it, or restore the backup (memrelay restore) into an empty place"
_LOST = f"the store has lost its object relayer, which contains the store key: {_BRING_IT_BACK}"
_DAMAGED = f"the store's object relayer, which contains the store key, is damaged: {_BRING_IT_BACK}"
_ATTEMPTS = 5
_PAUSE = 0.2  # seconds after an unclear response


class StoredKey(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The content of the object ``relayer``, and of its copy in a backup.

    Attributes:
        provider: name of the provider that wrapped the store key, see `KeyProvider`.
        wrapped: the wrapped store key.
        state: a constant, or the run that is being restored; sealed with the store key.
    """

    format: int
    provider: str
    wrapped: bytes
    state: bytes

    @classmethod
    def decode(cls, data: bytes) -> StoredKey:
        """Decode an object.

        Raises:
            WrongRelayerKey: the object is damaged.
            UpgradeRequired: its format is unknown.
        """
        try:
            stored = msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise WrongRelayerKey(_DAMAGED) from error
        if stored.format != _FORMAT:
            raise UpgradeRequired(f"the store key has format {stored.format}; this version knows {_FORMAT}")
        return stored

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        return msgspec.msgpack.encode(self)

    async def unwrap(self, provider: KeyProvider) -> bytes:
        """Return the store key.

        Raises:
            WrongRelayerKey: it was wrapped under another key, or by another kind of provider.
            RelayerError: the provider does not respond.
        """
        if self.provider != provider.name:
            raise WrongRelayerKey(
                f"this bucket belongs to another relayer key: it was wrapped by {self.provider}, and the key given is of "
                f"{provider.name} (MEMRELAY_RELAYER_KEY)"
            )
        store_key = await provider.unwrap(self.wrapped)
        if store_key is None or len(store_key) != SECRET_SIZE:
            raise WrongRelayerKey(_ANOTHER_KEY)
        return store_key


async def open_store_key(
    store: ObjectStore, layout: Layout, clock: Clock, randomness: Randomness, provider: KeyProvider
) -> bytes:
    """Return the key of a store, and generate it if the store is new.

    Raises:
        WrongRelayerKey: the store belongs to another relayer key, or has lost its key.
        StoreMisconfigured: a backup is being restored into it.
        StoreError: the store does not respond.
    """
    fresh = randomness.bytes(SECRET_SIZE)
    ports = LogPorts(store, clock, randomness, RelayerKeys.derive(fresh), layout)
    found = await ports.get(Layout.relayer())
    if found is None and await _is_used(ports):
        # The store is not new, unless another relayer has created the object since.
        found = await ports.get(Layout.relayer())
        if found is None:
            raise WrongRelayerKey(_LOST)
    if found is None:
        found = await create_store_key(ports, provider, fresh)
    return await _opened(StoredKey.decode(found.data), provider)


async def _is_used(ports: LogPorts) -> bool:
    """Return whether a relayer has written anything into the store."""
    for start in ("acct/", Layout.fleet("")):
        async for _ in ports.rows_below(start):
            return True
    return False


async def create_store_key(ports: LogPorts, provider: KeyProvider, store_key: bytes) -> Found:
    """Write a store key into a store without one, and return the object that the store then has.

    The keys of ``ports`` are those of the store key.

    Raises:
        StoreError: the store does not respond.
    """
    wrapped = await _wrapped(provider, store_key)
    stored = StoredKey(_FORMAT, provider.name, wrapped, _sealed(ports, _IN_USE))
    return await create_or_read(ports, Layout.relayer(), stored.encode())


async def read_store_key(store: ObjectStore, layout: Layout, provider: KeyProvider) -> bytes:
    """Return the key of a store that a relayer has used; raises as `open_store_key`, and writes nothing."""
    found = await store.get(layout.store_key(Layout.relayer()))
    if not isinstance(found, Found):
        raise WrongRelayerKey(_NEVER_USED)
    return await _opened(StoredKey.decode(found.data), provider)


async def rotate_relayer_key(
    store: ObjectStore, layout: Layout, clock: Clock, current: KeyProvider, new: KeyProvider
) -> bool:
    """Wrap the key of a store under a new relayer key, by one conditional write. Relayers that are running are not affected.

    Calling this again is safe, also after a call that was killed.

    Returns:
        Whether anything was written; False if the store key is wrapped under the new key already.

    Raises:
        WrongRelayerKey: neither key opens the store.
        StoreMisconfigured: a backup is being restored into it.
        StoreError: the store does not respond.
    """
    at = layout.store_key(Layout.relayer())
    for _ in range(_ATTEMPTS):
        found = await store.get(at)
        if not isinstance(found, Found):
            raise WrongRelayerKey(_NEVER_USED)
        stored = StoredKey.decode(found.data)
        try:
            store_key = await _opened(stored, current)
        except WrongRelayerKey:
            if stored.provider == new.name and await new.unwrap(stored.wrapped) is not None:
                return False
            raise
        wrapped = await _wrapped(new, store_key)
        fresh = msgspec.structs.replace(stored, provider=new.name, wrapped=wrapped)
        outcome = await store.swap(at, fresh.encode(), found.etag)
        if isinstance(outcome, Swapped):
            return True
        # Another process wrote it, or the outcome is unknown. In both cases the next read decides.
        await clock.sleep(outcome.retry_after if isinstance(outcome, Throttled) else _PAUSE)
    raise StoreUnavailable("the store did not say whether the relayer key was replaced; run it again")


async def older_versions(store: ObjectStore, layout: Layout) -> int | None:
    """Return how many older versions of the wrapped store key a bucket keeps; None if it does not list versions.

    Raises:
        StoreError: the store does not respond.
    """
    try:
        return max(await store.versions(layout.store_key(Layout.relayer())) - 1, 0)
    except VersionsHidden as error:
        return None if error.kept else 0


async def begun_restore(ports: LogPorts) -> str:
    """Return the run of a restore that has started and not ended, as given to `begin_restore`; empty if there is none.

    Raises:
        StoreMisconfigured: the store has another store key.
        StoreError: the store does not respond.
    """
    found = await ports.get(Layout.relayer())
    return "" if found is None else _run_of(ports, found)


async def begin_restore(ports: LogPorts, key: StoredKey, run: str) -> None:
    """Reserve an empty store for a restore, or continue a restore that was started in it.

    The keys of ``ports`` are those of the backup, and ``key`` is the store key as it was wrapped there. The name of the run
    must differ between runs that restore different content.

    Raises:
        StoreMisconfigured: a relayer has used the store, or the restore of another run was started in it.
        StoreError: the store does not respond.
    """
    stored = msgspec.structs.replace(key, state=_sealed(ports, _RESTORING + run.encode()))
    begun = _run_of(ports, await create_or_read(ports, Layout.relayer(), stored.encode()))
    if begun != run:
        raise _not_empty(begun)


async def end_restore(ports: LogPorts) -> None:
    """End a restore, so that relayers can use the store; calling this again is safe.

    Raises:
        StoreError: the store does not respond, or its response was not clear.
    """
    found = await ports.get(Layout.relayer())
    if found is not None and _run_of(ports, found):
        ended = msgspec.structs.replace(StoredKey.decode(found.data), state=_sealed(ports, _IN_USE))
        outcome = await ports.store.swap(ports.layout.store_key(Layout.relayer()), ended.encode(), found.etag)
        if not isinstance(outcome, Swapped):
            raise StoreUnavailable("the store did not say whether the restore could be ended; run it again")


async def probe(ports: LogPorts) -> Found:
    """Read the state of the store again, for readiness, and return the object.

    Raises:
        WrongRelayerKey: the object is missing, or belongs to another store key.
        StoreMisconfigured: a backup is being restored into the store.
        StoreError: the store does not respond.
    """
    found = await ports.store.get(ports.layout.store_key(Layout.relayer()))
    if not isinstance(found, Found):
        raise WrongRelayerKey(_NEVER_USED)
    _check_in_use(ports.keys, StoredKey.decode(found.data))
    return found


async def check_rights(ports: LogPorts, probed: Found) -> None:
    """Check the permissions that requests need in addition to reading existing objects.

    These are the permission to see that an object does not exist, and to write. The write tries to create the object
    ``relayer`` as it is; it exists already, so nothing changes.

    Raises:
        StoreError: one of the two is denied, or the store does not respond.
    """
    await ports.store.get(ports.layout.store_key(_NEVER_WRITTEN))
    await ports.store.create(ports.layout.store_key(Layout.relayer()), probed.data)


_NEVER_USED = (
    "the store does not hold the object relayer, which contains its key: no relayer has used this place yet, or the object was "
    "removed, and a backup contains a copy of it (store-key)"
)


async def _opened(stored: StoredKey, provider: KeyProvider) -> bytes:
    store_key = await stored.unwrap(provider)
    _check_in_use(RelayerKeys.derive(store_key), stored)
    return store_key


async def _wrapped(provider: KeyProvider, store_key: bytes) -> bytes:
    """Return the wrapped store key, after a check that the provider can unwrap it."""
    wrapped = await provider.wrap(store_key)
    again = await provider.unwrap(wrapped)
    if again is None or not hmac.compare_digest(again, store_key):
        raise WrongRelayerKey(f"{provider.name} does not return the key that it wrapped: nothing was written")
    return wrapped


def _sealed(ports: LogPorts, state: bytes) -> bytes:
    salt = ports.randomness.bytes(SALT_SIZE)
    return seal(ports.keys.metadata, ObjectType.CONSTANT, _PLACE, state, salt=salt)


def _state(keys: RelayerKeys, stored: StoredKey) -> bytes:
    """Return the state; raises `UnsealError` if the object belongs to another store key."""
    return unseal(keys.metadata, ObjectType.CONSTANT, _PLACE, stored.state)


def _run_of(ports: LogPorts, found: Found) -> str:
    try:
        state = _state(ports.keys, StoredKey.decode(found.data))
    except UnsealError:
        raise _not_empty("") from None
    return state.removeprefix(_RESTORING).decode() if state.startswith(_RESTORING) else ""


def _not_empty(begun: str) -> StoreMisconfigured:
    problem = "the store is in use: a backup is restored into an empty one only"
    fix = "give another directory, bucket or prefix"
    if begun:
        problem = "the restore of another run was begun in the store, and did not end"
        fix += ", or leave out --run to go on with that restore"
    return StoreMisconfigured(f"{problem}; {fix}", code="not_empty", fix=fix)


def _check_in_use(keys: RelayerKeys, stored: StoredKey) -> None:
    try:
        state = _state(keys, stored)
    except UnsealError as error:
        raise WrongRelayerKey(_ANOTHER_KEY) from error
    if state.startswith(_RESTORING):
        raise StoreMisconfigured(
            "this store is being restored from a backup, and that did not end yet; run memrelay restore again",
            code="restoring",
            fix="run memrelay restore again; it goes on where it stopped",
        )
