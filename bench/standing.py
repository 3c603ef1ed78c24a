"""Make the weights of `relayer.search.essentials` from labelled statements, and say how right they are.

    python -m bench.standing            # five folds
    python -m bench.standing --write    # learns from all of it and writes relayer/search/data/essentials.npz

Needs scikit-learn, of the extra ``bench``. The same statements give the same file.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench import prompt_reader
from bench.prompt_reader import hash_of, learn, scores
from relayer.lib.marking_words import marked
from relayer.lib.n_grams import ESSENTIALS
from relayer.search.essentials import decide

STATEMENTS = Path(__file__).parent / "sets" / "standing"
KINDS = Path(__file__).parent / "sets" / "kinds"
_OF_OTHERS = {"person", "thing", "supposed", "quoted", "invented", "wish"}
WEIGHTS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "essentials.npz"
# Inverse strength of regularisation, chosen by folds.
_STRENGTH = 30.0
_FOLDS = 5
Case = tuple[str, str, str]
"""Language, class, text."""


def labelled() -> list[Case]:
    """The statements to learn from."""
    return _read("*.tsv")


def hurried() -> list[Case]:
    """Those of them that are short, or have none of the usual words."""
    return _read("*_hurried.tsv")


def left_out() -> list[Case]:
    """Statements that nothing is learnt from."""
    return _read("left_out/*.tsv")


def _read(pattern: str) -> list[Case]:
    cases = []
    for path in sorted(STATEMENTS.glob(pattern)):
        for line in path.read_text("utf-8").splitlines():
            label, _, text = line.partition("\t")
            cases.append((path.stem.partition("_")[0], label, text))
    return cases


def with_prompts(cases: Sequence[Case]) -> list[Case]:
    """The statements and what people ask, which is no statement of any class: there is far more of it in a chat."""
    return [*cases, *((language, "none", text) for language, _, text in prompt_reader.labelled()), *others()]


def others() -> list[Case]:
    """What is said of other people and of things, and what is not meant in earnest: none of it is the speaker's own."""
    return [
        (path.stem.partition("_")[0], "none", text)
        for path in sorted(KINDS.glob("*.tsv"))
        for kind, text in (line.split("\t", 1) for line in path.read_text("utf-8").splitlines())
        if kind in _OF_OTHERS
    ]


def guesses(cases: Sequence[Case]) -> list[str]:
    """What each statement is taken for by weights that were learnt without its fold."""
    fold = np.array([hash_of(text) % _FOLDS for _, _, text in cases])
    guessed = ["none"] * len(cases)
    for number in range(_FOLDS):
        outside = np.flatnonzero(fold == number).tolist()
        weights = learnt([case for case, of in zip(cases, fold, strict=True) if of != number])
        for at, logits in zip(outside, scores([cases[at][2] for at in outside], weights), strict=True):
            guessed[at] = decide(marked(cases[at][2]), logits) or "none"
    return guessed


def learnt(cases: Sequence[Case]) -> tuple[Any, Any]:
    """Weights and biases."""
    labels, texts = [label for _, label, _ in cases], [text for _, _, text in cases]
    return learn(texts, labels, ESSENTIALS, _STRENGTH)


def report(console: Console, cases: Sequence[Case], guessed: Sequence[str]) -> None:
    """A line a language: of each class, how much was found, and how much of what was taken for it was right."""
    table = Table(title=f"{_FOLDS} folds: found / right, in percent", title_justify="left")
    for name in ("language", "cases", *ESSENTIALS[1:]):
        table.add_column(name, justify="right")
    for language in [*sorted({case[0] for case in cases}), "all"]:
        members = [at for at, case in enumerate(cases) if language in {case[0], "all"}]
        said = Counter(cases[at][1] for at in members)
        taken = Counter(guessed[at] for at in members)
        right = Counter(guessed[at] for at in members if guessed[at] == cases[at][1])
        table.add_row(
            language,
            str(len(members)),
            *(
                f"{100 * right[kind] / max(said[kind], 1):.0f} / {100 * right[kind] / max(taken[kind], 1):.0f}"
                for kind in ESSENTIALS[1:]
            ),
        )
    console.print(table)


def main(
    *,
    write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Print what was taken for another.")] = False,
) -> None:
    """Learn in folds, or from everything."""
    cases = with_prompts(labelled())
    guessed = guesses(cases)
    report(Console(width=120), cases, guessed)
    if failures:
        for (language, label, text), guess in zip(cases, guessed, strict=True):
            if guess not in {label, "none"}:
                print(f"{language}\t{label} taken for {guess}\t{text}")
    if write:
        _write(learnt(cases))


def _write(heads: tuple[Any, Any]) -> None:
    weights, bias = heads
    scale = np.abs(weights).max(axis=0) / 127
    np.savez_compressed(WEIGHTS, weights=np.round(weights / scale).astype(np.int8), scale=scale, bias=bias)
    sys.stdout.write(f"{WEIGHTS.stat().st_size:,} bytes written\n")


if __name__ == "__main__":
    typer.run(main)
