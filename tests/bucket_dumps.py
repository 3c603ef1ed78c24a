"""Copies of a relayer's store, and the procedure of an attacker who tries every key on every object in them.

A `Dump` contains the objects and the relayer's keys. `Dump.opened_by` derives the keys of each namespace from secrets that
an attacker holds, and tries all of them on every record and vector. It does not rely on the check value that a keyring
contains, nor on the key ids that objects name: only the encryption decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nacl.public import PrivateKey

from relayer.access.store_keys import StoredKey
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemRandomness
from relayer.crypto import FleetPair, NamespaceKeys, RelayerKeys, make_keyring
from relayer.domain.namespace import Keyring, decode
from relayer.domain.operations import (
    Entry,
    Put,
    Stored,
    Supersede,
    decode_entry,
    decode_operation,
    decode_record,
)
from relayer.log.objects import ObjectLocation, ObjectSealer
from relayer.log.segments import open_pack, pack_place
from relayer.wire.codec import InvalidSecret, UnsealError, lp
from relayer.wire.sealing import (
    AgentKeys,
    ObjectType,
    RootKeys,
    SealingKey,
    context,
    key_id_of,
    parse_secret,
    unseal,
)

__all__ = ["VECTOR", "Dump", "derived_secrets", "dump_of", "dump_of_folder", "secrets_in"]

VECTOR: Final = "a vector"
_GENERATIONS: Final = (1, 2)
# A secret of 32 bytes as text: 64 hex digits or base64 in either alphabet.
_SECRET: Final = re.compile(rb"(?<![\w+/-])(?:[0-9a-fA-F]{64}|[\w+/-]{43}=?)(?![\w+/=-])")


@dataclass(frozen=True)
class Dump:
    """Every object of a store by its key, and the keys that its relayers derive from the store key."""

    objects: Mapping[str, bytes]
    relayer: RelayerKeys

    def fleet_keys(self) -> list[PrivateKey]:
        """Return the private halves of all fleet keys that the store contains."""
        days = {
            key.removeprefix("fleet/"): data for key, data in self.objects.items() if key.startswith("fleet/")
        }
        return [FleetPair.open(day, self.relayer.metadata, data).private for day, data in days.items()]

    def opened_by(self, account: str, held: Iterable[bytes]) -> set[str]:
        """Return the texts of all records that open with the relayer's keys and any of some secrets.

        Args:
            account: the id of the account that the objects belong to.
            held: the secrets that are tried, each as the secret of every namespace and as a key by itself.

        Returns:
            The texts, and `VECTOR` if a vector opens.
        """
        records = list(self._records(account))
        keyrings = list(self._keyrings(account))
        opened: set[str] = set()
        for secret in set(held):
            tried: list[SealingKey] = [SealingKey(bytes(16), secret)]
            for incarnation, ring in keyrings:
                forged = make_keyring(secret, incarnation, salt=ring.salt, key_id=ring.key_id)
                keys = NamespaceKeys.open(secret, forged, account=account, incarnation=incarnation)
                tried += [keys.payload, keys.vector, keys.index]
            for incarnation, item in records:
                opened |= {text for key in tried for text in _opened(key, account, incarnation, item)}
        return opened

    def opened_without_the_relayer_key(self, account: str, held: Iterable[bytes]) -> set[str]:
        """Return the keys of all objects of namespaces that open with any of some secrets alone."""
        opened = set()
        for secret in set(held):
            for key in (key for key in self.objects if key.startswith("ns/")):
                claimed = SealingKey(key_id_of(self.objects[key]), secret)
                try:
                    self._outer(account, key, claimed)
                except UnsealError:
                    continue
                opened.add(key)
        return opened

    def _records(self, account: str) -> Iterator[tuple[bytes, Stored]]:
        """Yield every stored record with its incarnation; the relayer's keys open the outer layer."""
        for key in sorted(self.objects):
            folder, _, kind = key.removeprefix("ns/").partition("/")
            if not key.startswith("ns/") or kind.partition("/")[0] not in {"wal", "seg"}:
                continue
            for entry in self._entries(account, bytes.fromhex(folder), key):
                for operation in map(decode_operation, entry.operations):
                    if isinstance(operation, Put | Supersede):
                        yield bytes.fromhex(folder), operation.stored

    def _entries(self, account: str, incarnation: bytes, key: str) -> Iterator[Entry]:
        if "/seg/" in key:
            place = pack_place(_Metadata(self.relayer.metadata), account, incarnation, key)
            yield from (linked.entry for linked in open_pack(self.objects[key], place))
        else:
            yield decode_entry(self._outer(account, key, self.relayer.metadata))

    def _keyrings(self, account: str) -> Iterator[tuple[bytes, Keyring]]:
        """Yield every keyring with its incarnation; an erased namespace has none, though its entries may be left."""
        for key in sorted(self.objects):
            if key.startswith("ns/") and "/keyring" in key:
                opened = self._outer(account, key, self.relayer.metadata)
                yield bytes.fromhex(key.split("/")[1]), decode(opened, Keyring)

    def _outer(self, account: str, key: str, sealing: SealingKey) -> bytes:
        incarnation = bytes.fromhex(key.split("/")[1])
        return unseal(sealing, _kind(key), context(_kind(key), account, incarnation, key), self.objects[key])


async def dump_of(objects: Mapping[str, bytes], relayer_key: bytes) -> Dump:
    """Return the dump of a store, given the relayer key."""
    provider = LocalKey(relayer_key, SystemRandomness())
    store_key = await StoredKey.decode(objects["relayer"]).unwrap(provider)
    return Dump(dict(objects), RelayerKeys.derive(store_key))


async def dump_of_folder(data: Path) -> Dump:
    """Return the dump of a relayer's data directory: its store, and the relayer key that lies next to it."""
    store = data / "objects"
    files = [path for path in store.rglob("*") if path.is_file()]
    objects = {}
    for path in files:
        # A file that a running relayer is just writing may be gone by now.
        with suppress(FileNotFoundError):
            objects[path.relative_to(store).as_posix()] = path.read_bytes()
    return await dump_of(objects, bytes.fromhex((data / "relayer.key").read_text().strip()))


def secrets_in(folder: Path) -> set[bytes]:
    """Return everything in the files of a folder that may be a secret of 32 bytes, written as hex or base64."""
    found = set()
    for path in sorted(folder.rglob("*")):
        for written in _SECRET.findall(path.read_bytes()) if path.is_file() else ():
            try:
                found.add(parse_secret(written.decode()))
            except InvalidSecret:
                continue
    return found


def derived_secrets(held: Iterable[bytes], agents: Iterable[str], namespaces: Iterable[str]) -> set[bytes]:
    """Return every secret that can be derived from some secrets, whatever each of them is.

    Args:
        held: secrets of 32 bytes: of an account, an agent or a namespace.
        agents: the names of the agents.
        namespaces: the names of the namespaces, also of shared ones.
    """
    given = set(held)
    derived = set(given)
    for secret in given:
        root = RootKeys(secret)
        keys = [root.agent(agent) for agent in agents] + [AgentKeys(agent, secret) for agent in agents]
        for one in keys:
            derived |= {one.secret, bytes(one.identity), one.outbox_key, one.backup_key}
            derived |= {one.namespace_secret(name, number) for name in namespaces for number in _GENERATIONS}
        derived |= {
            root.shared_secret(name.partition("/")[2], number)
            for name in namespaces
            for number in _GENERATIONS
        }
    return derived


class _Metadata(ObjectSealer):
    """Opens the pages of segments with a key alone."""

    def __init__(self, metadata: SealingKey) -> None:
        self._metadata = metadata

    def unseal(self, place: ObjectLocation, sealed: bytes | memoryview) -> bytes:
        return unseal(
            self._metadata,
            place.kind,
            context(place.kind, place.account, place.incarnation, place.key),
            sealed,
        )


def _kind(key: str) -> ObjectType:
    """Return the type of an object of a namespace; raises `KeyError` for a type that is not tried."""
    kinds = {"wal": ObjectType.ENTRY, "keyring": ObjectType.KEYRING, "manifest": ObjectType.MANIFEST}
    return kinds[key.split("/")[2]]


def _opened(key: SealingKey, account: str, incarnation: bytes, item: Stored) -> Iterator[str]:
    places = (
        (ObjectType.RECORD, item.record, item.sealed),
        (ObjectType.VECTOR, lp(item.record, "own"), item.vector),
    )
    for kind, place, sealed in places:
        if not sealed:
            continue
        claimed = replace(key, key_id=key_id_of(sealed))
        try:
            plain = unseal(claimed, kind, context(kind, account, incarnation, place), sealed)
        except UnsealError:
            continue
        yield decode_record(plain).text if kind is ObjectType.RECORD else VECTOR
