"""The key of a namespace's epoch and its subkeys, derived from a secret that the relayer does not keep.

Namespace key = HKDF(namespace secret, salt of the keyring). Neither the bucket (which has the salt) nor the gateway
(which has the secret) can derive it alone, and destroying the salt destroys every content of the epoch.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from relayer.domain.namespace import Keyring
from relayer.errors import WrongNamespaceKey
from relayer.wire.codec import Field, lp
from relayer.wire.keys import derive
from relayer.wire.sealing import ObjectType, SealingKey, context, seal, unseal

SALT_SIZE = 32
KEY_ID_SIZE = 16


def make_keyring(secret: bytes, incarnation: bytes, *, epoch: int, salt: bytes, key_id: bytes) -> Keyring:
    """Make the keyring of a new epoch from 32 random bytes of salt and a random 16-byte key id."""
    return Keyring(epoch, salt, key_id, _check(_namespace_key(secret, incarnation, epoch, salt)))


def _namespace_key(secret: bytes, incarnation: bytes, epoch: int, salt: bytes) -> bytes:
    return derive(secret, "memrelay/v1/namespace-key", incarnation, epoch, salt=salt)


def _check(namespace_key: bytes) -> bytes:
    return derive(namespace_key, "check")


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """Subkeys of one epoch of one incarnation. ``check`` identifies the key without revealing it."""

    account: str
    incarnation: bytes
    epoch: int
    check: bytes
    payload: SealingKey
    vector: SealingKey
    index: SealingKey
    _content: bytes = field(repr=False)
    _idempotency: bytes = field(repr=False)

    @classmethod
    def open(cls, secret: bytes, keyring: Keyring, *, account: str, incarnation: bytes) -> NamespaceKeys:
        """Derive the keys of an epoch.

        Raises:
            WrongNamespaceKey: the secret is not the one the keyring was made with.
        """
        key = _namespace_key(secret, incarnation, keyring.epoch, keyring.salt)
        if not hmac.compare_digest(_check(key), keyring.check):
            raise WrongNamespaceKey("the secret does not open this namespace")
        return cls(
            account=account,
            incarnation=incarnation,
            epoch=keyring.epoch,
            check=keyring.check,
            payload=SealingKey(keyring.key_id, derive(key, "payload")),
            vector=SealingKey(keyring.key_id, derive(key, "vector")),
            index=SealingKey(keyring.key_id, derive(key, "index")),
            _content=derive(key, "content-mac"),
            _idempotency=derive(key, "idempotency"),
        )

    def content_mac(self, normal_text: str) -> bytes:
        """Return the MAC by which equal texts are known without being readable."""
        return hmac.new(self._content, lp(normal_text), hashlib.sha256).digest()

    def likeness_mac(self, normal_text: str, audience: str, trust: str, *, suspect: bool) -> bytes:
        """Return the MAC by which one memory repeats another: the same text, among the same, by as trusted a voice."""
        fields = lp("like", normal_text, audience, trust, int(suspect))
        return hmac.new(self._content, fields, hashlib.sha256).digest()

    def idempotency_mac(self, *fields: Field) -> bytes:
        """Return the MAC under which an idempotency key, or the digest of a body, stands in the log."""
        return hmac.new(self._idempotency, lp(*fields), hashlib.sha256).digest()

    def seal_record(self, record: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal an encoded record under its id."""
        place = context(ObjectType.RECORD, self.account, self.incarnation, record)
        return seal(self.payload, ObjectType.RECORD, place, plaintext, salt=salt)

    def unseal_record(self, record: bytes, sealed: bytes) -> bytes:
        """Open a sealed record; raises `relayer.wire.errors.UnsealError`."""
        place = context(ObjectType.RECORD, self.account, self.incarnation, record)
        return unseal(self.payload, ObjectType.RECORD, place, sealed)

    def seal_vector(self, record: bytes, which: str, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal a record's vector; ``which`` is ``own`` or ``context``."""
        place = context(ObjectType.VECTOR, self.account, self.incarnation, lp(record, which))
        return seal(self.vector, ObjectType.VECTOR, place, plaintext, salt=salt)

    def unseal_vector(self, record: bytes, which: str, sealed: bytes) -> bytes:
        """Open a sealed vector; raises `relayer.wire.errors.UnsealError`."""
        place = context(ObjectType.VECTOR, self.account, self.incarnation, lp(record, which))
        return unseal(self.vector, ObjectType.VECTOR, place, sealed)

    def seal_index(self, block: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal a block of an index; ``block`` says which block of which index."""
        place = context(ObjectType.INDEX, self.account, self.incarnation, block)
        return seal(self.index, ObjectType.INDEX, place, plaintext, salt=salt)

    def unseal_index(self, block: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a block of an index; raises `relayer.wire.errors.UnsealError`."""
        place = context(ObjectType.INDEX, self.account, self.incarnation, block)
        return unseal(self.index, ObjectType.INDEX, place, sealed)
