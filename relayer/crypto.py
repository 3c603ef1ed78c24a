"""Key derivation: the relayer's subkeys, the keys of a namespace, and the key pair of each day.

`RelayerKeys` are derived from the 32-byte store key, see `relayer.access.store_keys`. The metadata key seals what the log itself must read; the names key
hides names in object keys; the identity key signs the relayer's statements about itself; ``tokens`` (64 bytes) seals ids
for clients that know of no namespace; the custody key replaces a gateway's secret where a namespace has custody ``relayer``.

`NamespaceKeys` are derived from a namespace key = HKDF(namespace secret, salt of the keyring). Neither the bucket (which
has the salt) nor the gateway (which has the secret) can derive it alone, and deleting the salt makes all contents of the
incarnation unreadable for ever.

A `FleetPair` is one random X25519 key pair per day. The replicas share it through the store, and it is deleted two days
later. A gateway seals namespace secrets to the key of the day. Traffic recorded on the network stays unreadable once the
private key is deleted, even to an attacker who later takes the relayer's key and disk.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from relayer.domain.namespace import Keyring
from relayer.errors import CorruptNamespace, WrongNamespaceKey, WrongRelayerKey
from relayer.wire.codec import Field, UnsealError, lp
from relayer.wire.fields import DAY_MS
from relayer.wire.sealed_keys import FleetKey
from relayer.wire.sealing import ObjectType, SealingKey, context, derive, seal, unseal

_TAG_SIZE = 20


@dataclass(frozen=True, slots=True)
class RelayerKeys:
    """The subkeys of the store key. A relayer with another one cannot open anything in the same store."""

    metadata: SealingKey
    identity: SigningKey = field(repr=False)
    _names: bytes = field(repr=False)
    _custody: bytes = field(repr=False)
    tokens: bytes = field(repr=False)

    @classmethod
    def derive(cls, store_key: bytes) -> RelayerKeys:
        """Derive all subkeys from the 32-byte store key."""
        key_id = derive(store_key, "memrelay/v1/relayer/metadata-id", length=16)
        return cls(
            metadata=SealingKey(key_id, derive(store_key, "memrelay/v1/relayer/metadata")),
            identity=SigningKey(derive(store_key, "memrelay/v1/relayer/identity")),
            _names=derive(store_key, "memrelay/v1/relayer/names"),
            _custody=derive(store_key, "memrelay/v1/relayer/custody"),
            tokens=derive(store_key, "memrelay/v1/relayer/tokens", length=64),
        )

    def tag(self, *fields: Field) -> str:
        """Return a keyed hash of names as 40 hex digits: the same on every replica, meaningless without the key.

        Example:
            >>> keys = RelayerKeys.derive(bytes(32))
            >>> keys.tag("account", "0x00") == keys.tag("account", "0x01")
            False
        """
        return hmac.new(self._names, lp(*fields), hashlib.sha512).digest()[:_TAG_SIZE].hex()

    def namespace_secret(self, account: str, namespace: str, generation: int) -> bytes:
        """Return the secret of a namespace with custody ``relayer``.

        Example:
            >>> len(RelayerKeys.derive(bytes(32)).namespace_secret("0x00", "team", 0))
            32
        """
        return derive(self._custody, "namespace", account, namespace, generation)


SALT_SIZE = 32
KEY_ID_SIZE = 16
_MAC_KEY = 32


@dataclass(frozen=True, slots=True)
class MacKeys:
    """The keys of MACs over contents and over idempotency keys, those of the first incarnation first.

    A MAC is made with the first key and then, in turn, with each later one. So a rotation can renew the stored MACs although
    what they were made of is not known any more, and old keys alone are of no use to test a guess.
    """

    content: tuple[bytes, ...] = field(default=(), repr=False)
    idempotency: tuple[bytes, ...] = field(default=(), repr=False)


NO_MAC_KEYS = MacKeys()


def make_keyring(
    secret: bytes,
    incarnation: bytes,
    *,
    salt: bytes,
    key_id: bytes,
    account: str = "",
    earlier: MacKeys = NO_MAC_KEYS,
) -> Keyring:
    """Create the keyring of an incarnation from 32 random bytes of salt and a random 16-byte key id.

    ``earlier`` are the MAC keys of the incarnations that this one replaces; the account is needed for them alone.
    """
    key = _namespace_key(secret, incarnation, salt)
    sealed = b""
    if earlier.content:
        place = context(ObjectType.KEYRING, account, incarnation, "earlier")
        plain = b"".join(map(bytes.__add__, earlier.content, earlier.idempotency))
        # The salt of the keyring is random and seals nothing else.
        sealed = seal(_earlier_key(key, key_id), ObjectType.KEYRING, place, plain, salt=salt)
    return Keyring(salt, key_id, _check(key), sealed)


def _earlier_key(namespace_key: bytes, key_id: bytes) -> SealingKey:
    return SealingKey(key_id, derive(namespace_key, "earlier"))


def _earlier(key: bytes, keyring: Keyring, account: str, incarnation: bytes) -> MacKeys:
    if not keyring.earlier:
        return NO_MAC_KEYS
    place = context(ObjectType.KEYRING, account, incarnation, "earlier")
    try:
        plain = unseal(_earlier_key(key, keyring.key_id), ObjectType.KEYRING, place, keyring.earlier)
    except UnsealError as error:
        raise CorruptNamespace("the MAC keys in a keyring do not open") from error
    keys = [plain[at : at + _MAC_KEY] for at in range(0, len(plain), _MAC_KEY)]
    return MacKeys(tuple(keys[::2]), tuple(keys[1::2]))


def _mac(keys: tuple[bytes, ...], data: bytes) -> bytes:
    for key in keys:
        data = hmac.new(key, data, hashlib.sha256).digest()
    return data


def _namespace_key(secret: bytes, incarnation: bytes, salt: bytes) -> bytes:
    return derive(secret, "memrelay/v1/namespace-key", incarnation, salt=salt)


def _check(namespace_key: bytes) -> bytes:
    return derive(namespace_key, "check")


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """The subkeys of one incarnation. ``check`` identifies the namespace key without revealing it."""

    account: str
    incarnation: bytes
    check: bytes
    payload: SealingKey
    vector: SealingKey
    index: SealingKey
    macs: MacKeys

    @classmethod
    def open(cls, secret: bytes, keyring: Keyring, *, account: str, incarnation: bytes) -> NamespaceKeys:
        """Derive the keys of an incarnation.

        Raises:
            WrongNamespaceKey: the secret is not the one the keyring was made with.
            CorruptNamespace: the MAC keys in the keyring do not open.
        """
        key = _namespace_key(secret, incarnation, keyring.salt)
        if not hmac.compare_digest(_check(key), keyring.check):
            raise WrongNamespaceKey("the secret does not open this namespace")
        earlier = _earlier(key, keyring, account, incarnation)
        return cls(
            account=account,
            incarnation=incarnation,
            check=keyring.check,
            payload=SealingKey(keyring.key_id, derive(key, "payload")),
            vector=SealingKey(keyring.key_id, derive(key, "vector")),
            index=SealingKey(keyring.key_id, derive(key, "index")),
            macs=MacKeys(
                (*earlier.content, derive(key, "content-mac")),
                (*earlier.idempotency, derive(key, "idempotency")),
            ),
        )

    def content_mac(self, normal_text: str) -> bytes:
        """Return the MAC by which equal texts are recognized without being readable."""
        return _mac(self.macs.content, lp(normal_text))

    def likeness_mac(self, normal_text: str, audience: str, trust: str, *voice: str, suspect: bool) -> bytes:
        """Return the MAC that two memories share if one is a duplicate of the other.

        Duplicates have the same text, audience and trust, the same place and sender, and are both suspect or both not. ``voice``
        is place and sender, where either is known.
        """
        fields = lp("like", normal_text, audience, trust, int(suspect), *voice)
        return _mac(self.macs.content, fields)

    def idempotency_mac(self, *fields: Field) -> bytes:
        """Return the MAC that represents an idempotency key, or the digest of a request body, in the log."""
        return _mac(self.macs.idempotency, lp(*fields))

    def renew_content_mac(self, mac: bytes) -> bytes:
        """Return the MAC in this incarnation of a content, from that in the previous one; ``b""`` if the content has none."""
        return mac and _mac(self.macs.content[-1:], mac)

    def renew_idempotency_mac(self, mac: bytes) -> bytes:
        """Return the MAC of an idempotency key or a body, likewise; see `renew_content_mac`."""
        return mac and _mac(self.macs.idempotency[-1:], mac)

    def seal_record(self, record: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal an encoded record, bound to its id."""
        place = context(ObjectType.RECORD, self.account, self.incarnation, record)
        return seal(self.payload, ObjectType.RECORD, place, plaintext, salt=salt)

    def unseal_record(self, record: bytes, sealed: bytes) -> bytes:
        """Unseal a record; raises `relayer.wire.codec.UnsealError`."""
        place = context(ObjectType.RECORD, self.account, self.incarnation, record)
        return unseal(self.payload, ObjectType.RECORD, place, sealed)

    def seal_vector(self, record: bytes, which: str, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal a record's vector; ``which`` is ``own`` or ``context``."""
        place = context(ObjectType.VECTOR, self.account, self.incarnation, lp(record, which))
        return seal(self.vector, ObjectType.VECTOR, place, plaintext, salt=salt)

    def unseal_vector(self, record: bytes, which: str, sealed: bytes) -> bytes:
        """Unseal a vector; raises `relayer.wire.codec.UnsealError`."""
        place = context(ObjectType.VECTOR, self.account, self.incarnation, lp(record, which))
        return unseal(self.vector, ObjectType.VECTOR, place, sealed)

    def seal_index(self, block: bytes, plaintext: bytes, *, salt: bytes) -> bytes:
        """Seal a block of an index; ``block`` identifies the block and its index."""
        place = context(ObjectType.INDEX, self.account, self.incarnation, block)
        return seal(self.index, ObjectType.INDEX, place, plaintext, salt=salt)

    def unseal_index(self, block: bytes, sealed: bytes | memoryview) -> bytes:
        """Unseal a block of an index; raises `relayer.wire.codec.UnsealError`."""
        place = context(ObjectType.INDEX, self.account, self.incarnation, block)
        return unseal(self.index, ObjectType.INDEX, place, sealed)


KEPT_DAYS = 2


def day_of(time_ms: int) -> str:
    """Return the UTC day of a time as ``YYYYMMDD``.

    Example:
        >>> day_of(1_795_518_000_000)
        '20261124'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d")


def live_days(time_ms: int) -> tuple[str, ...]:
    """Return the days whose keys are accepted, as ``YYYYMMDD``, newest first.

    Example:
        >>> live_days(1_795_518_000_000)
        ('20261124', '20261123')
    """
    return tuple(day_of(time_ms - back * DAY_MS) for back in range(KEPT_DAYS))


@dataclass(frozen=True, slots=True)
class FleetPair:
    """The key pair of one day."""

    day: str
    private: PrivateKey = field(repr=False)

    @property
    def public(self) -> FleetKey:
        """Return the public half, which gateways get, with the time at which it ends."""
        start = datetime.strptime(self.day, "%Y%m%d").replace(tzinfo=UTC)
        end = start + timedelta(days=KEPT_DAYS)
        return FleetKey(self.day, bytes(self.private.public_key), int(end.timestamp()))

    def seal(self, metadata: SealingKey, *, salt: bytes) -> bytes:
        """Seal the private key for the store."""
        return seal(metadata, ObjectType.FLEET, _place(self.day), bytes(self.private), salt=salt)

    @classmethod
    def open(cls, day: str, metadata: SealingKey, sealed: bytes) -> FleetPair:
        """Unseal the key pair that the store holds for a day.

        Raises:
            WrongRelayerKey: it was sealed with another relayer key, or is damaged.
        """
        try:
            return cls(day, PrivateKey(unseal(metadata, ObjectType.FLEET, _place(day), sealed)))
        except UnsealError as error:
            raise WrongRelayerKey(
                f"the object fleet/{day} of this store does not open: it is damaged, or was made with another relayer key; "
                "remove it, and a relayer that starts makes a new one"
            ) from error


def _place(day: str) -> bytes:
    return context(ObjectType.FLEET, "", b"", day)
