"""Bodies: read in a stream against the signed digest, bounded in size and time, then parsed into a schema."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any, TypeVar

from aiohttp.web import BaseRequest, RequestPayloadError
from pydantic import BaseModel, ValidationError

from relayer.http import strict_json
from relayer.http.head import Head
from relayer.http.problems import HttpProblem
from relayer.wire.problems import ProblemField

__all__ = ["MAX_BODY", "check_head", "read_body", "validate"]

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
    if int(head.values.get("content-length", "0")) > MAX_BODY:
        raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
    media_type, _, parameters = head.values.get("content-type", "").lower().partition(";")
    if media_type.strip() != "application/json" or parameters.strip().replace('"', "") not in {
        "",
        "charset=utf-8",
    }:
        raise HttpProblem("unsupported_media_type")


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
    received = _Received()
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

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.digest = hashlib.sha256()
        self._length = 0

    def take(self, chunk: bytes) -> None:
        self._length += len(chunk)
        if self._length > MAX_BODY:
            raise HttpProblem("too_large", f"A body has at most {MAX_BODY} bytes.")
        self.digest.update(chunk)
        self.chunks.append(chunk)


def parse_body(body: bytes, schema: type[B]) -> B:
    """Parse and validate; raises `HttpProblem` ``invalid_json`` or ``invalid``."""
    return validate(strict_json.parse(body), schema)


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
