"""Does this store belong to this relayer key?

A wrong key would find nothing under its own hashed names and show every user an empty, healthy memory. A sealed
constant at a name that needs no key turns that into a refusal to start.
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
# Begins what stands in its place while a backup is restored, so that nobody serves half of it; the rest names the run.
_RESTORING = b"memrelay/v1/relayer/restoring/"
_PLACE = context(ObjectType.CONSTANT, "", b"", Layout.relayer())
_NEVER_WRITTEN = "probe/absent"
_ANOTHER_KEY = "this bucket belongs to another relayer key"
# Accounts that do not open before a store is taken for another key's: one may be damaged.
_TRIED = 8


async def check_relayer_key(ports: LogPorts) -> None:
    """Write the constant if the store is new, and open the one it holds.

    Raises:
        WrongRelayerKey: the store was first used with another key.
        StoreMisconfigured: a backup is being restored into it.
        StoreError: the store does not answer.
    """
    if not isinstance(await ports.store.get(ports.layout.at(Layout.relayer())), Found):
        await _check_accounts(ports)
    _open(ports.keys, await create_or_read(ports, Layout.relayer(), _fresh(ports)))


async def _check_accounts(ports: LogPorts) -> None:
    """See that a store that has lost its constant, and is not new, is not claimed for another key than it was made with."""
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
            return  # it opens
        else:
            return
    if failed:
        raise WrongRelayerKey(_ANOTHER_KEY)


async def begun_restore(ports: LogPorts) -> str:
    """Return what `begin_restore` was given when a restore was begun and has not ended, else nothing.

    Raises:
        WrongRelayerKey: the store belongs to another key.
        StoreError: the store does not answer.
    """
    found = await ports.store.get(ports.layout.at(Layout.relayer()))
    constant = _constant(ports.keys, found) if isinstance(found, Found) else b""
    return constant.removeprefix(_RESTORING).decode() if constant.startswith(_RESTORING) else ""


async def begin_restore(ports: LogPorts, run: str) -> None:
    """Take an empty store for a restore, or go on with one that was begun.

    Args:
        ports: the store.
        run: names what is restored; whatever is different in another run must be different in it.

    Raises:
        StoreMisconfigured: a relayer has used it, or the restore of another run was begun there.
        WrongRelayerKey: it belongs to another key.
        StoreError: the store does not answer.
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
    """Let relayers use the store; raises `StoreError`, and may be called again."""
    at = ports.layout.at(Layout.relayer())
    found = await ports.store.get(at)
    if isinstance(found, Found) and _constant(ports.keys, found).startswith(_RESTORING):
        outcome = await ports.store.swap(at, _fresh(ports), found.etag)
        if not isinstance(outcome, Swapped):
            raise StoreUnavailable("the store did not say whether the restore could be ended; run it again")


async def probe(ports: LogPorts) -> int:
    """Open the constant again, for readiness; returns the store's time in ms since the epoch.

    Raises:
        WrongRelayerKey: it is gone, or another key's.
        StoreError: the store does not answer.
    """
    found = await ports.store.get(ports.layout.at(Layout.relayer()))
    if not isinstance(found, Found):
        raise WrongRelayerKey(
            "the store does not hold the object that says whose it is: no relayer has used this place yet, or the object was "
            "removed, and a start of memrelay serve with the store's key makes it anew"
        )
    _open(ports.keys, found)
    return found.store_time


async def check_rights(ports: LogPorts) -> None:
    """Try what requests need beyond reading what is there: to be told that something is absent, and to write.

    What is written is the constant, under its own name, which is taken: nothing changes.

    Raises:
        StoreError: one of them is refused, or the store does not answer.
    """
    await ports.store.get(ports.layout.at(_NEVER_WRITTEN))
    await ports.store.create(ports.layout.at(Layout.relayer()), _fresh(ports))


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
