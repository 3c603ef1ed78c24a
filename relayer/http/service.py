"""The open routes: keys, health, version, metrics, and the OpenAPI 3.1 document made from routes and schemas."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from relayer.access.fleet import FleetKeys
from relayer.http.health import CONTENT_TYPE, Metrics, Readiness
from relayer.http.parsing import DEADLINE_HEADER
from relayer.http.problems import CODES, MEDIA_TYPE, HttpProblem
from relayer.http.request import JSON, Call, Reply, Route
from relayer.ports import Clock
from relayer.wire import codec as base64url
from relayer.wire import schemas, signing
from relayer.wire.loopback import is_loopback
from relayer.wire.proofs import PROOF_HEADER, SEALED_TYPE
from relayer.wire.service import Problem

_REFERENCE = "#/components/schemas/{model}"
_HEADERS = {
    signing.CERTIFICATE_HEADER: (True, "base64url of the certificate that the account issued to the agent"),
    signing.SIGNATURE_HEADER: (True, "base64url of created u64, expires u64, nonce 16, Ed25519 signature 64"),
    signing.DIGEST_HEADER: (False, "sha-256=:base64: of the body; needed with a body"),
    signing.KEY_HEADER: (False, "base64url of the namespace's secret, sealed for the key of the day"),
}
_PROOF = (
    "base64url of what proves that the relayer answers this request: 32 bytes made with the namespace's secret, or 64 signed by "
    "the relayer; a stream has its proofs among its lines"
)
_COMMON_HEADERS = {
    DEADLINE_HEADER: "milliseconds after which the answer is of no use; the relayer's own bounds hold as well",
    "x-request-id": "echoed when it matches [A-Za-z0-9_.:-]{1,128}",
}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Describe routes.

    Args:
        routes: all that are served.
        version: of the relayer.
    """
    table = tuple(routes)
    schemas = _schemas(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "memrelay",
            "version": version,
            "description": "Private long-term memory for agents. Signed routes: see docs/protocol.md.",
        },
        "paths": paths,
        "components": {"schemas": schemas, "responses": {"problem": _problem()}},
    }


def _schemas(routes: Iterable[Route]) -> dict[str, Any]:
    wanted: dict[tuple[type[BaseModel], Any], None] = {(Problem, "serialization"): None}
    for route in routes:
        if route.body is not None:
            wanted[route.body, "validation"] = None
        if route.answer is not None:
            wanted[route.answer, "serialization"] = None
    _, definitions = models_json_schema(list(wanted), ref_template=_REFERENCE)
    found: dict[str, Any] = definitions["$defs"]
    return found


def _operation(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.answer is not None:
        content = {
            "content": {
                route.media_type: {"schema": {"$ref": _REFERENCE.format(model=route.answer.__name__)}}
            }
        }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            **{
                str(status): {"description": "Done.", **_proof(route), **content} for status in route.statuses
            },
            "default": {"$ref": "#/components/responses/problem"},
        },
    }
    if route.body is not None:
        schema = {"$ref": _REFERENCE.format(model=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
        if route.namespaced:
            sealed = {"description": "the same, sealed with the namespace's secret", "type": "string"}
            operation["requestBody"]["content"][SEALED_TYPE] = {"schema": sealed | {"format": "binary"}}
    return operation


def _proof(route: Route) -> dict[str, Any]:
    if not route.signed:
        return {}
    return {"headers": {PROOF_HEADER: {"description": _PROOF, "schema": {"type": "string"}}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [_header(name, text, required=False) for name, text in _COMMON_HEADERS.items()]
    if route.signed:
        parameters += [_header(name, text, required=need) for name, (need, text) in _HEADERS.items()]
    if "{id}" in route.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string"}})
    if route.query is not None:
        properties = route.query.model_json_schema()["properties"]
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in properties.items()
        ]
    return parameters


def _header(name: str, description: str, *, required: bool) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string"},
    }


def _problem() -> dict[str, Any]:
    codes = "; ".join(f"`{code}` ({row.status}): {row.detail}" for code, row in CODES.items())
    return {
        "description": f"What went wrong, with a stable code. {codes}",
        "headers": {PROOF_HEADER: {"description": _PROOF, "schema": {"type": "string"}}},
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
    }


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
