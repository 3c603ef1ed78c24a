"""Draw the pictures of docs/performance.md from the numbers beside them: `python -m bench.performance_plots`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "performance"


def draw(name: str, measured: dict[str, Any], folder: Path) -> Path:
    """Write ``name``.svg, a group of bars for each label; the same bytes for the same numbers."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only who draws pays

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "memrelay"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of what draws

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    width = 0.8 / len(measured["bars"])
    for number, (label, values) in enumerate(measured["bars"].items()):
        places = [place + number * width for place in range(len(values))]
        drawn = axes.bar(places, values, width, label=label)
        axes.bar_label(drawn, labels=[f"{value:,.12g}" for value in values], fontsize=7)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(measured["labels"]))], measured["labels"])
    axes.set(title=measured["title"], xlabel=measured["x"], ylabel=measured["y"])
    if measured["log"]:
        axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.legend(fontsize=8)
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def main() -> None:
    for name, measured in json.loads((FOLDER / "measured.json").read_text("utf-8")).items():
        print(draw(name, measured, FOLDER))


if __name__ == "__main__":
    main()
