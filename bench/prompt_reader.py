"""Make the weights of `relayer.lib.n_grams.read_prompt` from labelled prompts, and say how right they are.

    python -m bench.prompt_reader            # three folds, then what the seen half of the day's sets says
    python -m bench.prompt_reader --write    # learns from all of it and writes relayer/lib/data/prompt_reader.npz

Needs scikit-learn, of the extra ``bench``. The same prompts give the same file. With the package of the multilingual model
installed, what its vectors say is learnt as well.
"""

from __future__ import annotations

import asyncio
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
from sklearn.neural_network import MLPClassifier

from bench.day import personas
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.lib.n_grams import (
    BUCKETS,
    LANGUAGE_BUCKETS,
    LANGUAGES,
    PROMPT_BUCKETS,
    PURPOSES,
    Network,
    vector,
)

PROMPTS = Path(__file__).parent / "sets" / "prompts"
FORMER = Path(__file__).parent / "sets" / "former"
WEIGHTS = Path(__file__).parents[1] / "relayer" / "lib" / "data" / "prompt_reader.npz"
# Inverse strengths of regularisation, chosen by folds.
_STRENGTH = {"purpose": 30.0, "language": 100.0, "former": 10.0}
# Of the networks that read a model's vectors: so many, of so many sums each, averaged; what is read is brought to one scale.
_NETWORKS, _SUMS, _DECAY = 4, 128, 1e-2
_SCALES = (0.3, 10.0)
FOLDS = 3
Case = tuple[str, str, str]
"""Language, purpose, text."""
Numbers = NDArray[np.float32]


def labelled() -> list[Case]:
    """The prompts that were written to learn from."""
    cases = []
    for path in sorted(PROMPTS.glob("*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, text = line.partition("\t")
            if label in PURPOSES and text:
                cases.append((path.stem, label, text.replace("\\n", "\n")))
    return cases


def former() -> list[tuple[str, str]]:
    """Label and text of prompts that ask how something was before it changed (``former``), and of others (``now``)."""
    lines = [
        line.partition("\t")
        for path in sorted(FORMER.glob("*.tsv"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [(label, text) for label, _, text in lines]


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


def matrix(texts: Sequence[str], buckets: int = PROMPT_BUCKETS) -> csr_matrix:
    """One row a text."""
    rows = [vector(text, buckets) for text in texts]
    at = np.concatenate([np.full(len(found), row) for row, (found, _) in enumerate(rows)])
    columns = np.concatenate([found for found, _ in rows])
    return csr_matrix(
        (np.concatenate([values for _, values in rows]), (at, columns)), shape=(len(rows), buckets)
    )


def learn(
    texts: Sequence[str],
    labels: Sequence[str],
    classes: Sequence[str],
    strength: float,
    *,
    balanced: bool = False,
    buckets: int = BUCKETS,
    counts: Sequence[float] | None = None,
) -> tuple[Any, Any]:
    """Weights (buckets by classes) and biases of a small classifier.

    Args:
        texts: to learn from.
        labels: of the texts.
        classes: all labels, in the order of the columns.
        strength: inverse strength of regularisation.
        balanced: whether each class counts the same.
        buckets: the number of different buckets.
        counts: how much each text counts; all the same by default.
    """
    numbers = [classes.index(label) for label in labels]
    head = Learnt(matrix(texts, buckets), numbers, strength, balanced=balanced, counts=counts)
    return head.weights, head.bias


def scores(texts: Sequence[str], weights: tuple[Any, Any]) -> Numbers:
    """Logits of a small classifier, one row a text."""
    return np.asarray(matrix(texts, len(weights[0])) @ weights[0] + weights[1])


def hash_of(text: str) -> int:
    """A number that does not change from run to run."""
    return sum(text.encode())


class Learnt:
    """A multinomial logistic regression."""

    def __init__(
        self,
        rows: Any,
        labels: Sequence[int],
        strength: float,
        *,
        balanced: bool = False,
        counts: Sequence[float] | None = None,
    ) -> None:
        weight = "balanced" if balanced else None
        model = LogisticRegression(C=strength, max_iter=400, tol=1e-4, class_weight=weight)
        self._model = model.fit(rows, np.array(labels), sample_weight=counts)
        self.weights: Numbers = self._model.coef_.T.astype(np.float32)
        self.bias: Numbers = self._model.intercept_.astype(np.float32)

    def logits(self, rows: Any) -> Numbers:
        """One row a row."""
        return np.asarray(rows @ self.weights + self.bias, np.float32)


def network(read: Numbers, labels: Sequence[int]) -> Network:
    """Learn what `with_model` gives; the average of several networks is one with the sums of all."""
    scales = np.r_[np.full(len(PURPOSES), _SCALES[0]), np.full(read.shape[1] - len(PURPOSES), _SCALES[1])]
    # The last column is 1, and the networks have a bias of their own.
    scales[-1] = 0
    inner, outer, bias = [], [], np.zeros(len(PURPOSES))
    for seed in range(_NETWORKS):
        one = MLPClassifier(
            (_SUMS,),
            alpha=_DECAY,
            batch_size=128,
            learning_rate_init=2e-3,
            max_iter=25,
            early_stopping=True,
            validation_fraction=0.08,
            random_state=seed,
        ).fit(read * scales, np.array(labels))
        weights = scales[:, None] * one.coefs_[0]
        weights[-1] = one.intercepts_[0]
        inner.append(weights)
        outer.append(one.coefs_[1] / _NETWORKS)
        bias += one.intercepts_[1] / _NETWORKS
    return Network(*(part.astype(np.float32) for part in (np.hstack(inner), np.vstack(outer), bias)))


def purposes(cases: Sequence[Case]) -> list[int]:
    """Numbers of the labels."""
    return [PURPOSES.index(label) for _, label, _ in cases]


def folds(texts: Sequence[str]) -> NDArray[np.int64]:
    """Which fold a text is in; does not change from run to run."""
    return np.array([hash_of(text) % FOLDS for text in texts])


def held_out(cases: Sequence[Case]) -> Numbers:
    """Logits of each prompt by what was learnt from the other folds."""
    rows, labels, fold = (
        matrix([text for *_, text in cases]),
        np.array(purposes(cases)),
        folds([c[2] for c in cases]),
    )
    found = np.zeros((len(cases), len(PURPOSES)), np.float32)
    for number in range(FOLDS):
        head = Learnt(rows[fold != number], labels[fold != number], _STRENGTH["purpose"])
        found[fold == number] = head.logits(rows[fold == number])
    return found


def with_model(logits: Numbers, vectors: Numbers) -> Numbers:
    """What a model's network reads: the n-grams' logits, the vector, and 1."""
    return np.hstack([logits, vectors, np.ones((len(vectors), 1))]).astype(np.float32)


def asks(logits: Numbers) -> Numbers:
    """As `relayer.lib.n_grams.PromptReading.asks`."""
    return np.asarray(logits[:, 2] - np.logaddexp(logits[:, 0], logits[:, 1]), np.float32)


def concerns(logits: Numbers) -> Numbers:
    """As `relayer.lib.n_grams.PromptReading.concerns`."""
    return np.asarray(np.logaddexp(logits[:, 1], logits[:, 2]) - logits[:, 0], np.float32)


async def embedded(embedder: LocalEmbedder, texts: Sequence[str]) -> Numbers:
    """The texts' vectors, as queries."""
    return await embedder.embed(texts, query=True)


def report(console: Console, title: str, cases: Sequence[Case], logits: Numbers) -> None:
    """A line a language: how well asking is told from not asking."""
    table = Table(title=title, title_justify="left")
    for name in ("language", "cases", "AUC ask/none", "asks found at 1 % of none", "plan concerned at 1 %"):
        table.add_column(name, justify="right")
    groups: dict[str, list[int]] = defaultdict(list)
    for at, case in enumerate(cases):
        groups[case[0]].append(at)
    groups["all"] = list(range(len(cases)))
    asking, concerning, labels = asks(logits), concerns(logits), np.array(purposes(cases))
    for language, members in groups.items():
        mine, value, touched = labels[members], asking[members], concerning[members]
        plain, asked = value[mine == 0], value[mine == 2]
        auc = roc_auc_score(np.r_[np.zeros(len(plain)), np.ones(len(asked))], np.r_[plain, asked])
        found = 100 * (asked > np.quantile(plain, 0.99)).mean()
        plans = 100 * (touched[mine == 1] > np.quantile(touched[mine == 0], 0.99)).mean()
        table.add_row(language, str(len(members)), f"{auc:.3f}", f"{found:.1f}", f"{plans:.1f}")
    console.print(table)


def main(*, write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False) -> None:
    """Learn in folds, or from everything."""
    asyncio.run(_main(write=write))


async def _main(*, write: bool) -> None:
    console = Console(width=120)
    cases, day = labelled(), of_the_day("seen")
    both = [*cases, *day] if write else cases
    learnt = held_out(both)
    if not write:
        report(console, f"{FOLDS} folds of the prompts to learn from", cases, learnt)
    rows = matrix([text for *_, text in both])
    head = Learnt(rows, purposes(both), _STRENGTH["purpose"])
    in_day = head.logits(matrix([text for *_, text in day]))
    spoken = [(case[0], case[2]) for case in both] + (said("seen") if write else [])
    language = Learnt(
        matrix([text for _, text in spoken], LANGUAGE_BUCKETS),
        [LANGUAGES.index(name) for name, _ in spoken],
        _STRENGTH["language"],
    )
    stored = _bytes("purpose", head) | _bytes("language", language)
    if not write:
        report(console, "the day's seen half, by n-grams", day, in_day)
        guessed = language.logits(matrix([text for *_, text in day], LANGUAGE_BUCKETS)).argmax(axis=1)
        right = [LANGUAGES[guess] == case[0] for guess, case in zip(guessed, day, strict=True)]
        console.print(f"languages right: {100 * sum(right) / len(right):.1f} % of {len(right)}")
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    vectors = await embedded(embedder, [text for *_, text in both])
    # What the n-grams say of prompts that they were not learnt from: of their own they are too sure.
    by_model = network(with_model(learnt, vectors), purposes(both))
    stored |= _network_bytes(f"model_{embedder.model.sha256}", by_model)
    labels, texts = zip(*former(), strict=True)
    asked, about = await embedded(embedder, texts), np.array([label == "former" for label in labels])
    if not write:
        folds = np.array([hash_of(text) % FOLDS for text in texts])
        parts = [
            (folds == fold, former_form(asked[folds != fold], about[folds != fold])) for fold in range(FOLDS)
        ]
        logits = sum(inside * (asked @ form[:-1] + form[-1]) for inside, form in parts)
        console.print(f"asks how something was, {FOLDS} folds, {about.sum()} of {len(about)}")
        for bar in (-0.5, 0.0, 0.5, 1.0):
            right, wrong = ((logits[about == one] >= bar).mean() for one in (True, False))
            console.print(f"  from {bar}: {100 * right:.1f} % recognised, {100 * wrong:.1f} % of the others")
    stored[f"former_{embedder.model.sha256}"] = former_form(asked, about)
    if not write:
        found = by_model.logits(with_model(in_day, await embedded(embedder, [text for *_, text in day])))
        report(console, "the day's seen half, by n-grams and the multilingual model", day, found)
    else:
        np.savez_compressed(WEIGHTS, **stored)
        console.print(f"{WEIGHTS.stat().st_size:,} bytes written")
    await embedder.close()


def former_form(vectors: Numbers, about: NDArray[np.bool_]) -> Numbers:
    """Learn the linear form of a prompt's vector that says whether it asks how something was; the last number is the bias."""
    learnt = LogisticRegression(C=_STRENGTH["former"], max_iter=3000).fit(vectors, about)
    return np.append(learnt.coef_[0], learnt.intercept_).astype(np.float32)


def _network_bytes(name: str, learnt: Network) -> dict[str, Any]:
    scale = np.abs(learnt.inner).max(axis=0) / 127
    return {
        f"{name}_inner": np.round(learnt.inner / scale).astype(np.int8),
        f"{name}_scale": scale.astype(np.float32),
        f"{name}_outer": learnt.outer.astype(np.float16),
        f"{name}_bias": learnt.bias,
    }


def _bytes(name: str, head: Learnt) -> dict[str, Any]:
    scale = np.abs(head.weights).max(axis=0) / 127
    return {
        name: np.round(head.weights / scale).astype(np.int8),
        f"{name}_scale": scale,
        f"{name}_bias": head.bias,
    }


if __name__ == "__main__":
    typer.run(main)
