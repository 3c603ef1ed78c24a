"""The errors that a request can fail with, as RFC 9457 problems with stable codes.

`CODES` maps each code to its status and detail; `problem_of` translates the exceptions of the services. This module decides
how much an unauthenticated client may learn: the detail of an internal error comes from the table and never from the
error's own text, which may name paths and is for the operator.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

from relayer import errors
from relayer.domain.operations import Refusal
from relayer.log.objects import PositionUnknown, RollbackDetected
from relayer.wire.codec import NotAccepted
from relayer.wire.service import Problem, ProblemField

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:memrelay:problem:"


@dataclass(frozen=True, slots=True)
class _Row:
    status: int
    detail: str


# The codes of faulty requests, followed by those of conditions inside the relayer.
CODES: dict[str, _Row] = {
    "malformed": _Row(400, "The request is malformed."),
    "missing_header": _Row(400, "A header that this route needs is missing."),
    "window": _Row(400, "A signature is valid for at most 120 seconds: expires - created must lie in 0..120."),
    "digest_mismatch": _Row(400, "The body is not the one that content-digest states and the signature covers."),
    "invalid_json": _Row(400, "The body must be one JSON document in UTF-8 without duplicate keys or NaN."),
    "unauthorized": _Row(401, "The request was not accepted. The relayer's log has the reason under the request id."),
    "clock_skew": _Row(401, "The signature's time does not fit the relayer's clock: correct it by server_time."),
    "wrong_authority": _Row(401, "The request is addressed to a name that is not in the list of accepted ones."),
    "unknown_fleet_key": _Row(401, "The memory-key was sealed for an expired key: fetch GET /v1/keys again."),
    "replayed": _Row(401, "This signature was used before: sign every request again."),
    "account_revoked": _Row(403, "The relayer's operator has revoked this account. Ask the operator to lift it."),
    "not_found": _Row(404, "Not found."),
    "method_not_allowed": _Row(405, "This route does not support the method, see the Allow header."),
    "body_timeout": _Row(408, "The body did not arrive in time."),
    "caller_gone": _Row(400, "The connection was closed before the answer; the request was cancelled."),
    "conflict": _Row(409, "The state does not allow this."),
    "too_large": _Row(413, "The request is too large."),
    "unsupported_media_type": _Row(415, "Send the body as application/json in UTF-8, without content-encoding."),
    "invalid": _Row(422, "The request breaks the rules listed in errors."),
    "rate_limited": _Row(429, "Too many requests. Try again after the time in Retry-After."),
    "header_too_large": _Row(431, "The request's headers are too large."),
    "internal_error": _Row(500, "An internal error occurred. The relayer's log has the details under the request id."),
    "corrupt_namespace": _Row(500, "This namespace's log is corrupt and is not served. Ask the operator to repair it."),
    "store_unavailable": _Row(503, "The object store does not answer. Try again."),
    "embedder_unavailable": _Row(503, "The embedding model is unavailable. Try again, or send your own vectors."),
    "model_unavailable": _Row(503, "The language model does not answer. Try again."),
    "model_answer_unusable": _Row(502, "The language model's answer is unusable. Try again, or change the question."),
    "queue_full": _Row(503, "The relayer is overloaded. Try again after the time in Retry-After."),
    "upgrade_required": _Row(503, "This namespace was written by a newer version: update the relayer."),
    "deadline_exceeded": _Row(504, "The deadline has passed."),
    "store_full": _Row(507, "The object store is full. Nothing was written."),
    "wrong_namespace_key": _Row(409, "The secret in memory-key cannot open this namespace."),
    "wrong_generation": _Row(409, "The keys of this namespace were rotated: send the secret of this generation in memory-key."),
    "keys_are_rotated": _Row(
        503, "The keys of this namespace are being rotated. Try again; if that does not end, run memrelay-gateway keys rotate "
        "--reseal again.",
    ),
    "wrong_custody": _Row(409, "This namespace uses the other custody."),
    "namespace_closed": _Row(409, "This namespace is being erased, or was a moment ago: try again."),
    "rollback_detected": _Row(409, "The log is older than a position that was seen before: tell an operator."),
    "position_unknown": _Row(409, "This position is not one of this namespace's log."),
}  # fmt: skip

# The status of each code that services raise in `Refused(code, message)`; the message is the detail.
_REFUSED_STATUS: dict[str, int] = {
    "not_found": 404,
    "too_large": 413,
    "bad_vector": 422,
    "bad_cursor": 422,
    "revocations_invalid": 422,
    Refusal.MALFORMED: 422,
}

_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (errors.StoreFull, "store_full"),
    (errors.StoreError, "store_unavailable"),
    (errors.CorruptNamespace, "corrupt_namespace"),
    (errors.UpgradeRequired, "upgrade_required"),
    (errors.NamespaceClosed, "namespace_closed"),
    (errors.WrongNamespaceKey, "wrong_namespace_key"),
    (errors.WrongGeneration, "wrong_generation"),
    (errors.KeysAreRotated, "keys_are_rotated"),
    (errors.WrongCustody, "wrong_custody"),
    (errors.EmbedderUnavailable, "embedder_unavailable"),
    (errors.ModelUnavailable, "model_unavailable"),
    (errors.ModelAnswerUnusable, "model_answer_unusable"),
    (errors.QueueFull, "queue_full"),
    (errors.RateLimited, "rate_limited"),
    (RollbackDetected, "rollback_detected"),
    (PositionUnknown, "position_unknown"),
    (errors.DeadlineExceeded, "deadline_exceeded"),
)


@dataclass(eq=False, repr=False)
class HttpProblem(Exception):
    """Raised to refuse a request.

    Attributes:
        code: stable; a key of `CODES` or a code of the services.
        detail: tells the client what to do, and quotes no value of the request.
        rule: the true reason, for the log only.
        retry_after: seconds until the request may be repeated; None sends no ``Retry-After``.
        generation: the generation of the secret that opens the namespace, if the request had another one.
        server_time: the relayer's time in seconds since the epoch, if the client's clock is off.
        accepted: the names that this relayer accepts, if the request was addressed to another.
        allow: methods for the ``Allow`` header of a 405.
    """

    code: str
    detail: str = ""
    _: KW_ONLY
    status: int = 0
    rule: str | None = None
    retry_after: float | None = None
    generation: int | None = None
    server_time: int | None = None
    accepted: tuple[str, ...] | None = None
    errors: tuple[ProblemField, ...] = ()
    allow: str | None = None

    def __post_init__(self) -> None:
        row = CODES.get(self.code) or CODES["conflict"]
        self.status, self.detail = self.status or row.status, self.detail or row.detail

    @property
    def headers(self) -> dict[str, str]:
        """The response headers of the problem."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        if self.allow is not None:
            headers["Allow"] = self.allow
        return headers

    def body(self, request_id: str) -> bytes:
        """Encode the problem as ``application/problem+json``."""
        problem = Problem(
            type=_TYPE + self.code,
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            code=self.code,
            detail=self.detail,
            request_id=request_id,
            errors=self.errors,
            retry_after=self.retry_after,
            generation=self.generation,
            server_time=self.server_time,
            accepted=self.accepted,
        )
        return problem.model_dump_json(exclude_none=True).encode()


# The reason of an exceeded deadline, by the step that was under way.
_WAITS_FOR_THE_STORE = {
    "append": "the store did not take it, and sending it again is safe",
    **dict.fromkeys(("admit", "open", "read", "report"), "the store did not answer in it"),
}


def unauthorized(rule: str) -> HttpProblem:
    """Return the same 401 for every failure that depends on keys or on state of the relayer."""
    return HttpProblem("unauthorized", rule=rule)


def problem_of(error: Exception) -> HttpProblem:
    """Translate an exception of a service; one that is not in the table becomes ``internal_error``."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, errors.Refused):
        return HttpProblem(error.code, str(error), status=_REFUSED_STATUS.get(error.code, 409))
    if isinstance(error, NotAccepted):
        # Only a request with a valid signature gets as far as this check, so that the response may name it.
        if error.rule == "account_revoked":
            return HttpProblem("account_revoked", rule=error.rule)
        return unauthorized(error.rule)
    code = next((code for kind, code in _BY_CLASS if isinstance(error, kind)), None)
    if code is None:
        return HttpProblem("internal_error", rule=type(error).__name__)
    retry_after = getattr(error, "retry_after", None)
    if code == "store_unavailable" and retry_after is None:
        retry_after = 1.0
    detail = ""
    if isinstance(error, errors.DeadlineExceeded):
        waited = _WAITS_FOR_THE_STORE.get(error.step, "")
        detail = f"The time was up during {error.step}{waited and f': {waited}'}."
    if isinstance(error, errors.AccountLost):
        detail = f"{str(error).capitalize()}."
    rule = error.code if isinstance(error, errors.StoreError) else type(error).__name__
    if isinstance(error, errors.RateLimited):
        rule = "new_accounts"
    generation = getattr(error, "generation", None)
    return HttpProblem(code, detail, rule=rule, retry_after=retry_after, generation=generation)
