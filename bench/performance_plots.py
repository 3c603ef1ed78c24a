"""Draw the pictures of docs/performance.md from the numbers beside them: `python -m bench.performance_plots`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.svg import drawing

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "performance"


def draw(name: str, measured: dict[str, Any], folder: Path) -> Path:
    """Write ``name``.svg, a group of bars for each label; the same bytes for the same numbers."""
    path = folder / f"{name}.svg"
    width = 0.8 / len(measured["bars"])
    with drawing(path, width=7, height=3.2) as axes:
        for number, (label, values) in enumerate(measured["bars"].items()):
            places = [place + number * width for place in range(len(values))]
            drawn = axes.bar(places, values, width, label=label)
            axes.bar_label(drawn, labels=[f"{value:,.12g}" for value in values], fontsize=7)
        ticks = [place + 0.4 - width / 2 for place in range(len(measured["labels"]))]
        axes.set_xticks(ticks, measured["labels"])
        axes.set(title=measured["title"], xlabel=measured["x"], ylabel=measured["y"])
        if measured["log"]:
            axes.set_yscale("log")
        axes.margins(y=0.12)
        axes.legend(fontsize=8)
    return path


def main() -> None:
    for name, measured in json.loads((FOLDER / "measured.json").read_text("utf-8")).items():
        print(draw(name, measured, FOLDER))


if __name__ == "__main__":
    main()
