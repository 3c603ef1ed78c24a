"""Classification of responses of an S3 server that are no success, and of missing responses.

`of_answer` and `of_silence` reduce every failure to a `Failure`. `judge_read` turns it into an error for reads, which can always
be retried safely, and `judge_write` into an outcome or error for writes, depending on whether the write may have happened.
`advice_on` knows what an operator can do about it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore import exceptions as boto

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
    if failure.code == "NotImplemented":
        return _misconfigured(failure, operation, where)
    if failure.status >= 500 or failure.status in {408, 409}:
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
