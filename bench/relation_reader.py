"""Train the reader of relations between two statements, and write ``relayer/adapters/models/relation_reader.npz``.

    pip install torch==2.13.0
    python -m bench.relation_reader --output FIRST
    python -m bench.relation_reader --start FIRST --most 14000 --smoothing 0 --share 0.7
    python -m bench.relation_reader --start relayer/adapters/models/relation_reader.npz --most 13000 --smoothing 0 --rate 7e-5 --mistakes

`training_pairs` combines what ``bench/sets`` has for training: templates of statements, of changes and of statements of other
people and things (``relations/templates``), families that differ in one name or value (``relations/contrasts.txt``), statements
with what replaces each and what stays true with it (``relations/families``), pairs written by hand, and statements of one
person, which are all true together. The lower half of the embedding model's layers is kept as it is, so its output is computed
once for each pair; the upper half and a head are trained. The mean of the weights of both steps mistakes fewer statements of one
person for changes than those of the second step alone. The third step adds near statements of one person, those that the reader
of the second step mistakes with the weight of what was written by hand. ``bench.relations`` measures the result as captures use it.
The same sets give the same pairs; training itself depends on the processor's rounding. The first step of the package's file was
made before there were families, and its second before there were ``relations/lives`` and the families of the authors q to w. Its
third took a sample of the pairs that change nothing, left fifteen people of ``relations/lives`` out to choose the likelihood from
which captures replace, and let the head learn at five times the rate. Its fourth, with the families of the authors x to z, was
``--start relayer/adapters/models/relation_reader.npz --epochs 1 --most 8000 --most-written 8000 --smoothing 0 --rate 7e-5 --share 0.8``.
Its fifth began with the mean of the weights before and after the fourth, and was ``--epochs 1 --most 5000 --most-written 5000
--smoothing 0 --rate 7e-5 --share 0.85 --clauses``: beside the clause of a family that is over, which is replaced, the reader had seen
few clauses next to other statements, and took one in six for changed. Until then, clauses were read alone. Its sixth learnt them with
those around them, from the families of the authors aa to ad as well. It was about ``--epochs 1 --most 2000 --most-written 3000
--most-joined 4000 --smoothing 0 --rate 8e-5 --clauses --output FIRST``, and then ``--start FIRST --epochs 1 --most 1000 --most-written
1500 --most-joined 3000 --smoothing 0 --rate 8e-5 --clauses --share 0.5``: all of the second pass mistakes more true clauses. Its
seventh learnt from ``bench/sets/weeks``: ``--start relayer/adapters/models/relation_reader.npz --epochs 1 --most 1500 --most-written
2500 --most-joined 2000 --smoothing 0 --rate 8e-5 --of-chats 4000``, from the authors a to h. Its eighth learnt from those of i to o, too,
and from changes of other things: ``--start relayer/adapters/models/relation_reader.npz --epochs 1 --most 0 --most-written 3000 --most-joined
1000 --all-of ae --all-of af --smoothing 0 --rate 7e-5 --of-chats 3500 --chats-share 0.45``, half an hour of one processor. Its ninth learnt short news, several things of one statement, and how lives go
on, in two passes: ``--start relayer/adapters/models/relation_reader.npz --epochs 1 --most 0 --most-marked 2500 --most-written 4000
--most-joined 600 --all-of am`` (and an, ao, ap, aq, as, at) ``--smoothing 0 --rate 7e-5 --of-chats 3000 --chats-share 0.4 --output
FIRST``, and ``--start FIRST --epochs 1 --most 0 --most-marked 1000 --most-written 1800 --most-joined 300 --all-of av --all-of aw
--smoothing 0 --rate 7e-5 --of-chats 500 --chats-share 0.08``.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bench.day import personas
from bench.sets import rows
from bench.spaces import LEFT_OUT
from bench.weeks import Seen, seen, weeks
from relayer.adapters.local_embedder.e5 import E5, PARTS, WeightsFile, halves, model_file
from relayer.adapters.local_embedder.trained import (
    PairReader,
    TrainedLayers,
    layer_names,
    packed,
    trained_file,
)
from relayer.ports import RELATIONS
from relayer.writing.merging import clause_spans, thing_spans

SETS = Path(__file__).parent / "sets"
SAME, REPLACES, REFINES, BOTH = RELATIONS
# The weight of a pair: what was written by hand counts more than what was combined, and what is rare more than what is frequent.
_MARKED, _WRITTEN, _COMBINED, _NEIGHBOURS, _RARE = 2.1, 2.0, 0.7, 1.0, 2.0
# Beside each statement, others that are true together with it are chosen among so many of the nearest ones: a capture is compared
# with five. Of what one person says, more of them are taken than of templates.
_NEAREST, _OF_TEMPLATES, _OF_ONE_PERSON = 6, 1, 4
# A capture is compared with so many, and a change that is likelier than this in a true pair is learnt from as a mistake.
_COMPARED, _DOUBTED = 5, 0.02
# The share of pairs without a marked part that are learnt from within longer messages, too.
_JOINED = 0.25
# The number of long memories of which the reader mistakes no clause.
_OF_OTHERS = 3_000


@dataclass(slots=True)
class Pair:
    """An older and a newer statement, their relation, and how much the pair counts in training.

    Attributes:
        clauses: the relation of the newer statement to each clause of the older one, "" if it is not known; none are learnt from
            if it is empty.
        spans: of what is meant by clauses, if they are not those of `relayer.writing.merging.clause_spans`.
    """

    old: str
    new: str
    relation: str
    weight: float
    clauses: Sequence[str] = ()
    spans: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class Slot:
    """Templates of statements about one thing, with ``{v}`` in place of its value.

    Attributes:
        values: of the thing.
        lines: templates by kind: ``S`` states it, ``C`` tells a change of it, ``D`` states it in more detail, ``O`` states another
            person's or another thing's, and ``N`` is true beside any value.
    """

    values: list[str]
    lines: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in "SCDON"})


# Combinations of templates: the relation, the kinds of the older and the newer one, whether the value is the same, and the
# number of older templates for each newer one. Of two of the same kind, one is another template.
_COMBINATIONS = (
    (REPLACES, "S", "C", False, 2),
    (REPLACES, "D", "C", False, 1),
    (REPLACES, "S", "S", False, 1),
    (REPLACES, "C", "C", False, 1),
    (REPLACES, "C", "S", False, 1),
    (BOTH, "S", "O", False, 2),
    (BOTH, "C", "O", False, 1),
    (BOTH, "O", "C", False, 2),
    (BOTH, "O", "S", False, 1),
    (BOTH, "O", "O", False, 1),
    (BOTH, "S", "N", False, 1),
    (BOTH, "N", "S", False, 1),
    (BOTH, "N", "C", False, 1),
    (SAME, "S", "S", True, 1),
    (SAME, "S", "C", True, 1),
    (SAME, "D", "S", True, 1),
    (REFINES, "S", "D", True, 1),
)
_LETTERS = {"R": REPLACES, "B": BOTH, "F": REFINES, "M": SAME}


def combined(slot: Slot, random: Random) -> Iterator[Pair]:
    """Yield pairs of a slot's templates."""
    for relation, older, newer, same_value, count in _COMBINATIONS:
        for new in slot.lines[newer]:
            choices = [line for line in slot.lines[older] if line != new]
            for old in random.sample(choices, min(count, len(choices))):
                first, second = random.sample(slot.values, 2)
                second = first if same_value else second
                yield Pair(_filled(old, random, v=first), _filled(new, random, v=second), relation, _COMBINED)
    # Without a word of change, another value may belong to another thing as well: there are fewer of these.
    for other in slot.lines["O"][::3]:
        first, second = random.sample(slot.values, 2)
        yield Pair(_filled(other, random, v=first), _filled(other, random, v=second), REPLACES, _COMBINED)


def _filled(template: str, random: Random, **values: str) -> str:
    """Return a template with its values, sometimes with the small letter and without the full stop of a hasty message."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    if random.random() < 0.2:
        template = template[:1].lower() + template[1:]
    return template.rstrip(".。") if random.random() < 0.3 else template


def templates(path: Path) -> tuple[list[Slot], list[Pair]]:
    """Read the slots and the pairs of a file of templates.

    Raises:
        ValueError: a line is neither.
    """
    slots: list[Slot] = []
    pairs: list[Pair] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        kind, _, rest = line.partition(" ")
        if not line or kind == "#":
            continue
        if line.startswith("@"):
            slots.append(Slot(line.partition(" v=")[2].split("|")))
        elif kind in _LETTERS:
            pairs.append(written(line))
        elif slots and kind in slots[-1].lines:
            slots[-1].lines[kind].append(rest)
        else:
            raise ValueError(f"{path.name}, line {number}: begin it with @, a kind of template or a relation")
    return slots, pairs


def written(line: str) -> Pair:
    """Return the pair of a line such as ``R older || newer``."""
    old, new = line[2:].split(" || ")
    return Pair(old, new, _LETTERS[line[0]], _WRITTEN)


# The families whose statements join several things with "and": each thing is over or not.
_OF_SEVERAL_THINGS = {"mixed-as", "mixed-at"}
# The share of a clause in a marked part from which the clause is over with it, and up to which it is not.
_OVER, _NOT_OVER = 0.5, 0.2
# A thing shares its clause with the words before it.
_THING_OVER = 0.3


def families(path: Path) -> list[list[Pair]]:
    """Read families of pairs: a line ``O`` states something, and each line after it has its relation to that statement.

    If a part of the statement is in double square brackets, it is what the lines ``R`` replace: they leave the rest true.

    Raises:
        ValueError: a line is neither.
    """
    found: list[list[Pair]] = []
    older, start, end = "", 0, 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        kind, _, rest = line.partition(" ")
        if kind == "O" and rest:
            before, _, part = rest.partition("[[")
            older = rest.replace("[[", "").replace("]]", "")
            start, end = len(before), len(before) + len(part.partition("]]")[0])
            found.append([])
        elif older and rest and kind in _LETTERS:
            pair = Pair(older, rest, _LETTERS[kind], _MARKED if end > start else _WRITTEN)
            over = (start, end) if end > start else (0, len(older))
            if path.stem in _OF_SEVERAL_THINGS:
                pair.spans = thing_spans(older)
            if pair.spans or end > start:
                pair.clauses = [
                    _within(clause, over, _THING_OVER if pair.spans else _OVER)
                    if kind == "R"
                    else BOTH
                    if kind == "B"
                    else ""
                    for clause in pair.spans or clause_spans(older)
                ]
            found[-1].append(pair)
        elif line:
            raise ValueError(f"{path.name}, line {number}: begin it with O or a relation")
    return found


def _within(clause: tuple[int, int], part: tuple[int, int], over: float = _OVER) -> str:
    """Return the relation to a clause of a statement of which a part is replaced."""
    shared = min(clause[1], part[1]) - max(clause[0], part[0])
    share = shared / (clause[1] - clause[0])
    return REPLACES if share >= over else BOTH if share <= _NOT_OVER else ""


# How statements are joined to one that says several things.
_JOINTS = (", ", ", ", ". ", " - ", "; ")


def joined(families_of: Sequence[Sequence[Pair]], random: Random) -> Iterator[Pair]:
    """Yield pairs of families whose older statement is said together with one or two of other families.

    The newer statement leaves those true, whatever it does to the other one.
    """
    for number, family in enumerate(families_of):
        if family[0].weight >= _MARKED:
            continue
        for pair in family:
            if pair.relation not in {REPLACES, BOTH} or random.random() > _JOINED:
                continue
            others = [one[0].old for at, one in enumerate(families_of) if at != number]
            parts = [pair.old, *random.sample(others, random.choice((1, 1, 2)))]
            order = random.sample(range(len(parts)), len(parts))
            joint = random.choice(_JOINTS)
            said = joint.join(parts[at].rstrip(".。") for at in order)
            start = sum(len(parts[at].rstrip(".。")) + len(joint) for at in order[: order.index(0)])
            part = (start, start + len(pair.old.rstrip(".。")))
            spans = clause_spans(said)
            # Which clause of a statement is over is not known.
            whole = sum(_within(span, part) == REPLACES for span in spans) == 1
            known = [
                BOTH if pair.relation == BOTH or _within(span, part) == BOTH else REPLACES if whole else ""
                for span in spans
            ]
            yield Pair(said, pair.new, pair.relation, _COMBINED, known)


def turned(pair: Pair) -> Iterator[Pair]:
    """Yield a pair, and the other way round if that is known: what is true together is so in any order."""
    yield pair
    if pair.relation in {BOTH, SAME}:
        yield Pair(pair.new, pair.old, pair.relation, pair.weight)
    elif pair.relation == REFINES:
        yield Pair(pair.new, pair.old, SAME, pair.weight)


def contrasts(random: Random) -> Iterator[Pair]:
    """Yield pairs that differ in whom or what they are about, or only in the value."""
    families: list[tuple[list[str], list[str], list[str], list[str]]] = []
    for line in (SETS / "relations" / "contrasts.txt").read_text("utf-8").splitlines():
        if line.startswith("@ "):
            names, _, values = line[4:].partition(" v=")
            families.append((names.split("|"), values.split("|"), [], []))
        elif line[:2] in {"T ", "K "}:
            families[-1][2 if line[0] == "T" else 3].append(line[2:])
    for names, values, states, changes in families:
        for new in [*states, *changes] * 3:
            name, other = random.sample(names, 2)
            before, after = random.sample(values, 2)
            old = random.choice(states)
            yield Pair(
                _filled(old, random, n=other, v=before),
                _filled(new, random, n=name, v=after),
                BOTH,
                _COMBINED,
            )
            # Without a template of a change, a second value of the same name may be one more.
            if changes:
                yield Pair(
                    _filled(old, random, n=name, v=before),
                    _filled(new, random, n=name, v=after),
                    REPLACES,
                    _COMBINED,
                )


def from_other_sets() -> Iterator[Pair]:
    """Yield the labelled pairs of the sets for changes, duplicates and a person's day, of halves that may be looked at."""
    for path in sorted((SETS / "changes").glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            old, new, label = line.split("\t")
            yield Pair(old, new, BOTH if label == "compatible" else REPLACES, _WRITTEN)
    for row in rows("supersession"):
        if not row["unseen"]:
            yield Pair(row["old"], row["new"], BOTH if row["label"] == "compatible" else REPLACES, _WRITTEN)
    for row in rows("duplicates"):
        if not row["unseen"] and row["label"] == "same":
            yield from turned(Pair(row["first"], row["second"], SAME, _WRITTEN))
    for persona in (*personas("seen"), *personas("second")):
        for item in persona.raw["corrections"]:
            yield Pair(_joined(item["first"]), _joined(item["then"]), REPLACES, _WRITTEN)
        for item in persona.raw["compatible"]:
            yield Pair(_joined(item["first"]), _joined(item["then"]), BOTH, _WRITTEN)


def _joined(said: str | Sequence[str]) -> str:
    return said if isinstance(said, str) else " ".join(said)


def lives() -> Iterator[list[str]]:
    """Yield what one person says, all of it true at one time, for each person."""
    for persona in (*personas("seen"), *personas("second")):
        yield [
            *(_joined(fact["said"]) for fact in persona.raw["facts"]),
            *(_joined(item["then"]) for item in persona.raw["corrections"]),
        ]
    for path in [*_sorted("precise/train/people/*.json"), *_sorted("precise/more/people/*.json")]:
        yield json.loads(path.read_text("utf-8"))["memories"]
    for path in _sorted("relations/lives/*.txt"):
        yield from (one.split("\n") for one in path.read_text("utf-8").strip().split("\n\n"))


def neighbours(said: Sequence[tuple[int, str]], model: E5, random: Random, count: int) -> Iterator[Pair]:
    """Yield statements that are true together: each beside some of the nearest in meaning, and beside any other one.

    Args:
        said: statements, each with the number of its subject; those of one subject may not be true together.
        model: computes their vectors.
        random: chooses.
        count: of the near ones.
    """
    vectors = np.stack([model.vector(model.encode(text, query=False), query=False) for _, text in said])
    nearest = np.argsort(-(vectors @ vectors.T), axis=1)
    for at, (subject, new) in enumerate(said):
        others = [
            said[other][1] for other in nearest[at] if said[other][0] != subject and said[other][1] != new
        ]
        chosen = [*random.sample(others[:_NEAREST], min(count, len(others))), random.choice(others)]
        for old in dict.fromkeys(chosen):
            yield Pair(old, new, BOTH, _NEIGHBOURS)


def mistaken(model: E5, reader: PairReader) -> Iterator[Pair]:
    """Yield near statements of one person, all true together; those that a reader may take for a change count more.

    Args:
        model: computes the vectors of the statements.
        reader: reads each statement with the five nearest ones before it, as a capture does.
    """
    replaces = RELATIONS.index(REPLACES)
    for said in lives():
        vectors = np.stack([model.vector(model.encode(text, query=False), query=False) for text in said])
        for at in range(1, len(said)):
            for other in np.argsort(-(vectors[:at] @ vectors[at]))[:_COMPARED]:
                likely = reader.read([said[other]], said[at])[0, replaces]
                yield Pair(said[other], said[at], BOTH, _WRITTEN if likely > _DOUBTED else _NEIGHBOURS)


def mistaken_clauses(model: E5, reader: PairReader, random: Random) -> list[Pair]:
    """Return long memories beside other statements of the same person, all of them true together, with their clauses.

    Those of which a reader may take a clause for changed count more, and of the others a part is taken.

    Args:
        model: computes the vectors of the statements.
        reader: reads each statement with near ones before it.
        random: chooses.
    """
    said = [
        json.loads(path.read_text("utf-8"))["memories"]
        for part in ("train", "more", "third", "fourth")
        for path in _sorted(f"precise/{part}/people/*.json")
        if path.name[:2] not in LEFT_OUT
    ]
    mistakes, others = list[Pair](), list[Pair]()
    for memories in said:
        vectors = np.stack([model.vector(model.encode(text, query=False), query=False) for text in memories])
        for at in range(1, len(memories)):
            nearest = np.argsort(-(vectors[:at] @ vectors[at]))
            chosen = {*nearest[:2].tolist(), random.choice(nearest[2:] if at > 2 else nearest)}
            for old in (memories[other] for other in sorted(chosen)):
                clauses = clauses_of(old)
                if len(clauses) > 1:
                    read = reader.read(clauses, memories[at])
                    doubted = read[1:, RELATIONS.index(REPLACES)].max() > _DOUBTED
                    weight = _WRITTEN if doubted else _NEIGHBOURS
                    (mistakes if doubted else others).append(
                        Pair(old, memories[at], BOTH, weight, [BOTH] * len(clauses))
                    )
    print(f"of {len(mistakes)} memories, a clause is taken for changed, of {len(others)} none", flush=True)
    return random.sample(mistakes, min(len(mistakes), _OF_OTHERS)) + random.sample(
        others, min(len(others), _OF_OTHERS)
    )


def of_weeks(model: E5, random: Random, share: float) -> Iterator[Pair]:
    """Yield what people said in weeks of chats beside the nearest memories at that time; a share of those that are both true."""
    for _, turns in weeks():
        for one in seen(turns, model):
            spans = clause_spans(one.old)
            if one.over:
                known = [_of_part(span, one) for span in spans]
                if REPLACES not in known:
                    known[max(range(len(spans)), key=lambda at: _shared(spans[at], one.over))] = REPLACES
                yield Pair(one.old, one.new, REPLACES, _MARKED, known)
                parts = [span for span, relation in zip(spans, known, strict=True) if relation == REPLACES]
                over = " ".join(one.old[slice(*span)].strip() for span in parts)
                if len(parts) < len(spans):
                    yield Pair(over, one.new, REPLACES, _WRITTEN)
            elif not one.unknown and random.random() < share:
                yield Pair(one.old, one.new, BOTH, _NEIGHBOURS, [BOTH] * len(spans))


def doubted(net: Net, some: Sequence[Encoded], random: Random, most: int) -> list[Encoded]:
    """Return the pairs that a net may take for changes and are none with more weight, and some of the others.

    What it takes for said again is left out: that need not be one of two that are both true.
    """
    found, others, both = list[Encoded](), list[Encoded](), RELATIONS.index(BOTH)
    order = sorted(range(len(some)), key=lambda at: len(some[at].states))
    with torch.no_grad():
        for at in range(0, len(order), _BATCH):
            batch = [some[number] for number in order[at : at + _BATCH]]
            likely = iter(functional.softmax(net.eval()(*batched(batch)), dim=-1).numpy())
            for one in batch:
                read = np.stack([next(likely) for _ in one.places])
                if any(relation != both for _, _, relation, _ in one.places):
                    found.append(one)
                elif read[0, RELATIONS.index(SAME)] > _SAID_AGAIN:
                    continue
                elif read[:, RELATIONS.index(REPLACES)].max() > _DOUBTED:
                    places = [(*place, weight * _WRITTEN) for *place, weight in one.places]
                    found.append(Encoded(one.states, one.first, places))
                else:
                    others.append(one)
    net.train()
    print(f"{len(found)} of weeks, and {len(others)} that are not mistaken", flush=True)
    return found + random.sample(others, min(len(others), most))


# A memory that is likelier said again than this is no example of two that are both true.
_SAID_AGAIN = 0.5


def _of_part(span: tuple[int, int], one: Seen) -> str:
    """Return the relation to a clause of a memory."""
    if _shared(span, one.over) >= _OVER:
        return REPLACES
    return "" if max(_shared(span, one.over), _shared(span, one.unknown)) > _NOT_OVER else BOTH


def _shared(span: tuple[int, int], parts: Iterable[tuple[int, int]]) -> float:
    """Return the largest share of a clause that is in one of some parts."""
    return max((min(span[1], end) - max(span[0], start) for start, end in parts), default=0) / (
        span[1] - span[0]
    )


def clauses_of(text: str, spans: Sequence[tuple[int, int]] = ()) -> list[str]:
    """Return the clauses of a text as `relayer.writing.merging` reads them, or what these spans hold."""
    return [text[slice(*span)] for span in spans or clause_spans(text)]


def _sorted(pattern: str) -> list[Path]:
    return sorted(SETS.glob(pattern))


def training_pairs(model: E5, seed: int = 7, *, near: bool = True) -> list[Pair]:
    """Return all pairs that the reader is trained on, in a fixed order; without ``near``, none of those that are near by chance."""
    random = Random(seed)
    found = list(from_other_sets())
    for path in [*_sorted("relations/templates/*.txt"), *_sorted("precise/train/relations/*.txt")]:
        slots, pairs = templates(path)
        found += [pair for one in pairs for pair in turned(one)]
        found += [pair for slot in slots for pair in combined(slot, random)]
        said = [
            (subject, _filled(line, random, v=random.choice(slot.values)))
            for subject, slot in enumerate(slots)
            for line in (*slot.lines["S"][:1], *slot.lines["C"], *slot.lines["O"][:2])
        ]
        found += neighbours(said, model, random, _OF_TEMPLATES) if near else ()
    found += contrasts(random)
    for line in (SETS / "relations" / "pairs.txt").read_text("utf-8").splitlines():
        if line[:2] in {f"{letter} " for letter in _LETTERS}:
            found += turned(written(line))
    for path in _sorted("relations/families/*.txt"):
        said = []
        known = families(path)
        found += joined(known, random)
        for subject, family in enumerate(known):
            found += family
            said += [(subject, family[0].old), (subject, family[0].new)]
        found += neighbours(said, model, random, _OF_TEMPLATES) if near else ()
    for said in lives() if near else ():
        found += neighbours(list(enumerate(said)), model, random, _OF_ONE_PERSON)
    unique = {(pair.old, pair.new): pair for pair in reversed(found)}
    pairs = sorted(unique.values(), key=lambda pair: (pair.old, pair.new))
    random.shuffle(pairs)
    return pairs


class Layer(nn.Module):
    """One layer of the embedding model."""

    def __init__(self, weights: WeightsFile | TrainedLayers, number: int) -> None:
        super().__init__()
        self.heads = weights.heads
        for part in PARTS:
            matrix = weights.matrix(f"l{number}.{part}.w", weights.inner if part == "fo" else weights.width)
            linear = nn.Linear(matrix.shape[1], matrix.shape[0])
            linear.weight.data = torch.from_numpy(matrix.copy())
            linear.bias.data = torch.from_numpy(weights.floats(f"l{number}.{part}.b").copy())
            self.add_module(part, linear)
        for norm in ("aln", "oln"):
            layer = nn.LayerNorm(weights.width, eps=weights.epsilon)
            layer.weight.data = torch.from_numpy(weights.floats(f"l{number}.{norm}.w").copy())
            layer.bias.data = torch.from_numpy(weights.floats(f"l{number}.{norm}.b").copy())
            self.add_module(norm, layer)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the states after this layer; ``mask`` has shape (pairs, 1, 1, tokens)."""
        pairs, tokens, width = states.shape
        query, key, value = (
            getattr(self, part)(states).view(pairs, tokens, self.heads, -1).transpose(1, 2) for part in "qkv"
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = self.ao(attended.transpose(1, 2).reshape(pairs, tokens, width))
        states = self.aln(states + functional.dropout(mixed, _DROPOUT, self.training))
        narrow = self.fo(functional.gelu(self.fi(states)))
        return self.oln(states + functional.dropout(narrow, _DROPOUT, self.training))


_DROPOUT = 0.1
_HIDDEN = 128
# The places of the linear layers in the head.
_HEAD_PLACES = (1, 4)


def head_of(width: int, outputs: int) -> nn.Sequential:
    """Return a head over the first state and the means of both statements."""
    return nn.Sequential(
        nn.Dropout(_DROPOUT),
        nn.Linear(3 * width, _HIDDEN),
        nn.GELU(approximate="tanh"),
        nn.Dropout(_DROPOUT),
        nn.Linear(_HIDDEN, outputs),
    )


def written_head(state: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Return a head as it is stored."""
    arrays: dict[str, Any] = {}
    for number, place in enumerate(_HEAD_PLACES):
        arrays[f"head.{number}.w"] = state[f"head.{place}.weight"].astype(np.float16)
        arrays[f"head.{number}.b"] = state[f"head.{place}.bias"]
    return arrays


class Net(nn.Module):
    """The upper layers, with a mark for each of the two statements before them and a head after them.

    Args:
        weights: the embedding model's, or layers that were trained before.
        numbers: the numbers of the layers.
    """

    def __init__(self, weights: WeightsFile | TrainedLayers, numbers: range) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(weights, number) for number in numbers)
        self.marks = nn.Parameter(torch.randn(2, weights.width) / 100)
        self.head = head_of(weights.width, len(RELATIONS))
        if isinstance(weights, TrainedLayers):
            self.marks.data = torch.from_numpy(weights.floats("marks"))
            for number, place in enumerate(_HEAD_PLACES):
                self.head[place].weight.data = torch.from_numpy(weights.floats(f"head.{number}.w"))
                self.head[place].bias.data = torch.from_numpy(weights.floats(f"head.{number}.b"))

    def forward(self, states: Tensor, parts: Tensor, places: Tensor) -> Tensor:
        """Return the logits of some places.

        Args:
            states: after the lower layers.
            parts: for each token, 0 in the older statement, 1 in the newer one, -1 after both.
            places: of each a row of the batch, and the first token and the one after the last in it.
        """
        mask = (parts >= 0)[:, None, None, :]
        states = states + self.marks[parts.clamp(min=0)]
        for layer in self.layers:
            states = layer(states, mask)
        newer = (parts == 1).float()[..., None]
        means = (states * newer).sum(1) / newer.sum(1)
        row, start, end = places.T
        at = torch.arange(states.shape[1])
        chosen = ((at >= start[:, None]) & (at < end[:, None])).float()
        part = torch.bmm(chosen[:, None], states[row])[:, 0] / chosen.sum(1, keepdim=True)
        logits: Tensor = self.head(torch.cat([states[row, 0], part, means[row]], dim=-1))
        return logits


@dataclass(slots=True)
class Encoded:
    """A pair as the net reads it: hidden states in half precision, and the number of tokens of the older statement.

    Attributes:
        places: the first token and the one after the last of what is learnt from, the relation to it, and its weight.
    """

    states: NDArray[np.float16]
    first: int
    places: list[tuple[int, int, int, float]]


def encoded(pairs: Iterable[Pair], model: E5) -> list[Encoded]:
    """Run the lower layers over all pairs."""
    found = []
    for pair in pairs:
        clauses = clauses_of(pair.old, pair.spans) if pair.clauses else [pair.old]
        ids, spans = model.encode_pair(clauses, pair.new)
        weight = pair.weight * (_RARE if pair.relation == REFINES else 1)
        places = [(*spans[0], RELATIONS.index(pair.relation), weight)]
        if len(clauses) > 1:
            places += [
                (start, end, RELATIONS.index(relation), weight * _OF_A_CLAUSE)
                for (start, end), relation in zip(spans[1:], pair.clauses, strict=True)
                if relation and end > start
            ]
        found.append(Encoded(model.lower_states(ids).astype(np.float16), spans[0][1], places))
    return found


def batched(some: Sequence[Encoded]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the padded states of some pairs, the part of each token, and the places to learn from."""
    longest = max(len(one.states) for one in some)
    states = np.zeros((len(some), longest, some[0].states.shape[1]), np.float32)
    parts = np.full((len(some), longest), -1)
    for row, one in enumerate(some):
        states[row, : len(one.states)] = one.states
        parts[row, : len(one.states)] = np.arange(len(one.states)) >= one.first
    places = [(row, start, end) for row, one in enumerate(some) for start, end, _, _ in one.places]
    return torch.from_numpy(states), torch.from_numpy(parts), torch.tensor(places)


_BATCH = 24
# What a clause counts, beside the whole statement.
_OF_A_CLAUSE = 0.6
_RATE = 1e-4
_WARM_UP = 60
_AVERAGED = 0.99


def train(
    pairs: Sequence[Encoded], net: Net, epochs: int, seed: int, *, smoothing: float, rate: float
) -> Net:
    """Train the net; return the moving average of its weights."""
    random = Random(seed)
    average = {name: value.detach().clone() for name, value in net.state_dict().items()}
    own = [*net.head.parameters(), net.marks]
    optimizer = torch.optim.AdamW(
        [{"params": net.layers.parameters(), "lr": rate}, {"params": own, "lr": 10 * rate}],
        weight_decay=0.01,
    )
    steps = epochs * (len(pairs) // _BATCH + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / _WARM_UP) * max(0.02, 1 - step / steps)
    )
    begun = time.monotonic()
    for epoch in range(epochs):
        # Pairs of about the same length are in one batch.
        order = sorted(range(len(pairs)), key=lambda at: len(pairs[at].states) + 8 * random.random())
        batches = [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]
        random.shuffle(batches)
        lost = 0.0
        for number, batch in enumerate(batches):
            some = [pairs[at] for at in batch]
            losses = functional.cross_entropy(
                net(*batched(some)),
                torch.tensor([relation for one in some for _, _, relation, _ in one.places]),
                reduction="none",
                label_smoothing=smoothing,
            )
            loss = (losses * torch.tensor([weight for one in some for *_, weight in one.places])).sum() / len(
                some
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for name, value in net.state_dict().items():
                    average[name].lerp_(value, 1 - _AVERAGED)
            lost += float(loss.detach())
            if number % 200 == 199:
                print(
                    f"{number + 1} of {len(batches)}: loss {lost / (number + 1):.3f}, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
        print(f"epoch {epoch}: loss {lost / len(batches):.3f}, {time.monotonic() - begun:.0f} s", flush=True)
    net.load_state_dict(average)
    return net.eval()


def written_layers(
    state: Mapping[str, NDArray[np.float32]], numbers: range, weights: WeightsFile, model: E5
) -> dict[str, Any]:
    """Return trained layers as `relayer.adapters.local_embedder.trained.TrainedLayers` reads them.

    Args:
        state: of a net whose ``layers`` are these.
        numbers: of the layers in the model.
        weights: of the model, for its sizes.
        model: for its divisors.
    """
    arrays: dict[str, Any] = {
        "sizes": np.array([weights.width, weights.inner, weights.heads]),
        "epsilon": np.float64(weights.epsilon),
    }
    for number in numbers:
        matrices, vectors = layer_names(number)
        for name in (*matrices, *vectors):
            _, part, kind = name.split(".")
            value = state[f"layers.{number - numbers.start}.{part}.{'weight' if kind == 'w' else 'bias'}"]
            arrays |= packed(name, value, model.divisors) if name in matrices else {name: value}
    return arrays


def written_file(net: Net, weights: WeightsFile, model: E5) -> bytes:
    """Return the content of the file that `relayer.adapters.local_embedder.trained` reads."""
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    arrays = written_layers(state, halves(weights.layers)[1], weights, model)
    arrays |= written_head(state) | {"marks": state["marks"]}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def main(
    *,
    epochs: Annotated[int, typer.Option(help="Passes over the pairs.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the order of the pairs and of the head.")] = 0,
    most: Annotated[
        int | None,
        typer.Option(
            help="Train on the pairs that were written by hand and so many others; on all by default."
        ),
    ] = None,
    most_marked: Annotated[
        int | None, typer.Option(help="Of the pairs of which a part is marked; all by default.")
    ] = None,
    most_written: Annotated[
        int | None,
        typer.Option(help="Of the pairs that were written by hand, without a marked part; all by default."),
    ] = None,
    most_joined: Annotated[
        int | None, typer.Option(help="Of the statements that were joined to others; all by default.")
    ] = None,
    smoothing: Annotated[float, typer.Option(help="Of the labels.")] = 0.03,
    rate: Annotated[
        float, typer.Option(help="Of learning, in the layers; ten times as much in the head.")
    ] = _RATE,
    mistakes: Annotated[
        bool, typer.Option("--mistakes", help="Add what the relayer's own reader mistakes in lives.")
    ] = False,
    clauses: Annotated[
        bool,
        typer.Option(
            "--clauses", help="Add clauses of long memories, and those that are mistaken above all."
        ),
    ] = False,
    of_chats: Annotated[
        int | None,
        typer.Option(help="Add what was said in weeks of chats, and so many of what no one would mistake."),
    ] = None,
    chats_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="The part of what is both true in weeks of chats that is read."),
    ] = 1.0,
    all_of: Annotated[
        list[str] | None, typer.Option(help="Authors of families, all of whose pairs are taken.")
    ] = None,
    start: Annotated[Path | None, typer.Option(help="Go on from a file that was trained before.")] = None,
    share: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Of the trained weights in the result; the rest are those of --start."
        ),
    ] = 1.0,
    output: Annotated[Path | None, typer.Option(help="Instead of the relayer's own file.")] = None,
) -> None:
    """Train the reader and write its file."""
    torch.set_num_threads(1)
    model, weights = E5(), WeightsFile(model_file())
    pairs = training_pairs(model, near=most != 0)
    kinds = [[pair for pair in pairs if pair.weight >= _MARKED][:most_marked]]
    kinds.append([pair for pair in pairs if _WRITTEN <= pair.weight < _MARKED][:most_written])
    others = [pair for pair in pairs if pair.weight < _WRITTEN]
    kinds.append([pair for pair in others if pair.clauses][:most_joined])
    kinds.append([pair for pair in others if not pair.clauses][:most])
    pairs = [pair for kind in kinds for pair in kind]
    for author in all_of or ():
        known = [
            family for path in _sorted(f"relations/families/*-{author}.txt") for family in families(path)
        ]
        pairs += [*joined(known, Random(seed)), *(pair for family in known for pair in family)]
    if mistakes:
        pairs += mistaken(model, PairReader(model))
    if clauses:
        pairs += mistaken_clauses(model, PairReader(model), Random(seed))
    torch.manual_seed(seed)
    net = Net(weights if start is None else TrainedLayers(start, model.divisors), halves(weights.layers)[1])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    print(f"{len(pairs)} pairs: {dict(Counter(pair.relation for pair in pairs))}", flush=True)
    learnt = encoded(pairs, model)
    if of_chats is not None:
        chats = encoded(of_weeks(model, Random(seed), chats_share), model)
        learnt += doubted(net, chats, Random(seed), of_chats)
    net = train(learnt, net, epochs, seed, smoothing=smoothing, rate=rate)
    net.load_state_dict(
        {name: torch.lerp(before[name], value, share) for name, value in net.state_dict().items()}
    )
    content = written_file(net, weights, model)
    (output or trained_file("relation_reader")).write_bytes(content)
    print(f"{hashlib.sha256(content).hexdigest()}, {len(content) / 1e6:.1f} MB")


if __name__ == "__main__":
    typer.run(main)
