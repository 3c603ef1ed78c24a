"""Build the OpenAPI 3.1 document from the route table and the schemas of requests and responses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from relayer.domain.operations import Refusal
from relayer.http.accept import DEADLINE_HEADER, LONGEST_DEADLINE_MS
from relayer.http.problems import CODES, MEDIA_TYPE
from relayer.http.routes import EVENTS, JSON, SEGMENT, Route
from relayer.wire import signing
from relayer.wire.service import Problem
from relayer.wire.signing import PROOF_HEADER, SEALED_TYPE

_REFERENCE = "#/components/schemas/{model}"


def _in_header(name: str, description: str) -> dict[str, str]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


# A signed request has certificate and signature, and the key as well if the agent holds the namespace's secret.
_SCHEMES: dict[str, dict[str, str]] = {
    "certificate": _in_header(
        signing.CERTIFICATE_HEADER, "base64url of the certificate that the account issued to the agent"
    ),
    "signature": _in_header(
        signing.SIGNATURE_HEADER, "base64url of created u64, expires u64, nonce 16, Ed25519 signature 64"
    ),
    "namespaceKey": _in_header(
        signing.KEY_HEADER, "base64url of the namespace's secret, sealed for the key of the day"
    ),
    "metricsToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "the relayer's MEMRELAY_METRICS_TOKEN; without one, /metrics is for its own machine",
    },
}
_SIGNED: dict[str, list[str]] = {"certificate": [], "signature": []}
_PROOF = (
    "base64url of what proves that the relayer answers this request: 32 bytes made with the namespace's secret, or 64 signed by "
    "the relayer; a stream has its proofs among its lines"
)
_PROOF_HEADERS = {"headers": {PROOF_HEADER: {"description": _PROOF, "schema": {"type": "string"}}}}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}
_COMMON_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    DEADLINE_HEADER: (
        "milliseconds after which the answer is of no use; the relayer's own bounds hold as well",
        {"type": "integer", "minimum": 1, "maximum": LONGEST_DEADLINE_MS},
    ),
    "x-request-id": ("echoed; one of another form is replaced", _NAME),
    "x-correlation-id": ("taken for the x-request-id where that is left out", _NAME),
}
# Codes of requests that state or a quota does not allow; the detail of the response says more.
_REFUSED = [
    *(code for code in Refusal if code not in {Refusal.UNKNOWN_RECORD, Refusal.MALFORMED, Refusal.EXPIRED}),
    *("quota_exceeded", "no_model", "over_budget", "nonce_reused", "stale_counter", "wrong_confirmation"),
]
# Codes that may come with a status other than that of the table.
_ALSO = {
    409: ", ".join(f"`{code}`" for code in _REFUSED),
    414: "header_too_large",
    422: "bad_vector, bad_cursor, revocations_invalid, malformed",
}


def document(routes: Sequence[Route], version: str) -> bytes:
    """Return the OpenAPI document of the routes, encoded as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    wanted: dict[tuple[type[BaseModel], Any], None] = {(Problem, "serialization"): None}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
        if route.body is not None:
            wanted[route.body, "validation"] = None
        if route.answer is not None:
            wanted[route.answer, "serialization"] = None
    _, definitions = models_json_schema(list(wanted), ref_template=_REFERENCE)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "memrelay",
            "version": version,
            "description": "Private long-term memory for agents. Signed routes: see docs/protocol.md.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "responses": _problems(),
            "securitySchemes": _SCHEMES,
        },
    }
    return json.dumps(described).encode()


def _operation(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done."}
    if route.right is not None:
        answer |= _PROOF_HEADERS
    if route.answer is not None:
        answer["content"] = {route.media_type: _schema_of(route.answer)}
        if route.path == "/v1/changes":
            answer["content"][EVENTS] = {"schema": {"type": "string"}}
    responses = {str(status): answer for status in route.statuses}
    responses |= {
        str(status): {"$ref": f"#/components/responses/problem{status}"}
        for status in sorted(_problem_statuses(route))
    }
    security: list[dict[str, list[str]]] = []
    if route.right is not None:
        security = [{**_SIGNED, "namespaceKey": []}, _SIGNED] if route.namespaced else [_SIGNED]
    elif route.path == "/metrics":
        security = [{"metricsToken": []}, {}]
    operation: dict[str, Any] = {
        "operationId": "_".join(
            [route.method.lower(), *re.findall(r"[a-z]+", route.path.removeprefix("/v1"))]
        ),
        "summary": route.summary,
        "security": security,
        "parameters": _parameters(route),
        "responses": responses,
    }
    if route.body is not None:
        content = {JSON: _schema_of(route.body)}
        if route.namespaced:
            sealed = {"description": "the same, sealed with the namespace's secret", "type": "string"}
            content[SEALED_TYPE] = {"schema": sealed | {"format": "binary"}}
        operation["requestBody"] = {"required": True, "content": content}
        if rules := _rules(route.body):
            operation["description"] = f"422 `invalid` also says: {'; '.join(rules)}."
    return operation


def _problem_statuses(route: Route) -> set[int]:
    # Statuses of problems, by properties of the route; `CODES` has their meaning.
    statuses = {400, 408, 414, 431, 500, 503}
    if route.right is not None:
        statuses |= {401, 404, 409, 422, 429, 504}
    if route.path == "/metrics":
        statuses.add(401)
    if route.query is not None:
        statuses.add(422)
    if route.body is not None:
        statuses |= {413, 415}
    if "{id}" in route.path:
        statuses.add(404)
    if route.writes:
        statuses.add(507)
    if route.ends_with_caller:
        statuses.add(502)
    return statuses - set(route.statuses)


def _rules(model: type[BaseModel]) -> list[str]:
    """Return rules between fields of a body, which its schema cannot express: the messages of its model validators."""
    checks = model.__pydantic_decorators__.model_validators.values()
    constants = [
        constant for check in checks for constant in getattr(check.func, "__code__", _NO_CODE).co_consts
    ]
    return [text for text in constants if isinstance(text, str) and " " in text]


_NO_CODE = (lambda: None).__code__


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [_header(name, text, schema) for name, (text, schema) in _COMMON_HEADERS.items()]
    if route.right is not None:
        digest = "sha-256=:base64: of the body; needed with a body"
        parameters.append(_header(signing.DIGEST_HEADER, digest, {"type": "string"}))
    if "{id}" in route.path:
        form = {"type": "string", "pattern": f"^{SEGMENT[1:-1]}$"}
        parameters.append({"name": "id", "in": "path", "required": True, "schema": form})
    if route.query is not None:
        properties = route.query.model_json_schema()["properties"]
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": _as_written(schema)}
            for name, schema in properties.items()
        ]
    return parameters


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query field as it appears in a URL: without null, and a list as names joined by commas."""
    written = {name: value for name, value in schema.items() if name not in {"default", "anyOf"}}
    for choice in schema.get("anyOf", ()):
        written |= choice if choice.get("type") != "null" else {}
    default = schema.get("default")
    if isinstance(default, list | tuple):
        default = ",".join(default)
    return written if default in {None, ""} else written | {"default": default}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _problems() -> dict[str, Any]:
    """Return the problem responses by status, each described by the codes that have it."""
    by_status: dict[int, list[str]] = {}
    for code, row in CODES.items():
        by_status.setdefault(row.status, []).append(f"`{code}`: {row.detail}")
    for status, codes in _ALSO.items():
        by_status.setdefault(status, []).append(f"{codes}: said in detail.")
    return {
        f"problem{status}": {
            "description": " ".join(codes),
            **_PROOF_HEADERS,
            "content": {MEDIA_TYPE: _schema_of(Problem)},
        }
        for status, codes in sorted(by_status.items())
    }
