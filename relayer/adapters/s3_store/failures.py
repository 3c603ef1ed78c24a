"""What it means when an S3 server does not say yes.

Every failure is first reduced to a `Failure`, then judged twice over: for a read, where trying again is always safe,
and for a write, where the question is whether it may have happened.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore import exceptions as boto
from urllib3 import exceptions as urllib3

from relayer.adapters.s3_store.advice import advice_on
from relayer.errors import StoreError, StoreFull, StoreMisconfigured, StoreThrottled, StoreUnavailable
from relayer.ports import Throttled, Unknown

__all__ = ["SILENT", "Failure", "NoSuccess", "judge_read", "judge_write", "of_answer", "of_silence"]

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
# The server waited in vain for the rest of a request: somebody between us may have cut it, so it says nothing certain.
_CUT = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest"})
# What boto3 and urllib3 raise before the first byte of a request has left.
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
    urllib3.ConnectTimeoutError,
    urllib3.NewConnectionError,
)
# What OpenSSL says when the first bytes that it gets are no TLS.
_PLAIN = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
_RETRY_AFTER = 1.0
_MOST_RETRY_AFTER = 30.0
_CONFLICT_RETRY_AFTER = 0.1
SILENT = (
    "requests reach the store and no whole answer comes back in time: look at its load and what is in between"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is no success, or none at all.

    Attributes:
        status: HTTP status, 0 without an answer.
        code: the server's, or boto3's word for what went wrong.
        sent: whether the server may have received the request.
        headers: of the answer, by lower-case name.
        certificate: whether the server's certificate was refused.
        plain: whether the server seems not to speak TLS at all.
    """

    status: int
    code: str
    sent: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: bool = False
    plain: bool = False

    @property
    def retry_after(self) -> float:
        """Seconds to wait as the server says, within reason."""
        said = self.headers.get("retry-after", "")
        return min(float(said), _MOST_RETRY_AFTER) if said.isdecimal() and said.isascii() else _RETRY_AFTER


class NoSuccess(Exception):
    """Raised inside this adapter; what it means depends on what was asked."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.code)
        self.failure = failure


def of_answer(response: Mapping[str, Any]) -> Failure:
    """Reduce what boto3 keeps of an answer."""
    about = response.get("ResponseMetadata", {})
    return Failure(
        status=int(about.get("HTTPStatusCode", 0)),
        code=str(response.get("Error", {}).get("Code", "")),
        sent=True,
        headers=about.get("HTTPHeaders", {}),
    )


def of_silence(error: BaseException) -> Failure:
    """Reduce an exception that came instead of an answer."""
    causes = _causes(error)
    certificate = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)
    return Failure(
        status=0,
        code=type(error).__name__,
        sent=not (isinstance(error, _NEVER_SENT) or certificate),
        certificate=certificate,
        # A broken record of a connection in use looks the same, so this does not prove that nothing was sent.
        plain=any(isinstance(cause, ssl.SSLError) and cause.reason in _PLAIN for cause in causes),
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
    """Return the outcome of a conditional write, or raise what says that nothing was written.

    Raises:
        StoreFull, StoreMisconfigured, StoreUnavailable: the request was refused, or never left.
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
