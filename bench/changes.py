"""Learn what tells that a newer statement replaces or contradicts an older one, and say how right it is.

    python -m bench.changes [--failures]

The pairs of ``bench/sets/changes`` are labelled by hand, a file for each of fifteen languages: older, newer, and ``replaces``,
``conflicts`` or ``compatible``. Every newer statement beside every other older one of its language is unlike it, too. The
weights go to ``relayer/extraction/data/change_weights.toml``. How right they are is said of languages that they were not
learnt from, and of the seen half of ``bench/sets/day``. Nothing is random: the same pairs give the same weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from bench.day import personas
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.extraction.changes import LINKED, SURE, features, statement_of

PAIRS = Path(__file__).parent / "sets" / "changes"
WEIGHTS = Path(__file__).parent.parent / "relayer" / "extraction" / "data" / "change_weights.toml"
LABELS = ("replaces", "conflicts", "compatible")
# What all pairs of statements that have nothing to do with each other weigh together, for each labelled pair.
_STRANGERS = 2.0
_RIDGE = 0.5
_STEPS = 12

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements of one language, and whether the newer one changes what the older one says; ``strangers``: never labelled."""

    language: str
    old: str
    new: str
    changes: bool
    strangers: bool = False


def pairs(language: str) -> list[Pair]:
    """The labelled pairs of a language.

    Raises:
        ValueError: a line is not two texts and a label.
    """
    found = []
    for number, line in enumerate((PAIRS / f"{language}.tsv").read_text("utf-8").splitlines(), 1):
        parts = line.split("\t")
        if len(parts) != 3 or parts[2] not in LABELS:
            raise ValueError(
                f"{language}.tsv, line {number}: write older, newer and one of {', '.join(LABELS)}"
            )
        found.append(Pair(language, parts[0], parts[1], parts[2] != "compatible"))
    return found


def languages() -> list[str]:
    """Those that there are pairs of."""
    return sorted(path.stem for path in PAIRS.glob("*.tsv"))


def with_strangers(labelled: Sequence[Pair]) -> list[Pair]:
    """The pairs of one language, and each newer statement beside the older ones of the other pairs."""
    beside = [
        Pair(new.language, old.old, new.new, changes=False, strangers=True)
        for new in labelled
        for old in labelled
        if old is not new
    ]
    return [*labelled, *beside]


def of_the_day() -> list[Pair]:
    """The corrections of the seen half, what is alike and both true, and the corrections beside all else that is said."""
    found = []
    for one in personas("seen"):
        raw = one.raw
        found += [
            Pair(one.language, item["first"], item["then"], changes=True) for item in raw["corrections"]
        ]
        found += [
            Pair(one.language, item["first"], item["then"], changes=False) for item in raw["compatible"]
        ]
        said = [text for fact in raw["facts"] for text in fact["said"]] + [
            item["said"] for item in raw["short"]
        ]
        said += [item["first"] for item in raw["compatible"]]
        changes = [item["then"] for item in raw["corrections"]]
        changes += [text for fact in raw["facts"] for text in fact["said"]]
        found += [
            Pair(one.language, old, new, changes=False, strangers=True)
            for new in changes
            for old in said
            if old != new
        ]
    return found


async def measured(found: Sequence[Pair]) -> tuple[list[str], Numbers]:
    """The names of the features, and those of each pair."""
    texts = list(dict.fromkeys(text for pair in found for text in (pair.old, pair.new)))
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    try:
        rows = await embedder.embed(texts)
    finally:
        await embedder.close()
    at = {text: number for number, text in enumerate(texts)}
    read = [statement_of(text) for text in texts]
    table = [
        features(read[at[pair.old]], read[at[pair.new]], float(rows[at[pair.old]] @ rows[at[pair.new]]))
        for pair in found
    ]
    return list(table[0]), np.array([list(row.values()) for row in table])


def learnt(table: Numbers, found: Sequence[Pair]) -> Numbers:
    """The weights, the bias last: logistic regression with a ridge, by Newton's steps."""
    wanted = np.array([float(pair.changes) for pair in found])
    strangers = np.array([pair.strangers for pair in found])
    share = np.where(strangers, _STRANGERS * (~strangers).sum() / max(strangers.sum(), 1), 1.0)
    given = np.column_stack((table, np.ones(len(table))))
    ridge = np.diag([_RIDGE] * table.shape[1] + [0.0])
    weights = np.zeros(given.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-given @ weights))
        slope = given.T @ (share * (wanted - chance)) - ridge @ weights
        bend = (given * (share * chance * (1 - chance))[:, None]).T @ given + ridge
        weights += np.linalg.solve(bend, slope)
    return weights


def likelihoods(table: Numbers, weights: Numbers) -> Numbers:
    """How likely each pair is a change."""
    logits: Numbers = table @ weights[:-1] + weights[-1]
    return 1 / (1 + np.exp(-logits))


def _said(name: str, found: Sequence[Pair], likely: Numbers) -> str:
    def share(chosen: Iterable[bool], least: float) -> str:
        picked = likely[np.array(list(chosen))]
        return f"{100 * float((picked >= least).mean()):5.1f}" if len(picked) else "    -"

    parts = []
    for least in (LINKED, SURE):
        changes = share((pair.changes for pair in found), least)
        alike = share((not pair.changes and not pair.strangers for pair in found), least)
        strange = share((pair.strangers for pair in found), least)
        parts.append(f"from {least}: changes {changes}, alike {alike}, strangers {strange}")
    return f"{name:5} {'; '.join(parts)}"


def main(*, failures: Annotated[bool, typer.Option(help="Print the seen half's mistakes.")] = False) -> None:
    """Learn the weights, write them, and print how right they are."""
    everything = [pair for language in languages() for pair in with_strangers(pairs(language))]
    names, table = asyncio.run(measured(everything))
    left_out = np.zeros(len(everything))
    for language in languages():
        own = np.array([pair.language == language for pair in everything])
        known = [pair for pair in everything if pair.language != language]
        left_out[own] = likelihoods(table[own], learnt(table[~own], known))
        print(_said(language, [pair for pair in everything if pair.language == language], left_out[own]))
    print(_said("all", everything, left_out))
    weights = learnt(table, everything)
    lines = [f'"{name}" = {weight:.3f}' for name, weight in zip((*names, "bias"), weights, strict=True)]
    head = "# Made by python -m bench.changes from bench/sets/changes: do not edit.\n\n[weights]\n"
    WEIGHTS.write_text(head + "\n".join(lines) + "\n", "utf-8")
    day = of_the_day()
    likely = likelihoods(asyncio.run(measured(day))[1], weights)
    print(_said("day", day, likely))
    if failures:
        for pair, chance in zip(day, likely, strict=True):
            if (chance >= LINKED) is not pair.changes:
                print(f"{chance:.2f} {'change' if pair.changes else 'other'}: {pair.old} | {pair.new}"[:220])


if __name__ == "__main__":
    typer.run(main)
