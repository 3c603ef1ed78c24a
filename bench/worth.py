"""Make the weights of `relayer.search.ranking` from labelled messages, and say how right they are.

    python -m bench.worth            # each language by the messages of the other fourteen
    python -m bench.worth --write    # learns from all of them and writes the file of weights

Needs scikit-learn, of the extra ``bench``. The same messages and model give the same file.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bench.message_reader import labelled
from relayer.adapters.local_embedder import LocalEmbedder

WEIGHTS = Path(__file__).parents[1] / "relayer" / "search" / "data" / "worth.npz"
_LASTS = ("keep", "result")
_STRENGTH = 1.0
# Languages are told apart by columns of their own, so that the direction is not one of a language.
_APART = 3.0
_BATCH = 64
Numbers = NDArray[np.float32]


async def embedded(embedder: LocalEmbedder, texts: list[str]) -> Numbers:
    """The texts' vectors, as memories; texts of one length are embedded together."""
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    rows = np.zeros((len(texts), embedder.model.dimension), np.float32)
    for start in range(0, len(order), _BATCH):
        places = order[start : start + _BATCH]
        rows[places] = await embedder.embed([texts[at] for at in places])
    return rows


def learnt(rows: Numbers, lasts: NDArray[np.int_], languages: NDArray[np.str_]) -> Numbers:
    """Weights of a vector, and a bias that is the mean of the languages'."""
    columns = _APART * (languages[:, None] == np.unique(languages)[None, :])
    model = LogisticRegression(C=_STRENGTH, max_iter=2000, class_weight="balanced")
    model.fit(np.hstack([rows, columns]), lasts)
    weights, rest = np.split(model.coef_[0], [rows.shape[1]])
    return np.append(weights, model.intercept_[0] + float((columns @ rest).mean())).astype(np.float32)


def report(rows: Numbers, lasts: NDArray[np.int_], languages: NDArray[np.str_]) -> Table:
    """A line a language: what lasts is told from what does not by the other languages' messages."""
    table = Table(title="Worth, by the messages of the other languages", title_justify="left")
    for name in ("language", "messages", "area under the curve", "read right"):
        table.add_column(name, justify="right")
    for language in np.unique(languages):
        own = languages == language
        weights = learnt(rows[~own], lasts[~own], languages[~own])
        logits = rows[own] @ weights[:-1] + weights[-1]
        right = 100 * float(((logits > 0) == (lasts[own] == 1)).mean())
        area = float(roc_auc_score(lasts[own], logits))
        table.add_row(str(language), str(own.sum()), f"{area:.3f}", f"{right:.1f}")
    return table


async def _main(console: Console, *, write: bool) -> None:
    cases = labelled()
    embedder = LocalEmbedder("multilingual", threads=2)
    await embedder.load()
    rows = await embedded(embedder, [text for *_, text in cases])
    await embedder.close()
    lasts = np.array([int(label in _LASTS) for _, label, _ in cases])
    languages = np.array([language for language, *_ in cases])
    if not write:
        console.print(report(rows, lasts, languages))
        return
    np.savez_compressed(WEIGHTS, **{embedder.model.sha256: learnt(rows, lasts, languages)})  # type: ignore[arg-type] # as bench.prompt_reader
    console.print(f"{WEIGHTS.stat().st_size:,} bytes written")


def main(*, write: Annotated[bool, typer.Option("--write", help="Write the weights.")] = False) -> None:
    """Say how right the weights are, or learn from everything."""
    asyncio.run(_main(Console(width=120), write=write))


if __name__ == "__main__":
    typer.run(main)
