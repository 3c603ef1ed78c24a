"""Learn from which relation on a capture replaces a statement, and write ``relayer/writing/data/replacing.json``.

    python -m bench.replacing    # about ten minutes

It learns from the people of ``bench/sets/weeks/left_out``, and from the pairs and people of ``bench.relations dev``. The reader of relations has learnt nothing of these people. Each statement is read with the memories that were nearest when it was
captured, as a capture does it, and a logistic regression weighs what was read. Printed is what weights do that were learnt from the
other people: by the likelihood from which on a statement is replaced, how many of the statements that end something end what they
end, and how many others lose something that is true. A fifth of these is over, too, and was not marked. Needs scikit-learn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import relations
from bench.relevance import learn_logistic
from bench.weeks import Seen, seen, weeks
from relayer.adapters.local_embedder.e5 import E5
from relayer.adapters.local_embedder.trained import PairReader
from relayer.writing import merging
from relayer.writing.merging import (
    FEATURES,
    LONGEST,
    REPLACED_AMONG,
    Candidate,
    clause_spans,
    features,
    part_over,
)

WEIGHTS = Path(merging.__file__).parent / "data" / "replacing.json"
_PENALTY = 0.3
_FOLDS = 8
_FROM = (0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)
# A part that is over is found if so much of it is in the clause that would go.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Read:
    """A memory that a statement may end: what was read of it, and whether it ends the clause that would go (None: not known)."""

    person: str
    new: str
    features: Sequence[float]
    ends: bool | None
    ends_another: bool


def everyone() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the name and the turns of the people who are left out, of those of the development half, and of its pairs."""
    for person, turns in weeks(left_out=True):
        yield f"weeks/{person}", turns
    for number, (_, said) in enumerate(relations.people("dev")):
        yield f"dev/{number}", [{"stored": [text]} for text in said]
    for number, case in enumerate(relations.cases("dev")):
        if case.relation != "same":
            ends = [{"was": case.old, "by": case.new}] if case.relation == "replaces" else []
            yield f"dev/pair {number}", [{"stored": [case.old]}, {"stored": [case.new], "over": ends}]


def read_people() -> list[Read]:
    """Read each statement of these people with the memories near it."""
    model = E5()
    reader = PairReader(model)
    found: list[Read] = []
    for person, turns in track(list(everyone()), "reading"):
        near = (one for one in seen(turns, model) if one.rank is not None and one.rank < REPLACED_AMONG)
        for new, pairs in groupby(near, attrgetter("new")):
            found += _read(person, new, sorted(pairs, key=lambda one: one.rank or 0), reader)
    return found


def _read(person: str, new: str, pairs: Sequence[Seen], reader: PairReader) -> Iterator[Read]:
    pairs = [one for one in pairs if max(len(one.old), len(new)) <= LONGEST]
    spans = [clause_spans(one.old) for one in pairs]
    candidates = []
    for one, own in zip(pairs, spans, strict=True):
        clauses = [one.old[slice(*span)] for span in own]
        relation = merging.relation_of(clauses, new, reader.read(clauses, new))
        candidates.append(Candidate(relation, one.cosine, one.covered))
    for rank, (one, own) in enumerate(zip(pairs, spans, strict=True)):
        start, end = part_over(one.old, own, candidates[rank].relation) or (0, len(one.old))
        ends = any(
            _shared(start, end, part) > _SHARE * min(end - start, part[1] - part[0]) for part in one.over
        )
        doubtful = any(_shared(start, end, part) > 0 for part in (*one.over, *one.unknown))
        yield Read(
            person,
            new,
            features(candidates, rank, new),
            None if doubtful and not ends else ends,
            bool(one.over),
        )


def _shared(start: int, end: int, part: tuple[int, int]) -> int:
    return min(end, part[1]) - max(start, part[0])


def learnt(found: Sequence[Read]) -> NDArray[np.float64]:
    """Return the weights of the features, the constant last, that tell which memories are over."""
    known = [one for one in found if one.ends is not None]
    rows = np.array([one.features for one in known])
    labels = np.array([float(bool(one.ends)) for one in known])
    return learn_logistic(rows, labels, np.ones(len(known)), _PENALTY).weights


def print_choices(found: Sequence[Read]) -> None:
    """Print what the statements of each eighth of the people do, by weights that were learnt from the others."""
    people = sorted({one.person for one in found})
    likely = np.zeros(len(found))
    for fold in range(_FOLDS):
        own = set(people[fold::_FOLDS])
        weights = learnt([one for one in found if one.person not in own])
        for at, one in enumerate(found):
            if one.person in own:
                likely[at] = 1 / (1 + np.exp(-(np.array(one.features) @ weights[:-1] + weights[-1])))
    best: dict[tuple[str, str], int] = {}
    for at, one in enumerate(found):
        key = one.person, one.new
        if key not in best or likely[at] > likely[best[key]]:
            best[key] = at
    for kind in ("weeks", "dev"):
        _print_choices(
            kind, [(found[at], likely[at]) for at in best.values() if found[at].person.startswith(kind)]
        )


def _print_choices(kind: str, best: Sequence[tuple[Read, float]]) -> None:
    table = Table("from", "what is over", "another clause", "not known", "true")
    for least in _FROM:
        gone = [one for one, likely in best if likely >= least]
        counts = (
            sum(one.ends is True for one in gone),
            sum(one.ends is False and one.ends_another for one in gone),
            sum(one.ends is None for one in gone),
            sum(one.ends is False and not one.ends_another for one in gone),
        )
        table.add_row(f"{least}", *map(str, counts))
    Console().print(
        f"{kind}: {len(best)} statements, {sum(one.ends is True for one, _ in best)} of which end what was read",
        table,
    )


def main() -> None:
    """Learn the weights of what is read of a pair, and write them."""
    found = read_people()
    print_choices(found)
    weights = dict(zip((*FEATURES, "constant"), learnt(found).round(4).tolist(), strict=True))
    WEIGHTS.write_text(json.dumps(weights, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
