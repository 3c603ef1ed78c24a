"""The best scores that unrelated prompts reach: the baseline against which the best score of a search is judged.

A `Prior` was measured over fixed sentences for each embedding model, and `NamespaceBaseline` measures the baseline of a namespace
over its own memories. `Calibration.baseline` combines them by the size of the namespace. ``python bench/relevance_prior.py``
measures the priors again.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.ports import Embedder
from relayer.search.dense import DenseQuery
from relayer.search.lexical import LexicalIndex, asked_terms
from relayer.search.passages import VectorQuery
from relayer.search.ranking import (
    ENOUGH_MEMORIES,
    UNKNOWN_NAME_PENALTY,
    Baseline,
    Prior,
    abstention_score,
    baseline_for,
    coverage,
)
from relayer.search.rows import Vector
from relayer.search.terms import indexed_text, names

# By SHA-256 of the model's weights: the vectors of different models cannot be compared.
PRIORS: dict[str, Prior] = {
    # all-MiniLM-L6-v2
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6": Prior(
        (
            (1, Baseline(0.004, 0.244)),
            (3, Baseline(0.056, 0.285)),
            (10, Baseline(0.104, 0.359)),
            (30, Baseline(0.143, 0.448)),
            (100, Baseline(0.193, 0.488)),
            (158, Baseline(0.224, 0.512)),
        )
    ),
    # multilingual-e5-small, less its centre
    "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4": Prior(
        (
            (1, Baseline(0.008, 0.251)),
            (3, Baseline(0.064, 0.274)),
            (10, Baseline(0.113, 0.322)),
            (30, Baseline(0.153, 0.377)),
            (100, Baseline(0.196, 0.525)),
            (158, Baseline(0.210, 0.537)),
        )
    ),
}

# For the coverage of terms alone, when there are no vectors.
LEXICAL_PRIOR = Prior(
    (
        (1, Baseline(0.000, 0.000)),
        (3, Baseline(0.000, 0.149)),
        (10, Baseline(0.000, 0.216)),
        (30, Baseline(0.000, 0.297)),
        (100, Baseline(0.000, 0.340)),
        (158, Baseline(0.000, 0.340)),
    )
)


def _lines(name: str) -> list[str]:
    return (files("relayer.search") / "data" / name).read_text("utf-8").splitlines()


STATEMENTS: tuple[tuple[str | None, str], ...] = tuple(
    (speaker or None, text)
    for speaker, _, text in (line.partition("\t") for line in _lines("statements.txt"))
)
"""Statements worth remembering, in the form in which memories are indexed: some with a name, some with a role, others bare."""
UNRELATED_PROMPTS = tuple(_lines("unrelated_prompts.txt"))
"""Prompts that ask for nothing that a memory could hold (code, trivia, chores for a machine).

Their scores against a memory are what a model gives to unrelated texts. All of them were written for this purpose.
"""

ENGLISH = "en"
# The sizes of the sample namespaces, the last with all statements; and the number of samples of each size.
SIZES = (1, 3, 10, 30, 100)
SAMPLES = 40
# The stride through the statements, so that neighbours, often by one speaker, are in different samples.
STRIDE = 61
# (q99 - q95) / (q95 - q50) of a Gumbel distribution, whose quantile q is -ln(-ln q) in units of its scale.
GUMBEL_TAIL = (log(log(0.95) / log(0.99))) / (log(log(0.5) / log(0.95)))
FIRST_DAY = 1_683_504_000_000
THREE_DAYS = 3 * 86_400_000


@dataclass(frozen=True, slots=True)
class Probe:
    """An unrelated prompt with its vector; its best score in a namespace is part of that namespace's baseline."""

    text: str
    vector: Vector


@dataclass(frozen=True, slots=True)
class Calibration:
    """The data that turns scores into relevance for one embedding model.

    Attributes:
        prior: the baseline by namespace size, of prompts in English.
        probes: for measuring a namespace's own baseline, in English; without any, only the prior is used.
        by_language: the prior of prompts in other languages, as far as it was measured.
        model: the SHA-256 of the model.
    """

    prior: Prior
    probes: tuple[Probe, ...] = ()
    by_language: Mapping[str, Prior] = field(default_factory=dict)
    model: str = ""

    def baseline(self, language: str, memories: int, own: NamespaceBaseline, passages: int = 0) -> Baseline:
        """Return the baseline among this number of memories and of further passages, for a prompt of this language."""
        size = memories + passages
        if language == ENGLISH or language not in self.by_language:
            return baseline_for(size, self.prior, own.null, own.size + passages)
        return self.by_language[language].baseline_at(size)


@cache
def shipped_priors(model: str) -> Mapping[str, Prior]:
    """Return the measured priors of a model by language, without English; empty for a model that was not measured."""
    stored = json.loads((files("relayer.search") / "data" / "priors.json").read_text("utf-8"))
    return {
        language: Prior(tuple((size, Baseline(median, high)) for size, median, high in points))
        for language, points in stored.get(model, {}).items()
    }


async def first_calibration(embedder: Embedder) -> Calibration:
    """Return the calibration to start with: the shipped prior, or the result of `calibrate` for an unknown model.

    Raises:
        EmbedderUnavailable, QueueFull: as `calibrate`.
    """
    prior = PRIORS.get(embedder.model.sha256)
    if prior is None:
        return await calibrate(embedder)
    model = embedder.model.sha256
    return Calibration(prior, (), shipped_priors(model), model)


async def calibrate(embedder: Embedder) -> Calibration:
    """Return the calibration of an embedder's model, which embeds about 160 short texts, twice that for an unknown model.

    Raises:
        EmbedderUnavailable, QueueFull: as `Embedder.embed` does; try again later.
    """
    prompts = await embedder.embed(UNRELATED_PROMPTS, query=True)
    prior = PRIORS.get(embedder.model.sha256)
    if prior is None:
        rows = await embedder.embed(statement_texts())
        prior = await asyncio.to_thread(fit_prior, rows, prompts)
    probes = tuple(Probe(text, vector) for text, vector in zip(UNRELATED_PROMPTS, prompts, strict=True))
    model = embedder.model.sha256
    return Calibration(prior, probes, shipped_priors(model), model)


def statement_texts() -> list[str]:
    """Return the statements as they are indexed, three days apart."""
    return [
        indexed_text(speaker, FIRST_DAY + at * THREE_DAYS, text)
        for at, (speaker, text) in enumerate(STATEMENTS)
    ]


def fit_prior(
    rows: NDArray[np.float32] | None,
    prompts: NDArray[np.float32] | None,
    statements: tuple[str, ...] | None = None,
    unrelated: tuple[str, ...] = UNRELATED_PROMPTS,
) -> Prior:
    """Return the prior of a model, or of terms alone, for one language.

    It consists of quantiles of the best scores over sample namespaces of each size. Takes about a second: use a worker thread.

    Args:
        rows: vectors of the statements; None for terms alone.
        prompts: vectors of the unrelated prompts; None for terms alone.
        statements: as they are indexed; None for the shipped ones.
        unrelated: the prompts.
    """
    texts = tuple(statement_texts()) if statements is None else statements
    cosines = None if rows is None or prompts is None else prompts @ rows.T
    points: list[tuple[int, Baseline]] = []
    for size in (*(size for size in SIZES if size < len(texts)), len(texts)):
        best: list[float] = []
        for members, covered, doubts in _samples(size, texts, unrelated):
            found = covered if cosines is None else abstention_score(cosines[:, members], covered)
            best += (found.max(axis=1) - doubts).tolist()
        null, before = quantiles(best), points[-1][1] if points else Baseline(0.0, 0.0)
        # Samples vary, but a larger namespace never has a lower baseline.
        points.append((size, Baseline(max(null.median, before.median), max(null.high, before.high))))
    return Prior(tuple(points))


def quantiles(best: Sequence[float]) -> Baseline:
    """Return the median and the 99 % quantile of the best scores of unrelated prompts.

    Args:
        best: the best score of each prompt; at least one.

    A few prompts do not show their own 99 % quantile, so the 99 % quantile of the Gumbel distribution with the same 50 % and 95 %
    quantiles is used if it is larger. With terms alone most prompts score nothing, and the observed quantile is the larger one.
    """
    median, high, seen = np.quantile(np.asarray(best), [0.5, 0.95, 0.99])
    return Baseline(float(median), float(max(seen, high + GUMBEL_TAIL * (high - median))))


@cache
def _samples(
    size: int, texts: tuple[str, ...], unrelated: tuple[str, ...]
) -> list[tuple[list[int], NDArray[np.float64], NDArray[np.float64]]]:
    """Return sample namespaces: their statements, the coverage of each prompt by each (prompts by statements), and penalties."""
    samples: list[tuple[list[int], NDArray[np.float64], NDArray[np.float64]]] = []
    for sample in range(SAMPLES if size < len(texts) else 1):
        members = [((sample * 7 + at) * STRIDE) % len(texts) for at in range(size)]
        index = LexicalIndex()
        for member in members:
            index.put(member, texts[member])
        covered, doubts = np.empty((len(unrelated), size)), np.zeros(len(unrelated))
        for number, prompt in enumerate(unrelated):
            asked = index.ask(asked_terms(prompt))
            covered[number] = coverage(asked.scores(members), asked.ceiling)
            doubts[number] = UNKNOWN_NAME_PENALTY * index.lacks(names(prompt))
        samples.append((members, covered, doubts))
    return samples


# Keys below the largest of these sizes that was reached are the sample. From the last one on the own baseline counts alone.
STEPS = (250, 300, 350, 2 * ENOUGH_MEMORIES)
_AT_ONCE = 8
# In place of the `id` of the calibration that a stored baseline was measured with: no `id` is negative.
_ELSEWHERE = -1
# The approximate size of a text of the sample with the one before it, both short.
_TEXT_BYTES = 500

Ask = Callable[[Vector], DenseQuery | VectorQuery]


class NullParts(NamedTuple):
    """The stored form of a `NamespaceBaseline`; ``known`` says whether ``null`` and ``size`` are up to date."""

    reached: int
    texts: list[tuple[int, str, str | None]]
    known: bool
    null: Baseline | None
    size: int


class NamespaceBaseline:
    """The texts of a namespace's sample, and the baseline measured over it.

    Attributes:
        null: the baseline as last measured; None while the sample is too small.
        size: the number of memories in the sample at that time.
    """

    def __init__(self) -> None:
        self.null: Baseline | None = None
        self.size = 0
        self._texts: dict[int, tuple[str, str | None]] = {}
        self._reached = 0
        self._changes = 0
        self._measured: tuple[int, int, int] | None = None

    def put(self, key: int, text: str, context: str | None) -> None:
        """Record a memory that was added or changed."""
        self._reached = max(self._reached, key + 1)
        if key < STEPS[-1]:
            self._texts[key] = (text, context)
            self._changes += key < self._bound()

    def changed(self, key: int) -> None:
        """Record that a memory's vectors were replaced."""
        self._changes += key in self._texts and key < self._bound()

    def remove(self, key: int) -> None:
        """Record that a memory was removed."""
        if self._texts.pop(key, None) is not None:
            self._changes += key < self._bound()

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return len(self._texts) * _TEXT_BYTES

    def is_due(self, calibration: Calibration) -> bool:
        """Return whether `measure` must run before a search gives the same decision on every replica."""
        return self._bound() > 0 and self._measured not in (self._basis(calibration), self._restored())

    def parts(self, calibration: Calibration) -> NullParts:
        """Return what `of_parts` takes; without the baseline, if it is out of date."""
        known = bool(calibration.probes) and not self.is_due(calibration)
        texts = [(key, text, context) for key, (text, context) in self._texts.items()]
        return NullParts(self._reached, texts, known, self.null if known else None, self.size)

    @classmethod
    def of_parts(cls, parts: NullParts) -> NamespaceBaseline:
        """Return the baseline as it was stored by a relayer with the same embedding model."""
        own = cls()
        own._reached = parts.reached
        own._texts = {key: (text, context) for key, text, context in parts.texts}
        if parts.known:
            own.null, own.size, own._measured = parts.null, parts.size, own._restored()
        return own

    def forget(self) -> None:
        """Drop the measured baseline, because the memories have vectors of another model now."""
        self.null, self.size, self._measured = None, 0, None

    async def measure(self, calibration: Calibration, ask: Ask) -> None:
        """Measure until nothing changes during a measurement; yields to the event loop every millisecond or so.

        Args:
            calibration: its probes are used as queries.
            ask: makes a query over the vectors of the memories.
        """
        while self.is_due(calibration):
            basis = self._basis(calibration)
            sample = [key for key in sorted(self._texts) if key < self._bound()]
            best = await self._best(calibration, ask, sample) if len(sample) >= ENOUGH_MEMORIES else []
            if basis == self._basis(calibration):
                self.null = quantiles(best) if best else None
                self.size = len(sample) if best else 0
                self._measured = basis

    async def _best(self, calibration: Calibration, ask: Ask, sample: Sequence[int]) -> list[float]:
        """Return the best score of each probe in the sample alone."""
        lexical = LexicalIndex()
        for number, key in enumerate(sample):
            if key in self._texts:
                lexical.put(key, *self._texts[key])
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        known = [key for key in sample if key in lexical]
        best = []
        for probe in calibration.probes:
            asked = lexical.ask(asked_terms(probe.text))
            covered = coverage(asked.scores(known), asked.ceiling)
            cosine = ask(probe.vector).scores(known)
            found = np.where(np.isnan(cosine), covered, abstention_score(cosine, covered))
            doubt = UNKNOWN_NAME_PENALTY if lexical.lacks(names(probe.text)) else 0.0
            best.append((float(found.max()) if known else 0.0) - doubt)
            await asyncio.sleep(0)
        return best

    def _bound(self) -> int:
        reached = bisect_right(STEPS, self._reached)
        return STEPS[reached - 1] if reached else 0

    def _restored(self) -> tuple[int, int, int]:
        """Return the basis of a baseline that another process measured, valid while the sample has not changed in this one."""
        return self._bound(), self._changes, _ELSEWHERE

    def _basis(self, calibration: Calibration) -> tuple[int, int, int]:
        return self._bound(), self._changes, id(calibration) if calibration.probes else 0
