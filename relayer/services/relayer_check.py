"""Does this store belong to this relayer key?

A wrong key would find nothing under its own hashed names and show every user an empty, healthy memory. A sealed
constant at a name that needs no key turns that into a refusal to start.
"""

from __future__ import annotations

from relayer.crypto.relayer_keys import RelayerKeys
from relayer.errors import WrongRelayerKey
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.ports import Found
from relayer.services.read_back import create_or_read
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal

__all__ = ["check_relayer_key", "check_rights", "probe"]

_CONSTANT = b"memrelay/v1/relayer"
_PLACE = context(ObjectType.CONSTANT, "", b"", Layout.relayer())
_NEVER_WRITTEN = "probe/absent"


async def check_relayer_key(ports: LogPorts) -> None:
    """Write the constant if the store is new, and open the one it holds.

    Raises:
        WrongRelayerKey: the store was first used with another key.
        StoreError: the store does not answer.
    """
    _open(ports.keys, await create_or_read(ports, Layout.relayer(), _fresh(ports)))


async def probe(ports: LogPorts) -> int:
    """Open the constant again, for readiness; returns the store's time in ms since the epoch.

    Raises:
        WrongRelayerKey: it is gone, or another key's.
        StoreError: the store does not answer.
    """
    found = await ports.store.get(ports.layout.at(Layout.relayer()))
    if not isinstance(found, Found):
        raise WrongRelayerKey("the store no longer holds the relayer's check object")
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
    salt = ports.randomness.bytes(SALT_SIZE)
    return seal(ports.keys.metadata, ObjectType.CONSTANT, _PLACE, _CONSTANT, salt=salt)


def _open(keys: RelayerKeys, found: Found) -> None:
    try:
        constant = unseal(keys.metadata, ObjectType.CONSTANT, _PLACE, found.data)
    except UnsealError as error:
        raise WrongRelayerKey("this bucket belongs to another relayer key") from error
    if constant != _CONSTANT:
        raise WrongRelayerKey("the relayer's check object holds something else")
