"""Draw the pictures of docs/ as SVG, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def drawing(path: Path, *, width: float = 6.4, height: float = 4.0, panels: int = 1) -> Iterator[Any]:
    """Yield the axes of a picture, of several panels a list of them, and write it at the end."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only a run that draws pays

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "memrelay"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of what draws

    figure, axes = plt.subplots(1, panels, figsize=(width, height), layout="constrained")
    yield axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
