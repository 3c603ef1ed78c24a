"""A boto3 client that sends each request once and reads responses of limited size, and its failures.

By default, boto3 would repeat a conditional write whose response was lost, and then report that it lost a race that it had won.
It would also follow a bucket to another region. `Client` disables both, so each call is one request or none. The classes below
it replace those of botocore that read a response, because botocore limits neither its size nor its total time.

`of_answer` and `of_silence` reduce every response that is no success, or is missing, to a `Failure`. `judge_read` turns it into an
error for reads, which can always be retried safely, and `judge_write` into an outcome or error for writes, depending on whether
the write may have happened. `advice_on` knows what an operator can do about it.
"""

from __future__ import annotations

import io
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import CONTINUE, OK, HTTPResponse
from typing import Any

import boto3
from botocore import exceptions as boto
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

from relayer.errors import StoreError, StoreFull, StoreMisconfigured, StoreThrottled, StoreUnavailable
from relayer.ports import Throttled, Unknown

# The permissions that each operation needs, by their names in policies.
PERMISSIONS = {
    "get_object": "s3:GetObject, and s3:ListBucket on the bucket (without it an absent object looks forbidden)",
    "put_object": "s3:PutObject, and s3:GetObject for conditions",
    "delete_object": "s3:DeleteObject, and s3:DeleteObjectVersion for versions",
    "list_objects_v2": "s3:ListBucket",
    "list_object_versions": "s3:ListBucketVersions",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """A stable code for a problem, for programs, and what to do about it. Neither contains details of the deployment."""

    code: str
    fix: str


_CREDENTIALS = Advice(
    "credentials_refused",
    "the credentials are not accepted: look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
)
_NO_CREDENTIALS = Advice(
    "no_credentials",
    "no credentials were found: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of this machine",
)
_REGION = Advice(
    "elsewhere",
    "the bucket is in another region or at another address: give its own with --region or --endpoint-url",
)
_BUCKET = Advice("no_such_bucket", "there is no such bucket: make it, or put --store right")
_CLOCK = Advice(
    "clock_refused", "this machine's clock is more than 15 minutes away from the server's: set it"
)
_LATE = Advice("clock_refused", "this machine's clock is behind the server's: set it")
_NOT_OFFERED = Advice(
    "not_implemented",
    "the server does not implement conditional writes or this request: use another one",
)
_NOT_S3 = Advice("not_s3", "this is no answer of an S3 server: look at --endpoint-url")
_REFUSED = Advice("refused", "the server refuses the request")

_BY_CODE = {
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "TemporaryRedirect": _REGION,
    "Redirect": _REGION,
    "301": _REGION,
    "302": _REGION,
    "307": _REGION,
    "308": _REGION,
    "NoSuchBucket": _BUCKET,
    "InvalidBucketName": _BUCKET,
    "ParamValidationError": _BUCKET,
    "ExpiredToken": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _LATE,
    "NotImplemented": _NOT_OFFERED,
    "NotS3": _NOT_S3,
    "AnswerTooLong": _NOT_S3,
}
_CERTIFICATE = Advice(
    "certificate_not_trusted",
    "the server's certificate is not trusted: put its authority's PEM file in AWS_CA_BUNDLE, or use the host name that "
    "the certificate names in --endpoint-url",
)
_PLAIN = Advice(
    "no_tls",
    "the server does not speak TLS: give --endpoint-url with http://, or the server's TLS port",
)
_DENIED = frozenset({"AccessDenied", "403", "401", "Forbidden", "Unauthorized"})
# Statuses of servers that are not S3. An S3 server would also have sent an error code.
_STRANGE = frozenset({200, 404, 405})


def advice_on(
    code: str,
    operation: str,
    *,
    status: int = 0,
    certificate: bool = False,
    plain: bool = False,
) -> Advice | None:
    """Return what to do about a failure; None if nothing is known and no server responded.

    Args:
        code: the server's error code, or the name of boto3's exception.
        operation: the name of the method of boto3's client.
        status: of the response; 0 without one.
        certificate: whether the server's certificate was rejected.
        plain: whether the server does not speak TLS.
    """
    if certificate or plain:
        return _CERTIFICATE if certificate else _PLAIN
    if code in _DENIED:
        needed = PERMISSIONS.get(operation, "its permission")
        return Advice(
            "access_denied",
            f"access denied: the credentials need {needed}; a bucket policy or an object lock can refuse it too",
        )
    if code in _BY_CODE or not status:
        return _BY_CODE.get(code)
    return _NOT_S3 if status in _STRANGE else _REFUSED


_THROTTLING = frozenset(
    {
        "RequestLimitExceeded",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
_QUOTA = frozenset({"QuotaExceeded", "QuotaExceededException"})
# The server did not receive a whole request. A proxy in between may have cut it, so it is not certain what happened.
_CUT = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest"})


class AnswerTooLong(OSError):
    """Raised if a response exceeds the limits of this adapter while it is read."""


# Exceptions that boto3 raises before the first byte of a request is sent.
_NEVER_SENT = (
    boto.ConnectTimeoutError,
    boto.EndpointConnectionError,
    boto.ProxyConnectionError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ParamValidationError,
)
# Reasons that OpenSSL gives if the first bytes that it receives are not TLS.
_SPEAKS_PLAINLY = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)
_RETRY_AFTER = 1.0
_MOST_RETRY_AFTER = 30.0
_CONFLICT_RETRY_AFTER = 0.1
SILENT = (
    "requests reach the store and no whole answer comes back in time: look at its load and what is in between"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A response that is no success, or a missing response.

    Attributes:
        status: the HTTP status; 0 without a response.
        code: the server's error code, or the name of an exception.
        sent: whether the server may have received the request.
        headers: of the response, by lower-case name.
        certificate: whether the server's certificate was rejected.
        plain: whether the server seems not to speak TLS.
    """

    status: int
    code: str
    sent: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: bool = False
    plain: bool = False

    @property
    def retry_after(self) -> float:
        """Return the seconds to wait, as the server says, limited to `_MOST_RETRY_AFTER`."""
        said = self.headers.get("retry-after", "")
        return min(float(said), _MOST_RETRY_AFTER) if said.isdecimal() and said.isascii() else _RETRY_AFTER


class NoSuccess(Exception):
    """Raised inside this adapter for a failure, whose meaning depends on the request."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code)
        self.failure = failure


def of_answer(response: Mapping[str, Any]) -> Failure:
    """Return the failure for an error response, as boto3 represents it."""
    about = response.get("ResponseMetadata", {})
    return Failure(
        status=int(about.get("HTTPStatusCode", 0)),
        code=str(response.get("Error", {}).get("Code", "")),
        sent=True,
        headers=about.get("HTTPHeaders", {}),
    )


def of_silence(error: BaseException) -> Failure:
    """Return the failure for an exception that was raised instead of a response."""
    causes = _causes(error)
    certificate = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)
    return Failure(
        status=0,
        code="AnswerTooLong"
        if any(isinstance(cause, AnswerTooLong) for cause in causes)
        else type(error).__name__,
        sent=not (isinstance(error, _NEVER_SENT) or certificate),
        certificate=certificate,
        # A damaged TLS record of an open connection raises the same error, so this does not prove that nothing was sent.
        plain=any(isinstance(cause, ssl.SSLError) and cause.reason in _SPEAKS_PLAINLY for cause in causes),
    )


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        cause = waiting.pop()
        if isinstance(cause, BaseException) and cause not in found:
            found.append(cause)
            waiting += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
            waiting.append(getattr(cause, "kwargs", {}).get("error"))
    return found


def judge_read(failure: Failure, operation: str, where: str) -> StoreError:
    """Return the error to raise for a read, a deletion or a listing."""
    if failure.status == 0 or failure.code in _CUT:
        return _unanswered(failure, operation, where)
    if failure.status == 429 or failure.code in _THROTTLING:
        return StoreThrottled(f"{where} asks for patience ({failure.code})", failure.retry_after)
    if failure.code != "NotImplemented" and (failure.status >= 500 or failure.status in {408, 409}):
        return StoreUnavailable(
            f"{where} answered {failure.status} {failure.code}",
            code="failing",
            fix="the store answers with errors: look at its own logs",
        )
    return _misconfigured(failure, operation, where)


def judge_write(failure: Failure, operation: str, where: str) -> Unknown | Throttled:
    """Return the outcome of a failed conditional write, or raise an error if nothing was written.

    Raises:
        StoreFull, StoreMisconfigured, StoreUnavailable: the request was rejected, or was never sent.
    """
    if failure.status == 0 and failure.sent:
        return Unknown(f"no answer ({failure.code})")
    if failure.status == 0:
        raise _unanswered(failure, operation, where)
    if failure.code in _CUT:
        return Unknown(f"the server answered {failure.code}")
    if failure.code == "ConditionalRequestConflict":
        return Throttled(_CONFLICT_RETRY_AFTER)
    if failure.status == 429:
        return Throttled(failure.retry_after)
    if failure.code in _QUOTA and failure.status < 500:
        raise StoreFull(f"{where} has no room ({failure.code}): raise the bucket's quota")
    if failure.code == "NotImplemented":
        raise _misconfigured(failure, operation, where)
    if failure.status < 300 or failure.status >= 500 or failure.status in {408, 409}:
        return Unknown(f"the server answered {failure.status} {failure.code}")
    raise _misconfigured(failure, operation, where)


def _unanswered(failure: Failure, operation: str, where: str) -> StoreError:
    advice = advice_on(failure.code, operation, certificate=failure.certificate, plain=failure.plain)
    if advice is not None:
        return StoreMisconfigured(f"{where}: {advice.fix}", code=advice.code, fix=advice.fix)
    if failure.sent:
        return StoreUnavailable(
            f"{where} did not answer in time, or broke off ({failure.code})",
            code="silent",
            fix=SILENT,
        )
    return StoreUnavailable(
        f"{where} cannot be reached ({failure.code}): is it running, and is --endpoint-url right?",
        code="unreachable",
        fix="start the store, or put --endpoint-url right",
    )


def _misconfigured(failure: Failure, operation: str, where: str) -> StoreMisconfigured:
    advice = advice_on(failure.code, operation, status=failure.status)
    if advice is None:
        raise ValueError("an answer always has advice")
    region = failure.headers.get("x-amz-bucket-region") if advice.code == "elsewhere" else None
    said = f" (the server says: region {region[:40]})" if region else ""
    return StoreMisconfigured(
        f"{where}: {advice.fix}{said} ({operation}: {failure.status} {failure.code})",
        code=advice.code,
        fix=advice.fix,
    )


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
