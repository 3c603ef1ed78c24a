"""A raw target reaches the route that it names, or none."""

from __future__ import annotations

import pytest

from relayer.http.problems import HttpProblem
from relayer.http.routes import AcceptedCall, Reply, Route, Routes
from relayer.wire.signing import Right


async def _handle(_, call: AcceptedCall) -> Reply:
    return Reply(call.parameter.encode())


def _route(method: str, path: str, *, signed: bool = False) -> Route:
    return Route(method, path, Right.READ if signed else None, 1.0, None, None, _handle, "a route")


ROUTES = Routes(
    [
        _route("GET", "/v1/things"),
        _route("POST", "/v1/things", signed=True),
        _route("GET", "/v1/things/{id}"),
        _route("DELETE", "/v1/things/{id}"),
        _route("POST", "/v1/things/{id}/restore"),
        _route("GET", "/v1/secret", signed=True),
    ]
)


def test_path_parameter_and_query_are_told_apart() -> None:
    route, parameter, query = ROUTES.find("GET", "/v1/things/a-B_9?limit=3")
    assert (route.path, parameter, query) == ("/v1/things/{id}", "a-B_9", "limit=3")


def test_a_parameter_may_stand_in_the_middle() -> None:
    route, parameter, _ = ROUTES.find("POST", "/v1/things/x/restore")
    assert (route.path, parameter) == ("/v1/things/{id}/restore", "x")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1/things/",
        "/v1//things",
        "/v1/things/a%2Fb",
        "/v1/things/%00",
        "/v1/things/../things",
        "/v1/things/..",
        "/V1/things",
        "/v1/thing%73",
        "/v1/things/" + "a" * 129,
        "/v1/things#x",
        "/v1/things/a\n",
    ],
)
def test_what_is_not_spelt_like_a_route_is_none(target: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        ROUTES.find("GET", target)
    assert caught.value.code == "not_found"


def test_a_wrong_method_is_told_the_right_ones() -> None:
    with pytest.raises(HttpProblem) as caught:
        ROUTES.find("PATCH", "/v1/things")
    assert caught.value.status == 405
    assert caught.value.headers["Allow"] == "GET, POST"


def test_only_open_routes_answer_head() -> None:
    assert ROUTES.find("HEAD", "/v1/things")[0].method == "GET"
    with pytest.raises(HttpProblem, match="method_not_allowed"):
        ROUTES.find("HEAD", "/v1/secret")
