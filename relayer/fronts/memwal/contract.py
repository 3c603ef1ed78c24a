"""Request schemas of MemWal's API, and its errors.

Bodies are checked as MemWal's relayer does: a missing field or a wrong type is a 422, a value that violates a rule is a 400
that names the rule. Unknown fields are ignored, and null means the same as a missing field.
"""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from relayer.fronts.memwal.names import LONGEST_NAMESPACE
from relayer.wire.fields import MAX_DIMENSION, parse_time

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


def check_text(text: str, field: str, most: int) -> str:
    """Return a text; raises `CompatError` if it is blank or has more than ``most`` bytes."""
    if not text.strip():
        raise bad(f"{field} must not be empty")
    if len(text.encode()) > most:
        raise bad(f"{field} must have at most {most} bytes of UTF-8")
    return text
