"""One number from several kinds of evidence, in units that compare across queries, and the order that follows from it.

Fusions that rescale each query's scores rank as well, but what they return says nothing about whether the best hit
is any good. Raw cosine plus covered share of the query's terms does both (docs/adr/0003, docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import exp, log
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from relayer.search.rows import SHORTEST, Vector

Number = TypeVar("Number", float, NDArray[np.floating])

# The SHA-256 of the model whose vectors were read to judge and to order by, see below: multilingual-e5-small.
_LEARNT = "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"


class TermWeight(NamedTuple):
    """What covering a query's terms is worth in cosine, for the order: ``full`` for all of them, of a share ``share ** power``."""

    full: float = 1.0
    power: float = 1.0

    def of(self, covered: Number) -> Number:
        """What a covered share is worth, or each of several."""
        worth: Number = self.full * covered**self.power
        return worth


# A full match of the query's terms is worth this much cosine: for the order of the memories, and for the judgement
# whether any of them is to the point. Words tell one memory from the next better than they tell a prompt about this
# namespace from any other, which has some words in common with it by chance.
TERM_WEIGHT = TermWeight()
JUDGED_TERM_WEIGHT = 0.5
# Of models that know languages, for the order. Among thousands of memories any question has one ordinary word in common with
# many that are about something else: a quarter of an English query's terms is worth 0.16 instead of 0.25, all of them more.
ENGLISH_TERM_WEIGHT_BY_MODEL = {_LEARNT: TermWeight(1.25, 1.5)}
# In another language than English: only English terms are free of function words and endings, so that of the others chance
# matches more, and the meaning tells as much as in English.
OTHER_TERM_WEIGHT_BY_MODEL = {_LEARNT: TermWeight(0.5)}
# What it is worth that the query names the one who said it: for the order, and for the judgement.
SPEAKER_WEIGHT = 0.2
JUDGED_SPEAKER_WEIGHT = 0.15
# What it is worth that a memory tells something, and does not only ask or agree: as many turns of a real chat do; and that by
# its vector it tells what lasts (`relayer.search.worth`).
TOLD_WEIGHT = 0.15
WORTH_WEIGHT = 0.1
# How much of the way from a sentence about oneself to one about the speaker is taken out of a query that names the speaker,
# in order to rank: who said a memory is known, and the name would outweigh what is asked.
NAME_SHARE = 0.5
ABOUT = "What did {} do?"
ONESELF = "I"
# What it costs the prompt as a whole that it names somebody or something the namespace has never heard of.
UNKNOWN_NAME_PENALTY = 0.2
# Share of the gap that a better neighbour closes, by its distance in turns.
NEIGHBOUR_SHARES = (0.3, 0.2, 0.1)


def coverage(bm25: NDArray[np.float64], ceiling: float) -> NDArray[np.float64]:
    """BM25 as a share of what a text with every term of the query would score; 0 for a query without terms."""
    return bm25 / ceiling if ceiling > 0 else np.zeros_like(bm25)


def term_weight(model: str, *, english: bool) -> TermWeight:
    """What covering a query's terms is worth for the order, by whose vectors are searched and the query's language."""
    by_model = ENGLISH_TERM_WEIGHT_BY_MODEL if english else OTHER_TERM_WEIGHT_BY_MODEL
    return by_model.get(model, TERM_WEIGHT)


def evidence(cosine: Number, covered: Number, weight: TermWeight = TERM_WEIGHT) -> Number:
    """What speaks for a memory, or for each of several, against the other memories of its namespace; see `term_weight`."""
    return cosine + weight.of(covered)


def without_name(vector: Vector, about: Sequence[Vector], oneself: Vector) -> Vector:
    """A query's vector less what the names in it add, of length 1.

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
    """What speaks for a memory against silence; compares across queries."""
    return cosine + JUDGED_TERM_WEIGHT * covered


def with_neighbours(
    found: Mapping[int, float], lenders: Iterable[int], near: Callable[[int], Iterable[tuple[int, int]]]
) -> dict[int, float]:
    """Evidence by key, that of the lenders' neighbours in the conversation raised towards theirs.

    An answer rarely repeats the question before it, and a question rarely names what the next turn tells: a turn
    beside a good hit is worth more than its own words say.

    Args:
        found: evidence by key.
        lenders: the best of its keys; in a fixed order, because replicas must add alike.
        near: the neighbours of a key with their distances, from 1 to the number of shares.
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

# From this size on a namespace's own null counts, and from twice this size it counts alone.
ENOUGH_MEMORIES = 200
# How far a namespace's own quantile may leave the prior: probes that are about the namespace's own subject are
# related to it, and must not silence it.
MOST_ABOVE_PRIOR = 0.05
MOST_BELOW_PRIOR = 0.20
# The null beyond the largest size of a prior goes on with this share of its slope over the decade before: what short
# texts have in common by chance is used up slowly. In namespaces of 400 to 3,000 turns it rises by 0.04 to 0.07 for
# each e-fold, and that of the prior by 0.08 (docs/adr/0011).
SLOPE_BEYOND = 0.5
_DECADE = 10
# Keeps the scale of relevance finite where unrelated prompts find nothing at all.
NARROWEST = 0.1


@dataclass(frozen=True, slots=True)
class Baseline:
    """Quantiles (50 % and 99 %) of the best evidence that unrelated prompts find."""

    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Prior:
    """The null by namespace size, measured on texts that ship with it.

    Attributes:
        points: (size, null) with rising sizes, the first of them 1; linear in ln(size) between them, because the
            largest of n draws from a tail that falls exponentially rises with ln(n) (Gumbel, "Statistics of
            Extremes", 1958), and beyond the last with `SLOPE_BEYOND` of the slope of the last decade.
    """

    points: tuple[tuple[int, Baseline], ...]

    def at(self, size: int) -> Baseline:
        """The null among ``size`` memories."""
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
    """The null to judge by when ``size`` memories are searched.

    Args:
        size: memories that the prompt is compared with, after filters.
        prior: the model's.
        own: as measured in this namespace, or None.
        own_size: memories in the namespace when ``own`` was measured.
    """
    expected = prior.at(size)
    weight = min(1.0, max(0.0, (own_size - ENOUGH_MEMORIES) / ENOUGH_MEMORIES))
    if own is None or weight == 0.0:
        return expected
    # A filter leaves fewer memories than the null was measured with.
    fewer = expected.high - prior.at(own_size).high
    high = _within(own.high + fewer, expected.high)
    median = min(own.median + fewer, high)
    return Baseline(
        median=(1 - weight) * expected.median + weight * median,
        high=(1 - weight) * expected.high + weight * high,
    )


# What a prompt's form and its best memory's evidence say together, in steps of the null: 1 where one unrelated prompt in a
# hundred stands. ``python -m bench.judgement`` learns them; the rest is of n-grams alone, and of a model that reads with them: that
# one, and how much its form says at most, by the unrelated prompts of all personas in each one's namespace, which it measures.
EVIDENCE_SHARE = 0.42
ASKS_SHARE = 0.06
CONCERNS_SHARE = 0.075
SHARE_OF_ALL = 0.44
SHARE_BY_MODEL = {_LEARNT: 0.66}
# No memory is told for the form of a prompt alone, however surely it asks for one.
LEAST_STEPS = -1.5
# So far above the null evidence needs no form: who asks about others, in a plain sentence, is told what is known of them.
ENOUGH_ALONE = 0.15
# How much the form says at most: n-grams alone are often very sure and wrong.
MOST_LOGITS = 6.0
MOST_LOGITS_BY_MODEL = {_LEARNT: 10.0}


def in_steps(best: float, null: Baseline) -> float:
    """Where evidence stands in the null: 0 at its median, 1 at its 99 % quantile; none at all stands no higher than 0."""
    steps = 1 + (best - null.high) / max(null.high - null.median, NARROWEST)
    return steps if best > 0 else min(steps, 0.0)


def judged_steps(steps: float, asks: float, concerns: float, model: str = "") -> float:
    """What the evidence says, in steps, together with what the prompt's form says.

    Args:
        steps: see `in_steps`.
        asks: see `relayer.lib.n_grams.PromptReading`.
        concerns: likewise.
        model: whose vectors were read.
    """
    most = MOST_LOGITS_BY_MODEL.get(model, MOST_LOGITS)
    form = ASKS_SHARE * _bounded(asks, most) + CONCERNS_SHARE * _bounded(concerns, most)
    rest = SHARE_BY_MODEL.get(model, SHARE_OF_ALL)
    together = min(EVIDENCE_SHARE * steps + form + rest, 1 + steps - LEAST_STEPS)
    return max(together, steps - ENOUGH_ALONE)


def _bounded(logits: float, most: float = MOST_LOGITS) -> float:
    return min(max(logits, -most), most)


def prompt_relevance(steps: float) -> float:
    """Relevance of a prompt at so many steps of the null; 0..1, rising, 0.3 at one step."""
    if steps <= 0:
        return 0.0
    if steps <= 1:
        return CALIBRATION_POINT * steps
    # Approaches 1 with the slope it arrives with.
    rest = 1 - CALIBRATION_POINT
    return 1 - rest * exp(-(steps - 1) * CALIBRATION_POINT / rest)


def evenness_of(asks: float) -> float:
    """How little it matters that one memory has more evidence than another, 0..1: who asks wants to be told."""
    return 1 / (1 + exp(-_bounded(asks)))


# A hit with at most ``WITHIN`` less evidence than the best one may be as relevant as the prompt; from ``BEYOND`` on none is relevant.
# On the seen half of `bench.day` all answers that were told before lie within it.
WITHIN, BEYOND = 0.4, 0.45
# Taken off the evidence of a memory that is a list of questions or of question words: it is close to many and answers none.
ASKING_PENALTY = 0.4


def gate(
    evidence: NDArray[np.float64],
    relevance: float,
    floor: float,
    evenness: float = 0.0,
    *,
    most: int | None = None,
) -> list[tuple[int, float]]:
    """What may leave, as (index, relevance), best first, ties by index; empty when the prompt does not pass.

    Args:
        evidence: what each candidate ranks by, see `relayer.search.ranking`; any order.
        relevance: of the prompt, see `prompt_relevance`.
        floor: least relevance; 0 returns everything with its relevance.
        evenness: see `evenness_of`; 0 shares the relevance out by evidence.
        most: so many at most; None for all.
    """
    # Stable: what ties stays in the order of its index.
    order = np.argsort(-evidence, kind="stable")[:most]
    each = passing(evidence[order].tolist(), relevance, floor, evenness)
    return list(zip(order.tolist(), each, strict=False))


def passing(evidence: Sequence[float], relevance: float, floor: float, evenness: float = 0.0) -> list[float]:
    """The relevance of what may leave, given the evidence from the best on; arguments as of `gate`."""
    if not evidence or relevance < floor:
        return []
    best = max(evidence[0], 0.0)
    shares = [max(one, 0.0) / best for one in evidence] if best > 0 else [0.0] * len(evidence)
    each = (relevance * share ** (1 - evenness) for share in shares)
    return list(takewhile(lambda one: one >= floor, each))


def nearness(gap: float) -> float:
    """Return the share of the prompt's relevance that a hit may have, by how much less evidence than the best it has."""
    return min(1.0, max(0.0, (BEYOND - gap) / (BEYOND - WITHIN)))


def _between(below: Baseline, above: Baseline, share: float) -> Baseline:
    return Baseline(
        median=below.median + share * (above.median - below.median),
        high=below.high + share * (above.high - below.high),
    )


def _within(own: float, expected: float) -> float:
    return min(max(own, expected - MOST_BELOW_PRIOR), expected + MOST_ABOVE_PRIOR)


class Hit(NamedTuple):
    """A memory that was found.

    Attributes:
        key: as given to `relayer.search.index.MemoryIndex.put`.
        relevance: 0..1, see `relayer.search.ranking`.
        cosine: of its row, or the best of its passages, and the query; None if either has no vector.
        bm25: of its text and the query; 0 if they share no term, None if the query has no text.
        covered: share of the query's terms that it covers, weighted by how rare they are.
        spoken: whether the query names its speaker.
        evidence: what it ranks by: cosine, covered share, speaker, how much it tells that lasts, and what its
            neighbours in the conversation lend.
        passage: of a long text, where the passage begins that has the most to say, in characters.
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
class Judgement:
    """Why a prompt passed, or met silence.

    Attributes:
        best: evidence of the best memory, less the doubt; None if nothing was found.
        null: what unrelated prompts find among as many memories.
        doubt: what was taken off because the prompt names somebody or something that no memory knows.
    """

    best: float | None
    null: Baseline
    doubt: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        hits: best first, all at or above the floor; empty is an answer.
        degraded: some or all of it rests on terms alone, for want of a vector of the query or of a memory.
        considered: memories that the filter allowed.
        judgement: what decided between them and silence.
    """

    hits: tuple[Hit, ...]
    degraded: bool
    considered: int
    judgement: Judgement


def in_order(hits: Sequence[Hit], scores: Mapping[int, float]) -> list[Hit]:
    """The hits by falling score, ties as they came; none has more relevance than the one before it."""
    least = 1.0
    ordered: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: -scores[hit.key]):
        least = min(least, hit.relevance)
        ordered.append(hit if hit.relevance == least else hit._replace(relevance=least))
    return ordered


def faded(score: float, age: float, half_life: float) -> float:
    """A score after an age in the unit of the half-life; what lies in the future has not aged."""
    return score * 0.5 ** (max(age, 0.0) / half_life) if score > 0 else score


def diverse(
    scores: Mapping[int, float], row: Callable[[int], Vector | None], share: float, count: int
) -> dict[int, float]:
    """Scores that put first what is good and unlike what stands before it, for the ``count`` best.

    Maximal marginal relevance (Carbonell and Goldstein, 1998), with 1 - ``share`` as its lambda.

    Args:
        scores: by key.
        row: the vector of a key; what has none is unlike everything.
        share: 0 leaves the order alone, 1 looks at likeness only.
        count: how many places to fill; the rest keep their order behind them.
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
