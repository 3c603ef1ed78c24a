"""Make the weights of `relayer.search.prompt_reader` from labelled prompts, and say how right they are.

    python -m bench.prompt_reader            # five folds, then what the seen half of the day's sets says
    python -m bench.prompt_reader --write    # learns from all of it and writes relayer/search/data/prompt_reader.npz

Needs scikit-learn, of the extra ``bench``. The same prompts give the same file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bench.day import personas
from relayer.lib.n_grams import BUCKETS, LANGUAGES, vector
from relayer.search.prompt_reader import PURPOSES

PROMPTS = Path(__file__).parent / "sets" / "prompts"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "prompt_reader.npz"
# Inverse strengths of regularisation, chosen by folds.
_STRENGTH = {"purpose": 30.0, "language": 100.0}
_FOLDS = 5
Case = tuple[str, str, str]
"""Language, purpose, text."""


def labelled() -> list[Case]:
    """The prompts that were written to learn from."""
    cases = []
    for path in sorted(PROMPTS.glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, text = line.partition("\t")
            if label in PURPOSES and text:
                cases.append((path.stem, label, text.replace("\\n", "\n")))
    return cases


def of_the_day(half: str) -> list[Case]:
    """What the personas of a half ask."""
    cases = []
    for one in personas(half):
        asks = [item["ask"] for part in ("questions", "short", "corrections") for item in one.raw[part]]
        cases += [(one.language, "ask", text) for text in asks]
        cases += [(one.language, "none", text) for text in one.raw["unrelated"]]
        cases += [(one.language, "plan", item["prompt"]) for item in one.raw["touching"]]
    return cases


def said(half: str) -> list[tuple[str, str]]:
    """Language and text of what the personas of a half say, for the language alone."""
    return [
        (one.language, text) for one in personas(half) for fact in one.raw["facts"] for text in fact["said"]
    ]


def matrix(texts: Sequence[str]) -> csr_matrix:
    """One row a text."""
    rows = [vector(text) for text in texts]
    at = np.concatenate([np.full(len(buckets), row) for row, (buckets, _) in enumerate(rows)])
    values = np.concatenate([values for _, values in rows])
    return csr_matrix(
        (values, (at, np.concatenate([buckets for buckets, _ in rows]))), shape=(len(rows), BUCKETS)
    )


def learn(
    texts: Sequence[str], labels: Sequence[str], classes: Sequence[str], strength: float
) -> tuple[Any, Any]:
    """Weights (buckets by classes) and biases."""
    model = LogisticRegression(C=strength, max_iter=1000, tol=1e-5)
    model.fit(matrix(texts), np.array([classes.index(label) for label in labels]))
    return model.coef_.T.astype(np.float32), model.intercept_.astype(np.float32)


def scores(texts: Sequence[str], weights: tuple[Any, Any]) -> NDArray[np.float32]:
    """Logits, one row a text."""
    return np.asarray(matrix(texts) @ weights[0] + weights[1])


def asks(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """As `relayer.search.prompt_reader.Reading.asks`."""
    return np.asarray(logits[:, 2] - np.logaddexp(logits[:, 0], logits[:, 1]))


def report(
    console: Console,
    title: str,
    cases: Sequence[Case],
    purpose: NDArray[np.float32],
    right: NDArray[np.bool_],
) -> None:
    """A line a language: how well asking is told from not asking, and languages from each other."""
    table = Table(title=title, title_justify="left")
    for name in (
        "language",
        "cases",
        "AUC ask/none",
        "asks found at 1 % of none",
        "plan above that",
        "language right",
    ):
        table.add_column(name, justify="right")
    groups: dict[str, list[int]] = defaultdict(list)
    for at, case in enumerate(cases):
        groups[case[0]].append(at)
    groups["all"] = list(range(len(cases)))
    asking = asks(purpose)
    for language, members in groups.items():
        labels = np.array([cases[at][1] for at in members])
        value = asking[members]
        plain, asked = value[labels == "none"], value[labels == "ask"]
        if not len(plain) or not len(asked):
            continue
        auc = roc_auc_score(np.r_[np.zeros(len(plain)), np.ones(len(asked))], np.r_[plain, asked])
        bar = np.quantile(plain, 0.99)
        planned = value[labels == "plan"]
        table.add_row(
            language,
            str(len(members)),
            f"{auc:.3f}",
            f"{100 * (asked > bar).mean():.1f}",
            f"{100 * (planned > bar).mean():.1f}" if len(planned) else "",
            f"{100 * right[members].mean():.1f}",
        )
    console.print(table)


def main(*, write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False) -> None:
    """Learn in folds, or from everything."""
    console = Console(width=120)
    cases = labelled()
    texts = [text for _, _, text in cases]
    fold = np.array([hash_of(text) % _FOLDS for text in texts])
    purpose = np.zeros((len(cases), len(PURPOSES)), np.float32)
    right = np.zeros(len(cases), np.bool_)
    for number in range(_FOLDS):
        inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        heads = _heads([cases[at] for at in inside], [])
        held_out = [texts[at] for at in outside]
        purpose[outside] = scores(held_out, heads["purpose"])
        guessed = scores(held_out, heads["language"]).argmax(axis=1)
        right[outside] = [
            LANGUAGES[guess] == cases[at][0] for guess, at in zip(guessed, outside, strict=True)
        ]
    report(console, f"{_FOLDS} folds of the prompts to learn from", cases, purpose, right)
    seen = of_the_day("seen")
    heads = _heads(cases, [])
    guessed = scores([text for _, _, text in seen], heads["language"]).argmax(axis=1)
    known = np.array([LANGUAGES[guess] == case[0] for guess, case in zip(guessed, seen, strict=True)])
    report(
        console, "the day's seen half", seen, scores([text for _, _, text in seen], heads["purpose"]), known
    )
    if write:
        _write(_heads([*cases, *seen], said("seen")))


def hash_of(text: str) -> int:
    """A number that does not change from run to run."""
    return sum(text.encode())


def _heads(cases: Sequence[Case], more: Sequence[tuple[str, str]]) -> dict[str, tuple[Any, Any]]:
    texts = [text for _, _, text in cases]
    spoken = [language for language, _, _ in cases] + [language for language, _ in more]
    return {
        "purpose": learn(texts, [label for _, label, _ in cases], PURPOSES, _STRENGTH["purpose"]),
        "language": learn([*texts, *(text for _, text in more)], spoken, LANGUAGES, _STRENGTH["language"]),
    }


def _write(heads: dict[str, tuple[Any, Any]]) -> None:
    stored: dict[str, Any] = {}
    for head, (weights, bias) in heads.items():
        scale = np.abs(weights).max(axis=0) / 127
        stored |= {
            head: np.round(weights / scale).astype(np.int8),
            f"{head}_scale": scale,
            f"{head}_bias": bias,
        }
    np.savez_compressed(WEIGHTS, **stored)
    sys.stdout.write(f"{WEIGHTS.stat().st_size:,} bytes written\n")


if __name__ == "__main__":
    typer.run(main)
