"""What the relayer is compared with: the least that a signed search over HTTP can cost with the same libraries.

    python -m bench.bare_handler --agent-key HEX --rows ROWS.npy --memories MEMORIES.json --ready-file FILE

aiohttp's low-level server on uvloop, no router, no middleware, no access log. It checks one Ed25519 signature over the
body with PyNaCl, parses the JSON, scans the same rows as the relayer, and answers in the same shape. It keeps nothing,
knows no namespaces, no rights, no floor and no log. A query without a vector goes to the same local embedder.

    POST /recall    {"vector": base64} or {"query": text}
    POST /write     checked, parsed and answered; stored nowhere
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from aiohttp import web
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey
from numpy.typing import NDArray

from relayer.adapters.local_embedder import LocalEmbedder

__all__ = ["SIGNATURE", "BareHandler"]

SIGNATURE = "x-signature"
LIMIT = 5
_JSON = "application/json"


class BareHandler:
    """Answers requests; for `aiohttp.web.Server`.

    Args:
        agent_key: the Ed25519 public key that signs.
        rows: shape (n, d), float32, rows of length 1.
        memories: what the API would show of each row.
        embedder: for queries without a vector.
    """

    def __init__(
        self,
        agent_key: bytes,
        rows: NDArray[np.float32],
        memories: list[dict[str, Any]],
        embedder: LocalEmbedder | None = None,
    ) -> None:
        self._key = VerifyKey(agent_key)
        self._rows = rows
        self._memories = memories
        self._embedder = embedder

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        body = await request.read()
        try:
            self._key.verify(body, base64.b64decode(request.headers.get(SIGNATURE, "")))
        except (BadSignatureError, ValueError):
            return web.Response(status=401)
        asked = json.loads(body)
        answer = await self._recall(asked) if request.path == "/recall" else _acknowledged(asked)
        return web.Response(body=json.dumps(answer).encode(), content_type=_JSON)

    async def _recall(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "vector" in asked:
            query = np.frombuffer(base64.b64decode(asked["vector"]), np.dtype("<f4"))
        else:
            assert self._embedder is not None
            query = (await self._embedder.embed([asked["query"]], query=True))[0]
        scores = self._rows @ query
        best = np.argpartition(-scores, LIMIT)[:LIMIT]
        ranked = best[np.argsort(-scores[best])]
        hits = []
        for at in ranked.tolist():
            relevance = round(float(scores[at]), 4)
            judged = {"relevance": relevance, "distance": 1 - relevance, "evidence": None, "passage": ""}
            hits.append(self._memories[at] | judged)
        position = {"seq": len(self._rows), "digest": "0" * 64}
        return {"memories": hits, "position": position, "degraded": False, "considered": len(self._rows)}


def _acknowledged(asked: dict[str, Any]) -> dict[str, Any]:
    memories = [{"id": "0" * 26, "status": "stored", "code": None} for _ in asked["items"]]
    position = {"seq": 1, "digest": "0" * 64}
    return {"memories": memories, "position": position, "degraded": False, "job_id": None}


async def _serve(options: argparse.Namespace) -> None:
    embedder = LocalEmbedder()
    await embedder.load()
    memories = json.loads(options.memories.read_text("utf-8"))
    handler = BareHandler(bytes.fromhex(options.agent_key), np.load(options.rows), memories, embedder)
    listening = socket.create_server(("127.0.0.1", 0))
    runner = web.ServerRunner(web.Server(handler, access_log=None))
    await runner.setup()
    await web.SockSite(runner, listening).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    draft = options.ready_file.with_suffix(".draft")
    draft.write_text(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}))
    draft.replace(options.ready_file)
    await stop.wait()
    await runner.cleanup()
    await embedder.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent-key", required=True)
    for name in ("--rows", "--memories", "--ready-file"):
        parser.add_argument(name, type=Path, required=True)
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
