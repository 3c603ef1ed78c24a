"""Acknowledged writes a second into one namespace, against what the wire and the store could do at best.

Above it stands the bare handler, which checks and answers and stores nothing; below it the directory store's own pace,
one create after the other. A relayer that shares creates among the writes that wait is far above the second.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np

from bench.http_gateway import BenchGateway, bare_request
from bench.http_servers import Sample, Server, started
from bench.material import items, unit_vectors
from bench.report import Lab, Section
from bench.stats import percentile, ratio, spread

__all__ = ["write_rates"]

CONNECTIONS = (1, 16, 64)
_ROUND = {1: 300, 16: 1_500, 64: 2_500}


async def write_rates(lab: Lab) -> list[Section]:
    """Measure one signed item a request, vectors given."""
    work = lab.work / "writes"
    ours: dict[int, list[Sample]] = defaultdict(list)
    bare: dict[int, list[Sample]] = defaultdict(list)
    raw: list[float] = []
    size = 0
    with ExitStack() as stack:
        arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
        relayer = stack.enter_context(started("relayer", arguments, work / "relayer"))
        gateway = BenchGateway(relayer, work)
        handler = stack.enter_context(_bare(gateway, work))
        await _to_relayer(gateway, relayer, lab.count(50, 2), 1, seed=-1)
        await _to_bare(gateway, handler, lab.count(50, 2), 1, seed=-1)
        for number in range(lab.count(5, 1)):
            for connections in CONNECTIONS:
                lab.say(f"writes, {connections} connections: round {number + 1}")
                count = lab.count(_ROUND[connections], 64)
                seed = number * 1000 + connections
                if connections == 1:
                    # The object that one write makes; the raw loop creates objects of the same size.
                    before = _objects(work / "data")
                    ours[1].append(await _to_relayer(gateway, relayer, count, 1, seed=seed))
                    size = size or _mean_size(_objects(work / "data") - before)
                    raw.append(count / _raw(work / "data" / "objects", size, count))
                else:
                    ours[connections].append(
                        await _to_relayer(gateway, relayer, count, connections, seed=seed)
                    )
                bare[connections].append(await _to_bare(gateway, handler, count, connections, seed=seed))
        await gateway.client.aclose()
    return [_section(ours, bare, raw, size)]


def _bare(gateway: BenchGateway, work: Path) -> AbstractContextManager[Server]:
    np.save(work / "rows.npy", unit_vectors(8, 0))
    (work / "memories.json").write_text("[]", "utf-8")
    arguments = ["--agent-key", bytes(gateway.signing_key.verify_key).hex()]
    arguments += ["--rows", str(work / "rows.npy"), "--memories", str(work / "memories.json")]
    return started("bench.bare_handler", arguments, work / "bare")


async def _to_relayer(
    gateway: BenchGateway, relayer: Server, count: int, connections: int, *, seed: int
) -> Sample:
    identity = gateway.identity(f"writes-{connections}")
    wanted = items(unit_vectors(count, abs(seed)), seed)
    requests = [await gateway.request(identity, "/v1/memories", {"items": [item]}) for item in wanted]
    return await relayer.answer(requests, connections)


async def _to_bare(
    gateway: BenchGateway, handler: Server, count: int, connections: int, *, seed: int
) -> Sample:
    wanted, key = items(unit_vectors(count, abs(seed)), seed), gateway.signing_key
    requests = [bare_request(handler, key, "/write", {"items": [item]}) for item in wanted]
    return await handler.answer(requests, connections)


def _objects(data: Path) -> set[Path]:
    return {path for path in (data / "objects").rglob("*") if path.is_file()}


def _mean_size(objects: set[Path]) -> int:
    return round(sum(path.stat().st_size for path in objects) / len(objects))


def _raw(directory: Path, size: int, count: int) -> float:
    command = [sys.executable, "-m", "bench.raw_creates", str(directory)]
    command += ["--size", str(size), "--count", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _section(
    ours: dict[int, list[Sample]], bare: dict[int, list[Sample]], raw: list[float], size: int
) -> Section:
    rows, data = [], {"raw_creates_a_second": raw, "object_bytes": size}
    for connections in CONNECTIONS:
        rates = [sample.rate for sample in ours[connections]]
        share = ratio(rates, [sample.rate for sample in bare[connections]])
        multiple = ratio(rates, raw)
        latencies = [value for sample in ours[connections] for value in sample.load.latencies]
        rows.append(
            (
                str(connections),
                f"{share.median:.0%} ({share.low:.0%}..{share.high:.0%})",
                str(multiple),
                f"{spread(rates).median:.0f}",
                f"{spread([sample.rate for sample in bare[connections]]).median:.0f}",
                f"{spread([sample.cpu for sample in ours[connections]]).median * 1e6:.0f}",
                *(f"{percentile(latencies, at) * 1e3:.1f}" for at in (0.5, 0.95, 0.99)),
            )
        )
        data[str(connections)] = {
            "relayer_rate": rates,
            "bare_rate": [sample.rate for sample in bare[connections]],
            "relayer_cpu_seconds": [sample.cpu for sample in ours[connections]],
        }
    return Section(
        "Acknowledged writes into one namespace, one item a request",
        (
            "connections",
            "of the bare handler's rate",
            "of raw sequential creates",
            "relayer/s",
            "bare/s",
            "CPU us",
            "p50 ms",
            "p95",
            "p99",
        ),
        rows,
        data,
        (
            f"raw sequential creates of {size:,} bytes in the same directory store, in a process of their own:",
            f"{spread(raw).median:.0f}/s ({min(raw):.0f}..{max(raw):.0f});",
            "the bare handler checks the signature, parses and answers; it stores nothing.",
        ),
    )
