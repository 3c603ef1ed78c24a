"""Bodies and queries: read in a stream against the signed digest, bounded in size and time, then parsed into a schema."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from aiohttp.web import BaseRequest, RequestPayloadError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from relayer.http.access import Signed
from relayer.http.parsing import Head, parse_json
from relayer.http.problems import HttpProblem
from relayer.wire.errors import UnsealError
from relayer.wire.proofs import BODY_OVERHEAD, SEALED_TYPE, open_body
from relayer.wire.schemas import MAX_LIMIT, MAX_WAIT_MS, AudienceName, KindName, StandingName, TrustName
from relayer.wire.service import ProblemField

MAX_BODY = 2 * 1024 * 1024
READ_SECONDS = 15.0
_MOST_ERRORS = 20

B = TypeVar("B", bound=BaseModel)


def check_head(head: Head, *, expects_body: bool) -> None:
    """Refuse what the head alone shows to be wrong with the body, before anything else is looked at.

    Raises:
        HttpProblem: ``unsupported_media_type``, ``too_large`` or ``malformed``.
    """
    if "content-encoding" in head.values:
        raise HttpProblem("unsupported_media_type")
    if not expects_body:
        if head.has_body:
            raise HttpProblem("malformed", "This route takes no body.")
        return
    if int(head.values.get("content-length", "0")) > _most(head):
        raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
    if is_sealed(head):
        return
    media_type, _, parameters = head.values.get("content-type", "").lower().partition(";")
    if media_type.strip() != "application/json" or parameters.strip().replace('"', "") not in {
        "",
        "charset=utf-8",
    }:
        raise HttpProblem("unsupported_media_type")


def is_sealed(head: Head) -> bool:
    """Whether the body is sealed for who opens the request's memory-key."""
    return head.values.get("content-type") == SEALED_TYPE


def _most(head: Head) -> int:
    return MAX_BODY + (BODY_OVERHEAD if is_sealed(head) else 0)


def unsealed(raw: bytes, signed: Signed) -> tuple[bytes, Signed]:
    """Open a sealed body; from here on the request is one with that body.

    Raises:
        HttpProblem: ``malformed``.
    """
    principal, key = signed.principal, signed.sealed
    if key is None or not key.secret:
        raise HttpProblem("malformed", "A sealed body needs a memory-key that holds the namespace's secret.")
    try:
        body = open_body(key.secret, principal.nonce, raw)
    except UnsealError as error:
        raise HttpProblem(
            "malformed", "The body does not open with the secret in memory-key and the signature's nonce."
        ) from error
    # The same request in clear is the same write: what identifies it is what it says.
    said = hashlib.sha256(body).digest()
    return body, replace(signed, principal=replace(principal, body_digest=said))


async def read_body(request: BaseRequest, head: Head, digest: bytes, *, seconds: float) -> bytes:
    """Read the body and compare it with the signed digest.

    Args:
        request: positioned at its body.
        head: of the request.
        digest: SHA-256 that the signature covers.
        seconds: the most this may take; never more than 15.

    Raises:
        HttpProblem: ``too_large``, ``body_timeout``, ``digest_mismatch`` or ``malformed``.
    """
    if head.values.get("expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    stream = request.content
    received = _Received(_most(head))
    if stream.is_eof():
        received.take(stream.read_nowait())
    if not stream.at_eof():
        try:
            async with asyncio.timeout(min(seconds, READ_SECONDS)):
                async for chunk in stream.iter_any():
                    received.take(chunk)
        except TimeoutError as error:
            raise HttpProblem("body_timeout") from error
        except (RequestPayloadError, ConnectionError) as error:
            raise HttpProblem("malformed", "The body is not in form, or ended early.") from error
    if received.digest.digest() != digest:
        raise HttpProblem("digest_mismatch")
    return b"".join(received.chunks)


class _Received:
    """What came of a body, digested piece by piece: in one, a large one would hold the event loop."""

    def __init__(self, most: int) -> None:
        self.chunks: list[bytes] = []
        self.digest = hashlib.sha256()
        self._length = 0
        self._most = most

    def take(self, chunk: bytes) -> None:
        self._length += len(chunk)
        if self._length > self._most:
            raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
        self.digest.update(chunk)
        self.chunks.append(chunk)


def parse_body(body: bytes, schema: type[B]) -> B:
    """Parse and validate; raises `HttpProblem` ``invalid_json`` or ``invalid``."""
    return validate(parse_json(body), schema)


def validate(value: Any, schema: type[B], *, within: tuple[str, ...] = ()) -> B:
    """Validate what was parsed.

    Raises:
        HttpProblem: ``invalid`` with field, rule and length of each breach, and no value.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
    # Outside of the except block, so that no traceback of this problem carries the value along.
    raise HttpProblem("invalid", errors=tuple(_fields(found[:_MOST_ERRORS], within)))


def _fields(found: Iterable[Any], within: tuple[str, ...]) -> Iterable[ProblemField]:
    for item in found:
        path = [*within, *(str(part) for part in item["loc"])]
        # The name of an unknown field is the client's own text, and text is not echoed.
        if item["type"] == "extra_forbidden":
            path[-1] = "(unknown field)"
        value = item.get("input")
        length = len(value) if isinstance(value, str | bytes | list | tuple) else None
        rule = item["msg"].removeprefix("Value error, ")
        yield ProblemField(field=".".join(path) or "(body)", rule=rule, length=length)


_MOST_FIELDS = 16
CURSOR = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"


def _split(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_Cursor = Annotated[str, Field(min_length=1, max_length=1024)]
_Comma = WithJsonSchema({"type": "string", "description": "names joined by commas"})


class ListQuery(_Query):
    """``GET /v1/memories``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 20
    cursor: _Cursor | None = None
    kinds: Annotated[tuple[KindName, ...], Field(max_length=9), BeforeValidator(_split), _Comma] = ()
    states: Annotated[tuple[StandingName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()


class NamespacesQuery(_Query):
    """``GET /v1/namespaces``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    cursor: _Cursor | None = None


class JobQuery(_Query):
    """``GET /v1/jobs/{id}``."""

    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


class ContextQuery(_Query):
    """``GET /v1/context``; ``offset_minutes`` is how far the reader's clock is ahead of UTC."""

    days: Annotated[int, Field(ge=1, le=31)] = 2
    items: Annotated[int, Field(ge=1, le=200)] = 15
    offset_minutes: Annotated[int, Field(ge=-24 * 60 + 1, le=24 * 60 - 1)] = 0
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), BeforeValidator(_split), _Comma] = ()


class ProfileQuery(_Query):
    """``GET /v1/profile``; only what the user said or had imported, unless other voices are asked for."""

    max_tokens: Annotated[int, Field(ge=1, le=20_000)] = 1000
    audiences: Annotated[tuple[AudienceName, ...], Field(max_length=3), BeforeValidator(_split), _Comma] = ()
    trusts: Annotated[tuple[TrustName, ...], Field(max_length=4), BeforeValidator(_split), _Comma] = (
        "user",
        "imported",
    )


class ChangesQuery(_Query):
    """``GET /v1/changes``."""

    after: Annotated[str, Field(pattern=CURSOR)] = "0"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


class ForgetQuery(_Query):
    """``DELETE /v1/memories/{id}``."""

    mode: Literal["forget", "erase"] = "forget"


def parse_query(raw: str, schema: type[BaseModel] | None) -> BaseModel | None:
    """Parse a raw query.

    Raises:
        HttpProblem: ``malformed`` (not in form, or a name twice) or ``invalid``.
    """
    if schema is None:
        if raw:
            raise HttpProblem("malformed", "This route takes no query.")
        return None
    values: dict[str, Any] = {}
    if raw:
        try:
            pairs = parse_qsl(
                raw,
                keep_blank_values=True,
                strict_parsing=True,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
        except ValueError as error:
            raise HttpProblem("malformed", "The query is not in form.") from error
        values = dict(pairs)
        if len(values) != len(pairs):
            raise HttpProblem("malformed", "The query has the same name twice.")
    return validate(values, schema, within=("query",))
