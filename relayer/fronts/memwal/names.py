"""Map MemWal's accounts, namespaces and ids to memrelay's.

The account of a MemWal client is never the account of a gateway, even if both hold the same key: its id is a hash of the
id that the client knows, for which no certificate can be signed. MemWal's namespaces have arbitrary names; they are stored
under a name below ``memwal/``, and the original name is in their records. Ids of jobs and blobs are encrypted tokens that
contain account, namespace and record; only a relayer of this store can create or read them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from relayer.access.accounts import Access, Principal
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.errors import Malformed
from relayer.wire.sealing import FIRST_GENERATION, account_id
from relayer.wire.signing import Certificate, Right

ROOT = "memwal"
AGENT = "memwal"
LONGEST_NAMESPACE = 512
_LABEL = b"memrelay/v1/memwal-account"
_ACCOUNT, _TAG, _RECORD = 32, 20, 16
_SERIAL, _NO_DIGEST = bytes(16), bytes(32)


def address_of(public_key: bytes) -> str:
    """Return the account id that is derived from a key: ``0x`` + BLAKE2b-256(0x00 || key), as MemWal's clients print it."""
    return account_id(public_key)


def account_key(shown: str) -> bytes:
    """Return the account key for an id that clients know: a hash, which has no private half."""
    return hashlib.blake2b(_LABEL + shown.encode(), digest_size=32).digest()


def inner_account(shown: str) -> str:
    """Return the id under which an account is stored, from the id that clients know."""
    return account_id(account_key(shown))


def inner_namespace(name: str) -> str:
    """Return the name under which a namespace is stored; different names are stored under different ones."""
    plain = names.is_normal(name) and not names.is_hashed(name)
    return f"{ROOT}/{name if plain else names.hashed(name)}"


def is_ours(inner: str) -> bool:
    """Return whether a namespace was created through this front."""
    return inner.startswith(f"{ROOT}/")


class TokenKind(StrEnum):
    """The kind of a token; a token of one kind cannot be decrypted as another."""

    JOB = "job"
    BLOB = "blob"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The location of a record: its account's key (`account_key`), the tag of its namespace's name, and its id."""

    account_key: bytes
    tag: str
    record: bytes

    @property
    def account(self) -> str:
        """The account's id as memrelay stores it."""
        return account_id(self.account_key)


class IdTokens:
    """Creates and reads the ids that clients get. A record has the same ids on every relayer of a store."""

    def __init__(self, keys: RelayerKeys) -> None:
        self._keys = keys
        self._siv = AESSIV(keys.tokens)

    def make(self, what: TokenKind, access: Access, record: bytes) -> str:
        """Return the token of a record in a namespace."""
        tag = self._keys.tag("namespace", access.account, access.namespace)
        return self.token(what, RecordLocation(access.principal.certificate.account_key, tag, record))

    def token(self, what: TokenKind, place: RecordLocation) -> str:
        """Return the token of a location."""
        plain = place.account_key + bytes.fromhex(place.tag) + place.record
        return base64url.encode(self._siv.encrypt(plain, [what.encode()]))

    def read(self, what: TokenKind, token: str) -> RecordLocation | None:
        """Return the location that a token refers to; None if no relayer of this store created it."""
        raw = self._opened(what, token)
        if raw is None:
            return None
        return RecordLocation(raw[:_ACCOUNT], raw[_ACCOUNT : _ACCOUNT + _TAG].hex(), raw[-_RECORD:])

    def session(self, owner: bytes, opened_at: int, random: bytes) -> str:
        """Return a session id for an MCP client, which every relayer of the store can read; ``opened_at`` is in ms."""
        return base64url.encode(
            self._siv.encrypt(owner + opened_at.to_bytes(8, "big") + random, [TokenKind.SESSION.encode()])
        )

    def read_session(self, token: str) -> tuple[bytes, int] | None:
        """Return the owner of a session, and when it was opened (ms); None if no relayer of this store created the id."""
        raw = self._opened(TokenKind.SESSION, token)
        return None if raw is None else (raw[:_ACCOUNT], int.from_bytes(raw[_ACCOUNT : _ACCOUNT + 8], "big"))

    def _opened(self, what: TokenKind, token: str) -> bytes | None:
        try:
            return self._siv.decrypt(base64url.decode(token), [what.encode()])
        except (Malformed, InvalidTag, ValueError):
            return None


def principal_of(account_key: bytes, signer: bytes, nonce: bytes, until: int, peer: str) -> Principal:
    """Return the principal of a request, with an unsigned stand-in for a certificate.

    The body is not part of the principal, because here an idempotency key identifies a write, whatever the body. ``until`` is
    the end of its validity, in seconds since the epoch.
    """
    certificate = Certificate(
        account_key=account_key,
        agent=AGENT,
        agent_key=signer,
        namespaces=(f"{ROOT}/*",),
        rights=tuple(Right),
        not_before=0,
        not_after=until,
        serial=_SERIAL,
    )
    return Principal(certificate, nonce, until * 1000, _NO_DIGEST, peer)


def way_into(keys: RelayerKeys, principal: Principal, inner: str, held_until: int) -> Access:
    """Return the access to a namespace by the name under which it is stored; ``held_until`` in ms since the epoch."""
    secret = keys.namespace_secret(principal.account, inner, FIRST_GENERATION)
    return Access(principal, inner, FIRST_GENERATION, Custody.RELAYER, held_until, secret)
