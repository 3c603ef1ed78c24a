"""The open routes: is it alive, is it ready, what is it, how is it doing, which keys to seal for."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel

from relayer.http.metrics import CONTENT_TYPE, Metrics
from relayer.http.openapi import document
from relayer.http.problems import HttpProblem
from relayer.http.readiness import Readiness
from relayer.http.routing import Call, Reply, Route
from relayer.ports import Clock
from relayer.services.fleet import FleetKeys
from relayer.wire import base64url, schemas
from relayer.wire.loopback import is_loopback

__all__ = ["MetricsReaders", "OpenRoutes"]

# Rendering takes about 15 ms, and scrapes are seconds apart.
_METRICS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MetricsReaders:
    """Who may read the metrics: whoever shows the token; without one, programs of this machine, unless ``proxied``.

    Behind a proxy everybody comes from the proxy's address.
    """

    token: str = field(default="", repr=False)
    proxied: bool = False

    def check(self, call: Call) -> None:
        """Refuse anybody else.

        Raises:
            HttpProblem: ``unauthorized``.
        """
        if self.token:
            given = call.authorization.removeprefix("Bearer ").strip()
            allowed = hmac.compare_digest(given.encode(), self.token.encode())
        else:
            allowed = not self.proxied and is_loopback(call.peer)
        if not allowed:
            raise HttpProblem(
                "unauthorized",
                "Metrics are for the operator: send the relayer's MEMRELAY_METRICS_TOKEN as authorization: Bearer. Without "
                "one they are read on the relayer's own machine, unless it is behind a proxy.",
                rule="metrics_reader",
            )


class OpenRoutes:
    """The unsigned routes.

    Args:
        version: what `GET /version` says.
        fleet: the keys to seal for.
        readiness: see there.
        metrics: see there.
        described: the signed routes, for the OpenAPI document.
        readers: of the metrics.
        clock: for how old they may be.
    """

    def __init__(
        self,
        version: schemas.VersionResponse,
        fleet: FleetKeys,
        readiness: Readiness,
        metrics: Metrics,
        described: Iterable[Route],
        *,
        readers: MetricsReaders,
        clock: Clock,
    ) -> None:
        self._version = version
        self._fleet = fleet
        self._readiness = readiness
        self._metrics = metrics
        self._described = tuple(described)
        self._readers = readers
        self._clock = clock
        self._document: bytes | None = None
        self._rendered = b""
        self._rendered_at = float("-inf")

    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            _open("/health", self._health, "The process answers.", schemas.HealthResponse),
            _open(
                "/ready", self._ready, "It can serve: each check by name.", schemas.ReadyResponse, 200, 503
            ),
            _open("/version", self._show_version, "What a client needs to know.", schemas.VersionResponse),
            _open("/metrics", self._show_metrics, "Prometheus metrics.", None),
            _open("/openapi.json", self._openapi, "This document.", None),
            _open(
                "/v1/keys", self._keys, "The keys to seal for, signed by the relayer.", schemas.KeysResponse
            ),
        )

    async def _health(self, _: Call) -> Reply:
        return Reply.of(schemas.HealthResponse(status="ok", version=self._version.version))

    async def _ready(self, _: Call) -> Reply:
        answer = await self._readiness.check()
        return Reply.of(answer, 200 if answer.ready else 503)

    async def _show_version(self, _: Call) -> Reply:
        return Reply.of(self._version)

    async def _show_metrics(self, call: Call) -> Reply:
        self._readers.check(call)
        if self._clock.monotonic() - self._rendered_at >= _METRICS_SECONDS:
            # Before the checks are waited for: whoever asks meanwhile gets what there was.
            self._rendered_at = self._clock.monotonic() if self._rendered else self._rendered_at
            self._metrics.observe_checks((await self._readiness.check()).checks)
            self._rendered, self._rendered_at = self._metrics.render(), self._clock.monotonic()
        return Reply(self._rendered, media_type=CONTENT_TYPE)

    async def _openapi(self, _: Call) -> Reply:
        if self._document is None:
            # About 0.1 s of work, once; requests go on meanwhile.
            self._document = await asyncio.to_thread(self._describe)
        return Reply(self._document)

    async def _keys(self, _: Call) -> Reply:
        current = self._fleet.current()
        views = tuple(
            schemas.FleetKeyView(
                day=key.day, public_key=base64url.encode(key.public_key), not_after=key.not_after
            )
            for key in current.keys
        )
        answer = schemas.KeysResponse(
            identity=base64url.encode(current.identity),
            issued_at=current.issued_at,
            keys=views,
            signature=base64url.encode(current.signature),
        )
        return Reply.of(answer)

    def _describe(self) -> bytes:
        return json.dumps(document((*self._described, *self.table()), self._version.version)).encode()


def _open(
    path: str,
    handle: Callable[[Call], Awaitable[Reply]],
    summary: str,
    answer: type[BaseModel] | None,
    *statuses: int,
) -> Route:
    return Route(
        "GET",
        path,
        handle,
        summary,
        answer=answer,
        signed=False,
        namespaced=False,
        cost=0.0,
        statuses=statuses or (200,),
    )
