"""Where the null distribution of a model comes from: shipped for the default model, measured once for any other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log

import numpy as np
from numpy.typing import NDArray

from relayer.ports import Embedder
from relayer.search.lexical import LexicalIndex
from relayer.search.names import names
from relayer.search.priors import PRIORS
from relayer.search.ranking import NAME_DOUBT, coverage, judged_evidence
from relayer.search.relevance import Null, Prior
from relayer.search.text import indexed_text
from relayer.search.vectors import Vector

__all__ = [
    "STATEMENTS",
    "UNRELATED_PROMPTS",
    "Calibration",
    "Probe",
    "calibrate",
    "first_calibration",
    "fit_prior",
    "quantiles",
    "statement_texts",
]


def _lines(name: str) -> list[str]:
    return (files("relayer.search") / "data" / name).read_text("utf-8").splitlines()


STATEMENTS: tuple[tuple[str | None, str], ...] = tuple(
    (speaker or None, text)
    for speaker, _, text in (line.partition("\t") for line in _lines("statements.txt"))
)
"""Statements worth remembering, as memories are indexed: some with a name, some with a role, some bare."""
UNRELATED_PROMPTS = tuple(_lines("unrelated_prompts.txt"))
"""Prompts that ask for nothing that a memory could hold (code, trivia, chores for a machine).

Whatever they score against a memory is what *unrelated* looks like to a model. All of it was written for this purpose.
"""

# Sizes of the sample namespaces, and how many of each are looked at.
SIZES = (1, 3, 10, 30, 100, len(STATEMENTS))
SAMPLES = 40
# Steps through the statements so that neighbours, often by one speaker, end up in different samples.
STRIDE = 61
# (q99 - q95) / (q95 - q50) of a Gumbel distribution, whose quantile q is -ln(-ln q) in units of its scale.
GUMBEL_TAIL = (log(log(0.95) / log(0.99))) / (log(log(0.5) / log(0.95)))
FIRST_DAY = 1_683_504_000_000
THREE_DAYS = 3 * 86_400_000


@dataclass(frozen=True, slots=True)
class Probe:
    """An unrelated prompt with its vector: what it finds in a namespace is that namespace's null."""

    text: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Calibration:
    """What turns evidence into relevance for one embedding model.

    Attributes:
        prior: the null by namespace size.
        probes: for measuring a namespace's own null; empty means that the prior is all there is.
    """

    prior: Prior
    probes: tuple[Probe, ...] = ()


async def first_calibration(embedder: Embedder) -> Calibration:
    """What a relayer starts with: the shipped prior at once, or what `calibrate` measures for an unknown model.

    Raises:
        EmbedderUnavailable, QueueFull: as `calibrate`.
    """
    prior = PRIORS.get(embedder.model.sha256)
    return await calibrate(embedder) if prior is None else Calibration(prior)


async def calibrate(embedder: Embedder) -> Calibration:
    """The calibration of an embedder's model: about 160 short texts to embed, twice that for an unknown model.

    Raises:
        EmbedderUnavailable, QueueFull: as `Embedder.embed` does; try again later.
    """
    prompts = await embedder.embed(UNRELATED_PROMPTS)
    prior = PRIORS.get(embedder.model.sha256)
    if prior is None:
        rows = await embedder.embed(statement_texts())
        prior = await asyncio.to_thread(fit_prior, rows, prompts)
    probes = tuple(Probe(text, vector) for text, vector in zip(UNRELATED_PROMPTS, prompts, strict=True))
    return Calibration(prior, probes)


def statement_texts() -> list[str]:
    """The statements as they are indexed, three days apart."""
    return [
        indexed_text(speaker, FIRST_DAY + at * THREE_DAYS, text)
        for at, (speaker, text) in enumerate(STATEMENTS)
    ]


def fit_prior(rows: NDArray[np.float32] | None, prompts: NDArray[np.float32] | None) -> Prior:
    """The prior of a model from its vectors of `statement_texts` and `UNRELATED_PROMPTS`; None: of terms alone.

    Quantiles of the best evidence over sample namespaces of each size. Takes about a second: for a worker thread.
    """
    cosines = None if rows is None or prompts is None else prompts @ rows.T
    points: list[tuple[int, Null]] = []
    for size in SIZES:
        best: list[float] = []
        for members, covered, doubts in _samples(size):
            found = covered if cosines is None else judged_evidence(cosines[:, members], covered)
            best += (found.max(axis=1) - doubts).tolist()
        null, before = quantiles(best), points[-1][1] if points else Null(0.0, 0.0)
        # Samples vary; that more memories ask for less evidence is never true.
        points.append((size, Null(max(null.median, before.median), max(null.high, before.high))))
    return Prior(tuple(points))


def quantiles(best: Sequence[float]) -> Null:
    """The null from the best evidence that each unrelated prompt found.

    Few prompts do not show their own 99 % quantile: where it is larger, the one counts that the Gumbel distribution
    has with the same 50 % and 95 %. Where terms alone are looked at, most find nothing, and the one that was seen is.
    """
    median, high, seen = np.quantile(np.asarray(best), [0.5, 0.95, 0.99])
    return Null(float(median), float(max(seen, high + GUMBEL_TAIL * (high - median))))


@cache
def _samples(size: int) -> list[tuple[list[int], NDArray[np.float64], NDArray[np.float64]]]:
    """Sample namespaces: their statements, what every prompt covers of each (prompts by statements), and its doubt."""
    texts = statement_texts()
    samples: list[tuple[list[int], NDArray[np.float64], NDArray[np.float64]]] = []
    for sample in range(SAMPLES if size < len(texts) else 1):
        members = [((sample * 7 + at) * STRIDE) % len(texts) for at in range(size)]
        index = LexicalIndex()
        for member in members:
            index.put(member, texts[member])
        covered, doubts = np.empty((len(UNRELATED_PROMPTS), size)), np.zeros(len(UNRELATED_PROMPTS))
        for number, prompt in enumerate(UNRELATED_PROMPTS):
            asked = index.ask(prompt)
            covered[number] = coverage(asked.scores(members), asked.ceiling)
            doubts[number] = NAME_DOUBT * index.lacks(names(prompt))
        samples.append((members, covered, doubts))
    return samples
