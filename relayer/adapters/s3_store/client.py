"""A boto3 client that sends each request once and reads responses of limited size.

By default, boto3 would repeat a conditional write whose response was lost, and then report that it lost a race that it had won.
It would also follow a bucket to another region. `BucketClient` disables both, so each call is one request or none. The classes below
it replace those of botocore that read a response, because botocore limits neither its size nor its total time.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import CONTINUE, OK, HTTPResponse
from typing import Any

import boto3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from relayer.adapters.s3_store.failures import AnswerTooLong, Failure, NoSuccess, of_answer, of_silence
from relayer.errors import StoreMisconfigured

# Most servers other than Amazon's accept any region, but a signature needs one.
_ANY_REGION = "us-east-1"
_CHUNK = 256 * 1024
# The largest object that is read whole is a segment: 16 MiB, and one entry of 8 MiB more.
LONGEST_ANSWER = 64 * 1024 * 1024
_MOST_INTERIM_ANSWERS = 16
# A response may take this many times the longest allowed silence within it.
_SILENCES = 3


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds: to connect, between two bytes of a response, and for a whole call of the port."""

    connect: float = 5.0
    silence: float = 10.0
    call: float = 30.0


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """A successful response: the HTTP status, headers by lower-case name, boto3's fields, and the body of a read."""

    status: int
    headers: Mapping[str, str]
    fields: Mapping[str, Any]
    body: bytes = b""


class Client:
    """A client for one bucket, which any number of threads may use concurrently."""

    def __init__(
        self, bucket: str, endpoint_url: str | None, region: str | None, connections: int, patience: Timeouts
    ) -> None:
        config = Config(
            connect_timeout=patience.connect,
            read_timeout=patience.silence,
            max_pool_connections=connections,
            retries={"total_max_attempts": 1, "mode": "standard"},
            # Checksums in addition to the signature are an extension that not every server supports.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            session = boto3.session.Session(region_name=region)
            self._s3: Any = session.client(
                "s3",
                region_name=region or session.region_name or _ANY_REGION,
                endpoint_url=endpoint_url,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            # The messages of these errors name settings and files, but not their contents.
            raise StoreMisconfigured(
                f"the S3 client cannot be set up: {error}. Look at --endpoint-url, --region and the AWS_* variables"
            ) from error
        self._bucket = bucket
        self._s3.meta.events.register_last("before-parameter-build.s3", _stay_where_told)
        self._s3.meta.events.register_first("before-send.s3", _send_at_once)
        # botocore has no setting for the class that reads a response, and its own class limits neither size nor time.
        pools = self._s3._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - see above
        pools.update(http=_Pool, https=_TlsPool)

    @property
    def endpoint_url(self) -> str:
        """The URL of the server, without credentials."""
        return str(self._s3.meta.endpoint_url)

    def ask(self, operation: str, *, most: int | None = None, **parameters: Any) -> StoreAnswer:
        """Make one request.

        Args:
            operation: the name of a method of boto3's client.
            most: number of bytes of the body that are needed; the rest of a much longer body is not read.
            parameters: of the operation, without the bucket.

        Raises:
            NoSuccess: the response is an error, there was none, or it exceeds the limits of size and time.
        """
        try:
            answer: dict[str, Any] = getattr(self._s3, operation)(Bucket=self._bucket, **parameters)
            stream = answer.pop("Body", None)
            body = b"" if stream is None else _read(stream, most)
        except ClientError as error:
            raise NoSuccess(of_answer(error.response)) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            # botocore does not convert errors of urllib3 while it reads the body of an error response.
            raise NoSuccess(of_silence(error)) from error
        except ResponseParserError as error:
            raise NoSuccess(Failure(status=OK, code="NotS3", sent=True)) from error
        about = answer.pop("ResponseMetadata")
        return StoreAnswer(int(about["HTTPStatusCode"]), about["HTTPHeaders"], answer, body)

    def close(self) -> None:
        """Close the connections."""
        self._s3.close()


def _read(stream: Any, most: int | None) -> bytes:
    """Read a body. If it is read to its end, boto3 compares its length with ``Content-Length``."""
    chunks: list[bytes] = []
    size = 0
    try:
        while (most is None or size <= most) and (chunk := stream.read(_CHUNK)):
            chunks.append(chunk)
            size += len(chunk)
    finally:
        stream.close()
    return b"".join(chunks)


def _stay_where_told(context: dict[str, Any], **_: Any) -> None:
    """Mark a request as redirected already, because boto3 follows at most one redirection per request."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _send_at_once(request: Any, **_: Any) -> None:
    """Send a body together with its header.

    Waiting for ``100 Continue`` would cost a round trip, and botocore would read that response without a limit.
    """
    if "Expect" in request.headers:
        del request.headers["Expect"]


class _BoundedReader(io.RawIOBase):
    """A reader of a response from a socket, with limits of size and time."""

    def __init__(self, sock: Any) -> None:
        self._raw = sock.makefile("rb", buffering=0)
        self._left = LONGEST_ANSWER
        silence = sock.gettimeout()
        self._end = None if silence is None else time.monotonic() + _SILENCES * silence

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise AnswerTooLong(f"an answer has more than {LONGEST_ANSWER} bytes")
        if self._end is not None and time.monotonic() > self._end:
            raise TimeoutError("an answer takes too long")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Socket:
    """A wrapper of a socket that gives `HTTPResponse` a bounded reader. `HTTPResponse` calls no other method of a socket."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._sock))


class _Response(HTTPResponse):
    """A response with limits of size, time and the number of interim responses (1xx)."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(_Socket(sock), *args, **kwargs)  # type: ignore[arg-type]
        self._interim = 0

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if status >= OK:
            return version, status, reason
        self._interim += 1
        if self._interim > _MOST_INTERIM_ANSWERS:
            raise AnswerTooLong(f"more than {_MOST_INTERIM_ANSWERS} interim answers")
        # The standard library skips responses of status 100, but takes 102 and 103 for the final response.
        return version, CONTINUE, reason


class _Connection(AWSHTTPConnection):  # type: ignore[misc]
    response_class = _Response


class _TlsConnection(AWSHTTPSConnection):  # type: ignore[misc]
    response_class = _Response


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


class _TlsPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _TlsConnection
