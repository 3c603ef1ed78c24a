"""The check that a store belongs to the relayer key.

With a wrong key, a relayer would find no objects under its own hashed names and show every user an empty memory that looks
healthy. So each store has a check object: a constant, sealed with the relayer key, at a name that is the same for all
keys. `check_relayer_key` creates or decrypts it at start-up, and `probe` does so for readiness. While a backup is being
restored, the check object names the run instead, so that no relayer serves a partial restore.
"""

from __future__ import annotations

from relayer.access.accounts import account_at
from relayer.access.fleet import create_or_read
from relayer.crypto import RelayerKeys
from relayer.errors import (
    CorruptNamespace,
    StoreMisconfigured,
    StoreUnavailable,
    UpgradeRequired,
    WrongRelayerKey,
)
from relayer.log.objects import Layout, LogPorts
from relayer.ports import Found, Swapped
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal

_CONSTANT = b"memrelay/v1/relayer"
# The prefix of the content while a backup is being restored, so that no relayer serves a part of it. The run's name follows.
_RESTORING = b"memrelay/v1/relayer/restoring/"
_PLACE = context(ObjectType.CONSTANT, "", b"", Layout.relayer())
_NEVER_WRITTEN = "probe/absent"
_ANOTHER_KEY = "this bucket belongs to another relayer key"
# How many accounts must fail to decrypt before the store is considered to belong to another key: one may be damaged.
_TRIED = 8


async def check_relayer_key(ports: LogPorts) -> None:
    """Create the check object if the store is new, and decrypt the one that the store has.

    Raises:
        WrongRelayerKey: the store was first used with another key.
        StoreMisconfigured: a backup is being restored into it.
        StoreError: the store does not respond.
    """
    if not isinstance(await ports.store.get(ports.layout.store_key(Layout.relayer())), Found):
        await _check_accounts(ports)
    _open(ports.keys, await create_or_read(ports, Layout.relayer(), _fresh(ports)))


async def _check_accounts(ports: LogPorts) -> None:
    """Check the accounts of a store without a check object: if none can be decrypted, the store belongs to another key.

    Raises:
        WrongRelayerKey: there are accounts, and none that was tried could be decrypted.
    """
    failed = 0
    async for row in ports.rows_below("acct/"):
        found = await ports.get(row.key) if row.key.endswith("/account") else None
        if found is None:
            continue
        try:
            account_at(ports.keys, row.key, found.data)
        except CorruptNamespace:
            failed += 1
            if failed == _TRIED:
                break
        except UpgradeRequired:
            return  # it was decrypted
        else:
            return
    if failed:
        raise WrongRelayerKey(_ANOTHER_KEY)


async def begun_restore(ports: LogPorts) -> str:
    """Return the run of a restore that has started and not ended, as given to `begin_restore`; empty if there is none.

    Raises:
        WrongRelayerKey: the store belongs to another key.
        StoreError: the store does not respond.
    """
    found = await ports.store.get(ports.layout.store_key(Layout.relayer()))
    constant = _constant(ports.keys, found) if isinstance(found, Found) else b""
    return constant.removeprefix(_RESTORING).decode() if constant.startswith(_RESTORING) else ""


async def begin_restore(ports: LogPorts, run: str) -> None:
    """Reserve an empty store for a restore, or continue a restore that was started in it.

    Args:
        ports: the store.
        run: the name of the run; it must differ between runs that restore different content.

    Raises:
        StoreMisconfigured: a relayer has used the store, or the restore of another run was started in it.
        WrongRelayerKey: the store belongs to another key.
        StoreError: the store does not respond.
    """
    constant = _RESTORING + run.encode()
    found = await create_or_read(ports, Layout.relayer(), _sealed(ports, constant))
    there = _constant(ports.keys, found)
    if there == constant:
        return
    problem = "the store is in use: a backup is restored into an empty one only"
    fix = "give another directory, bucket or prefix"
    if there.startswith(_RESTORING):
        problem = "the restore of another run was begun in the store, and did not end"
        fix += ", or leave out --run to go on with that restore"
    raise StoreMisconfigured(f"{problem}; {fix}", code="not_empty", fix=fix)


async def end_restore(ports: LogPorts) -> None:
    """End a restore, so that relayers can use the store; calling this again is safe.

    Raises:
        StoreError: the store does not respond, or its response was not clear.
    """
    at = ports.layout.store_key(Layout.relayer())
    found = await ports.store.get(at)
    if isinstance(found, Found) and _constant(ports.keys, found).startswith(_RESTORING):
        outcome = await ports.store.swap(at, _fresh(ports), found.etag)
        if not isinstance(outcome, Swapped):
            raise StoreUnavailable("the store did not say whether the restore could be ended; run it again")


async def probe(ports: LogPorts) -> int:
    """Decrypt the check object again, for readiness, and return the store's time in ms since the epoch.

    Raises:
        WrongRelayerKey: it is missing, or belongs to another key.
        StoreMisconfigured: a backup is being restored into the store.
        StoreError: the store does not respond.
    """
    found = await ports.store.get(ports.layout.store_key(Layout.relayer()))
    if not isinstance(found, Found):
        raise WrongRelayerKey(
            "the store does not hold the object that says whose it is: no relayer has used this place yet, or the object was "
            "removed, and a start of memrelay serve with the store's key creates it again"
        )
    _open(ports.keys, found)
    return found.store_time


async def check_rights(ports: LogPorts) -> None:
    """Check the permissions that requests need in addition to reading existing objects.

    These are the permission to see that an object does not exist, and to write. The write tries to create the check object,
    which exists already, so nothing changes.

    Raises:
        StoreError: one of the two is denied, or the store does not respond.
    """
    await ports.store.get(ports.layout.store_key(_NEVER_WRITTEN))
    await ports.store.create(ports.layout.store_key(Layout.relayer()), _fresh(ports))


def _fresh(ports: LogPorts) -> bytes:
    return _sealed(ports, _CONSTANT)


def _sealed(ports: LogPorts, constant: bytes) -> bytes:
    salt = ports.randomness.bytes(SALT_SIZE)
    return seal(ports.keys.metadata, ObjectType.CONSTANT, _PLACE, constant, salt=salt)


def _constant(keys: RelayerKeys, found: Found) -> bytes:
    try:
        return unseal(keys.metadata, ObjectType.CONSTANT, _PLACE, found.data)
    except UnsealError as error:
        raise WrongRelayerKey(_ANOTHER_KEY) from error


def _open(keys: RelayerKeys, found: Found) -> None:
    constant = _constant(keys, found)
    if constant.startswith(_RESTORING):
        raise StoreMisconfigured(
            "this store is being restored from a backup, and that did not end yet; run memrelay restore again",
            code="restoring",
            fix="run memrelay restore again; it goes on where it stopped",
        )
    if constant != _CONSTANT:
        raise WrongRelayerKey("the relayer's check object holds something else")
