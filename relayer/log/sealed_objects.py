"""The outer layer: everything the log stores is sealed under the metadata key, for one place.

The context of an object is its type, its account, its incarnation and its key, so that a pointer, manifest or entry
that is moved to another tenant, namespace or slot does not open.
"""

from __future__ import annotations

from dataclasses import dataclass

from relayer.domain.namespace import Keyring, Manifest, Pointer, decode, decode_manifest, encode
from relayer.errors import CorruptNamespace
from relayer.log.log_ports import LogPorts
from relayer.wire.errors import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, context, seal, unseal


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
