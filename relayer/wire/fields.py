"""Field types of the API's schemas: times, vectors, texts, ids, with one way to say what is wrong with them.

Messages name the rule and never the value: a message ends up in logs and terminals, a memory must not.
"""

from __future__ import annotations

import array
import base64
import binascii
import math
import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from relayer.wire import names, ulid
from relayer.wire.errors import Malformed

__all__ = [
    "MAX_TEXT_BYTES",
    "MAX_TTL_SECONDS",
    "NOT_EMPTY",
    "IdempotencyKey",
    "Lang",
    "MemoryId",
    "NamespaceName",
    "Short",
    "Text",
    "Time",
    "TurnText",
    "Unit",
    "Vector",
    "at_most",
    "parse_time",
    "render_time",
]

MAX_TEXT_BYTES = 64 * 1024
MAX_DIMENSION = 4096
MAX_TTL_SECONDS = 100 * 366 * 86_400
_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = int(_FIRST.timestamp()) * 1000
_LAST_MS = int(_LAST.timestamp()) * 1000
_OUTSIDE = "must lie between the years 1900 and 2199"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Mn"})


def parse_time(value: object) -> int:
    """Parse RFC 3339 with an offset into ms since the epoch; an int counts as ms already parsed."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not _FIRST_MS <= value < _LAST_MS:
            raise ValueError(_OUTSIDE)
        return value
    if not isinstance(value, str):
        raise ValueError("must be a time such as 2026-05-08T13:56:00Z")  # noqa: TRY004 - pydantic collects ValueError
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError("must be a time such as 2026-05-08T13:56:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("must carry an offset, such as the Z in 2026-05-08T13:56:00Z")
    try:
        inside = _FIRST <= moment < _LAST
    except OverflowError as error:
        raise ValueError(_OUTSIDE) from error
    if not inside:
        raise ValueError(_OUTSIDE)
    return _milliseconds(moment)


def _milliseconds(moment: datetime) -> int:
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def render_time(value: int) -> str:
    """Render ms since the epoch as RFC 3339 in UTC, to the millisecond."""
    moment = _EPOCH + timedelta(milliseconds=value)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _parse_vector(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("must be base64 of little-endian float32") from error
    elif isinstance(value, list):
        raw = _pack(value)
    else:
        raise ValueError("must be base64 of little-endian float32, or a list of numbers")  # noqa: TRY004 - as above
    if not raw or len(raw) % 4 or len(raw) > 4 * MAX_DIMENSION:
        raise ValueError(f"must hold 1 to {MAX_DIMENSION} float32 numbers")
    return raw


def _pack(values: list[Any]) -> bytes:
    if len(values) > MAX_DIMENSION or not all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in values
    ):
        raise ValueError(f"must be a list of at most {MAX_DIMENSION} numbers")
    try:
        packed = array.array("f", values)
    except OverflowError as error:
        raise ValueError("must hold numbers of float32's range") from error
    if not all(map(math.isfinite, packed)):
        raise ValueError("must hold finite numbers")
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def at_most(count: int) -> BeforeValidator:
    """Refuse a longer list before any of its items is looked at: a million bad items are a million errors to collect."""

    def check(value: object) -> object:
        if isinstance(value, list | tuple) and len(value) > count:
            raise ValueError(f"must have at most {count} items")
        return value

    return BeforeValidator(check)


def _refuse_empty(value: object) -> object:
    if isinstance(value, list | tuple) and not value:
        raise ValueError("must have at least 1 item")
    return value


# A schema's own minimum counts the items that are left: beside each bad one it would report an empty list as well.
NOT_EMPTY = (BeforeValidator(_refuse_empty), Field(json_schema_extra={"minItems": 1}))
"""Refuses an empty list, and nothing else; unpacked into the annotation of a tuple."""


def _check_size(value: str) -> str:
    if len(value.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"must have at most {MAX_TEXT_BYTES} bytes of UTF-8")
    return value


def _check_text(value: str) -> str:
    _check_size(value)
    if all(unicodedata.category(character) in _INVISIBLE for character in value):
        raise ValueError("must contain at least one visible character")
    return value


def _check_id(value: str) -> str:
    try:
        ulid.parse(value)
    except Malformed as error:
        raise ValueError(str(error)) from error
    return value


def _check_namespace(value: str) -> str:
    if not names.is_normal_namespace(value):
        raise ValueError("must be in normal form: one to four of [a-z0-9_-]{1,64}, joined by /")
    return value


Time = Annotated[
    int,
    BeforeValidator(parse_time),
    PlainSerializer(render_time, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Vector = Annotated[
    bytes,
    BeforeValidator(_parse_vector),
    PlainSerializer(lambda raw: base64.b64encode(raw).decode(), when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "description": "little-endian float32"}),
]
Text = Annotated[str, Field(min_length=1), AfterValidator(_check_text)]
TurnText = Annotated[str, AfterValidator(_check_size)]
MemoryId = Annotated[
    str, AfterValidator(_check_id), WithJsonSchema({"type": "string", "pattern": "^[0-9a-z]{26}$"})
]
NamespaceName = Annotated[str, AfterValidator(_check_namespace)]
IdempotencyKey = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,128}$")]
Short = Annotated[str, StringConstraints(max_length=512)]
Lang = Annotated[str, Field(max_length=35)]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
