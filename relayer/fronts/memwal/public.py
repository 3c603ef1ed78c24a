"""Handlers without a signature: versions, health, configuration, and the one Sui request that MemWal's clients make.

Before its first call, a client asks the server named by ``/config`` whether a Sui package is at its first version. Here
that server is this relayer, which answers the question itself, so that no request of a client goes anywhere else. The
network's name must not be one that clients know, because they would then ask that network's own servers.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from relayer.fronts.memwal.contract import CompatError
from relayer.fronts.memwal.front import CompatCall, reply
from relayer.fronts.memwal.sessions import rpc_error
from relayer.http.accept import parse_json
from relayer.http.problems import HttpProblem
from relayer.http.routes import Reply

API_VERSION = "1.1.0"
PACKAGE_ID = "0x" + hashlib.blake2b(b"memrelay/v1/memwal-package", digest_size=32).hexdigest()
# The oldest supported versions. Clients compare these with a baseline of their own, which newer clients keep.
_MINIMA = {"typescript": "0.0.4", "python": "0.1.0", "mcp": "0.0.1"}
_FLAGS = {
    "auth.accountBoundNonce": True,
    "auth.sealSessionHeader": True,
    "config.publicDeploymentMetadata": True,
    "remember.asyncJobs": True,
    "remember.bulk": True,
    "runtime.versionEndpoint": True,
}
_HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,255}")
_MOST_OBJECTS = 50


def _block(call: CompatCall) -> dict[str, Any]:
    deprecations = []
    if call.to.acceptance.serves_legacy:
        deprecations.append(
            {
                "surface": "requests without x-nonce",
                "deprecatedSince": API_VERSION,
                "removalApiVersion": "2.0.0",
                "guidance": "Use a client that sends x-nonce: TypeScript 0.0.2, Python 0.1.0 or newer.",
            }
        )
    return {
        "relayerVersion": call.to.version.version,
        "apiVersion": API_VERSION,
        "minSupportedSdk": _MINIMA,
        "featureFlags": _FLAGS,
        "deprecations": deprecations,
        "build": {},
    }


async def version(call: CompatCall) -> Reply:
    """Handle ``GET /version``: information that both kinds of clients need before they send requests."""
    return reply(call.to.version.model_dump(mode="json") | _block(call))


async def health(call: CompatCall) -> Reply:
    """Handle ``GET /health``: ok as long as the process responds; ``write_ready`` is the store's state at the last ``/ready``."""
    state = {"status": "ok", "version": call.to.version.version, "mode": "production"}
    more = {"prompt_versions": {"extract": "1", "ask": "1"}, "write_ready": call.to.readiness.store_usable}
    return reply(state | _block(call) | more)


async def config(call: CompatCall) -> Reply:
    """Handle ``GET /config``: names this relayer as the server for Sui requests, by the URL by which this client reaches it."""
    url = call.to.public_url
    if url is None:
        headers = call.request.headers
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            raise CompatError(400, "Host must be a name or an address", rule="host")
        forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        scheme = forwarded if forwarded in {"http", "https"} else call.request.scheme
        url = f"{scheme}://{host}"
    return reply(
        {
            "packageId": PACKAGE_ID,
            "network": "localnet",
            "suiRpcUrl": f"{url.rstrip('/')}/sui",
            "rateLimitDisabled": not call.to.acceptance.points.enabled,
        }
    )


async def sui(call: CompatCall) -> Reply:
    """Handle ``POST /sui``: JSON-RPC, of which clients use two methods."""
    try:
        asked = parse_json(call.raw)
    except HttpProblem:
        return reply(rpc_error(None, -32700, "Parse error"))
    if not isinstance(asked, dict) or asked.get("jsonrpc") != "2.0":
        return reply(rpc_error(None, -32600, "Invalid Request"))
    given = asked.get("id")
    number = given if isinstance(given, int | str) else None
    params, method = asked.get("params"), asked.get("method")
    first = params[0] if isinstance(params, list) and params else None
    if method == "sui_getObject" and isinstance(first, str):
        return reply({"jsonrpc": "2.0", "id": number, "result": _object(first)})
    if method == "sui_multiGetObjects" and isinstance(first, list) and len(first) <= _MOST_OBJECTS:
        return reply({"jsonrpc": "2.0", "id": number, "result": [_object(str(one)) for one in first]})
    if method in {"sui_getObject", "sui_multiGetObjects"}:
        return reply(rpc_error(number, -32602, "Invalid params"))
    return reply(rpc_error(number, -32601, "Method not found"))


def _object(wanted: str) -> dict[str, Any]:
    if wanted.lower() != PACKAGE_ID:
        return {"error": {"code": "notExists", "object_id": wanted[:80]}}
    data = {
        "objectId": PACKAGE_ID,
        "version": "1",
        "digest": "1" * 32,
        "type": "package",
        "owner": "Immutable",
    }
    return {"data": data}
