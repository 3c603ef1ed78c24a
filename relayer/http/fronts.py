"""The interface between the server and its fronts: memrelay's own API, and other protocols over the same use cases.

A path belongs to the first front that declares it, or to memrelay's own API. A front finds and authenticates the call, runs
its handler and renders errors; connections, time limits, logs, metrics and responses are the server's. Fronts for other
protocols register themselves as entry points, see `relayer.wire.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp.web import BaseRequest
from prometheus_client import CollectorRegistry

from relayer.http.accept import Acceptance
from relayer.http.routes import BaseRoute, Reply, RequestContext, Routes, Services
from relayer.lib.work import Deadline


class PageHeaders(NamedTuple):
    """The headers that a front's clients use, each separated by commas.

    Attributes:
        sent: of requests.
        read: of responses.
    """

    sent: str
    read: str


class FrontCall(Protocol):
    """A call that a front accepted, as far as the server knows it."""

    @property
    def route(self) -> BaseRoute:
        """The matched route."""

    @property
    def deadline(self) -> Deadline:
        """When the response is due."""

    @property
    def account(self) -> str:
        """The account that the response is for; empty if the call is not authenticated."""


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class RenderedError:
    """A rendered error.

    Attributes:
        rule: the true reason, for the log and the metrics of a 429 only.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    code: str
    rule: str = ""


class Front(Protocol[C]):
    """A protocol that the server speaks; ``C`` is its `FrontCall`.

    Attributes:
        paths: the paths that belong to this front.
        prefixes: the beginnings of further ones, whether or not there is a route.
        routes: finds the route of a request.
        page_headers: what its clients send and read in a web page.
        in_flight: entered while a request of this front is answered.
    """

    paths: frozenset[str]
    prefixes: tuple[str, ...]
    routes: Routes[Any]
    page_headers: PageHeaders
    in_flight: AbstractContextManager[Any]

    async def accept(self, request: BaseRequest, context: RequestContext) -> C:
        """Find the route, authenticate the request and receive its body; raises the error for `refuse`."""

    async def handle(self, call: C) -> Reply:
        """Run the handler of an accepted call; raises the error for `refuse`."""

    async def still_admits(self, call: C) -> None:
        """Check a call again before a further chunk of its response; raises `NotAccepted` if it is no longer admitted."""

    async def refuse(self, error: Exception, context: RequestContext) -> RenderedError:
        """Convert an error of `accept` or `handle` to an HTTP response with the front's error format."""

    def observe(
        self, method: str, route: str, refusal: RenderedError | None, status: int, seconds: float
    ) -> None:
        """Count a response in metrics of the front's own."""


class CreateFront(Protocol):
    """Creates a front when the relayer starts; the value of an entry point in the group ``memrelay.fronts``."""

    def __call__(
        self, settings: Any, services: Services, acceptance: Acceptance, registry: CollectorRegistry
    ) -> Front[Any]:
        """Create the front."""
