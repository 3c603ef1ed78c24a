"""Learn what tells that a newer statement replaces or contradicts an older one, and say how right it is.

    python -m bench.changes [--failures]

The pairs of ``bench/sets/changes`` are labelled by hand, a file for each of fifteen languages: older, newer, and ``replaces``,
``conflicts`` or ``compatible``. Every newer statement beside other older ones of its language is unlike them, too, and so is
what people say without a change beside what is about something else: those nearest to each, and some of the rest. Weights that need no vector but for a cosine go to
``relayer/extraction/data/change_weights.toml``, those that read the newer statement's vector to ``change_reader.npz`` beside
it. How right they are is said of languages that they were not learnt from, and of the seen half of ``bench/sets/day``.
Nothing is random: the same pairs give the same weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from bench.day import personas
from bench.message_reader import labelled
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.extraction.changes import LINKED, SURE, features, is_comparable, statement_of
from relayer.search.terms import indexed_text

PAIRS = Path(__file__).parent / "sets" / "changes"
DATA = Path(__file__).parent.parent / "relayer" / "extraction" / "data"
LABELS = ("replaces", "conflicts", "compatible")
# What all pairs of statements that have nothing to do with each other weigh together, for each labelled pair.
_STRANGERS = 2.0
_RIDGE = 0.5
# Of the numbers of a vector, which are small.
_RIDGE_OF_VECTORS = 0.1
_STEPS = 12
# Strangers beside each newer statement: the nearest, and of the others every so manieth.
_NEAREST = 4
_EVERY = 12
# In logits: among what a person says, changes are rarer than among these pairs. Chosen on the seen half of the days.
_RARER = 0.8
# Messages come with a day or without one.
_DAY = 1_760_000_000_000

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements of one language, and whether the newer one changes what the older one says; ``strangers``: never labelled."""

    language: str
    old: str
    new: str
    changes: bool
    strangers: bool = False
    day: int | None = None


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


def plain_strangers(language: str) -> list[Pair]:
    """What people say without any change beside what they said before, but for what is about the same sort of thing."""
    said = [pair.old for pair in pairs(language)]
    said += [text for told, label, text in labelled() if told == language and label == "keep"]
    about = {text: statement_of(text).about for text in said}
    return [
        Pair(language, old, new, changes=False, strangers=True)
        for new in about
        for old in about
        if old != new and about[old].isdisjoint(about[new])
    ]


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


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of pairs: a row each.

    Attributes:
        names: of the features.
        table: the features.
        vectors: of the newer statements.
        cosines: of both.
        comparable: whether they are judged at all, see `relayer.extraction.changes.is_comparable`.
        model: the SHA-256 of the model of the vectors.
    """

    names: list[str]
    table: Numbers
    vectors: NDArray[np.float32]
    cosines: Numbers
    comparable: NDArray[np.bool_]
    model: str

    @property
    def with_vectors(self) -> Numbers:
        """The features and the vectors."""
        return np.column_stack((self.table, self.vectors))

    def of(self, chosen: NDArray[np.bool_]) -> Measured:
        """Those that were chosen."""
        return replace(
            self,
            table=self.table[chosen],
            vectors=self.vectors[chosen],
            cosines=self.cosines[chosen],
            comparable=self.comparable[chosen],
        )

    def likely(self, weights: Numbers) -> Numbers:
        """How likely each pair is a change, by weights of the features, or of features and vectors."""
        table = self.table if len(weights) == len(self.names) + 1 else self.with_vectors
        logits: Numbers = table @ weights[:-1] + weights[-1]
        return np.where(self.comparable, 1 / (1 + np.exp(-logits)), 0.0)


async def measured(found: Sequence[Pair]) -> Measured:
    """Read and embed pairs."""
    written = {(text, pair.day): "" for pair in found for text in (pair.old, pair.new)}
    written = {(text, day): indexed_text(None, day, text) for text, day in written}
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    try:
        rows = dict(zip(written, await embedder.embed(list(written.values())), strict=True))
    finally:
        await embedder.close()
    read = {text: statement_of(text) for text, _ in written}
    vectors = np.array([rows[pair.new, pair.day] for pair in found], np.float32)
    cosines = np.array([float(rows[pair.old, pair.day] @ rows[pair.new, pair.day]) for pair in found])
    table = [
        features(read[pair.old], read[pair.new], cosine) for pair, cosine in zip(found, cosines, strict=True)
    ]
    given = np.array([list(row.values()) for row in table])
    comparable = np.array([is_comparable(read[pair.old], read[pair.new]) for pair in found])
    return Measured(list(table[0]), given, vectors, cosines, comparable, embedder.model.sha256)


def taught(found: Sequence[Pair], both: Measured) -> NDArray[np.bool_]:
    """Which pairs are learnt from: all that are labelled and comparable, and of such strangers those nearest, and some."""
    chosen = np.array([not pair.strangers for pair in found])
    beside: dict[tuple[str, str], list[int]] = {}
    for at, pair in enumerate(found):
        if pair.strangers:
            beside.setdefault((pair.language, pair.new), []).append(at)
    for places in beside.values():
        ordered = sorted(places, key=lambda at: -both.cosines[at])
        chosen[ordered[:_NEAREST] + ordered[_NEAREST::_EVERY]] = True
    return chosen & both.comparable


def learnt(table: Numbers, found: Sequence[Pair], vectors: int = 0) -> Numbers:
    """The weights, the bias last: logistic regression with a ridge, by Newton's steps; ``vectors`` columns are a vector's."""
    wanted = np.array([float(pair.changes) for pair in found])
    strangers = np.array([pair.strangers for pair in found])
    share = np.where(strangers, _STRANGERS * (~strangers).sum() / max(strangers.sum(), 1), 1.0)
    given = np.column_stack((table, np.ones(len(table))))
    ridge = np.diag([_RIDGE] * (table.shape[1] - vectors) + [_RIDGE_OF_VECTORS] * vectors + [0.0])
    weights = np.zeros(given.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-given @ weights))
        slope = given.T @ (share * (wanted - chance)) - ridge @ weights
        bend = (given * (share * chance * (1 - chance))[:, None]).T @ given + ridge
        weights += np.linalg.solve(bend, slope)
    return weights


def rarer(weights: Numbers) -> Numbers:
    """The weights for what a person says: see `_RARER`."""
    return np.append(weights[:-1], weights[-1] - _RARER)


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


def _write(both: Measured, plain: Numbers, reading: Numbers) -> None:
    lines = [f'"{name}" = {weight:.3f}' for name, weight in zip((*both.names, "bias"), plain, strict=True)]
    head = "# Made by python -m bench.changes from bench/sets/changes: do not edit.\n\n[weights]\n"
    (DATA / "change_weights.toml").write_text(head + "\n".join(lines) + "\n", "utf-8")
    count = len(both.names)
    weights = {
        f"model_{both.model}_weights": np.append(reading[:count], reading[-1]).astype(np.float32),
        f"model_{both.model}_direction": reading[count:-1].astype(np.float32),
    }
    np.savez_compressed(DATA / "change_reader.npz", **weights)  # type: ignore[arg-type] # as bench.prompt_reader


def _left_out(both: Measured, found: Sequence[Pair], chosen: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """How likely each pair is a change for weights of the other languages: without and with vectors."""
    plain, reading = np.zeros(len(found)), np.zeros(len(found))
    for language in languages():
        own = np.array([pair.language == language for pair in found])
        known = [
            pair
            for pair, is_own, is_taught in zip(found, own, chosen, strict=True)
            if is_taught and not is_own
        ]
        other = both.of(chosen & ~own)
        plain[own] = both.of(own).likely(learnt(other.table, known))
        weights = rarer(learnt(other.with_vectors, known, both.vectors.shape[1]))
        reading[own] = both.of(own).likely(weights)
    return plain, reading


def main(*, failures: Annotated[bool, typer.Option(help="Print the seen half's mistakes.")] = False) -> None:
    """Learn the weights, write them, and print how right they are."""
    everything = [
        pair
        for language in languages()
        for pair in (*with_strangers(pairs(language)), *plain_strangers(language))
    ]
    everything += [replace(pair, day=_DAY) for pair in everything if not pair.strangers]
    both = asyncio.run(measured(everything))
    chosen = taught(everything, both)
    plain, reading = _left_out(both, everything, chosen)
    print(_said("words", everything, plain))
    print(_said("all", everything, reading))
    known = [pair for pair, is_taught in zip(everything, chosen, strict=True) if is_taught]
    lists = learnt(both.of(chosen).table, known)
    weights = rarer(learnt(both.of(chosen).with_vectors, known, both.vectors.shape[1]))
    _write(both, lists, weights)
    day = of_the_day()
    in_day = asyncio.run(measured(day))
    print(_said("day, by words", day, in_day.likely(lists)))
    likely = in_day.likely(weights)
    print(_said("day", day, likely))
    if failures:
        for pair, chance in zip(day, likely, strict=True):
            if (chance >= LINKED) is not pair.changes:
                print(f"{chance:.2f} {'change' if pair.changes else 'other'}: {pair.old} | {pair.new}"[:220])


if __name__ == "__main__":
    typer.run(main)
