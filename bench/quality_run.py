"""Measure how well memories are found and how rarely anything else is; `make bench-quality` runs it.

The same for the same data and seed but for the times: prints tables, and writes the numbers as JSON and plots as SVG.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench.evidence import plot_evidence
from bench.quality import recall_quality
from bench.quality_curve import plot
from bench.recall_latency import recall_latency
from bench.report import Lab, Section, machine, show, write
from bench.side_by_side import side_by_side

__all__ = ["Part", "main"]


class Part(StrEnum):
    """What can be measured alone."""

    API = "api"
    SIDE_BY_SIDE = "side-by-side"
    LATENCY = "latency"


_MEASURES: dict[Part, Callable[[Lab], Awaitable[list[Section]]]] = {
    Part.API: recall_quality,
    Part.SIDE_BY_SIDE: side_by_side,
    Part.LATENCY: recall_latency,
}


def main(
    data: Annotated[
        Path | None, typer.Option(help="Conversations to ask about; without it, latency alone.")
    ] = None,
    only: Annotated[list[Part] | None, typer.Option(help="Only this part; may be repeated.")] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="See that everything runs; numbers mean nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Directory for the JSON file and the plots.")] = Path("bench/out"),
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 11,
) -> None:
    """Measure recall, silence and the time they take, and print one table for each question."""
    console, progress = Console(width=120), Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="memrelay-bench-") as folder:
        about = machine(Path(folder))
        console.print(
            f"{about['cores']} cores, load average {about['load_average']:.1f} at the start, seed {seed}\n"
        )
        sections: list[Section] = []
        with progress.status("starting") as status:
            lab = Lab(Path(folder), quick, status.update, data, seed=seed)
            for part in only or list(Part):
                for section in uvloop.run(_measured(_MEASURES[part], lab)):
                    show(section, console)
                    sections.append(section)
    written = [out / "quality.json", *plot(sections, out), *plot_evidence(sections, out)]
    write(written[0], about | {"seed": seed}, sections)
    console.print("written: " + ", ".join(map(str, written)))


async def _measured(measure: Callable[[Lab], Awaitable[list[Section]]], lab: Lab) -> list[Section]:
    return await measure(lab)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
