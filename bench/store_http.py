"""A relayer over a bucket, asked through HTTP: writes at 64 connections, one writer alone, one warm recall after the other."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.http_gateway import BenchGateway, bare_request
from bench.http_servers import Sample, Server, started
from bench.material import encoded, items, unit_vectors

__all__ = ["MEMORIES", "Bare", "Relaying"]

MEMORIES = 1_000
_WRITERS, _ALONE, _RECALLS = "writers", "alone", "recalls"


class Relaying:
    """One relayer process over a prefix of its own, and an agent with three namespaces there."""

    def __init__(self, server: Server, gateway: BenchGateway) -> None:
        self.server = server
        self.gateway = gateway
        self._queries = [encoded(row) for row in unit_vectors(64, 12)]

    @classmethod
    async def start(
        cls, stack: ExitStack, place: Sequence[str], credentials: Mapping[str, str], work: Path
    ) -> Relaying:
        """Start it over the bucket that ``place`` names, and store what will be recalled."""
        arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
        arguments += place
        environment = {**credentials, "MEMRELAY_RELAYER_KEY": secrets.token_hex(32)}
        server = stack.enter_context(started("relayer", arguments, work, environment))
        relaying = cls(server, BenchGateway(server, work))
        rows = unit_vectors(MEMORIES, 11)
        await relaying.gateway.fill(relaying.gateway.identity(_RECALLS), items(rows, 11))
        await relaying.write_alone(20, seed=1)
        await relaying.write_together(64, 64, seed=2)
        await relaying.recall(50)
        server.settle()
        return relaying

    async def write_together(self, count: int, connections: int, *, seed: int) -> Sample:
        """Write one signed item a request into one namespace."""
        return await self._write(_WRITERS, count, connections, seed)

    async def write_alone(self, count: int, *, seed: int) -> Sample:
        """The same over one connection, into a namespace that nobody else writes."""
        return await self._write(_ALONE, count, 1, seed)

    async def recall(self, count: int) -> Sample:
        """Recall by a given vector, strong, over one connection."""
        identity = self.gateway.identity(_RECALLS)
        bodies: list[dict[str, Any]] = [
            {"vector": self._queries[at % len(self._queries)], "floor": 0, "consistency": "strong"}
            for at in range(count)
        ]
        requests = [await self.gateway.request(identity, "/v1/recall", body) for body in bodies]
        return await self.server.answer(requests, 1)

    async def _write(self, namespace: str, count: int, connections: int, seed: int) -> Sample:
        identity = self.gateway.identity(namespace)
        wanted = items(unit_vectors(count, seed), seed)
        requests = [
            await self.gateway.request(identity, "/v1/memories", {"items": [item]}) for item in wanted
        ]
        return await self.server.answer(requests, connections)


class Bare:
    """The handler that checks a signature, parses and answers, and stores nothing."""

    def __init__(self, server: Server, gateway: BenchGateway) -> None:
        self._server = server
        self._key = gateway.signing_key

    @classmethod
    def start(cls, stack: ExitStack, gateway: BenchGateway, work: Path) -> Bare:
        """Start it for the signatures of one gateway."""
        work.mkdir(parents=True)
        np.save(work / "rows.npy", unit_vectors(8, 0))
        (work / "memories.json").write_text("[]", "utf-8")
        arguments = ["--agent-key", bytes(gateway.signing_key.verify_key).hex()]
        arguments += ["--rows", str(work / "rows.npy"), "--memories", str(work / "memories.json")]
        return cls(stack.enter_context(started("bench.bare_handler", arguments, work)), gateway)

    async def write(self, count: int, connections: int, *, seed: int) -> Sample:
        """Send it what a relayer is sent."""
        wanted = items(unit_vectors(count, seed), seed)
        requests = [bare_request(self._server, self._key, "/write", {"items": [item]}) for item in wanted]
        return await self._server.answer(requests, connections)
