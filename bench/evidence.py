"""Measure the share of the evidence of a question in a block of at most so many tokens.

`BudgetScores` cuts rankings to budgets as a recall does, with the same lines for every system, so that only the order of the memories
and what a system leaves out count. `evidence_section` is the table, and `plot_evidence` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Section
from bench.svg import drawing
from relayer.namespaces.records import MemoryOrigin, RenderedMemory
from relayer.use_cases.recall import within_budget

__all__ = ["BUDGETS", "LINES", "BudgetScores", "evidence_section", "plot_evidence"]

BUDGETS = (25, 50, 100, 200, 400, 800, 1600)
LINES = 30
"""The maximum number of memories in a block."""
_TITLE = "Evidence in a block of at most so many tokens, in percent"
_BYTES_PER_TOKEN = 4
_NOWHERE = MemoryOrigin("", "", "", "")
# Colours of matplotlib's cycle; a system has the same one in every picture, and its variants another line.
_STYLES = {
    "memrelay": ("C0", "-"),
    "memrelay, floor 0.3": ("C0", "--"),
    "memrelay, without conversation and speaker": ("C0", ":"),
    "LanceDB, hybrid": ("C1", "-"),
    "mem0, infer=False": ("C2", "-"),
    "BM25": ("C3", "-"),
}


class BudgetScores:
    """Collects the rankings of one system, for every budget of `BUDGETS`.

    Example:
        >>> scores = BudgetScores()
        >>> scores.add(["a line of forty characters, ten tokens..", "short"], ["a", "b"], ["b"])
        >>> scores.shares()[25]
        100.0
    """

    def __init__(self) -> None:
        self._shares: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
        self._tokens: dict[int, list[float]] = {budget: [] for budget in BUDGETS}

    def add(self, lines: Sequence[str], ids: Sequence[str], evidence: Sequence[str]) -> None:
        """Add a ranking.

        Args:
            lines: the line of each memory, best first; those after the first `LINES` do not count.
            ids: of the memories.
            evidence: ids of the evidence, at least one.
        """
        sizes = [len(line.encode()) for line in lines[:LINES]]
        hits = [(RenderedMemory(b"", size, _NOWHERE), b"") for size in sizes]
        sought = set(evidence)
        for budget in BUDGETS:
            count = len(within_budget(hits, budget))
            self._shares[budget].append(len(sought.intersection(ids[:count])) / len(sought))
            self._tokens[budget].append(sum(sizes[:count]) / _BYTES_PER_TOKEN)

    def shares(self) -> dict[int, float]:
        """Return the mean share of the evidence in a block, in percent, by budget."""
        return {budget: 100 * _mean(values) for budget, values in self._shares.items()}

    def tokens(self) -> dict[int, float]:
        """Return the mean number of tokens that a block has, by budget."""
        return {budget: _mean(values) for budget, values in self._tokens.items()}


def evidence_section(measured: Mapping[str, BudgetScores]) -> Section:
    """Return the table: a row for each system, a column for each budget, and the mean size of the largest block."""
    rows, data = [], {}
    for name, scores in measured.items():
        shares, tokens = scores.shares(), scores.tokens()
        rows.append((name, *(f"{share:.1f}" for share in shares.values()), f"{tokens[BUDGETS[-1]]:.0f}"))
        data[name] = {
            str(budget): {"evidence": shares[budget], "tokens": tokens[budget]} for budget in BUDGETS
        }
    return Section(
        _TITLE,
        ("system", *map(str, BUDGETS), f"tokens of {BUDGETS[-1]:,}"),
        rows,
        data,
        (
            f"memories in their order, whole, until one does not fit, {LINES} at most; four bytes of a line with speaker and day",
            "count as one token; the last column is the mean number of tokens in a block of the largest budget.",
        ),
    )


def plot_evidence(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Draw the table as SVG, the same bytes for the same numbers; nothing if it was not measured."""
    measured = next((section for section in sections if section.title == _TITLE), None)
    if measured is None:
        return []
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - half a second that only a run that draws pays

    path = folder / "evidence.svg"
    with drawing(path) as axes:
        for name, (color, style) in _STYLES.items():
            if name not in measured.data:
                continue
            points = measured.data[name]
            shares = [points[str(budget)]["evidence"] for budget in BUDGETS]
            axes.plot(BUDGETS, shares, marker=".", color=color, linestyle=style, label=name)
        axes.set_xlabel("tokens of the block, at most")
        axes.set_ylabel("evidence in the block, %")
        axes.set_xscale("log")
        axes.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, 100)
        axes.legend(loc="lower right", fontsize=8)
        axes.grid(visible=True, linewidth=0.3)
    return [path]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
