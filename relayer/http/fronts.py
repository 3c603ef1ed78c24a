"""The interface between the server and its fronts: memrelay's own API, and other protocols over the same use cases.

The server asks the fronts in turn whether a path is theirs. A front finds and authenticates the call, runs its handler and
renders errors; connections, time limits, logs, metrics and responses are the server's. Fronts for other protocols register
themselves as entry points, see `relayer.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from aiohttp.web import BaseRequest
from prometheus_client import CollectorRegistry

from relayer.http.accept import Acceptance
from relayer.http.limits import PEER_FAILURES
from relayer.http.problems import MEDIA_TYPE, problem_of
from relayer.http.routes import AcceptedCall, BaseRoute, Reply, RequestContext, Services
from relayer.lib.work import Deadline
from relayer.wire.signing import PROOF_HEADER


class Call(Protocol):
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
class Refusal:
    """A rendered error.

    Attributes:
        status: of the response.
        body: encoded.
        headers: the content type and further headers.
        code: for logs and metrics.
        rule: the true reason, for the log and the metrics of a 429 only.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    code: str
    rule: str = ""


class Front(Protocol[C]):
    """A protocol that the server speaks; ``C`` is its `Call`.

    Attributes:
        in_flight: entered while a request of this front is answered.
    """

    in_flight: AbstractContextManager[Any]

    def answers(self, target: str) -> bool:
        """Return whether a target belongs to this front."""

    async def accept(self, request: BaseRequest, context: RequestContext) -> C:
        """Find the route, authenticate the request and receive its body; raises the error for `refuse`."""

    async def handle(self, call: C) -> Reply:
        """Run the handler of an accepted call; raises the error for `refuse`."""

    async def still_admits(self, call: C) -> None:
        """Check a call again before a further chunk of its response; raises `NotAccepted` if it is no longer admitted."""

    async def refuse(self, error: Exception, context: RequestContext) -> Refusal:
        """Render an error."""

    def observe(self, method: str, route: str, refusal: Refusal | None, status: int, seconds: float) -> None:
        """Count a response in metrics of the front's own."""


class CreateFront(Protocol):
    """Creates a front when the relayer starts; the value of an entry point in the group ``memrelay.fronts``."""

    def __call__(
        self, settings: Any, services: Services, acceptance: Acceptance, registry: CollectorRegistry
    ) -> Front[Any]:
        """Create the front.

        Args:
            settings: the `relayer.settings.config.RelayerSettings`.
            services: the services of the native routes.
            acceptance: limits, bodies and connections of the process.
            registry: for metrics of the front's own.
        """


class NativeFront:
    """memrelay's own API; it answers every path that no other front claims."""

    def __init__(self, acceptance: Acceptance, services: Services) -> None:
        self.in_flight: AbstractContextManager[Any] = nullcontext()
        self.accept = acceptance.accept
        self.still_admits = acceptance.still_admits
        self._unread = acceptance.unread
        self._services = services

    def answers(self, target: str) -> bool:
        """Return True: this front comes last."""
        del target
        return True

    async def handle(self, call: AcceptedCall) -> Reply:
        """Run the handler. A read is checked again at its end."""
        reply = await call.route.handle(self._services, call)
        if call.signer is not None and not call.route.writes:
            # A revocation that came while the response was computed applies to it, above all if the request waited long.
            await self.still_admits(call)
            self._unread.check(call.account, len(reply.body))
        return reply

    async def refuse(self, error: Exception, context: RequestContext) -> Refusal:
        """Render an error as `render_problem` does."""
        return render_problem(error, context)

    def observe(self, method: str, route: str, refusal: Refusal | None, status: int, seconds: float) -> None:
        """Count nothing: the server's own metrics are those of this front."""


def render_problem(error: Exception, context: RequestContext) -> Refusal:
    """Return an error as a problem document, with a proof if the request states a signature."""
    problem = problem_of(error)
    headers = {"Content-Type": MEDIA_TYPE, **problem.headers}
    body = problem.body(context.request_id)
    # Peers that fail too often are refused without spending CPU on a signature.
    if context.prover is not None and problem.rule != PEER_FAILURES:
        if problem.code == "unauthorized":
            # Signed regardless of how far the request got: the kind of proof must not reveal what the one 401 hides.
            context.prover.refused()
        headers[PROOF_HEADER] = context.prover.whole(problem.status, body)
    return Refusal(problem.status, body, headers, problem.code, problem.rule or "")
