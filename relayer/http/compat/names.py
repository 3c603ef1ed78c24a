"""What MemWal's names are here: accounts, namespaces, and the ids of jobs and blobs.

An account of its clients is another one than an account of gateways, whoever holds which key: its id here is a hash of
the id that they know, and nobody can sign a certificate for it. A namespace of theirs is any text; here it is a name below
``memwal``, and the text stands in its records. Ids of jobs and blobs are tokens: they name account, namespace and record, and
only a relayer of this store can make or read one.
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
from relayer.wire.sealing import FIRST_GENERATION, account_id, is_account_id
from relayer.wire.signing import Certificate, Right

ROOT = "memwal"
AGENT = "memwal"
LONGEST_NAMESPACE = 512
_LABEL = b"memrelay/v1/memwal-account"
_ACCOUNT, _TAG, _RECORD = 32, 20, 16
_SERIAL, _NO_DIGEST = bytes(16), bytes(32)


def address_of(public_key: bytes) -> str:
    """Return the id that a key has by itself: ``0x`` + BLAKE2b-256(0x00 || key), as its clients print it."""
    return account_id(public_key)


def account_key(shown: str) -> bytes:
    """Return what stands for an account's key here: a hash, to which nobody has a private half."""
    return hashlib.blake2b(_LABEL + shown.encode(), digest_size=32).digest()


def inner_account(shown: str) -> str:
    """Return the id under which the account of an id is kept."""
    return account_id(account_key(shown))


def is_shown_account(text: str) -> bool:
    """Whether a text is an id as its clients know it."""
    return is_account_id(text)


def inner_namespace(name: str) -> str:
    """Return the name under which a namespace is kept; every text has one of its own."""
    plain = names.is_normal(name) and not names.is_hashed(name)
    return f"{ROOT}/{name if plain else names.hashed(name)}"


def is_ours(inner: str) -> bool:
    """Whether a namespace was made through this front."""
    return inner.startswith(f"{ROOT}/")


class What(StrEnum):
    """What a token is for; one kind never opens as the other."""

    JOB = "job"
    BLOB = "blob"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is: what stands for its account's key, the tag of its namespace's name, its id."""

    account_key: bytes
    tag: str
    record: bytes

    @property
    def account(self) -> str:
        """The account's id as it is kept."""
        return account_id(self.account_key)


class Tokens:
    """Makes and reads the ids that clients are shown; the same record has the same ones on every relayer of a store."""

    def __init__(self, keys: RelayerKeys) -> None:
        self._keys = keys
        self._siv = AESSIV(keys.tokens)

    def make(self, what: What, access: Access, record: bytes) -> str:
        """Return the token of a record of a namespace."""
        tag = self._keys.tag("namespace", access.account, access.namespace)
        return self.token(what, Place(access.principal.certificate.account_key, tag, record))

    def token(self, what: What, place: Place) -> str:
        """Return the token of what is at a place."""
        plain = place.account_key + bytes.fromhex(place.tag) + place.record
        return base64url.encode(self._siv.encrypt(plain, [what.encode()]))

    def read(self, what: What, token: str) -> Place | None:
        """Return what a token names; None for what this store's relayers did not make."""
        raw = self._opened(what, token)
        if raw is None:
            return None
        return Place(raw[:_ACCOUNT], raw[_ACCOUNT : _ACCOUNT + _TAG].hex(), raw[-_RECORD:])

    def session(self, owner: bytes, opened_at: int, random: bytes) -> str:
        """Return the id of a session of an MCP client: every relayer of the store knows whose it is; ``opened_at`` in ms."""
        return base64url.encode(
            self._siv.encrypt(owner + opened_at.to_bytes(8, "big") + random, [What.SESSION.encode()])
        )

    def read_session(self, token: str) -> tuple[bytes, int] | None:
        """Return whose a session is, and when it was opened (ms); None for what this store's relayers did not make."""
        raw = self._opened(What.SESSION, token)
        return None if raw is None else (raw[:_ACCOUNT], int.from_bytes(raw[_ACCOUNT : _ACCOUNT + 8], "big"))

    def _opened(self, what: What, token: str) -> bytes | None:
        try:
            return self._siv.decrypt(base64url.decode(token), [what.encode()])
        except (Malformed, InvalidTag, ValueError):
            return None


def principal_of(account_key: bytes, signer: bytes, nonce: bytes, until: int, peer: str) -> Principal:
    """Return who asks: by no certificate that anybody signed, but by what stands for one here; ``until`` in seconds.

    An idempotency key means the same write whatever comes with it, so that the body is no part of what it is known by.
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
    """Return the way into a namespace by the name under which it is kept; ``held_until`` in ms."""
    secret = keys.namespace_secret(principal.account, inner, FIRST_GENERATION)
    return Access(principal, inner, FIRST_GENERATION, Custody.RELAYER, held_until, secret)
