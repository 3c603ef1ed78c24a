"""The search index of one namespace: candidates by vector, term and neighbour, and the decision whether any is relevant.

`MemoryIndex` combines an index of vectors, an index of terms and the links between successive turns. A search collects
`Candidates` from each of them, scores all candidates by all of them, raises the scores of neighbours of the best, and
compares the best score with the baseline of unrelated prompts. `IndexParts` is the form in which an index is stored.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, KeysView, Mapping, Sequence
from functools import partial
from math import isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.lib.n_grams import PromptReading
from relayer.ports import QueryVectors
from relayer.search.baseline import ENGLISH, LEXICAL_PRIOR, Calibration, NamespaceBaseline, NullParts
from relayer.search.dense import DenseParts, DenseQuery, PinnedDense
from relayer.search.lexical import LexicalIndex, LexicalParts, LexicalQuery, PinnedTerms, asked_terms
from relayer.search.passages import Meaning, PassageWords, VectorIndex, VectorQuery, WordsOfPassages
from relayer.search.ranking import (
    ASKING_PENALTY,
    JUDGED_SPEAKER_WEIGHT,
    SPEAKER_WEIGHT,
    TERM_WEIGHT,
    TOLD_WEIGHT,
    UNKNOWN_NAME_PENALTY,
    WORTH_WEIGHT,
    Baseline,
    Hit,
    SearchJudgement,
    SearchResult,
    TermWeight,
    Worths,
    abstention_score,
    coverage,
    evenness_of,
    evidence,
    gate,
    in_steps,
    judged_steps,
    nearness,
    never_rising,
    passing,
    prompt_relevance,
    term_weight,
    with_neighbours,
    worth_reader,
)
from relayer.search.relevance import (
    MOST_READ,
    READ_TOGETHER,
    CandidateScores,
    PromptFacts,
    RelevanceReader,
    Relevances,
    chosen,
    relevance_reader,
    reranked,
    to_read,
    to_rerank,
)
from relayer.search.rows import Column, KeyMask, Vector
from relayer.search.terms import names
from relayer.wire.relevance import CHOSEN

Numbers = NDArray[np.float64]


class PromptQuery(NamedTuple):
    """The queries that a prompt asks of each memory.

    Attributes:
        reader: estimates the relevance of each memory.
        turned: the vector query of the prompt's own vector.
        admission: see `relayer.ports.QueryVectors`.
        bearing: the vector query for the direction in which memories bear on the prompt.
        scale: what the inner products with this direction are multiplied by.
    """

    reader: RelevanceReader
    turned: DenseQuery | VectorQuery
    admission: float
    bearing: DenseQuery | VectorQuery
    scale: float


class _Estimate(NamedTuple):
    """Candidates, the scores that they are ordered by, and the relevance of each."""

    best: Candidates
    ranked: Numbers
    reading: Relevances


class SearchQuery(NamedTuple):
    """A query, in the form that each part of the search takes.

    Attributes:
        dense: the vector query by which relevance is decided.
        topic: the vector query by which memories are ranked.
        lexical: the query by terms.
        passages: the query by terms of long texts' passages, where there are any.
        weight: the weight of its terms, see `relayer.search.ranking.term_weight`.
        worth: returns the importance of memories, given by rising keys; None if nothing was learnt for the model.
        prompt: what is asked of each memory for a prompt, or for a search that is reranked; None for others.
    """

    dense: DenseQuery | VectorQuery | None
    topic: DenseQuery | VectorQuery | None
    lexical: LexicalQuery | None
    passages: WordsOfPassages | None = None
    weight: TermWeight = TERM_WEIGHT
    worth: Callable[[Sequence[int]], Numbers] | None = None
    prompt: PromptQuery | None = None

    def best(self, count: int, allowed: KeyMask | None) -> set[int]:
        """Return the keys of the best candidates of each part."""
        proposed: set[int] = set()
        for half in (self.topic, self.lexical):
            if half is not None:
                proposed.update(half.best(count, allowed)[0].tolist())
        if self.prompt is not None and self.topic is not None:
            # Among the nearest to the query, because scores of all rows would take as long as the rest of the search.
            near = self.topic.best(_NEARER * count, allowed)[0]
            scores = self.prompt.turned.scores(near.tolist())
            proposed.update(near[np.argsort(-scores, kind="stable")[:count]].tolist())
        return proposed if self.passages is None else proposed | self.passages.best(count, allowed)

    def with_passages(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return hits with the best passage of each that has any."""
        return tuple(
            hit if (at := self.passage(hit.key)) is None else hit._replace(passage=at) for hit in hits
        )

    def passage(self, key: int) -> int | None:
        """Return where the best passage of a memory begins, in characters; None when its text has no passages."""
        said: defaultdict[int, float] = defaultdict(float)
        if isinstance(self.topic, VectorQuery):
            for start, cosine in self.topic.of_passages(key).items():
                said[start] += cosine
        if self.passages is not None:
            for start, covered in self.passages.of_passages(key).items():
                said[start] += self.weight.weight_of(covered)
        if said and isinstance(self.topic, VectorQuery):
            said[0] += self.topic.of_whole(key)
        return max(said, key=lambda start: (said[start], -start)) if said else None


class QueryWords(NamedTuple):
    """The words of a query, independent of the index: its terms and its names."""

    terms: list[str]
    names: tuple[str, ...]

    @classmethod
    def from_query(cls, query: str) -> QueryWords:
        """Return the words of a query."""
        return cls(asked_terms(query), names(query))


class Candidates(NamedTuple):
    """Candidates by rising key; every array has one element for each of them.

    Attributes:
        keys: of the memories.
        cosine: of its row and the query; NaN if either has no vector.
        topical: of its row and the query without the names of speakers; NaN if either has no vector.
        bm25: of its text and the query; None if the query has no text.
        covered: share of the query's terms that it covers, weighted by how rare they are.
        spoken: whether the query names its speaker.
        told: how much it states, 0..1; -1 for a list of questions, 0 if the query has no text.
        worth: likelihood by its row that its content lasts, 0..1; 0 if it has no row, the query has no text, or nothing was
            learnt for the model.
        weight: the weight of covered terms, for the order.
    """

    keys: list[int]
    cosine: Numbers
    topical: Numbers
    bm25: Numbers | None
    covered: Numbers
    spoken: NDArray[np.bool_]
    told: Numbers
    worth: Numbers
    weight: TermWeight = TERM_WEIGHT

    @classmethod
    def from_keys(cls, keys: Iterable[int], asked: SearchQuery) -> Candidates:
        """Return the candidates with these keys, each of which has a text."""
        ordered = sorted(keys)
        count = len(ordered)
        cosine = np.full(count, np.nan) if asked.dense is None else asked.dense.scores(ordered)
        topical = cosine if asked.topic in (None, asked.dense) else asked.topic.scores(ordered)
        none = np.zeros(count)
        if asked.lexical is None:
            return cls(ordered, cosine, topical, None, none, np.zeros(count, np.bool_), none, none)
        bm25 = asked.lexical.scores(ordered)
        covered = coverage(bm25, asked.lexical.ceiling)
        if asked.passages is not None:
            covered = asked.passages.raised(ordered, covered)
        spoken, told = asked.lexical.spoken(ordered), asked.lexical.told(ordered)
        worth = none if asked.worth is None else asked.worth(ordered)
        return cls(ordered, cosine, topical, bm25, covered, spoken, told, worth, asked.weight)

    def where(self, chosen: NDArray[np.bool_]) -> Candidates:
        """Return the candidates for which ``chosen`` is true."""
        return self.where_at(np.flatnonzero(chosen))

    def where_at(self, places: NDArray[np.int64]) -> Candidates:
        """Return the candidates at these places, in their order."""
        return Candidates(
            [self.keys[at] for at in places.tolist()],
            self.cosine[places],
            self.topical[places],
            None if self.bm25 is None else self.bm25[places],
            self.covered[places],
            self.spoken[places],
            self.told[places],
            self.worth[places],
            self.weight,
        )

    @property
    def by_terms(self) -> NDArray[np.bool_]:
        """Return which candidates have no cosine and are therefore scored by terms alone."""
        return np.isnan(self.cosine)

    @property
    def content(self) -> Numbers:
        """Return the scores of the candidates' own texts and vectors, shape (n,), for the order.

        Candidates without a cosine are scored by the share of the query's terms that they cover.
        """
        return np.where(self.by_terms, self.covered, evidence(self.topical, self.covered, self.weight))

    @property
    def bonus(self) -> Numbers:
        """Return what is added for a named speaker, for statements and for lasting content; neighbours get no share of it."""
        bonus: Numbers = SPEAKER_WEIGHT * self.spoken + TOLD_WEIGHT * self.told + WORTH_WEIGHT * self.worth
        return bonus

    @property
    def judged(self) -> Numbers:
        """Return the score of each candidate by which the search decides whether to return anything."""
        own = np.where(self.by_terms, self.covered, abstention_score(self.cosine, self.covered))
        judged: Numbers = own + JUDGED_SPEAKER_WEIGHT * self.spoken
        return judged

    def best(self, count: int) -> list[int]:
        """Return the keys with the highest `content`, best first, ties by key."""
        order = np.argsort(-self.content, kind="stable")[:count]
        return [self.keys[at] for at in order.tolist()]


# The maximum distance of a neighbour in turns, in either direction.
REACH = 3
# Several memories may name the same memory as the turn before them; up to so many of them are followed.
MOST_FOLLOWERS = 4
NONE = -1


class Links:
    """The key before each key, and the keys after it; 12 bytes a key, so keys are numbers from 0 without gaps.

    A link stays when a memory is hidden, since it may become visible again; the caller decides which memories may be
    traversed.
    """

    def __init__(self) -> None:
        self._before = array("i")
        self._first_after = array("i")
        self._sibling = array("i")

    def __len__(self) -> int:
        """Return the number of keys that there is space for; 0 where no memory follows another."""
        return len(self._before)

    @property
    def nbytes(self) -> int:
        """Return the size of the arrays in bytes."""
        return 3 * self._before.itemsize * len(self._before)

    def put(self, key: int, before: int) -> None:
        """Record that ``key`` follows ``before``; only the first call for a key counts, since a turn has one predecessor."""
        missing = max(key, before) + 1 - len(self._before)
        if missing > 0:
            for links in (self._before, self._first_after, self._sibling):
                links.extend([NONE] * missing)
        if key == before or self._before[key] != NONE:
            return
        self._before[key] = before
        self._sibling[key] = self._first_after[before]
        self._first_after[before] = key

    def near(self, key: int, passable: Container[int]) -> list[tuple[int, int]]:
        """Return the neighbours within `REACH` with their distances: the preceding ones first, then those that follow.

        Args:
            key: where to start.
            passable: the memories that may be traversed; any other memory ends the traversal in its direction.
        """
        if key >= len(self._before):
            return []
        # A recall calls this forty times, and plain loops take half the time of generators.
        found: list[tuple[int, int]] = []
        at = key
        for distance in range(1, REACH + 1):
            at = self._before[at]
            if at == NONE or at not in passable:
                break
            found.append((at, distance))
        reached = [key]
        for distance in range(1, REACH + 1):
            reached = self._followers(reached, passable)
            if not reached:
                break
            found += [(other, distance) for other in reached]
        return found

    def _followers(self, keys: Iterable[int], passable: Container[int]) -> list[int]:
        followers: list[int] = []
        for key in keys:
            at, looked_at = self._first_after[key], 0
            while at != NONE and looked_at < MOST_FOLLOWERS:
                if at in passable:
                    followers.append(at)
                at = self._sibling[at]
                looked_at += 1
        return followers

    def flat(self) -> bytes:
        """Return the predecessor of each key, four little-endian bytes each, for `of_flat`."""
        return np.array(self._before, "<i4").tobytes()

    @classmethod
    def of_flat(cls, data: bytes | bytearray | memoryview) -> Links:
        """Return links from the result of `flat`.

        Raises:
            ValueError: not a whole number of keys, or a predecessor that is not one of them.
        """
        links = cls()
        before = np.frombuffer(data, "<i4").tolist()
        if any(not NONE <= one < len(before) for one in before):
            raise ValueError("a link leads outside of its namespace")
        for key, one in enumerate(before):
            if one != NONE:
                links.put(key, one)
        return links


# The minimum number of candidates from each part; the other parts then score them too, and better neighbours raise them.
CANDIDATES = 50
# The number of best candidates whose neighbours in the conversation are looked up.
LENDERS = 20
# So many times the candidates, the nearest to the query, are compared with a prompt's own vector, too.
_NEARER = 8
# From this value on a prompt counts as a question, see `relayer.search.ranking.evenness_of`.
EVEN = 0.5


class IndexParts(NamedTuple):
    """The stored form of a `MemoryIndex`."""

    dense: DenseParts
    passages: DenseParts
    lexical: LexicalParts
    passage_words: LexicalParts
    links: bytes | bytearray
    null: NullParts


class PinnedIndex(NamedTuple):
    """A snapshot of a `MemoryIndex`; the attributes are those of `IndexParts`."""

    dense: PinnedDense
    passages: PinnedDense
    lexical: PinnedTerms
    passage_words: PinnedTerms
    links: bytes
    null: NullParts

    async def parts(self) -> IndexParts:
        """Return what `MemoryIndex.of_parts` takes; yields to the event loop in between."""
        return IndexParts(
            await self.dense.parts(),
            await self.passages.parts(),
            await self.lexical.parts(),
            await self.passage_words.parts(),
            self.links,
            self.null,
        )


class MemoryIndex:
    """The index of the memories of one namespace. Not thread-safe: one event loop's thread calls everything here.

    During a change of the embedding model, vectors of the next model are collected next to those that searches use (`prepare`,
    `put_coming`), and replace them in one step (`cut_over`).

    Args:
        dimension: of every vector.
        calibration: of the embedding model, see `relayer.search.baseline.calibrate`.
    """

    def __init__(self, dimension: int, calibration: Calibration) -> None:
        self.calibration = calibration
        self._dense = VectorIndex(dimension)
        self._coming: VectorIndex | None = None
        self._lexical = LexicalIndex()
        self._passages = PassageWords()
        self._own = NamespaceBaseline()
        self._links = Links()
        self._worths = Worths()
        # Whether each key has a memory in this index.
        self._present = Column(np.empty(0, np.bool_))

    def __len__(self) -> int:
        return len(self._lexical)

    def __contains__(self, key: int) -> bool:
        return key in self._lexical

    def keys(self) -> KeysView[int]:
        """Return the keys of all memories."""
        return self._lexical.keys()

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        coming = 0 if self._coming is None else self._coming.nbytes
        return (
            self._dense.nbytes
            + coming
            + self._lexical.nbytes
            + self._passages.nbytes
            + self._own.nbytes
            + self._links.nbytes
            + self._worths.nbytes
            + len(self._present)
        )

    async def tidy(self) -> None:
        """Remove words of passages that are not found any more; yields to the event loop, so other tasks may add more of them."""
        for _ in iter(self._passages.tidy, False):
            await asyncio.sleep(0)

    @property
    def is_tidy(self) -> bool:
        """Return whether `tidy` has nothing to do."""
        return self._passages.is_tidy

    def pin(self, *, removed: bool = False) -> PinnedIndex:
        """Return a snapshot, to be stored while memories are added and removed.

        Call `tidy` before, and do not call `maintain` until `unpin`.

        Args:
            removed: see `relayer.search.dense.PinnedDense`.
        """
        return PinnedIndex(
            *self._dense.pin(removed=removed),
            self._lexical.pin(),
            self._passages.pin(),
            self._links.flat(),
            self._own.parts(self.calibration),
        )

    def unpin(self) -> None:
        """Release the snapshot that `pin` returned."""
        for part in (self._dense, self._lexical, self._passages):
            part.unpin()

    @classmethod
    def of_parts(cls, dimension: int, calibration: Calibration, parts: IndexParts) -> MemoryIndex:
        """Return an index that gives the same results as the one that was stored as these parts, for the same embedding model.

        Raises:
            ValueError: the parts do not fit each other or the dimension.
        """
        index = cls(dimension, calibration)
        index._dense = VectorIndex.of_parts(dimension, parts.dense, parts.passages)
        index._lexical = LexicalIndex.of_parts(parts.lexical)
        index._passages = PassageWords.of_parts(parts.passage_words)
        index._links = Links.of_flat(parts.links)
        index._own = NamespaceBaseline.of_parts(parts.null)
        index._present = Column(KeyMask.from_keys(index._lexical.keys()).flags)
        if not index._dense.keys() <= index._lexical.keys():
            raise ValueError("a stored vector has no text")
        return index

    def put(
        self,
        key: int,
        row: NDArray[np.floating] | None,
        text: str,
        context: str | None = None,
        *,
        speaker: str | None = None,
        before: int | None = None,
        passages: Sequence[tuple[int, Vector]] = (),
    ) -> None:
        """Add a memory, or replace the one that ``key`` has.

        Args:
            key: not negative; counted from 0 without large gaps.
            row: see `relayer.search.rows.search_row`; None when there is no vector, and then the memory is found by its terms alone.
            text: see `relayer.search.terms.indexed_text`.
            context: the indexed text of the turn before it.
            speaker: the speaker's name.
            before: the key of the turn before it, whether or not that is in the index.
            passages: of a long text, where each further passage begins, and its vector; see `put_passage` for words.

        Raises:
            ValueError: the row is invalid; nothing was changed.
        """
        weighed = self._lexical.weigh(text, context, speaker=speaker)
        if row is None:
            self._dense.remove(key)
        else:
            self._dense.add(key, row, passages)
        self._worths.forget(key)
        self._lexical.place(key, weighed)
        self._present.extend(key + 1)
        self._present[key] = True
        if before is not None:
            self._links.put(key, before)
        self._own.put(key, text, context)

    def put_vectors(
        self, key: int, row: NDArray[np.floating], passages: Sequence[tuple[int, Vector]]
    ) -> None:
        """Add or replace the vectors of a memory that is in the index; arguments and errors as of `put`."""
        self._dense.add(key, row, passages)
        self._worths.forget(key)
        self._own.changed(key)

    def put_passage(self, key: int, start: int, text: str) -> None:
        """Add the words of a passage of an indexed memory; the passage begins ``start`` characters into the memory's text.

        The words stay until the memory is removed, even if `put` replaces it.
        """
        self._passages.put(key, start, text)

    def has_passages(self, key: int) -> bool:
        """Return whether a memory has words of passages."""
        return key in self._passages

    def remove(self, key: int) -> bool:
        """Remove a memory and return whether there was one. `maintain` removes the last traces of its vector and its passages."""
        self._dense.remove(key)
        self._worths.forget(key)
        self._passages.remove(key)
        if self._coming is not None:
            self._coming.remove(key)
        self._own.remove(key)
        if key < len(self._present):
            self._present[key] = False
        return self._lexical.remove(key)

    def prepare(self, dimension: int) -> None:
        """Start to collect the vectors of another model, of this dimension."""
        self._coming = VectorIndex(dimension)

    def put_coming(
        self, key: int, row: NDArray[np.floating], passages: Sequence[tuple[int, Vector]] = ()
    ) -> None:
        """Add or replace the vectors of the next model; call `prepare` first.

        Raises:
            ValueError: the row is not one of that model; nothing was changed.
        """
        if self._coming is None:
            raise ValueError("no other model was prepared")
        self._coming.add(key, row, passages)

    def coming_meaning(self, key: int) -> Meaning | None:
        """Return the vectors of the next model, if there are any."""
        return None if self._coming is None else self._coming.meaning(key)

    def cut_over(self, calibration: Calibration) -> None:
        """Search by the vectors of the next model from now on, and drop the previous ones.

        Args:
            calibration: of the next model.
        """
        if self._coming is not None:
            self._dense, self._coming = self._coming, None
            self.calibration = calibration
            self._own.forget()
            self._worths.clear()

    def search(
        self,
        query_vector: NDArray[np.float32] | None,
        query: str | QueryWords | None,
        k: int,
        *,
        allowed: KeyMask | None = None,
        floor: float = 0.3,
        topic: NDArray[np.float32] | None = None,
        reading: PromptReading | None = None,
        prompt: QueryVectors | None = None,
        explicit: bool = False,
        rerank: bool = False,
        wide: bool = False,
        scores: Mapping[int, float] | None = None,
    ) -> SearchResult:
        """Return the best ``k`` of the allowed memories (None: all) whose relevance is at least ``floor``.

        Args:
            query_vector: of the query; relevance is decided by it, and memories are ranked by it if there is no ``topic``.
            query: the query, or its words if they were read before.
            k: at least 1.
            allowed: keys that may be returned.
            floor: 0..1, see `relayer.search.ranking.gate`.
            topic: the query's vector without the names of speakers, see `relayer.search.ranking.without_name`.
            reading: the classification of the prompt, which counts in the decision.
            prompt: the vectors of the query: if there is one of its own, `relayer.search.relevance` estimates the relevance of each
                memory, and chooses those that a prompt gets.
            explicit: whether the caller asked for memories, and gets the best ``k`` in the order of their evidence.
            rerank: whether an explicit search is to be read together with memories, see `relayer.search.relevance.reranked`.
            wide: whether the caller narrows down what a prompt gets, by a time that it names: there are more memories to read with
                it, and no fewer if it is uncertain that any of them helps.
            scores: of the memories that were read together with the query, by key, see `relayer.ports.CrossEncoder`, which are
                candidates then; None before any was, and the result then says which to read.

        Raises:
            ValueError: the vector is not a query of this dimension, or ``k`` below 1.
        """
        if k < 1:
            raise ValueError("k is at least 1")
        keys = None if allowed is None else allowed.within(self._present.values)
        considered = len(self) if keys is None else len(keys)
        if considered == len(self):
            keys = None  # nothing is filtered out
        words = QueryWords.from_query(query) if isinstance(query, str) else query
        if words is None and topic is None and reading is None and not self._links:
            dense = None if query_vector is None else self._dense.ask(query_vector)
            if isinstance(dense, DenseQuery):
                return self._by_meaning(dense, k, keys, considered, floor)
        language = ENGLISH if reading is None else reading.language
        weight = term_weight(self.calibration.model, english=language == ENGLISH)
        asked = self._asked(query_vector, topic, words)._replace(weight=weight)
        judge = None if prompt is None or reading is None else self._asked_for_prompt(prompt)
        if rerank or not explicit:
            asked = asked._replace(prompt=judge)
        most = max(CANDIDATES, 4 * k if asked.prompt is None else k)
        candidates = self._candidates(asked, most, keys, given=scores or ())
        strange = words is not None and self._lacks(words.names)
        doubt = UNKNOWN_NAME_PENALTY if strange else 0.0
        # Each row, and each text that may share a word with the query, is one more chance of an accidental match.
        passages = max(self._dense.passages(keys), self._passages.passages(keys))
        null = self.calibration.baseline(language, considered, self._own, passages)
        by_terms = candidates.by_terms
        by_meaning = candidates.where(~by_terms) if by_terms.any() else candidates
        ranked = self._ranked(by_meaning)
        unread: list[Hit] = []
        of_prompt = None
        if reading is not None and judge is not None:
            of_prompt = PromptFacts.from_reading(reading, null, doubt, considered, judge.admission)
        if judge is None or of_prompt is None:
            passed, judgement = self._judged(
                by_meaning, ranked, null, doubt, floor=floor, k=k, reading=reading
            )
        else:
            choose = partial(self._chosen, wide=wide)
            if explicit:
                choose = partial(self._found, reading=reading, rerank=rerank)
            passed, unread, judgement = choose(
                by_meaning, ranked, judge, of_prompt, floor=floor, k=k, scores=scores
            )
        if by_terms.any():
            prior = LEXICAL_PRIOR.baseline_at(considered + passages)
            rest = candidates.where(by_terms)
            more, of_terms = self._judged(
                rest, self._ranked(rest), prior, doubt, floor=floor, k=k, reading=reading
            )
            passed = sorted(passed + more, key=lambda hit: -hit.relevance)[:k]
            judgement = judgement if by_meaning.keys else of_terms
        return SearchResult(
            hits=asked.with_passages(passed),
            degraded=query_vector is None or self._lacks_vectors(keys),
            considered=considered,
            judgement=judgement,
            unread=asked.with_passages(unread),
        )

    def _by_meaning(
        self, dense: DenseQuery, k: int, keys: KeyMask | None, considered: int, floor: float
    ) -> SearchResult:
        """Search by a vector alone where no memory has passages or neighbours: the nearest memories are the result then."""
        null = self.calibration.baseline(ENGLISH, considered, self._own)
        nearest, cosines = dense.best(max(CANDIDATES, 4 * k), keys)
        if not len(nearest):
            return SearchResult((), self._lacks_vectors(keys), considered, SearchJudgement(None, null, 0.0))
        scores = cosines[:k].tolist()
        passed = passing(scores, prompt_relevance(in_steps(scores[0], null)), floor)
        hits = tuple(
            Hit(key, relevance, cosine, None, 0.0, spoken=False, evidence=cosine)
            for key, cosine, relevance in zip(nearest.tolist(), scores, passed, strict=False)
        )
        return SearchResult(
            hits, self._lacks_vectors(keys), considered, SearchJudgement(scores[0], null, 0.0)
        )

    @property
    def present(self) -> NDArray[np.bool_]:
        """Return whether each key 0, 1, ... is in the index."""
        return self._present.values.astype(np.bool_)

    def row(self, key: int) -> Vector | None:
        """Return the vector of a whole memory, shape (dimension,); None if it has none."""
        return self._dense.row(key)

    def meaning(self, key: int) -> Meaning | None:
        """Return all vectors of a memory, if it has any."""
        return self._dense.meaning(key)

    async def maintain(self, *, purge: bool = False) -> None:
        """Bring the graph up to date; cheap when nothing is due, safe to cancel.

        Args:
            purge: leave no trace of removed vectors in memory, as after an erasure.
        """
        await self.tidy()
        await self._dense.maintain(purge=purge)
        if self._coming is not None:
            await self._coming.maintain(purge=purge)

    @property
    def null_is_due(self) -> bool:
        """Return whether the decision of a search now could differ from one after `measure_null`."""
        return self._own.is_due(self.calibration)

    async def measure_null(self) -> None:
        """Measure the scores of unrelated prompts in this namespace, if that is due; see `relayer.search.baseline`."""
        await self._own.measure(self.calibration, self._dense.ask)

    def speakers(self, query: str) -> list[str]:
        """Return the names of speakers in a query, as written there."""
        return self._lexical.speakers(query)

    def _lacks(self, known: Sequence[str]) -> bool:
        """Return whether one of the names occurs neither in the beginning of a text nor in a passage."""
        return any(self._lexical.lacks([name]) and self._passages.lacks([name]) for name in known)

    def _asked(self, vector: Vector | None, topic: Vector | None, words: QueryWords | None) -> SearchQuery:
        dense = None if vector is None else self._dense.ask(vector)
        about = dense if dense is None or topic is None else self._dense.ask(topic)
        if words is None:
            return SearchQuery(dense, about, None)
        asked = words.terms
        reader = worth_reader(self.calibration.model)
        worth = (
            None if reader is None else partial(self._worths.importances, reader=reader, along=self._along)
        )
        return SearchQuery(dense, about, self._lexical.ask(asked), self._passages.ask(asked), worth=worth)

    def _asked_for_prompt(self, vectors: QueryVectors) -> PromptQuery | None:
        """Return what a prompt asks; None if it has no vector of its own or nothing was learnt for the model."""
        reader = relevance_reader(self.calibration.model)
        if reader is None or vectors.prompt is None:
            return None
        direction, scale = reader.bearing(vectors.query)
        turned = self._dense.ask(vectors.prompt)
        return PromptQuery(reader, turned, vectors.admission, self._dense.ask(direction), scale)

    def _along(self, direction: Vector, keys: Sequence[int]) -> Numbers:
        """Return the inner product of each memory's row with a direction; NaN without a row."""
        return self._dense.ask(direction).scores(keys)

    def _candidates(
        self, asked: SearchQuery, count: int, allowed: KeyMask | None, *, given: Collection[int] = ()
    ) -> Candidates:
        """Return the candidates of all parts, those that are given, and the neighbours of the best of them, with all scores."""
        passable: Container[int] = self._lexical.keys() if allowed is None else allowed
        proposed = asked.best(count, allowed) | {key for key in given if key in passable}
        found = Candidates.from_keys(proposed, asked)
        if not self._links:
            return found
        nearby = {other for key in found.best(LENDERS) for other, _ in self._links.near(key, passable)}
        return found if nearby <= proposed else Candidates.from_keys(proposed | nearby, asked)

    def _judged(
        self,
        candidates: Candidates,
        ranked: Numbers,
        null: Baseline,
        doubt: float,
        *,
        floor: float,
        k: int,
        reading: PromptReading | None,
    ) -> tuple[list[Hit], SearchJudgement]:
        """Rank candidates, either those with vectors or those without, and decide which are returned; ties by key."""
        if not candidates.keys:
            return [], SearchJudgement(None, null, doubt)
        # Scores raised by neighbours only order the memories; the best memory's own score decides whether anything is returned.
        best = float(candidates.judged.max()) - doubt
        steps = in_steps(best, null)
        evenness = 0.0
        if reading is not None:
            steps = judged_steps(steps, reading.asks, reading.concerns, self.calibration.model)
            evenness = evenness_of(reading.asks)
        passed = gate(ranked, prompt_relevance(steps), floor, evenness, most=k)
        if reading is not None:
            # Only for a prompt: other searches, such as for memories that a new fact may replace, set their own threshold.
            gap = ranked.max() - ranked + ASKING_PENALTY * (candidates.told < 0) * (evenness > EVEN)
            near = ((at, each * nearness(float(gap[at]))) for at, each in passed)
            passed = [(at, each) for at, each in near if each >= floor]
        hits = [_hit(candidates, at, each, float(ranked[at])) for at, each in passed]
        return hits, SearchJudgement(best, null, doubt)

    def _found(
        self,
        candidates: Candidates,
        ranked: Numbers,
        judge: PromptQuery,
        prompt: PromptFacts,
        *,
        floor: float,
        k: int,
        scores: Mapping[int, float] | None,
        reading: PromptReading | None,
        rerank: bool,
    ) -> tuple[list[Hit], list[Hit], SearchJudgement]:
        """Return the memories that an explicit search gets, best first, those to read with it, and why."""
        among = max(k, MOST_READ) if rerank else k
        passed, judgement = self._judged(
            candidates, ranked, prompt.null, prompt.doubt, floor=floor, k=among, reading=reading
        )
        if not passed:
            return [], [], judgement
        best, _, estimated = _estimated(candidates, ranked, judge, prompt, given=scores or ())
        likely = dict(zip(best.keys, estimated.likely.tolist(), strict=True))
        unread = to_rerank(passed, likely) if rerank and scores is None else []
        if scores:
            passed = reranked(passed, likely, scores)
            together = np.array([scores.get(key, np.nan) for key in best.keys])
            read = judge.reader.reestimate(estimated, together, prompt).likely[~np.isnan(together)]
            # What was not read is no likelier than what was: it has the least of their scores.
            least = float(read.min(initial=1.0))
            likely = {key: min(one, least) for key, one in likely.items()}
            likely |= dict(zip([key for key in best.keys if key in scores], read.tolist(), strict=True))
        were_read = scores is not None
        return _each_by_its_own(passed, likely, floor, were_read=were_read)[:k], unread, judgement

    def _chosen(
        self,
        candidates: Candidates,
        ranked: Numbers,
        judge: PromptQuery,
        prompt: PromptFacts,
        *,
        floor: float,
        k: int,
        scores: Mapping[int, float] | None,
        wide: bool,
    ) -> tuple[list[Hit], list[Hit], SearchJudgement]:
        """Return the memories that a prompt gets, best first, those within a hundredth by evidence; and those to read with it."""
        null = prompt.null
        if not candidates.keys:
            return [], [], SearchJudgement(None, null, prompt.doubt)
        best, ranked, reading = _estimated(candidates, ranked, judge, prompt, given=scores or ())
        unread = np.empty(0, np.intp)
        if scores is None:
            unread = to_read(reading, MOST_READ if wide else READ_TOGETHER)
        else:
            together = np.array([scores.get(key, np.nan) for key in best.keys])
            reading = judge.reader.reestimate(reading, together, prompt)
        hits = [
            _hit(best, at, one, float(ranked[at]))
            for at, one in enumerate(chosen(reading, few=not wide).tolist())
        ]
        judgement = SearchJudgement(float(candidates.judged.max()) - prompt.doubt, null, prompt.doubt)
        passed = [hit for hit in hits if hit.relevance >= floor]
        passed.sort(key=lambda hit: -round(hit.relevance, 2))
        return passed[:k], [hits[at] for at in unread], judgement

    def _ranked(self, candidates: Candidates) -> Numbers:
        """Return the score that each candidate is ordered by."""
        return self._raised(candidates) + candidates.bonus if candidates.keys else np.empty(0)

    def _raised(self, candidates: Candidates) -> NDArray[np.float64]:
        """Return each candidate's own score, raised where a better neighbour in the conversation raises it."""
        content = candidates.content
        if not self._links:
            return content
        own = dict(zip(candidates.keys, content.tolist(), strict=True))
        raised = with_neighbours(own, candidates.best(LENDERS), lambda key: self._links.near(key, own))
        return np.fromiter(raised.values(), np.float64, len(raised))

    def _lacks_vectors(self, allowed: KeyMask | None) -> bool:
        if len(self._dense) == len(self._lexical):
            return False
        return allowed is None or self._dense.count(allowed) < len(allowed)


def _hit(candidates: Candidates, at: int, relevance: float, ranked: float) -> Hit:
    cosine = float(candidates.cosine[at])
    return Hit(
        key=candidates.keys[at],
        relevance=relevance,
        cosine=None if isnan(cosine) else cosine,
        bm25=None if candidates.bm25 is None else float(candidates.bm25[at]),
        covered=float(candidates.covered[at]),
        spoken=bool(candidates.spoken[at]),
        evidence=ranked,
    )


def _estimated(
    candidates: Candidates,
    ranked: Numbers,
    judge: PromptQuery,
    prompt: PromptFacts,
    *,
    given: Collection[int] = (),
) -> _Estimate:
    """Estimate the relevance of the best candidates by evidence, of the nearest to the prompt's own vector, and of those that are given."""
    ranked = ranked - ASKING_PENALTY * (candidates.told < 0)
    order = np.argsort(-ranked, kind="stable")
    turned = judge.turned.scores(candidates.keys)
    nearest = np.zeros(len(order), np.bool_)
    nearest[np.argsort(-turned, kind="stable")[:MOST_READ]] = True
    known = np.array([key in given for key in candidates.keys])
    order = order[nearest[order] | known[order] | (np.arange(len(order)) < MOST_READ)]
    best = candidates.where_at(order)
    read = CandidateScores(
        ranked=ranked[order],
        cosine=best.cosine,
        turned=turned[order],
        bearing=judge.scale * judge.bearing.scores(best.keys),
        judged=best.judged,
        covered=best.covered,
        told=best.told,
        worth=best.worth,
        every=candidates.cosine,
    )
    return _Estimate(best, read.ranked, judge.reader.estimate(read, prompt))


def _each_by_its_own(
    hits: Sequence[Hit], known: Mapping[int, float], floor: float, *, were_read: bool
) -> list[Hit]:
    """Return the hits of an explicit search in their order, each with a relevance of its own from `CHOSEN` on.

    If the best were read together with the query, relevance means what it means for a prompt. Otherwise the best has the relevance
    of the query, and the others are as much less relevant as they are less probable: the probabilities before reading would silence
    real chats, which they were not learnt from. ``known`` are the probabilities by key.
    """
    relevant = [hit for hit in hits if hit.relevance >= CHOSEN]
    likely = never_rising([known.get(hit.key, 0.0) for hit in relevant])
    best = max(likely[:1], default=0.0)
    own = [
        (1 - CHOSEN) * one if were_read else (hit.relevance - CHOSEN) * (one / best if best else 1.0)
        for hit, one in zip(relevant, likely, strict=True)
    ]
    # A list of questions may be among them and less relevant.
    rest = [hit for hit in hits if hit.relevance < CHOSEN]
    each = [CHOSEN + one for one in never_rising(own)] + never_rising([hit.relevance for hit in rest])
    ordered = zip((*relevant, *rest), each, strict=True)
    return [hit._replace(relevance=one) for hit, one in ordered if one >= floor]
