"""Make the weights of `relayer.lib.n_grams.read_message` from labelled messages, and say how right they are.

    python -m bench.message_reader            # five folds, then what the seen half of the day's sets says
    python -m bench.message_reader --write    # learns from all messages and writes the file of weights

Needs scikit-learn, of the extra ``bench``. The same messages give the same file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.day import personas
from bench.prompt_reader import hash_of, learn, scores
from relayer.lib.n_grams import MESSAGE_CLASSES

MESSAGES = Path(__file__).parent / "sets" / "messages"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "lib" / "data" / "message_reader.npz"
# Inverse strength of regularisation, chosen on the seen half.
_STRENGTH = 20.0
_FOLDS = 5
# A fact that is dropped is gone; what is kept for nothing is ranked low.
_KEPT = 0.98
Case = tuple[str, str, str]
"""Language, class, text."""


def labelled() -> list[Case]:
    """The messages that were written to learn from."""
    lines = (
        (path.stem, *line.split("\t", 1))
        for path in sorted(MESSAGES.glob("*.tsv"))
        for line in path.read_text("utf-8").splitlines()
    )
    return [(language, label, text.replace("\\n", "\n")) for language, label, text in lines]


def of_the_day(half: str) -> list[Case]:
    """What the personas of a half say; of facts told in several messages the longest."""
    cases = []
    for one in personas(half):
        said = [max(fact["said"], key=len) for fact in one.raw["facts"]]
        said += [item["said"] for item in one.raw["short"]]
        said += [item["first"] for part in ("compatible", "corrections") for item in one.raw[part]]
        cases += [(one.language, "keep", text) for text in said]
        noise = [(item["role"], item["said"]) for item in one.raw["noise"]]
        cases += [(one.language, "one_off" if role == "user" else "reply", text) for role, text in noise]
    return cases


def heads(cases: Iterable[Case]) -> dict[str, tuple[Any, Any]]:
    """Weights and biases for each side."""
    found = {}
    for side, classes in MESSAGE_CLASSES.items():
        of_side = [case for case in cases if case[1] in classes]
        weights, bias = learn(
            [case[2] for case in of_side], [case[1] for case in of_side], classes, _STRENGTH
        )
        if len(classes) == 2:  # of two classes the library learns the difference
            weights, bias = np.hstack([-weights / 2, weights / 2]), np.r_[-bias / 2, bias / 2]
        found[side] = (weights.astype(np.float32), bias.astype(np.float32))
    return found


def worth(cases: Iterable[Case], side: str, learnt: tuple[Any, Any]) -> dict[str, dict[bool, list[float]]]:
    """As `relayer.lib.n_grams.MessageReading.worth`, by language and by whether it is to be kept."""
    of_side = [case for case in cases if case[1] in MESSAGE_CLASSES[side]]
    logits = scores([case[2] for case in of_side], learnt)
    found: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (language, label, _), row in zip(of_side, logits, strict=True):
        value = float(row[0] - np.logaddexp.reduce(row[1:]))
        for name in (language, "all"):
            found[name][label == MESSAGE_CLASSES[side][0]].append(value)
    return found


def report(console: Console, title: str, found: dict[str, dict[bool, list[float]]]) -> None:
    """A line a language: where the bar lies that keeps what is to be kept, and how much else passes it."""
    table = Table(title=title, title_justify="left")
    for name in (
        "language",
        "to keep",
        "to leave",
        "bar",
        "left behind it pass",
        "of it pass 0",
        "kept at 0",
    ):
        table.add_column(name, justify="right")
    for language, sides in found.items():
        keep, leave = np.array(sides[True]), np.array(sides[False])
        bar = float(np.quantile(keep, 1 - _KEPT)) if len(keep) else 0.0
        shares = [
            100 * float((part > at).mean()) for part, at in ((leave, bar), (leave, 0), (keep, 0)) if len(part)
        ]
        row = (language, len(keep), len(leave), f"{bar:.2f}", *(f"{share:.1f}" for share in shares))
        table.add_row(*map(str, row))
    console.print(table)


def main(*, write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False) -> None:
    """Learn in folds, or from everything."""
    console = Console(width=120)
    cases = labelled()
    for side in MESSAGE_CLASSES:
        folds: dict[str, dict[bool, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(_FOLDS):
            inside = [case for case in cases if hash_of(case[2]) % _FOLDS != number]
            outside = [case for case in cases if hash_of(case[2]) % _FOLDS == number]
            for language, sides in worth(outside, side, heads(inside)[side]).items():
                for kept, values in sides.items():
                    folds[language][kept] += values
        report(console, f"{side}: {_FOLDS} folds of the messages to learn from", dict(sorted(folds.items())))
    learnt = heads(cases)
    for side in MESSAGE_CLASSES:
        report(console, f"{side}: the day's seen half", worth(of_the_day("seen"), side, learnt[side]))
    if write:
        _write(learnt)


def _write(learnt: dict[str, tuple[Any, Any]]) -> None:
    stored: dict[str, Any] = {}
    for side, (weights, bias) in learnt.items():
        scale = np.abs(weights).max(axis=0) / 127
        stored |= {
            side: np.round(weights / scale).astype(np.int8),
            f"{side}_scale": scale,
            f"{side}_bias": bias,
        }
    np.savez_compressed(WEIGHTS, **stored)
    sys.stdout.write(f"{WEIGHTS.stat().st_size:,} bytes written\n")


if __name__ == "__main__":
    typer.run(main)
