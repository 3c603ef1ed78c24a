"""The relevance of each memory to a prompt, which decides which memories a prompt gets that did not ask for any.

An explicit search returns the best memories in the order of their evidence (`relayer.search.ranking`), to which `reranked` adds
what reading the best of them says. A prompt gets only those that help: a `RelevanceReader` of one model's vectors estimates for each
of the best candidates the probability that it answers the prompt or bears on it, and separately whether the prompt concerns memory at
all. The likeliest of them are then read together with the prompt (`relayer.ports.CrossEncoder`), and both are estimated again.
`chosen` turns them into relevances.
``python -m bench.relevance`` learns the weights from ``bench/sets`` and reports what they choose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.lib.n_grams import PromptReading
from relayer.search.baseline import ENGLISH
from relayer.search.ranking import NARROWEST, Baseline, Hit
from relayer.search.rows import SHORTEST, Vector
from relayer.wire.relevance import CERTAIN, CHOSEN, LEAST_SHARE, MOST_UNCERTAIN

Numbers = NDArray[np.float64]

MOST_READ: Final = 20
"""The number of candidates that are read: the best by evidence, and as many that are nearest to the prompt's own vector."""
READ_TOGETHER: Final = 5
"""The number of candidates that are read together with the prompt, the likeliest ones."""
# Of them, so many are the best by evidence if a search is explicit: in long chats of several people evidence knows more.
_BEST_READ: Final = 3
# How much a logit adds to the evidence of an explicit search that is reranked: of the score of the cross-encoder, limited to 6, and
# of the probability before it.
_RERANK_WEIGHT: Final = 0.05
_MOST_RERANK: Final = 6.0
_LIKELY_WEIGHT: Final = 0.03
_LEAST_RERANK: Final = 0.001
# A less probable memory is read only if there is no better one: of 100 that are right, one is less probable.
_LEAST_LIKELY: Final = 0.01
# From which logit of its admission a prompt is read together with memories: what no memory concerns costs nothing.
_LEAST_ADMITTED: Final = -1.5
_SHA256: Final = "4dc635a263441528db953791b705d8f116bfb64984d6bf5bafae0d526447d4f0"
_MOST_LOGITS: Final = 10.0
_MOST_BEARING: Final = 8.0
_MOST_ADMISSION: Final = 8.0
_MOST_GAP: Final = 6.0
# Subtracted for a list of questions or of question words, which is similar to many prompts and answers none. No set for training
# has such memories.
_ASKING_LOGITS: Final = 6.0
# A namespace of few memories tells little of how cosines spread in it, and of which terms are rare.
_USUAL_SPREAD: Final = 0.07
_ENOUGH: Final = 20


class PromptFacts(NamedTuple):
    """The facts about a prompt that a search has.

    Attributes:
        asks: the logit that it asks for a memory, in units of `_MOST_LOGITS` and within 1.
        concerns: likewise, that it asks for one or touches what memories are about.
        english: whether it is in English.
        null: the best scores of unrelated prompts among as many memories.
        doubt: the penalty because it names a person or thing that no memory mentions.
        size: the number of memories that were searched.
        admission: see `relayer.ports.QueryVectors`, within `_MOST_ADMISSION`.
    """

    asks: float
    concerns: float
    english: bool
    null: Baseline
    doubt: float
    size: int
    admission: float = 0.0

    @classmethod
    def from_reading(
        cls, reading: PromptReading, null: Baseline, doubt: float, size: int, admission: float
    ) -> PromptFacts:
        """Return what is known of a prompt by its classification, its namespace and its vectors."""
        asks, concerns = np.clip((reading.asks, reading.concerns), -_MOST_LOGITS, _MOST_LOGITS) / _MOST_LOGITS
        facts = cls(float(asks), float(concerns), reading.language == ENGLISH, null, doubt, size)
        return facts.admitted(admission)

    def admitted(self, admission: float) -> PromptFacts:
        """Return the same facts with an admission."""
        return self._replace(admission=float(np.clip(admission, -_MOST_ADMISSION, _MOST_ADMISSION)))

    def steps(self, judged: Numbers) -> Numbers:
        """Return scores as standard scores of the baseline, see `relayer.search.ranking.in_steps`."""
        width = max(self.null.high - self.null.median, NARROWEST)
        return 1 + (judged - self.doubt - self.null.high) / width


class CandidateScores(NamedTuple):
    """The scores of the candidates that are read, best by evidence first.

    Attributes:
        ranked: the scores that they are ordered by.
        cosine: of each and the prompt.
        turned: of each and the prompt's own vector, see `relayer.ports.QueryVectors`.
        bearing: logits that memories with such contents bear on prompts with such contents, see `RelevanceReader.bearing`.
        judged: the scores that the decision is made by.
        covered: shares of the prompt's terms.
        told: how much each states.
        worth: how likely the content of each lasts.
        every: the cosines of all candidates, in any order.
    """

    ranked: Numbers
    cosine: Numbers
    turned: Numbers
    bearing: Numbers
    judged: Numbers
    covered: Numbers
    told: Numbers
    worth: Numbers
    every: Numbers


def _logistic(logits: Numbers) -> Numbers:
    likely: Numbers = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
    return likely


def _over_next(scores: Numbers) -> Numbers:
    """Return how far each score is above the best of the others."""
    if len(scores) < 2:
        return np.zeros(len(scores))
    second, first = np.partition(scores, -2)[-2:]
    others = np.full(len(scores), first)
    others[scores.argmax()] = second
    over: Numbers = scores - others
    return over


def features(read: CandidateScores, prompt: PromptFacts) -> Numbers:
    """Return the features by which the probability of each candidate is computed.

    Args:
        read: the scores of n candidates, best first.
        prompt: the facts about the prompt.

    Returns:
        The features, shape (n, 51).
    """
    count = len(read.ranked)
    steps = np.clip(prompt.steps(read.judged), -3, 6)
    known = min(1.0, prompt.size / _ENOUGH)
    covered = known * read.covered
    spread = np.hypot(known * read.every.std(), (1 - known) * _USUAL_SPREAD) + 0.01
    standard = (read.cosine - read.every.mean()) / spread
    turned_spread = known * read.turned.std() + (1 - known) * _USUAL_SPREAD + 0.02
    turned_standard = (read.turned - read.turned.mean()) / turned_spread
    gap = read.ranked - read.ranked.max()
    over, turned_over = _over_next(read.cosine), _over_next(read.turned)
    bearing = np.clip(read.bearing, -_MOST_BEARING, _MOST_BEARING)
    question, touched = _logistic(_MOST_LOGITS * np.array((prompt.asks, prompt.concerns))).tolist()
    of_prompt = (
        prompt.asks,
        prompt.concerns,
        question,
        steps.max(),
        prompt.doubt > 0,
        np.log1p(prompt.size) / 5,
        prompt.english,
        prompt.admission / _MOST_ADMISSION,
    )
    own = np.stack(
        [
            read.cosine,
            standard,
            over,
            read.turned,
            turned_standard,
            turned_over,
            covered,
            covered**1.5,
            read.told,
            read.worth,
            gap,
            np.log1p(np.arange(count)),
            steps,
            _over_next(read.ranked),
            np.maximum(standard - 1, 0),
            np.maximum(standard - 2, 0),
            np.maximum(turned_standard - 1, 0),
            np.maximum(turned_standard - 2, 0),
            np.maximum(steps - 1, 0),
            bearing,
            np.maximum(bearing, 0),
        ],
        axis=1,
    )
    with_form = own[:, [0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 19]]
    of_all = np.broadcast_to(np.array(of_prompt, np.float64), (count, len(of_prompt)))
    return np.concatenate([own, of_all, question * with_form, touched * with_form], axis=1)


def gate_features(likely: Numbers, steps: float, prompt: PromptFacts) -> Numbers:
    """Return the features that decide whether a prompt gets any memory.

    Args:
        likely: the probability of each candidate, shape (n,), in any order; n may be 0.
        steps: the best score as a standard score of the baseline, limited to -3..6.
        prompt: the facts about the prompt.

    Returns:
        The features, shape (18,).
    """
    asks, concerns = prompt.asks, prompt.concerns
    first, second = _logit(np.sort(np.append(likely, (0.0, 0.0)))[:-3:-1])
    return np.array(
        [
            first,
            second,
            likely.sum(),
            steps,
            max(steps - 1, 0.0),
            asks,
            concerns,
            max(asks, 0.0),
            max(concerns, 0.0),
            steps * asks,
            steps * concerns,
            first * concerns,
            prompt.doubt > 0,
            prompt.english,
            prompt.admission,
            max(prompt.admission, 0.0),
            min(prompt.admission, 0.0) * concerns,
            first * prompt.admission / _MOST_ADMISSION,
        ],
        np.float64,
    )


def together_features(likely: Numbers, scores: Numbers, admitted: float, prompt: PromptFacts) -> Numbers:
    """Return the features by which the probability of each candidate is computed that was read together with the prompt.

    Args:
        likely: the probability of each by `features`, shape (n,).
        scores: the logits of the cross-encoder, shape (n,).
        admitted: the logit that the prompt concerns memory.
        prompt: the facts about the prompt.

    Returns:
        The features, shape (n, 8).
    """
    before = _logit(likely)
    gap = np.clip(_over_next(scores), -_MOST_GAP, _MOST_GAP)
    of_prompt = np.broadcast_to((admitted, prompt.asks, prompt.concerns), (len(likely), 3))
    own = np.stack([before, scores, gap, scores * prompt.asks, before * prompt.asks], axis=1)
    return np.concatenate([own, of_prompt], axis=1)


def together_gate_features(likely: Numbers, best: float, admitted: float, prompt: PromptFacts) -> Numbers:
    """Return the features that decide again whether a prompt gets any memory.

    Args:
        likely: the probability of each candidate by `together_features`, shape (n,), n at least 1.
        best: the best score of the cross-encoder.
        admitted: the logit that the prompt concerns memory, as it was before.
        prompt: the facts about the prompt.

    Returns:
        The features, shape (8,).
    """
    first, second = _logit(np.sort(np.append(likely, 0.0))[:-3:-1])
    facts = (admitted, prompt.admission / _MOST_ADMISSION, prompt.asks, prompt.concerns)
    return np.array([first, second, best, first * prompt.asks, *facts], np.float64)


def _logit(likely: Numbers) -> Numbers:
    bounded = np.clip(likely, 1e-4, 1 - 1e-4)
    logits: Numbers = np.log(bounded / (1 - bounded))
    return logits


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """A logistic regression: weights with the bias last."""

    weights: Numbers

    def logits(self, rows: Numbers) -> Numbers:
        """Return the logit of each row."""
        logits: Numbers = rows @ self.weights[:-1] + self.weights[-1]
        return logits


class Relevances(NamedTuple):
    """The relevance of candidates to a prompt.

    Attributes:
        likely: the probability of each that it answers the prompt or bears on it.
        admitted: the logit that the prompt concerns memory, 0 at the bar.
    """

    likely: Numbers
    admitted: float


@dataclass(frozen=True, slots=True, eq=False)
class RelevanceReader:
    """The weights for the vectors of one model.

    Attributes:
        bearing_down: of the products of the components of a prompt and of a memory, from a prompt's vector to components.
        bearing_up: likewise, from these components to a direction of the dimension.
        memory: of the probability of a memory.
        prompt: of the admission of a prompt.
        memory_together: of the probability of a memory that was read together with the prompt.
        prompt_together: of the admission of such a prompt.
    """

    bearing_down: NDArray[np.float32]
    bearing_up: NDArray[np.float32]
    memory: Logistic
    prompt: Logistic
    memory_together: Logistic
    prompt_together: Logistic

    def bearing(self, query: Vector) -> tuple[Vector, float]:
        """Return the direction in which memories bear on a prompt, and what a row's inner product with it has to be multiplied by."""
        direction = (query @ self.bearing_down) @ self.bearing_up
        length = float(np.linalg.norm(direction))
        return (query, 0.0) if length < SHORTEST else ((direction / length).astype(np.float32), length)

    def estimate(self, read: CandidateScores, prompt: PromptFacts) -> Relevances:
        """Return the relevance of candidates."""
        asks_only = read.told < 0
        likely = _logistic(self.memory.logits(features(read, prompt)) - _ASKING_LOGITS * asks_only)
        steps = float(np.clip(prompt.steps(read.judged), -3, 6).max())
        admitted = float(self.prompt.logits(gate_features(likely, steps, prompt)))
        return Relevances(likely, admitted)

    def reestimate(self, reading: Relevances, scores: Numbers, prompt: PromptFacts) -> Relevances:
        """Return the relevance of candidates of which some were read together with the prompt.

        Args:
            reading: as `estimate` returned it, of n candidates.
            scores: the logits of the cross-encoder, shape (n,); NaN for those that were not read, which are then not likely.
            prompt: the facts about the prompt.
        """
        read = np.flatnonzero(~np.isnan(scores))
        if not len(read):
            return reading
        given = together_features(reading.likely[read], scores[read], reading.admitted, prompt)
        likely = np.zeros(len(scores))
        likely[read] = _logistic(self.memory_together.logits(given))
        best = float(scores[read].max())
        decided = together_gate_features(likely[read], best, reading.admitted, prompt)
        return Relevances(likely, float(self.prompt_together.logits(decided)))


def to_read(reading: Relevances, most: int = READ_TOGETHER) -> NDArray[np.intp]:
    """Return the positions of the candidates that are to be read together with the prompt, likeliest first."""
    if reading.admitted < _LEAST_ADMITTED:
        return np.empty(0, np.intp)
    at = np.argsort(-reading.likely, kind="stable")[:most]
    worth_it: NDArray[np.intp] = at[(reading.likely[at] >= _LEAST_LIKELY) | (np.arange(len(at)) == 0)]
    return worth_it


def chosen(reading: Relevances, *, few: bool = True) -> Numbers:
    """Return the relevance of each candidate: from `CHOSEN` on where it belongs in the prompt, below it elsewhere.

    Args:
        reading: their probabilities, and the prompt's admission.
        few: whether at most `MOST_UNCERTAIN` belong there if it is not certain that any does.
    """
    likely = reading.likely
    best = float(likely.max(initial=0.0))
    passes = (likely >= LEAST_SHARE * best) & (reading.admitted >= 0)
    if few and best < CERTAIN:
        place = np.empty(len(likely), np.int64)
        place[np.argsort(-likely, kind="stable")] = np.arange(len(likely))
        passes &= place < MOST_UNCERTAIN
    relevance: Numbers = np.where(passes, CHOSEN + (1 - CHOSEN) * likely, 0.99 * CHOSEN * likely)
    return relevance


def to_rerank(hits: Sequence[Hit], likely: Mapping[int, float]) -> list[Hit]:
    """Return the hits of an explicit search that are to be read together with its query: the best, and the likeliest.

    Args:
        hits: best first.
        likely: their probabilities by key; hits without one are not likely.
    """
    likeliest = sorted(hits, key=lambda hit: -likely.get(hit.key, 0.0))
    return list({hit.key: hit for hit in (*hits[:_BEST_READ], *likeliest)}.values())[:READ_TOGETHER]


def reranked(hits: Sequence[Hit], likely: Mapping[int, float], scores: Mapping[int, float]) -> list[Hit]:
    """Return the hits of an explicit search in a new order; their relevance falls along it as before.

    Args:
        hits: best first.
        likely: their probabilities by key, before any was read together with the query.
        scores: by key, the logits of the cross-encoder for those that were; the others count as the least of these.
    """
    least = min(scores.values())
    given = np.array([(likely.get(hit.key, 0.0), scores.get(hit.key, least)) for hit in hits])
    before, score = _logit(given[:, 0].clip(_LEAST_RERANK)), given[:, 1].clip(-_MOST_RERANK, _MOST_RERANK)
    # What each has more than the least: evidence that fades with time is not negative.
    more = _LIKELY_WEIGHT * (before - before.min()) + _RERANK_WEIGHT * (score - score.min())
    moved = [hit._replace(evidence=hit.evidence + one) for hit, one in zip(hits, more.tolist(), strict=True)]
    moved.sort(key=lambda hit: -hit.evidence)
    places = sorted((hit.relevance for hit in hits), reverse=True)
    return [hit._replace(relevance=place) for hit, place in zip(moved, places, strict=True)]


@cache
def _readers() -> dict[str, RelevanceReader]:
    data = (files("relayer.search") / "data" / "relevance.npz").read_bytes()
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise ValueError("relevance.npz is not the file that this version was made with")
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        models = {name.split("_")[0] for name in stored.files}
        return {
            model: RelevanceReader(
                stored[f"{model}_bearing-down"].astype(np.float32),
                stored[f"{model}_bearing-up"].astype(np.float32),
                *(
                    Logistic(stored[f"{model}_{name}"].astype(np.float64))
                    for name in ("memory", "prompt", "memory-together", "prompt-together")
                ),
            )
            for model in models
        }


def relevance_reader(model: str) -> RelevanceReader | None:
    """Return the weights for a model, by its SHA-256; None if none were learnt for it."""
    return _readers().get(model)
