"""Routes, and finding the one that a raw target means.

The target is compared as sent: nothing is decoded, joined or cleaned, so ``%2F``, ``..`` and ``//`` reach no route.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

from relayer.http.auth import Signed
from relayer.http.problems import HttpProblem, unauthorized
from relayer.services.access import Access, Principal
from relayer.services.deadline import Deadline
from relayer.wire.certificates import Right

__all__ = ["JSON", "JSON_LINES", "Call", "Reply", "Route", "Routes"]

JSON = "application/json"
JSON_LINES = "application/jsonl"
_PARAMETER = re.compile(r"\{[a-z_]+\}")
# What an id in a path may look like; which ids exist is the services' to say.
_SEGMENT = r"([A-Za-z0-9_-]{1,128})"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, encoded; with ``chunks`` it is sent piece by piece, and breaks off where those do.

    ``endless`` says that the chunks come for as long as somebody listens: when the relayer stops, they just end.
    """

    body: bytes
    status: int = 200
    media_type: str = JSON
    chunks: AsyncIterator[bytes] | None = None
    endless: bool = False

    @classmethod
    def of(cls, answer: BaseModel, status: int = 200) -> Reply:
        """Encode an answer of the API."""
        # The serialiser's own bytes: `model_dump_json` would decode them into a string first.
        return cls(answer.__pydantic_serializer__.to_json(answer), status)


@dataclass(frozen=True, slots=True)
class Call:
    """A request after everything was checked: what a handler works with.

    ``events`` says that a stream of server-sent events is asked for, ``last_event`` the id of the last one that was heard.
    ``peer`` is the address that an open route is asked from, and ``authorization`` that header.
    """

    deadline: Deadline
    parameter: str = ""
    query: BaseModel | None = None
    body: BaseModel | None = None
    signed: Signed | None = None
    namespace_access: Access | None = None
    events: bool = False
    last_event: str = ""
    peer: str = ""
    authorization: str = ""

    @property
    def access(self) -> Access:
        """The way into the request's namespace; for namespaced routes."""
        if self.namespace_access is None:
            raise unauthorized("no_namespace")
        return self.namespace_access

    @property
    def principal(self) -> Principal:
        """Who signed the request; for signed routes."""
        if self.signed is None:
            raise TypeError("the route is declared as unsigned")
        return self.signed.principal

    def body_as(self, schema: type[M]) -> M:
        """Return the body as the type that the route declares."""
        if not isinstance(self.body, schema):
            raise TypeError(f"the route declares no body of {schema.__name__}")
        return self.body

    def query_as(self, schema: type[M]) -> M:
        """Return the query as the type that the route declares."""
        if not isinstance(self.query, schema):
            raise TypeError(f"the route declares no query of {schema.__name__}")
        return self.query


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    Attributes:
        method: upper case.
        path: with at most one ``{parameter}``.
        handle: answers an accepted call.
        summary: one line for the OpenAPI document.
        answer: schema of the answer, or of its lines; None for what is no JSON of ours.
        media_type: of the answer.
        body: schema of the body; None when the route takes none.
        query: schema of the query; None when the route takes none.
        signed: whether the request must be signed.
        namespaced: whether it is about one namespace.
        right: what the certificate must grant, on that namespace if there is one.
        writes: whether it changes anything; see `Authenticator.accept`.
        cost: in tokens of the rate limits.
        bytes_a_token: of a body, which costs as long as it is: read, parsed, looked for.
        seconds: the longest a request may take.
        statuses: of good answers.
        ends_with_caller: whether the work is cancelled when the connection is gone; never for what writes.
    """

    method: str
    path: str
    handle: Callable[[Call], Awaitable[Reply]]
    summary: str
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    signed: bool = True
    namespaced: bool = True
    right: Right | None = None
    writes: bool = False
    cost: float = 1.0
    bytes_a_token: int = 4096
    seconds: float = 30.0
    media_type: str = JSON
    statuses: tuple[int, ...] = (200,)
    ends_with_caller: bool = False


@dataclass(slots=True)
class _Path:
    pattern: re.Pattern[str]
    methods: dict[str, Route] = field(default_factory=dict)


class Routes:
    """A table of routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.table = tuple(routes)
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[str, _Path] = {}
        for route in self.table:
            if "{" not in route.path:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            pattern = "".join(
                _SEGMENT if _PARAMETER.fullmatch(part) else re.escape(part)
                for part in re.split(r"(\{[a-z_]+\})", route.path)
            )
            path = self._patterns.setdefault(route.path, _Path(re.compile(pattern)))
            path.methods[route.method] = route

    def find(self, method: str, target: str) -> tuple[Route, str, str]:
        """Return the route, its parameter (or the empty string) and the raw query.

        Raises:
            HttpProblem: ``not_found`` or ``method_not_allowed``.
        """
        path, _, query = target.partition("?")
        methods, parameter = self._exact.get(path), ""
        if methods is None:
            methods, parameter = self._match(path)
        route = methods.get(method)
        if route is None and method == "HEAD":
            route = methods.get("GET")
            # A signature covers the method; only open routes answer HEAD like GET.
            route = None if route is None or route.signed else route
        if route is None:
            raise HttpProblem("method_not_allowed", allow=", ".join(sorted(methods)))
        return route, parameter, query

    def _match(self, path: str) -> tuple[dict[str, Route], str]:
        for candidate in self._patterns.values():
            match = candidate.pattern.fullmatch(path)
            if match is not None:
                return candidate.methods, match[1]
        raise HttpProblem("not_found")
