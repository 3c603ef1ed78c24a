"""MemWal's own Python client against a relayer on this machine: remember until done, and recall, beside the same requests without the client.

    make bench-compat BENCH_ARGS="--rounds 100"

The client is installed once below ~/.cache/memrelay-tests. What MemWal published of its own hosted service is printed as published;
it ran elsewhere, over other stores, and is no comparison of like with like.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import structlog
from nacl.signing import SigningKey

from relayer.fronts.memwal.contract import address_of
from relayer.testing.local_relayer import local_relayer

VERSION = "0.2.1"
PUBLISHED = (
    "published by MemWal in 2026: 30.1 to 75.1 s to done in production, ingest p50 24.5 s and p95 42.1 s; "
    "warm recall about 0.295 s, 3.1 s end to end in production"
)


def installed() -> Path:
    """Return where the client is, installed if need be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memrelay-tests"
    place = cache / f"memwal-{VERSION}"
    if not (place / "memwal").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place)]
        subprocess.run([*command, f"memwal=={VERSION}"], check=True)
    return place


async def taking_turns(
    works: dict[str, Callable[[int], Awaitable[object]]], rounds: int
) -> dict[str, list[float]]:
    """Return how long each round of each took, in ms, one after the other, so that a busy machine slows all alike; two warm up."""
    took: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 2):
        for name, work in works.items():
            started = time.perf_counter()
            await work(number)
            took[name].append((time.perf_counter() - started) * 1000)
    return {name: each[2:] for name, each in took.items()}


class Direct:
    """The same requests, signed and sent without the client: what is left is the relayer and HTTP."""

    def __init__(self, url: str, key: SigningKey) -> None:
        self.url, self.key = url, key
        self.account = address_of(bytes(key.verify_key))
        self.http = httpx.AsyncClient(trust_env=False)

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        raw = b"" if body is None else json.dumps(body).encode()
        stamp, nonce = str(int(time.time())), str(uuid.uuid4())
        fields = (stamp, method, path, hashlib.sha256(raw).hexdigest(), nonce, self.account)
        headers = {
            "x-public-key": bytes(self.key.verify_key).hex(),
            "x-signature": self.key.sign(".".join(fields).encode()).signature.hex(),
            "x-timestamp": stamp,
            "x-nonce": nonce,
            "x-account-id": self.account,
            "content-type": "application/json",
        }
        answer = await self.http.request(method, self.url + path, content=raw, headers=headers)
        answer.raise_for_status()
        return dict(answer.json())

    async def remember(self, number: int) -> None:
        job = await self.send(
            "POST", "/api/remember", {"text": f"Direct note {number} about lamps.", "namespace": "d"}
        )
        assert (await self.send("GET", f"/api/remember/{job['job_id']}"))["status"] == "done"

    async def recall(self, number: int) -> None:
        assert (await self.send("POST", "/api/recall", {"query": f"note {number}", "namespace": "d"}))[
            "total"
        ]


async def measure(rounds: int) -> dict[str, list[float]]:
    sys.path.insert(0, str(installed()))
    client_of = import_module("memwal").MemWal
    async with local_relayer(real_model=True, rate_limits="off") as relayer:
        key = SigningKey.generate()
        account = address_of(bytes(key.verify_key))
        client = client_of.create(
            key=bytes(key).hex(), account_id=account, server_url=relayer.url, namespace="c"
        )
        direct = Direct(relayer.url, key)
        took = await taking_turns(
            {
                "client, remember and wait": lambda number: client.remember_and_wait(
                    f"Client note {number} about lamps."
                ),
                "direct, remember and ask": direct.remember,
            },
            rounds,
        ) | await taking_turns(
            {
                "client, recall": lambda number: client.recall(f"note {number}"),
                "direct, recall": direct.recall,
            },
            rounds,
        )
        await client.close()
        await direct.http.aclose()
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(40),
    )
    with redirect_stdout(sys.stderr):
        took = asyncio.run(measure(rounds))
    print(
        f"memwal {VERSION} against a relayer on this machine, the default model, {rounds} rounds each, in ms"
    )
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; the ratio is the client's time to that of the same requests alone"
    )
    print(f"{'':28} {'p50':>8} {'p95':>8} {'ratio':>8}")
    names = list(took)
    for client, direct in zip(names[::2], names[1::2], strict=True):
        middle, alone = np.percentile(took[client], 50), np.percentile(took[direct], 50)
        print(f"{client:28} {middle:8.1f} {np.percentile(took[client], 95):8.1f} {middle / alone:8.2f}")
        print(f"{direct:28} {alone:8.1f} {np.percentile(took[direct], 95):8.1f}")
    print(PUBLISHED)


if __name__ == "__main__":
    main()
