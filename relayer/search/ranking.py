"""Scores, relevance and reranking: how search results are ordered, and when a search returns nothing.

`evidence` combines cosine similarity and coverage of the query's terms into the score that memories are ordered by. Its scale
is the same for every query, so the best score also tells whether anything was found; reciprocal rank fusion and per-query
normalisation rank as well, but lose that (docs/adr/0003, docs/adr/0011). To decide it, the best `abstention_score` is compared
with a `Baseline`, the best scores that unrelated prompts reach: `in_steps` expresses it as a standard score, `judged_steps` adds
the form of the prompt, and `prompt_relevance` maps the result to 0..1. `gate` then keeps the hits that are relevant enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import pairwise, takewhile
from math import exp, log
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import SHORTEST, Vector

Number = TypeVar("Number", float, NDArray[np.floating])

# SHA-256 of the weights of multilingual-e5-small. Weights below that are "by model" were fitted to its vectors.
_LEARNT = "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"


class TermWeight(NamedTuple):
    """The weight of term coverage in units of cosine, for the order: ``full * share ** power`` at a covered share."""

    full: float = 1.0
    power: float = 1.0

    def weight_of(self, covered: Number) -> Number:
        """Return the weight of a coverage, or of each of several."""
        worth: Number = self.full * covered**self.power
        return worth


# The weight of full term coverage in units of cosine: for the order of the memories, and for the decision whether any of them
# is relevant. Terms separate the memories of a namespace better than they separate related from unrelated prompts, since an
# unrelated prompt shares some terms with a namespace by chance.
TERM_WEIGHT = TermWeight()
JUDGED_TERM_WEIGHT = 0.5
# For the order, with multilingual models. Among thousands of memories any query shares one ordinary word with many unrelated
# ones: a quarter of an English query's terms weighs 0.16 instead of 0.25, and all of them weigh more.
ENGLISH_TERM_WEIGHT_BY_MODEL = {_LEARNT: TermWeight(1.25, 1.5)}
# For queries in other languages than English: only English terms are free of function words and endings, so terms of other
# languages match by chance more often, while the vectors are as good as in English.
OTHER_TERM_WEIGHT_BY_MODEL = {_LEARNT: TermWeight(0.5)}
# Added when the query names the speaker of the memory: for the order, and for the decision.
SPEAKER_WEIGHT = 0.2
JUDGED_SPEAKER_WEIGHT = 0.15
# Added when a memory states something instead of only asking or agreeing, as many turns of a real chat do; and when its vector
# says that it has lasting content (`relayer.search.ranking`).
TOLD_WEIGHT = 0.15
WORTH_WEIGHT = 0.1
# The share of the difference between a sentence about the speaker and one about oneself that is subtracted from a query that
# names the speaker, for ranking: the speaker of a memory is known, and the name would outweigh the subject of the query.
NAME_SHARE = 0.5
ABOUT = "What did {} do?"
ONESELF = "I"
# Subtracted from the best score when the prompt names a person or thing that occurs nowhere in the namespace.
UNKNOWN_NAME_PENALTY = 0.2
# Share of the gap that a better neighbour closes, by its distance in turns.
NEIGHBOUR_SHARES = (0.3, 0.2, 0.1)


def coverage(bm25: NDArray[np.float64], ceiling: float) -> NDArray[np.float64]:
    """Return BM25 scores as shares of the score of a text that has every term of the query.

    Args:
        bm25: one score for each memory, shape (n,).
        ceiling: that score, see `relayer.search.lexical.LexicalQuery`; 0 for a query without terms.

    Returns:
        The shares, shape (n,); all 0 for a query without terms.
    """
    return bm25 / ceiling if ceiling > 0 else np.zeros_like(bm25)


def term_weight(model: str, *, english: bool) -> TermWeight:
    """Return the weight of term coverage in the score that orders the hits.

    Args:
        model: the SHA-256 of the embedding model's weights, in hexadecimal; models that were not measured get
            `TERM_WEIGHT`.
        english: whether the query is in English.
    """
    by_model = ENGLISH_TERM_WEIGHT_BY_MODEL if english else OTHER_TERM_WEIGHT_BY_MODEL
    return by_model.get(model, TERM_WEIGHT)


def evidence(cosine: Number, covered: Number, weight: TermWeight = TERM_WEIGHT) -> Number:
    """Return the score of a memory, or of each of several, for the order within its namespace; see `term_weight`."""
    return cosine + weight.weight_of(covered)


def without_name(vector: Vector, about: Sequence[Vector], oneself: Vector) -> Vector:
    """Return a query's vector less what the names in it add, with length 1.

    Args:
        vector: of the query.
        about: of `ABOUT` with each name.
        oneself: of `ABOUT` with `ONESELF`.
    """
    rest = vector - np.float32(NAME_SHARE) * np.sum(
        [one - oneself for one in about], axis=0, dtype=np.float32
    )
    length = np.linalg.norm(rest)
    return vector if length < SHORTEST else (rest / length).astype(np.float32)


def abstention_score(cosine: Number, covered: Number) -> Number:
    """Return the score that decides whether a search returns anything; it is comparable across queries."""
    return cosine + JUDGED_TERM_WEIGHT * covered


def with_neighbours(
    found: Mapping[int, float], lenders: Iterable[int], near: Callable[[int], Iterable[tuple[int, int]]]
) -> dict[int, float]:
    """Return the scores by key, with those of neighbours of the best hits raised towards the scores of these hits.

    An answer rarely repeats the question before it, and a question rarely names what the next turn tells, so a turn next to a
    good hit is more relevant than its own words show.

    Args:
        found: scores by key.
        lenders: the best of its keys, in a fixed order, because replicas must add in the same order.
        near: returns the neighbours of a key with their distances, from 1 to the number of shares.
    """
    raised = dict(found)
    for lender in lenders:
        best = found[lender]
        for key, distance in near(lender):
            value = found.get(key, best)
            if value < best:
                raised[key] += NEIGHBOUR_SHARES[distance - 1] * (best - value)
    return raised


CALIBRATION_POINT = 0.3

# From this size on a namespace's own baseline counts, and from twice this size it counts alone.
ENOUGH_MEMORIES = 200
# The most that a namespace's own quantile may differ from the prior. Probes that are about the namespace's own subject score
# higher because they are related to it, and must not make searches return nothing.
MOST_ABOVE_PRIOR = 0.05
MOST_BELOW_PRIOR = 0.20
# Beyond the largest size of a prior the baseline rises with this share of its slope over the decade before: short texts share
# only a limited vocabulary by chance. In namespaces of 400 to 3,000 turns it rises by 0.04 to 0.07 for each e-fold, and the prior by
# 0.08 (docs/adr/0011).
SLOPE_BEYOND = 0.5
_DECADE = 10
# Keeps the scale of relevance finite where unrelated prompts score nothing at all.
NARROWEST = 0.1


@dataclass(frozen=True, slots=True)
class Baseline:
    """Quantiles (50 % and 99 %) of the best scores that unrelated prompts reach."""

    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Prior:
    """The baseline by namespace size, measured on the sentences that are shipped.

    Attributes:
        points: (size, baseline) with rising sizes, the first of them 1. Between them the baseline is linear in ln(size), because
            the largest of n draws from a tail that falls exponentially rises with ln(n) (Gumbel, "Statistics of Extremes", 1958);
            beyond the last it rises with `SLOPE_BEYOND` of the slope of the last decade.
    """

    points: tuple[tuple[int, Baseline], ...]

    def baseline_at(self, size: int) -> Baseline:
        """Return the baseline among ``size`` memories."""
        for (small, below), (large, above) in pairwise(self.points):
            if size < large:
                return _between(below, above, log(max(size, small) / small) / log(large / small))
        last, end = self.points[-1]
        start, begin = next(
            (point for point in reversed(self.points) if _DECADE * point[0] <= last), self.points[0]
        )
        beyond = SLOPE_BEYOND * log(max(size, last) / last) / log(last / start) if last > start else 0.0
        return _between(begin, end, 1 + beyond)


def baseline_for(size: int, prior: Prior, own: Baseline | None = None, own_size: int = 0) -> Baseline:
    """Return the baseline for a search of ``size`` memories.

    Args:
        size: number of memories that the prompt is compared with, after filters.
        prior: the model's prior.
        own: the baseline measured in this namespace, or None.
        own_size: number of memories in the namespace when ``own`` was measured.
    """
    expected = prior.baseline_at(size)
    weight = min(1.0, max(0.0, (own_size - ENOUGH_MEMORIES) / ENOUGH_MEMORIES))
    if own is None or weight == 0.0:
        return expected
    # A filter leaves fewer memories than the baseline was measured with.
    fewer = expected.high - prior.baseline_at(own_size).high
    high = _within(own.high + fewer, expected.high)
    median = min(own.median + fewer, high)
    return Baseline(
        median=(1 - weight) * expected.median + weight * median,
        high=(1 - weight) * expected.high + weight * high,
    )


# The weights that combine the form of a prompt with its best score, in standard scores of the baseline: 1 is the score that one
# unrelated prompt in a hundred reaches. ``python -m bench.judgement`` learns them. SHARE_OF_ALL is for n-grams alone, and
# SHARE_BY_MODEL for a model that reads prompts with them; that share and the limit of the form were set by the unrelated prompts
# of all personas, each in its own namespace, which the same bench measures.
EVIDENCE_SHARE = 0.42
ASKS_SHARE = 0.06
CONCERNS_SHARE = 0.075
SHARE_OF_ALL = 0.44
SHARE_BY_MODEL = {_LEARNT: 0.66}
# The form of a prompt alone is never enough to return memories, however surely it asks for one.
LEAST_STEPS = -1.5
# A score this far above the baseline needs no form: a plain statement about other people still recalls what is known about them.
ENOUGH_ALONE = 0.15
# Limits of the form's logits: n-grams alone are often very sure and wrong.
MOST_LOGITS = 6.0
MOST_LOGITS_BY_MODEL = {_LEARNT: 10.0}


def in_steps(best: float, null: Baseline) -> float:
    """Return the standard score against the baseline: 0 at its median, 1 at its 99 % quantile; not above 0 unless the score is positive."""
    steps = 1 + (best - null.high) / max(null.high - null.median, NARROWEST)
    return steps if best > 0 else min(steps, 0.0)


def judged_steps(steps: float, asks: float, concerns: float, model: str = "") -> float:
    """Return the standard score of a prompt by its best score together with its form.

    Args:
        steps: see `in_steps`.
        asks: see `relayer.lib.n_grams.PromptReading`.
        concerns: likewise.
        model: the SHA-256 of the model whose vectors were read.
    """
    most = MOST_LOGITS_BY_MODEL.get(model, MOST_LOGITS)
    form = ASKS_SHARE * _bounded(asks, most) + CONCERNS_SHARE * _bounded(concerns, most)
    rest = SHARE_BY_MODEL.get(model, SHARE_OF_ALL)
    together = min(EVIDENCE_SHARE * steps + form + rest, 1 + steps - LEAST_STEPS)
    return max(together, steps - ENOUGH_ALONE)


def _bounded(logits: float, most: float = MOST_LOGITS) -> float:
    return min(max(logits, -most), most)


def prompt_relevance(steps: float) -> float:
    """Return the relevance of a prompt by its standard score: 0..1, rising, 0.3 at a standard score of 1."""
    if steps <= 0:
        return 0.0
    if steps <= 1:
        return CALIBRATION_POINT * steps
    # Approaches 1 and continues the slope at the calibration point.
    rest = 1 - CALIBRATION_POINT
    return 1 - rest * exp(-(steps - 1) * CALIBRATION_POINT / rest)


def evenness_of(asks: float) -> float:
    """Return how little the differences between scores count, 0..1: a prompt that asks a question should get all its answers."""
    return 1 / (1 + exp(-_bounded(asks)))


# A hit whose score is up to ``WITHIN`` below the best may be as relevant as the prompt; from ``BEYOND`` below, none is relevant.
# On the half of `bench.day` that was used for tuning, all correct answers lie within it.
WITHIN, BEYOND = 0.4, 0.45
# Subtracted from the score of a memory that is a list of questions or of question words: it is similar to many queries and
# answers none.
ASKING_PENALTY = 0.4


def gate(
    evidence: NDArray[np.float64],
    relevance: float,
    floor: float,
    evenness: float = 0.0,
    *,
    most: int | None = None,
) -> list[tuple[int, float]]:
    """Return the hits to return as (index, relevance), best first, ties by index; empty when the prompt does not pass.

    Args:
        evidence: the score of each candidate, in any order.
        relevance: of the prompt, see `prompt_relevance`.
        floor: the lowest relevance to return; 0 returns everything with its relevance.
        evenness: see `evenness_of`; at 0 the relevance is in proportion to the score.
        most: the maximum number of hits; None for all.
    """
    # A stable sort keeps ties in the order of their index.
    order = np.argsort(-evidence, kind="stable")[:most]
    each = passing(evidence[order].tolist(), relevance, floor, evenness)
    return list(zip(order.tolist(), each, strict=False))


def passing(evidence: Sequence[float], relevance: float, floor: float, evenness: float = 0.0) -> list[float]:
    """Return the relevance of each hit that passes, given the scores in falling order; arguments as in `gate`."""
    if not evidence or relevance < floor:
        return []
    best = max(evidence[0], 0.0)
    shares = [max(one, 0.0) / best for one in evidence] if best > 0 else [0.0] * len(evidence)
    each = (relevance * share ** (1 - evenness) for share in shares)
    return list(takewhile(lambda one: one >= floor, each))


def never_rising(values: Sequence[float]) -> list[float]:
    """Return the nearest values, by least squares, that never rise: where they do, the mean of those values.

    This is isotonic regression by pooling adjacent violators (Ayer et al., 1955).

    Example:
        >>> never_rising([0.5, 0.2, 0.4, 0.1])
        [0.5, 0.30000000000000004, 0.30000000000000004, 0.1]
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] * count < total * pools[-1][1]:
            other, more = pools.pop()
            total, count = total + other, count + more
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def nearness(gap: float) -> float:
    """Return the share of the prompt's relevance that a hit may have, by how far its score is below the best."""
    return min(1.0, max(0.0, (BEYOND - gap) / (BEYOND - WITHIN)))


def _between(below: Baseline, above: Baseline, share: float) -> Baseline:
    return Baseline(
        median=below.median + share * (above.median - below.median),
        high=below.high + share * (above.high - below.high),
    )


def _within(own: float, expected: float) -> float:
    return min(max(own, expected - MOST_BELOW_PRIOR), expected + MOST_ABOVE_PRIOR)


class Hit(NamedTuple):
    """A search hit.

    Attributes:
        key: the memory's key in `relayer.search.index.MemoryIndex`.
        relevance: 0..1, see `gate`.
        cosine: similarity of the query and the memory, or the best of its passages less `relayer.search.passages.CHANCE`; None if
            either has no vector.
        bm25: BM25 score; 0 if query and memory share no term, None if the query has no text.
        covered: share of the query's terms that the memory covers, weighted by how rare they are.
        spoken: whether the query names the speaker of the memory.
        evidence: the score that the hit is ordered by: cosine, coverage, speaker, content, the boost from neighbours, and what reading adds.
        passage: of a long text, the offset of its best passage, in characters.
    """

    key: int
    relevance: float
    cosine: float | None
    bm25: float | None
    covered: float
    spoken: bool
    evidence: float
    passage: int | None = None


@dataclass(frozen=True, slots=True)
class SearchJudgement:
    """The reason why a search returned hits or abstained.

    Attributes:
        best: the best `abstention_score`, less the penalty; None if there was no candidate.
        null: the baseline among as many memories.
        doubt: the penalty because the prompt names a person or thing that no memory mentions.
    """

    best: float | None
    null: Baseline
    doubt: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        hits: best first, all at or above the threshold; may be empty.
        degraded: whether some or all of the result is by terms alone, because the query or a memory has no vector.
        considered: number of memories that the filter allowed.
        judgement: the decision to return hits or none.
        unread: the hits that have yet to be read together with the prompt, likeliest first; see `relayer.ports.CrossEncoder`.
    """

    hits: tuple[Hit, ...]
    degraded: bool
    considered: int
    judgement: SearchJudgement
    unread: tuple[Hit, ...] = ()


def in_order(hits: Sequence[Hit], scores: Mapping[int, float]) -> list[Hit]:
    """Return the hits by falling score, ties in their given order; the relevance never rises from one hit to the next."""
    least = 1.0
    ordered: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: -scores[hit.key]):
        least = min(least, hit.relevance)
        ordered.append(hit if hit.relevance == least else hit._replace(relevance=least))
    return ordered


def faded(score: float, age: float, half_life: float) -> float:
    """Return a score after exponential decay; ``age`` has the unit of ``half_life``, and a negative age counts as 0."""
    return score * 0.5 ** (max(age, 0.0) / half_life) if score > 0 else score


def diverse(
    scores: Mapping[int, float], row: Callable[[int], Vector | None], share: float, count: int
) -> dict[int, float]:
    """Return scores that order the ``count`` best hits by quality and by dissimilarity to the hits before them.

    Maximal marginal relevance (Carbonell and Goldstein, 1998), with 1 - ``share`` as its lambda.

    Args:
        scores: by key.
        row: returns the vector of a key; a memory without one is dissimilar to all others.
        share: 0 keeps the order, 1 counts similarity only.
        count: how many hits to choose; the others follow in their order.
    """
    rows = {key: found for key in scores if (found := row(key)) is not None}
    left = sorted(scores, key=lambda key: (-scores[key], key))
    likeness = dict.fromkeys(left, 0.0)
    chosen: list[int] = []
    while left and len(chosen) < count:
        best = max(left, key=lambda key: (1 - share) * scores[key] - share * likeness[key])
        left.remove(best)
        chosen.append(best)
        if best in rows:
            for key in left:
                if key in rows:
                    likeness[key] = max(likeness[key], _cosine(rows[key], rows[best]))
    places = (*chosen, *left)
    return {key: float(len(places) - place) for place, key in enumerate(places)}


def _cosine(one: Vector, other: Vector) -> float:
    return float(one @ other) / float(np.linalg.norm(one) * np.linalg.norm(other))


@dataclass(frozen=True, slots=True, eq=False)
class WorthReader:
    """The classifier for the vectors of one model.

    Attributes:
        direction: of length 1; the larger a memory's component in it, the likelier its content lasts.
        steepness: logits per unit of that component.
        bias: in logits.
    """

    direction: Vector
    steepness: float
    bias: float

    def read(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how likely the content of each memory lasts, 0..1; 0 for a memory without a vector.

        Args:
            along: the inner products of the memories' rows with the direction; NaN without a row.
        """
        logits = self.steepness * along + self.bias
        likely: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return np.nan_to_num(likely, nan=0.0)


@cache
def _readers() -> dict[str, WorthReader]:
    data = (files("relayer.search") / "data" / "worth.npz").read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        return {model: _reader(stored[model]) for model in stored.files}


def _reader(weights: NDArray[np.float32]) -> WorthReader:
    """Return the reader of a model's weights, the bias last."""
    steepness = float(np.linalg.norm(weights[:-1]))
    return WorthReader((weights[:-1] / steepness).astype(np.float32), steepness, float(weights[-1]))


def worth_reader(model: str) -> WorthReader | None:
    """Return the classifier for a model, by its SHA-256; None if none was learnt for it."""
    return _readers().get(model)


_FEWEST = 64
Along = Callable[[Vector, Sequence[int]], NDArray[np.float64]]


class Worths:
    """The cached importance of the memories of one namespace, by key; 4 bytes a key. Each vector is read once."""

    def __init__(self) -> None:
        # Each memory's component in the direction; NaN where it was not computed yet, or the memory has no row.
        self._known = np.full(0, np.nan, np.float32)

    @property
    def nbytes(self) -> int:
        """Return the size of the array in bytes."""
        return self._known.nbytes

    def importances(self, keys: Sequence[int], reader: WorthReader, along: Along) -> NDArray[np.float64]:
        """Return the importance of memories, see `WorthReader.read`.

        Args:
            keys: of the memories, rising.
            reader: of the model whose vectors they have.
            along: returns the inner products of a direction and the rows of keys, NaN without a row.
        """
        missing = keys[-1] + 1 - len(self._known) if keys else 0
        if missing > 0:
            more = np.full(max(missing, _FEWEST, len(self._known) // 4), np.nan, np.float32)
            self._known = np.concatenate((self._known, more))
        places = np.array(keys, np.int64)
        found = self._known[places]
        unknown = np.isnan(found)
        if unknown.any():
            found[unknown] = along(reader.direction, places[unknown].tolist())
            self._known[places] = found
        return reader.read(found.astype(np.float64))

    def forget(self, key: int) -> None:
        """Drop the cached value of a memory, because its vector was replaced or removed."""
        if key < len(self._known):
            self._known[key] = np.nan

    def clear(self) -> None:
        """Drop all cached values. Call it when the embedding model changes, and with it all vectors."""
        self._known = np.full(0, np.nan, np.float32)
