"""What a floor keeps and what it lets pass: evidence recall against unwanted injection."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import Section
from bench.scores import Scores
from bench.svg import drawing

__all__ = ["DEFAULT_FLOOR", "FLOORS", "Asked", "curve_section", "injection_section", "plot"]

DEFAULT_FLOOR = 0.3
FLOORS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8)
_TITLE = "Evidence recall and unwanted injection by floor, in percent"
_SETS = {
    "unrelated": "code, trivia and chores, which no calibration saw (bench/unrelated_prompts.py)",
    "near": "questions of the other conversations: other people, the same kind of life",
    "never said": "questions about people of the conversation, for what was never said",
}


@dataclass(slots=True)
class Asked:
    """Answers at floor 0.

    Attributes:
        answerable: ids, their relevance and the ids of the evidence, for each question that the memories answer.
        others: the best relevance for each prompt that they do not answer, by kind of prompt.
    """

    answerable: list[tuple[list[str], list[float], list[str]]] = field(default_factory=list)
    others: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def at(self, floor: float) -> Scores:
        """Score the rankings that a floor leaves."""
        scores = Scores()
        for ids, relevance, evidence in self.answerable:
            scores.add([id_ for id_, each in zip(ids, relevance, strict=True) if each >= floor], evidence)
        return scores

    def silent(self, floor: float) -> float:
        """Return the share of answerable questions that get nothing."""
        none = sum(not any(each >= floor for each in relevance) for _, relevance, _ in self.answerable)
        return none / max(len(self.answerable), 1)

    def injected(self, floor: float) -> dict[str, float]:
        """Return, by kind, the share of other prompts that get something; at floor 0 everything with relevance."""
        return {
            name: sum(best >= floor and best > 0 for best in values) / max(len(values), 1)
            for name, values in self.others.items()
        }


def injection_section(asked: Asked) -> Section:
    """Show what happens at the default floor."""
    shares, silent = asked.injected(DEFAULT_FLOOR), asked.silent(DEFAULT_FLOOR)
    rows = [
        (f"{name}: {_SETS[name]}", str(len(asked.others[name])), f"{share:.1%}")
        for name, share in shares.items()
    ]
    rows.append(("questions with evidence that get no answer", str(len(asked.answerable)), f"{silent:.1%}"))
    return Section(
        f"Prompts that inject something at the default floor of {DEFAULT_FLOOR}",
        ("prompts", "n", "share"),
        rows,
        {"injected": shares, "silent": silent},
        ("Nothing in a namespace tells what was never said from what was: no floor keeps that apart.",),
    )


def curve_section(asked: Asked) -> Section:
    """Show every floor."""
    names = list(asked.others)
    rows, data = [], {}
    for floor in FLOORS:
        means, shares = asked.at(floor).means(), asked.injected(floor)
        point = {"r@10": means["r@10"], "MRR": means["MRR"], "silent": 100 * asked.silent(floor)}
        point |= {name: 100 * share for name, share in shares.items()}
        data[str(floor)] = point
        rows.append((f"{floor:.2f}", *(f"{value:.1f}" for value in point.values())))
    return Section(_TITLE, ("floor", "r@10", "MRR", "silent", *names), rows, data)


def plot(sections: list[Section], folder: Path) -> list[Path]:
    """Draw the curve as SVG, the same bytes for the same numbers; nothing if it was not measured."""
    found = next((section for section in sections if section.title == _TITLE), None)
    if found is None:
        return []
    points, default = list(found.data.values()), found.data[str(DEFAULT_FLOOR)]
    path = folder / "floor.svg"
    with drawing(path) as axes:
        for name in _SETS:
            axes.plot(
                [point[name] for point in points],
                [point["r@10"] for point in points],
                marker=".",
                label=name,
            )
        axes.axhline(
            default["r@10"], color="grey", linewidth=0.6, linestyle="--", label=f"floor {DEFAULT_FLOOR}"
        )
        axes.set_xlabel("prompts that inject something, %")
        axes.set_ylabel("evidence recall at 10, %")
        axes.set_xscale("symlog", linthresh=1)
        axes.legend(loc="lower right")
        axes.grid(visible=True, linewidth=0.3)
    return [path]
