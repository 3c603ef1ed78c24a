"""The keys that the relayers of a store share: the store key, and the fleet keys.

The store key is 32 random bytes from which the relayers of a store derive all their keys. The first relayer of a store generates
it. The object ``relayer`` of the store contains it, wrapped (encrypted) by a `KeyProvider`, that is by the relayer key. So the
relayer key can be replaced without touching anything else: `rotate_relayer_key` writes this one object. With a wrong key, a
relayer would find no objects under its own hashed names and show every user an empty memory that looks healthy;
`open_store_key` therefore refuses to start instead.

The object also contains a state, sealed with the store key, which `probe` reads for readiness without the relayer key. While
a backup is being restored, the state names the run, so that no relayer serves a partial restore.

The fleet keys are one key pair for each day, shared by all replicas, to which gateways seal namespace keys. `FleetKeys` keeps the
pairs of the accepted days, issues the signed list of public keys, and deletes the pairs of past days permanently.

`create_or_read` creates an object unless it exists and returns what the store then has, so that all replicas use the key of the
replica that was first.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

import msgspec
from nacl.public import PrivateKey

from relayer.crypto import KEPT_DAYS, FleetPair, RelayerKeys, day_of, live_days
from relayer.errors import (
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRequired,
    VersionsHidden,
    WrongRelayerKey,
)
from relayer.lib.scheduler import Periodic
from relayer.log.collector import destroy, left_of
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Absent, Clock, Found, KeyProvider, ObjectStore, Randomness, Swapped, Throttled
from relayer.wire.codec import UnsealError
from relayer.wire.fields import DAY_MS
from relayer.wire.sealed_keys import FleetList, fleet_key_id
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
    store: ObjectStore, clock: Clock, randomness: Randomness, provider: KeyProvider
) -> bytes:
    """Return the key of a store, and generate it if the store is new.

    Raises:
        WrongRelayerKey: the store belongs to another relayer key, or has lost its key.
        StoreMisconfigured: a backup is being restored into it.
        StoreError: the store does not respond.
    """
    fresh = randomness.bytes(SECRET_SIZE)
    ports = LogPorts(store, clock, randomness, RelayerKeys.derive(fresh))
    found = await ports.get(Layout.relayer())
    if found is None and await holds_any(store, "acct/", Layout.fleet("")):
        # The store is not new, unless another relayer has created the object since.
        found = await ports.get(Layout.relayer())
        if found is None:
            raise WrongRelayerKey(_LOST)
    if found is None:
        found = await create_store_key(ports, provider, fresh)
    return await _opened(StoredKey.decode(found.data), provider)


async def holds_any(store: ObjectStore, *prefixes: str) -> bool:
    """Return whether a store has any object whose key has one of these prefixes."""
    for prefix in prefixes:
        async for _ in store.list(prefix):
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


async def read_store_key(store: ObjectStore, provider: KeyProvider) -> bytes:
    """Return the key of a store that a relayer has used; raises as `open_store_key`, and writes nothing."""
    found = await store.get(Layout.relayer())
    if not isinstance(found, Found):
        raise WrongRelayerKey(_NEVER_USED)
    return await _opened(StoredKey.decode(found.data), provider)


async def rotate_relayer_key(
    store: ObjectStore, clock: Clock, current: KeyProvider, new: KeyProvider
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
    at = Layout.relayer()
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


async def older_versions(store: ObjectStore) -> int | None:
    """Return how many older versions of the wrapped store key a bucket keeps; None if it does not list versions.

    Raises:
        StoreError: the store does not respond.
    """
    try:
        return max(await store.versions(Layout.relayer()) - 1, 0)
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
        outcome = await ports.store.swap(Layout.relayer(), ended.encode(), found.etag)
        if not isinstance(outcome, Swapped):
            raise StoreUnavailable("the store did not say whether the restore could be ended; run it again")


async def probe(ports: LogPorts) -> Found:
    """Read the state of the store again, for readiness, and return the object.

    Raises:
        WrongRelayerKey: the object is missing, or belongs to another store key.
        StoreMisconfigured: a backup is being restored into the store.
        StoreError: the store does not respond.
    """
    found = await ports.store.get(Layout.relayer())
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
    await ports.store.get(_NEVER_WRITTEN)
    await ports.store.create(Layout.relayer(), probed.data)


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


async def create_or_read(ports: LogPorts, key: str, data: bytes) -> Found:
    """Create an object at a key unless there is one, and return the object that the store has.

    Raises:
        StoreUnavailable: five attempts in a row got no clear response.
        StoreError: as the store.
    """
    store, clock = ports.store, ports.clock
    for _ in range(_ATTEMPTS):
        found = await store.get(key)
        if isinstance(found, Found):
            return found
        if isinstance(found, Absent):
            outcome = await store.create(key, data)
            if isinstance(outcome, Throttled):
                await clock.sleep(outcome.retry_after)
                continue
            # The outcome is Created, Exists or Unknown. In all three cases the next read decides.
            found = await store.get(key)
            if isinstance(found, Found):
                return found
        await clock.sleep(_PAUSE)
    raise StoreUnavailable(f"{store.description} does not say what it holds")


_LIST_AGE_MS = 60_000
_EARLY_MS = 3_600_000
_CHECK_SECONDS = 60.0
# The number of consecutive days without any object after which a sweep stops.
_SWEPT_DAYS = 30


class FleetKeys:
    """The key pairs that this replica accepts. Call `start` before use, and run `task` in the background.

    Args:
        on_left: called at most once a day with the reason why pairs of past days could not be deleted permanently. The
            deletion is retried all the same.
    """

    def __init__(self, ports: LogPorts, on_left: Callable[[StoreError], None] = lambda _: None) -> None:
        self._ports = ports
        self._on_left = on_left
        self._told = ""
        self._clock = ports.clock
        self._pairs: dict[str, FleetPair] = {}
        self._by_id: dict[bytes, FleetPair] = {}
        self._issued: FleetList | None = None
        self._swept = ""

    async def start(self) -> None:
        """Create or read the pairs that are needed today.

        Raises:
            WrongRelayerKey: the object of a day was sealed with another relayer key.
            StoreError: the store does not respond.
        """
        await self.refresh()

    async def refresh(self) -> None:
        """Read the pairs of the accepted days and drop those of past days; raises as `start`."""
        now = self._clock.now_ms()
        today = day_of(now)
        days = (day_of(now + _EARLY_MS), *live_days(now))
        pairs = {day: pair for day in days if (pair := await self._pair(day, make=day >= today))}
        if pairs.keys() != self._pairs.keys():
            self._issued = None
        self._pairs = pairs
        self._by_id = {fleet_key_id(bytes(pair.private.public_key)): pair for pair in pairs.values()}
        if self._swept != today:
            try:
                await self._sweep()
                self._swept = today
            except StoreError as error:
                # Requests do not depend on the deletion: a store that does not list versions must not stop the service.
                if self._told != today:
                    self._told = today
                    self._on_left(error)

    @property
    def task(self) -> Periodic:
        """The periodic task that keeps the keys current; the scheduler repeats it also after a failure."""
        return Periodic("fleet_keys", lambda _: self.refresh(), _CHECK_SECONDS)

    def current(self) -> FleetList:
        """Return the signed list of public keys, newest first, at most a minute old."""
        now = self._clock.now_ms()
        if self._issued is None or not 0 <= now - self._issued.issued_at * 1000 < _LIST_AGE_MS:
            today = day_of(now)
            # Without a pair of today or earlier, the clock was set back over midnight since the pairs were read.
            listed = sorted((day for day in self._pairs if day <= today), reverse=True) or sorted(self._pairs)
            keys = tuple(self._pairs[day].public for day in listed)
            self._issued = FleetList.issue(self._ports.keys.identity, now // 1000, keys)
        return self._issued

    def private(self, fleet_id: bytes) -> PrivateKey | None:
        """Return the private half that a sealed key names, while it is accepted."""
        pair = self._by_id.get(fleet_id)
        if pair is None or pair.public.not_after * 1000 <= self._clock.now_ms():
            return None
        return pair.private

    async def _pair(self, day: str, *, make: bool) -> FleetPair | None:
        known = self._pairs.get(day)
        if known is not None:
            return known
        metadata, randomness = self._ports.keys.metadata, self._ports.randomness
        if make:
            fresh = FleetPair(day, PrivateKey(randomness.bytes(PrivateKey.SIZE)))
            sealed = fresh.seal(metadata, salt=randomness.bytes(SALT_SIZE))
            found = await create_or_read(self._ports, Layout.fleet(day), sealed)
            return FleetPair.open(day, metadata, found.data)
        read = await self._ports.store.get(Layout.fleet(day))
        return FleetPair.open(day, metadata, read.data) if isinstance(read, Found) else None

    async def _sweep(self) -> None:
        """Delete the pairs of past days permanently.

        The store's clock decides which days are past, because this replica's clock may be far ahead. All versions are
        deleted, also those of days that a listing does not show any more because only their latest version was deleted.
        """
        store, folder = self._ports.store, Layout.fleet("")
        read = await store.get(f"{folder}{day_of(self._clock.now_ms())}")
        oldest = min(read.store_time, self._clock.now_ms()) - (KEPT_DAYS - 1) * DAY_MS
        shown = [info.key async for info in store.list(folder)]
        await destroy(store, [key for key in shown if key.removeprefix(folder) < day_of(oldest)])
        window = range(oldest - DAY_MS, oldest - (_SWEPT_DAYS + 1) * DAY_MS, -DAY_MS)
        while await left_of(store, names := [f"{folder}{day_of(time)}" for time in window]):
            await destroy(store, names)
            window = range(window.stop, window.stop - _SWEPT_DAYS * DAY_MS, -DAY_MS)
