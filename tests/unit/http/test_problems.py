"""Every failure has a stable code, and none tells a stranger more than the table."""

from __future__ import annotations

import json

import pytest

from relayer import errors
from relayer.domain.namespace import LogPosition
from relayer.http.problems import CODES, HttpProblem, problem_of
from relayer.log.objects import PositionUnknown, RollbackDetected

SECRET = "/var/lib/secret-path and a memory"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.StoreUnavailable(SECRET), 503, "store_unavailable"),
        (errors.StoreThrottled(SECRET, 2.5), 503, "store_unavailable"),
        (errors.StoreMisconfigured(SECRET), 503, "store_unavailable"),
        (errors.StoreFull(SECRET), 507, "store_full"),
        (errors.CorruptNamespace(SECRET), 500, "corrupt_namespace"),
        (errors.UpgradeRequired(SECRET), 503, "upgrade_required"),
        (errors.NamespaceClosed(SECRET), 409, "namespace_closed"),
        (errors.WrongNamespaceKey(SECRET), 409, "wrong_namespace_key"),
        (errors.WrongCustody(SECRET), 409, "wrong_custody"),
        (errors.EmbedderUnavailable(SECRET), 503, "embedder_unavailable"),
        (errors.QueueFull(SECRET, 3.0), 503, "queue_full"),
        (RollbackDetected(SECRET), 409, "rollback_detected"),
        (PositionUnknown(LogPosition(1, b"d" * 32)), 409, "position_unknown"),
        (errors.WrongRelayerKey(SECRET), 500, "internal_error"),
        (errors.ConfigurationError(SECRET), 500, "internal_error"),
        (KeyError(SECRET), 500, "internal_error"),
        (ValueError(SECRET), 500, "internal_error"),
    ],
)
def test_an_inner_error_becomes_its_row_and_says_nothing_of_its_own(
    error: Exception, status: int, code: str
) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert SECRET not in problem.body("id").decode()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("not_found", 404),
        ("stale_head", 409),
        ("idempotency_conflict", 409),
        ("too_large", 413),
        ("bad_vector", 422),
        ("bad_cursor", 422),
        ("malformed_operation", 422),
        ("forgotten_before", 409),
        ("source_erased", 409),
    ],
)
def test_a_refusal_keeps_its_code_and_its_sentence(code: str, status: int) -> None:
    problem = problem_of(errors.Refused(code, "do something else"))
    assert (problem.status, problem.code, problem.detail) == (status, code, "do something else")


def test_the_deadline_s_step_is_named() -> None:
    problem = problem_of(errors.DeadlineExceeded("embed"))
    assert problem.status == 504
    assert "embed" in problem.detail


def test_retry_after_is_whole_seconds_in_the_header_and_exact_in_the_body() -> None:
    problem = problem_of(errors.QueueFull("full", 2.25))
    assert problem.headers["Retry-After"] == "3"
    assert json.loads(problem.body("id"))["retry_after"] == 2.25


def test_the_body_is_a_problem_document() -> None:
    body = json.loads(HttpProblem("clock_skew", server_time=7).body("some-id"))
    assert body == {
        "type": "urn:memrelay:problem:clock_skew",
        "title": "Unauthorized",
        "status": 401,
        "code": "clock_skew",
        "detail": CODES["clock_skew"].detail,
        "request_id": "some-id",
        "errors": [],
        "server_time": 7,
    }
