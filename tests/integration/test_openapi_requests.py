"""The relayer does what its own description says: valid by the specification, and true for requests made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from relayer.http.routes import table
from relayer.testing.local_relayer import LocalRelayer, SigningGateway, local_relayer, threaded_relayer
from relayer.wire.signing import Right

pytestmark = [pytest.mark.tier("all"), pytest.mark.timeout(300)]

ROUTES = [(route.method, route.path) for route in table()]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Requests made from the description, of each route.
EXAMPLES = 8
# What a description cannot rule out: whether an id, a session or a namespace exists, and what a state allows.
_OF_STATE = frozenset({"not_found", "conflict", "namespace_closed", "position_unknown"})


class _Signed(requests.auth.AuthBase):
    """Signs what is sent, byte for byte, for a namespace whose secret is this gateway's."""

    def __init__(self, relayer: LocalRelayer, gateway: SigningGateway) -> None:
        self._relayer = relayer
        self._gateway = gateway
        self._key = gateway.memory_key(relayer.fleet_key)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        raw = request.body.encode() if isinstance(request.body, str) else request.body or b""
        request.headers.update(
            self._gateway.headers(
                str(request.method), self._relayer.authority, request.path_url, raw, memory_key=self._key
            )
        )
        return request


@pytest.fixture(scope="module")
def relayer() -> Iterator[LocalRelayer]:
    with threaded_relayer(lambda: local_relayer(rate_limits="off")) as started:
        yield started


@pytest.fixture(scope="module")
def session(relayer: LocalRelayer) -> Iterator[requests.Session]:
    rights = (Right.READ, Right.WRITE, Right.ADMIN)
    with requests.Session() as made:
        made.trust_env = False
        made.auth = _Signed(relayer, SigningGateway(rights=rights))
        yield made


@pytest.fixture(scope="module")
def described(relayer: LocalRelayer) -> dict[str, Any]:
    answer: dict[str, Any] = requests.get(f"{relayer.url}/openapi.json", timeout=20).json()
    return answer


def test_the_description_is_valid_by_the_specification(described: dict[str, Any]) -> None:
    validate(described)


def test_every_operation_has_an_id_its_security_and_each_status_by_itself(described: dict[str, Any]) -> None:
    operations = [
        (method.upper(), path, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    assert sorted((method, path) for method, path, _ in operations) == sorted(ROUTES)
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(set(ids)) == len(ids)
    signed = {(route.method, route.path) for route in table() if route.right is not None}
    for method, path, operation in operations:
        assert all(status.isdecimal() for status in operation["responses"])
        needed = [set(scheme) for scheme in operation["security"]]
        assert ({"certificate", "signature"} <= needed[0] if needed else False) == ((method, path) in signed)
        assert ("401" in operation["responses"]) == (bool(needed))


def test_defaults_are_those_that_a_request_without_the_field_has(described: dict[str, Any]) -> None:
    seen = 0
    for route in table():
        if route.query is None:
            continue
        shown = described["paths"][route.path][route.method.lower()]["parameters"]
        said = {one["name"]: one["schema"]["default"] for one in shown if "default" in one["schema"]}
        for name, value in route.query().model_dump().items():
            written = ",".join(value) if isinstance(value, tuple) else value
            assert said.get(name) == (written or said.get(name)), name
            seen += 1
    assert seen > 15


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_what_the_description_allows_is_answered_as_it_says(
    method: str, path: str, relayer: LocalRelayer, session: requests.Session, described: dict[str, Any]
) -> None:
    operation = schemathesis.openapi.from_dict(described)[path][method]
    reasons = described["paths"][path][method.lower()]
    statuses: set[int] = set()

    def tried(case: Case) -> None:
        answer = case.call(base_url=relayer.url, session=session, timeout=20)
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400 and path != "/ready":
            _check_reason(answer.json(), reasons, described)

    _for_each(operation.as_strategy(), tried)
    assert statuses


def _for_each(strategy: Any, tried: Callable[[Case], None]) -> None:
    settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )(given(strategy)(tried))()


def _check_reason(problem: dict[str, Any], operation: dict[str, Any], described: dict[str, Any]) -> None:
    """See that a refusal has a reason that stands in the description: its code, and of a rule of fields the sentence."""
    code = problem["code"]
    response = operation["responses"][str(problem["status"])]["$ref"].rpartition("/")[2]
    if code in _OF_STATE:
        return
    assert code in described["components"]["responses"][response]["description"], problem
    said = f"{operation.get('description')} {described['components']['schemas']}"
    for field in problem.get("errors", ()):
        # A rule inside a filter or metadata begins with the place there, which is the caller's.
        assert field["rule"] in said or any(
            field["rule"][at + 2 :] in said
            for at in range(len(field["rule"]))
            if field["rule"][at : at + 2] == ": "
        ), (problem["errors"], operation["operationId"])


def test_a_reason_that_is_not_described_would_be_found(described: dict[str, Any]) -> None:
    operation = described["paths"]["/v1/recall"]["post"]
    undocumented = {"code": "invalid", "status": 422, "errors": [{"field": "query", "rule": "must rhyme"}]}
    with pytest.raises(AssertionError):
        _check_reason(undocumented, operation, described)
    with pytest.raises(AssertionError):
        _check_reason({"code": "too_tall", "status": 422}, operation, described)
