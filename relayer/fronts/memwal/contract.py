"""Request schemas of MemWal's API, its errors, and its accounts, namespaces and ids in terms of memrelay's.

Bodies are checked as MemWal's relayer does: a missing field or a wrong type is a 422, a value that violates a rule is a 400
that names the rule. Unknown fields are ignored, and null means the same as a missing field.

The account of a MemWal client is never the account of a gateway, even if both hold the same key: its id is a hash of the
id that the client knows, for which no certificate can be signed. MemWal's namespaces have arbitrary names; they are stored
under a name below ``memwal/``, and the original name is in their records. Ids of jobs and blobs are encrypted tokens that
contain account, namespace and record; only a relayer of this store can create or read them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from relayer.access.accounts import Access, Principal
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.codec import Malformed
from relayer.wire.fields import MAX_DIMENSION, parse_time
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


MAX_REMEMBERED = 1024 * 1024
MAX_ANALYZED = 64 * 1024
MAX_BULK = 20
MAX_RESULTS = 100
MAX_PAGE = 500
MAX_HALF_LIFE_NAMED = 1e-6
_MOST_WEIGHT = 100.0
_MOST_BLOB_ID = 256


UNAVAILABLE = "Upstream temporarily unavailable"


@dataclass(eq=False, repr=False)
class CompatError(Exception):
    """Raised to refuse a request; ``message`` goes into ``{"error": ...}``, an empty one gives an empty body.

    Attributes:
        message: names the field and the rule, and quotes nothing that was sent.
        rule: the true reason, for the log and the metrics.
        more: further fields of the body.
        steady: whether the response is delayed by the fixed time of all refusals that depend on secrets or state.
    """

    status: int
    message: str = ""
    _: KW_ONLY
    rule: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    steady: bool = False


def bad(message: str) -> CompatError:
    """Return the error for a value that violates a rule."""
    return CompatError(400, message, rule="invalid")


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Clients send null for what they leave out."""
        return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _at(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a time such as 2026-05-08T13:56:00Z")  # noqa: TRY004 - pydantic collects ValueError
    return parse_time(value)


_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[float, Field(strict=False)]


class Weights(_Body):
    """``scoring_weights``: of meaning, of newness with its half-life in days, of importance."""

    semantic: _Number | None = None
    recency: _Number | None = None
    recency_half_life_days: _Number | None = None
    importance: _Number | None = None

    @property
    def rank(self) -> bool:
        """Return whether these weights can order results differently than similarity alone."""
        return bool(self.recency or self.importance)

    def check(self) -> None:
        """Raise `CompatError` if a weight is out of its bounds, naming the first such weight."""
        for name in ("semantic", "recency", "importance"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 <= value <= _MOST_WEIGHT):
                raise bad(f"scoring_weights.{name} must be a finite number in 0..100")
        half_life = self.recency_half_life_days
        if half_life is not None and not (
            math.isfinite(half_life) and (half_life >= MAX_HALF_LIFE_NAMED or not self.recency)
        ):
            raise bad("scoring_weights.recency_half_life_days must be a finite number of at least 0.000001")

    def score(self, distance: float, age_days: float, importance: float) -> float:
        """Return the score that results are ordered by."""
        half_life = 30.0 if self.recency_half_life_days is None else self.recency_half_life_days
        newness = 2.0 ** (-max(0.0, age_days) / half_life) if self.recency else 0.0
        semantic = 1.0 if self.semantic is None else self.semantic
        return (
            semantic * (1 - distance)
            + (self.recency or 0.0) * newness
            + (self.importance or 0.0) * importance
        )


class NamespaceBody(_Body):
    """``POST /api/forget``, ``/api/stats`` and ``/api/clear-namespace``, and what most bodies have."""

    namespace: str = "default"


class RememberBody(NamespaceBody):
    """``POST /api/remember``."""

    text: str
    idempotency_key: str | None = None


class BulkItem(NamespaceBody):
    """One item of a bulk."""

    text: str


class BulkBody(_Body):
    """``POST /api/remember/bulk``."""

    items: list[BulkItem]
    idempotency_key: str | None = None


class BulkStatusBody(_Body):
    """``POST /api/remember/bulk/status``."""

    job_ids: list[str]


class RecallBody(NamespaceBody):
    """``POST /api/recall``; ``sort`` wins over the weights."""

    query: str
    limit: _Count = 10
    scoring_weights: Weights | None = None
    sort: Literal["relevance", "recent"] | None = None
    deadline_ms: Annotated[int, Field(ge=0)] | None = None
    max_distance: _Number | None = None


def _bytes_of(value: object) -> object:
    if value is None or isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError("must be standard base64")  # noqa: TRY004 - pydantic collects ValueError
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        # A value of the right type that violates a rule is a 400, which the handler raises for the empty value.
        return b""


_Vector = Annotated[list[_Number], Field(max_length=MAX_DIMENSION)]


class ManualBody(NamespaceBody):
    """``POST /api/remember/manual``: bytes that the client sealed, or the id of bytes that it keeps elsewhere."""

    encrypted_data: Annotated[bytes | None, BeforeValidator(_bytes_of)] = None
    blob_id: Annotated[str, Field(max_length=_MOST_BLOB_ID)] | None = None
    vector: _Vector


class ManualRecallBody(NamespaceBody):
    """``POST /api/recall/manual``."""

    vector: _Vector
    limit: _Count = 10
    scoring_weights: Weights | None = None


class AnalyzeBody(NamespaceBody):
    """``POST /api/analyze``."""

    text: str
    occurred_at: Annotated[int | None, BeforeValidator(_at)] = None


class AskBody(NamespaceBody):
    """``POST /api/ask``."""

    question: str
    limit: _Count = 5
    scoring_weights: Weights | None = None


class RestoreBody(_Body):
    """``POST /api/restore``."""

    namespace: str
    limit: _Count = 10


class EmbedBody(_Body):
    """``POST /api/embed``."""

    text: str


class ListBody(NamespaceBody):
    """``POST /api/list``: memories of a namespace, newest first; ``cursor`` is an answer's ``next_cursor``."""

    limit: _Count = 20
    cursor: str | None = None


class ForgetBody(_Body):
    """``POST /api/memories/forget``: memories by the ``blob_id`` that everything shows."""

    blob_id: str | None = None
    blob_ids: Annotated[list[str], Field(max_length=MAX_RESULTS)] | None = None

    @property
    def wanted(self) -> list[str]:
        """All ids that the request names."""
        return [*([self.blob_id] if self.blob_id else []), *(self.blob_ids or ())]


def check_namespace(name: str) -> str:
    """Return the name of a namespace; raises `CompatError` if it is empty or too long."""
    if not name:
        raise bad("namespace must not be empty")
    if len(name.encode()) > LONGEST_NAMESPACE:
        raise bad(f"namespace must have at most {LONGEST_NAMESPACE} bytes of UTF-8")
    return name


def check_text(text: str, field: str, most: int) -> None:
    """Check a text; raises `CompatError` if it is blank or has more than ``most`` bytes."""
    if not text.strip():
        raise bad(f"{field} must not be empty")
    if len(text.encode()) > most:
        raise bad(f"{field} must have at most {most} bytes of UTF-8")
