"""The OpenAPI 3.1 document, made from routes and schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from relayer.http.accept import DEADLINE_HEADER
from relayer.http.problems import CODES, MEDIA_TYPE
from relayer.http.routes import JSON, Route
from relayer.wire import signing
from relayer.wire.service import Problem
from relayer.wire.signing import PROOF_HEADER, SEALED_TYPE

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
_PROOF_HEADERS = {"headers": {PROOF_HEADER: {"description": _PROOF, "schema": {"type": "string"}}}}
_COMMON_HEADERS = {
    DEADLINE_HEADER: "milliseconds after which the answer is of no use; the relayer's own bounds hold as well",
    "x-request-id": "echoed when it matches [A-Za-z0-9_.:-]{1,128}",
    "x-correlation-id": "taken for the x-request-id where that is left out",
}


def document(routes: Sequence[Route], version: str) -> bytes:
    """Describe routes; returns the document, encoded.

    Args:
        routes: all that are served.
        version: of the relayer.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "memrelay",
            "version": version,
            "description": "Private long-term memory for agents. Signed routes: see docs/protocol.md.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(routes), "responses": {"problem": _problem()}},
    }
    return json.dumps(described).encode()


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
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
    answer: dict[str, Any] = {"description": "Done."}
    if route.right is not None:
        answer |= _PROOF_HEADERS
    if route.answer is not None:
        answer["content"] = {route.media_type: _schema_of(route.answer)}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": {
            **{str(status): answer for status in route.statuses},
            "default": {"$ref": "#/components/responses/problem"},
        },
    }
    if route.body is not None:
        content = {JSON: _schema_of(route.body)}
        if route.namespaced:
            sealed = {"description": "the same, sealed with the namespace's secret", "type": "string"}
            content[SEALED_TYPE] = {"schema": sealed | {"format": "binary"}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [_header(name, text, required=False) for name, text in _COMMON_HEADERS.items()]
    if route.right is not None:
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
        **_PROOF_HEADERS,
        "content": {MEDIA_TYPE: _schema_of(Problem)},
    }
