"""The interface of fronts: other protocols over the same use cases, which register themselves as entry points.

A front is asked first whether a path is its own. It authenticates the requests of its clients and renders all of its
responses; connections, logs, metrics and limits of the process are the server's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp.web import BaseRequest, RequestHandler
from prometheus_client import CollectorRegistry

from relayer.http.accept import Acceptance
from relayer.http.routes import Services


@dataclass(frozen=True, slots=True)
class Answered:
    """A response as the server sends it, with what is logged about it."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    route: str
    code: str
    rule: str = ""
    account: str = ""
    events: AsyncIterator[bytes] | None = None
    endless: bool = False


class Front(Protocol):
    """A front for clients of another protocol."""

    def answers(self, target: str) -> bool:
        """Return whether a target belongs to this front."""

    def request_id(self, request: BaseRequest) -> str:
        """Return the client's request id, if it has the required form; otherwise a new one."""

    async def respond(self, request: BaseRequest, request_id: str, protocol: RequestHandler) -> Answered:
        """Answer a request; raises nothing except on cancellation."""


class CreateFront(Protocol):
    """Creates a front when the relayer starts; the value of an entry point in the group ``memrelay.fronts``."""

    def __call__(
        self, settings: Any, services: Services, acceptance: Acceptance, registry: CollectorRegistry
    ) -> Front:
        """Create the front.

        Args:
            settings: the `relayer.settings.config.RelayerSettings`.
            services: the services of the native routes.
            acceptance: limits, bodies and connections of the process.
            registry: for metrics of the front's own.
        """
