"""Resident memory of a relayer: idle, and for each 10,000 memories that it holds open."""

from __future__ import annotations

from typing import Any

from bench.http_gateway import BenchGateway
from bench.http_servers import started
from bench.material import encoded, items, unit_vectors
from bench.report import Lab, Section
from relayer.wire import schemas

__all__ = ["resident_memory"]

_MIB = 1024 * 1024
STEP = 10_000


async def resident_memory(lab: Lab) -> list[Section]:
    """Store memories with vectors given, let the relayer finish its background work, and look at its pages."""
    work = lab.work / "memory"
    step = lab.count(STEP, 300)
    arguments = ["serve", "--port", "0", "--data", str(work / "data"), "--rate-limits", "off"]
    points: list[tuple[int, int, int]] = []
    with started("relayer", arguments, work / "relayer") as relayer:
        gateway = BenchGateway(relayer, work)
        identity = gateway.identity("memory")
        relayer.settle()
        points.append((0, *relayer.memory()))
        for number in range(1, 3):
            lab.say(f"memory: storing {step:,} memories, round {number}")
            await gateway.fill(identity, items(unit_vectors(step, lab.seed + number), lab.seed + number))
            query = schemas.RecallRequest.model_validate(
                {"vector": encoded(unit_vectors(1, 0)[0]), "floor": 0}
            )
            await gateway.client.recall(identity, query, deadline=14.0)
            relayer.settle()
            points.append((number * step, *relayer.memory()))
        await gateway.client.aclose()
    return [_section(points)]


def _section(points: list[tuple[int, int, int]]) -> Section:
    rows, data = [], {}
    before: int | None = None
    for count, resident, highest in points:
        more = "" if before is None else f"{(resident - before) / _MIB:.0f}"
        rows.append((f"{count:,}", f"{resident / _MIB:.0f}", more, f"{highest / _MIB:.0f}"))
        data[str(count)] = {"resident_bytes": resident, "highest_bytes": highest}
        before = resident
    about: dict[str, Any] = data
    return Section(
        "Resident memory of one relayer process",
        ("memories held open", "MiB", "more than before", "highest so far"),
        rows,
        about,
        (
            "idle includes the embedding model; one namespace, 384 dimensions, texts of about 70 bytes;",
            "above 3,000 memories a graph is part of it.",
        ),
    )
