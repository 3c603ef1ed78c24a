"""BM25 over the indexed texts of one namespace, in memory and updated in place.

`LexicalIndex` keeps a posting for each term; `ask` scores every text for a query at once and returns a `LexicalQuery`. The
formula is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), k1 = 1.2, with an idf that is never
negative. Postings are flat arrays, about 8 bytes for each entry: a namespace of 10,000 memories has some 150,000 entries.

`LexicalParts` is the stored form, and `StoredTerms` reads it. A stored index is not converted when it is loaded: a term's
posting is copied into a form that can change only when it changes. Most terms of a large namespace are rare and never queried,
so loading is cheap and takes little memory.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, KeysView, Mapping, Sequence
from functools import cache
from math import log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.domain.containers import Pinned
from relayer.lib.scheduler import Turns
from relayer.search.rows import Buffer, Column, Found, KeyMask, best_of
from relayer.search.terms import TOLD_TERMS, WORD, Stems, terms, told, variety


class LexicalParts(NamedTuple):
    """The stored form of a lexical index; arrays are little-endian.

    Attributes:
        terms: joined by line breaks, which no term contains; term 0 is the first.
        counts: the number of slots that have each term, four bytes each.
        slots: of term 0, then of term 1, ..., four bytes each.
        weights: the weight of the term in each of ``slots``, as float32.
        document_counts: the number of terms of the text in each slot, four bytes each.
        document_terms: numbers of the terms of slot 0, then of slot 1, ..., four bytes each.
        keys: of the text in each slot, eight bytes each, -1 for a free one.
        lengths: of the text in each slot, as float32.
        total: sum of all lengths.
    """

    terms: Buffer
    counts: Buffer
    slots: Buffer
    weights: Buffer
    document_counts: Buffer
    document_terms: Buffer
    keys: Buffer
    lengths: Buffer
    total: float


class StoredTerms:
    """Terms by number and documents by slot, read from parts that are never changed."""

    def __init__(self, parts: LexicalParts) -> None:
        """Check that the parts fit each other; raises `ValueError`."""
        joined = bytes(parts.terms).decode()
        self.terms = joined.split("\n") if joined else []
        self._starts = _starts(parts.counts)
        self._slots = np.frombuffer(parts.slots, "<i4").astype(np.int32, copy=False)
        self._weights = np.frombuffer(parts.weights, "<f4").astype(np.float32, copy=False)
        self._document_starts = _starts(parts.document_counts)
        self._document_terms = np.frombuffer(parts.document_terms, "<u4").astype(np.uint32, copy=False)
        self.documents = len(self._document_starts) - 1
        if (
            len(self.terms) != len(self._starts) - 1
            or not len(self._slots) == len(self._weights) == self._starts[-1]
            or len(self._document_terms) != self._document_starts[-1]
            or not _within(self._slots, self.documents)
            or not _within(self._document_terms, len(self.terms))
        ):
            raise ValueError("the stored terms do not fit each other")

    @classmethod
    @cache
    def empty(cls) -> StoredTerms:
        """Return an instance without terms and documents, shared by every index because nothing changes it."""
        return cls(LexicalParts(b"", b"", b"", b"", b"", b"", b"", b"", 0.0))

    def forget(self, number: int) -> None:
        """Drop a term that no text has any more, since it may be a word of an erased text."""
        self.terms[number] = ""

    @property
    def entries(self) -> int:
        """Return the number of pairs of a document and a term."""
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Return the size of the arrays in bytes."""
        arrays = (self._starts, self._slots, self._weights, self._document_starts, self._document_terms)
        return sum(array.nbytes for array in arrays)

    def frequency(self, number: int) -> int:
        """Return the number of slots that have a term."""
        return int(self._starts[number + 1] - self._starts[number])

    def posting(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the slots that have a term, and its weight in each, without copying."""
        start, end = self._starts[number], self._starts[number + 1]
        return self._slots[start:end], self._weights[start:end]

    def document(self, slot: int) -> tuple[str, ...]:
        """Return the terms of a document."""
        return tuple(self.terms[number] for number in self.numbers_in(slot))

    def numbers_in(self, slot: int) -> list[int]:
        """Return the numbers of a document's terms."""
        start, end = self._document_starts[slot], self._document_starts[slot + 1]
        numbers: list[int] = self._document_terms[start:end].tolist()
        return numbers


def flat(values: array[int] | NDArray[np.generic], kind: str) -> bytes:
    """Return the bytes of numbers as a little-endian ``kind``, such as ``<u4``."""
    return np.array(values, dtype=kind).tobytes()


def _starts(counts: Buffer) -> NDArray[np.int64]:
    starts = np.zeros(len(counts) // 4 + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(counts, "<u4"), out=starts[1:])
    return starts


def _within(values: NDArray[np.integer], bound: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < bound)


class LexicalQuery:
    """A query with the scores of every text. It is valid until the index changes, so use it immediately.

    Attributes:
        ceiling: the score of a text of average length that has every term of the query once, which counts as a full match.
            Terms that occur in no text count like the rarest ones, so a query for something unknown is not a full match.
            Every query that has terms counts as if it had one and a half more terms of that kind.
    """

    def __init__(
        self,
        ceiling: float,
        slots: Mapping[int, int],
        keys: NDArray[np.int64],
        *,
        scores: NDArray[np.float32],
        spoken: NDArray[np.bool_],
        told: NDArray[np.float32],
    ) -> None:
        self.ceiling = ceiling
        self._slots = slots
        self._keys = keys
        self._scores = scores
        self._spoken = spoken
        self._told = told

    def best(self, k: int, allowed: KeyMask | None = None) -> Found:
        """Return keys and BM25 scores of the best ``k`` allowed texts that share a term with the query, ties by key."""
        scores = self._scores
        found = np.flatnonzero(scores)
        if allowed is not None:
            found = found[allowed.contains(self._keys[found])]
        found = found[best_of(scores[found], k)]
        keys = self._keys[found]
        order = np.lexsort((keys, -scores[found]))[:k]
        return keys[order], scores[found[order]]

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """Return the BM25 scores of these texts, 0 where no term is shared.

        Raises:
            KeyError: one of the keys has no text.
        """
        return self._scores[self._at(keys)].astype(np.float64)

    def spoken(self, keys: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether the query names the speaker, for each of these texts.

        Raises:
            KeyError: one of the keys has no text.
        """
        return self._spoken[self._at(keys)]

    def told(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """Return how much each text states, 0..1: 0 if it only asks, little if it is short; -1 for a list of questions.

        Raises:
            KeyError: one of the keys has no text.
        """
        return self._told[self._at(keys)].astype(np.float64)

    def _at(self, keys: Sequence[int]) -> NDArray[np.int64]:
        return np.fromiter(map(self._slots.__getitem__, keys), np.int64, len(keys))


K1 = 1.2
# Below the 0.75 that is usual for long documents: among turns a small length is chance, and the header evens lengths out.
B = 0.4
# The number of texts that are assumed in addition to the real ones. Without them, a term that the only text of a namespace has
# would count as common, and weigh a fifth of a term that occurs nowhere.
BACKGROUND = 100
# The number of unmatched terms that are added to every query: a prompt of one word that matches must not count as a full match.
IMAGINED_TERMS = 1.5
# The prefix of terms of a speaker's name; no term of a text can begin with it.
SPEAKER = "\x1f"
# The posting of all texts that state anything, with how much they state; no term of a text can be equal to it, either.
TOLD = "\x02"
# Speakers that are roles and not people: a prompt about a user is not about the author of a message.
ROLES = frozenset(["user", "assistant", "system", "tool", "agent", "human", "ai", "bot", "model"])
# The most terms read of the text before, which is only a hint; and of a prompt, which is compared with every text.
CONTEXT_TERMS = 128
ASKED_TERMS = 192
FREE = -1
# Measured with the texts of the benchmarks: a term with its entry in the dictionary; a posting that can change; a term of
# a document, in its posting and in the document; a document.
_TERM_BYTES = 170
_POSTING_BYTES = 260
_ENTRY_BYTES = 17
_DOCUMENT_BYTES = 150
_STEM_BYTES = 150


class Weighed(NamedTuple):
    """The terms of a text with their weights, and the length of the text for BM25."""

    weights: dict[str, float]
    length: float


def asked_terms(query: str) -> list[str]:
    """Return a query's terms, each once and sorted: float addition is not associative, and replicas must agree."""
    return sorted(set(terms(query, ASKED_TERMS)))


class LexicalIndex:
    """A BM25 index of texts by integer key. Not thread-safe: one event loop's thread calls everything here."""

    def __init__(self) -> None:
        # An integer is the number of a posting in the stored parts that has not changed since.
        self._postings: dict[str, _Posting | int] = {}
        self._stems = Stems()
        self._stored = StoredTerms.empty()
        self._slots: dict[int, int] = {}
        self._keys = Column(np.empty(0, np.int64))
        self._lengths = Column(np.empty(0, np.float32))
        # None means that the document is in the stored parts.
        self._documents: list[tuple[str, ...] | None] = []
        # Number of terms of all documents; of those in the stored parts; and of postings that can change.
        self._entries = 0
        self._untouched = 0
        self._opened = 0
        self._free: list[int] = []
        self._total = 0.0
        self._pinned: Pinned | None = None
        # The length normalisation of each text; None after a text was added or removed.
        self._norms: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: int) -> bool:
        return key in self._slots

    def keys(self) -> KeysView[int]:
        """Return the keys that have a text."""
        return self._slots.keys()

    def count(self, allowed: KeyMask) -> int:
        """Return how many of the allowed keys have a text."""
        return int(np.count_nonzero(allowed.contains(self._keys.values)))

    def put(
        self,
        key: int,
        text: str,
        context: str | None = None,
        *,
        speaker: str | None = None,
        context_weight: float = 0.5,
    ) -> None:
        """Index a text, or replace the one that ``key`` has.

        Args:
            key: not negative.
            text: the memory's indexed text.
            context: the indexed text of the turn before it, whose terms count for less.
            speaker: the speaker's name, see `spoken`.
            context_weight: the weight of a context term relative to a term of the text.
        """
        self.place(key, self.weigh(text, context, speaker=speaker, context_weight=context_weight))

    def weigh(
        self,
        text: str,
        context: str | None = None,
        *,
        speaker: str | None = None,
        context_weight: float = 0.5,
    ) -> Weighed:
        """Return what `place` takes for a text, see `put`; everything that can fail happens here."""
        # A plain dictionary: for a short text, creating a `Counter` takes longer than filling it.
        weights: dict[str, float] = {}
        for term in terms(text, stems=self._stems):
            weights[term] = weights.get(term, 0) + 1
        share = variety(weights)
        if context:
            for term, count in Counter(terms(context, CONTEXT_TERMS, self._stems)).items():
                weights[term] = weights.get(term, 0.0) + context_weight * count
        length = sum(weights.values())
        if share < 1:
            # A text that repeats a few words many times would match every query with these words, however long it is.
            weights = dict.fromkeys(weights, share)
        weights |= dict.fromkeys(_speaker_terms(speaker), 1.0)
        if tells := told(text.removeprefix(f"{speaker}: "), self._stems):
            weights[TOLD] = log1p(tells) / log1p(TOLD_TERMS) if tells > 0 else -1.0
        return Weighed(weights, length)

    def place(self, key: int, weighed: Weighed) -> None:
        """Index a weighed text, or replace the one that ``key`` has."""
        self.remove(key)
        slot = self._take_slot(key)
        self._norms = None
        self._lengths[slot] = weighed.length
        # As float32, as it is stored, so that the same number is added here and subtracted later.
        self._total += float(self._lengths.values[slot])
        document, pinned = [], self._pinned
        for term, weight in weighed.weights.items():
            known = self._postings.get(term)
            posting = known if isinstance(known, _Posting) else self._posting(term)
            if pinned is not None:
                pinned.keep(posting)
            posting.slots.append(slot)
            posting.weights.append(weight)
            # The posting's own string, so that one object serves every memory that has the term.
            document.append(posting.term)
        self._documents[slot] = tuple(document)
        self._entries += len(document)

    def remove(self, key: int) -> bool:
        """Remove a text and every term that only it had; return whether there was one."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return False
        document = self._document(slot)
        for term in document:
            posting = self._posting(term)
            if self._pinned is not None:
                self._pinned.keep(posting)
            posting.discard(slot)
            if not posting.slots:
                del self._postings[term]
                self._opened -= 1
                if posting.number is not None:
                    self._stored.forget(posting.number)
        # The cache may hold words of the removed text, and does not record which text a word came from.
        self._stems.clear()
        self._norms = None
        self._entries -= len(document)
        self._total -= float(self._lengths.values[slot])
        self._documents[slot] = ()
        self._lengths[slot] = 0.0
        self._keys[slot] = FREE
        self._free.append(slot)
        return True

    def ask(self, asked: Sequence[str]) -> LexicalQuery:
        """Return a query with the scores of all texts; use it before anything is added or removed."""
        imagined = IMAGINED_TERMS * self._idf(0) if asked else 0.0
        ceiling = imagined + sum(self._idf(self._frequency(term)) for term in asked)
        return LexicalQuery(
            ceiling,
            self._slots,
            self._keys.values,
            scores=self._scores(asked),
            spoken=self._spoken(asked),
            told=self._told(),
        )

    def search(self, query: str, k: int, allowed: KeyMask | None = None) -> list[tuple[int, float]]:
        """Return key and BM25 score of the best ``k`` allowed texts that share a term with the query, ties by key."""
        keys, scores = self.ask(asked_terms(query)).best(k, allowed)
        return list(zip(keys.tolist(), scores.tolist(), strict=True))

    def lacks(self, names: Iterable[str]) -> bool:
        """Return whether one of the names occurs in no text."""
        return any(term not in self._postings for name in names for term in terms(name))

    def speakers(self, query: str) -> list[str]:
        """Return the runs of words in a query that name speakers, as written there, each once."""
        runs: list[list[str]] = [[]]
        stems = Stems()
        for match in WORD.finditer(query):
            word = re.split("['\u2019]", match.group())[0]
            if any(SPEAKER + term in self._postings for term in terms(word, stems=stems)):
                runs[-1].append(word)
            elif runs[-1]:
                runs.append([])
        return list(dict.fromkeys(" ".join(run) for run in runs if run))

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return (
            self._stored.nbytes
            + len(self._postings) * _TERM_BYTES
            + self._opened * _POSTING_BYTES
            + (self._entries - self._untouched) * _ENTRY_BYTES
            + len(self._documents) * _DOCUMENT_BYTES
            + len(self._stems) * _STEM_BYTES
        )

    def pin(self) -> PinnedTerms:
        """Return a snapshot of the texts, to be stored while texts are added and removed."""
        self._pinned = Pinned()
        return PinnedTerms(
            self._pinned,
            self._postings.copy(),
            self._documents.copy(),
            (self._stored, self._stored.terms.copy()),
            (flat(self._keys.values, "<i8"), flat(self._lengths.values, "<f4"), self._total),
        )

    def unpin(self) -> None:
        """Release the snapshot that `pin` returned."""
        self._pinned = None

    @classmethod
    def of_parts(cls, parts: LexicalParts) -> LexicalIndex:
        """Return an index from its parts, which it goes on using; raises `ValueError` when they do not fit each other."""
        index = cls()
        if not any(map(len, parts[:-1])):
            return index  # as nearly every index of passages is, and of what was superseded
        stored = index._stored = StoredTerms(parts)
        index._postings = dict(zip(stored.terms, range(len(stored.terms)), strict=True))
        # Copies, because the stored parts are read-only.
        keys = np.frombuffer(parts.keys, "<i8").astype(np.int64)
        index._keys = Column(keys)
        index._lengths = Column(np.frombuffer(parts.lengths, "<f4").astype(np.float32))
        index._slots = dict(zip(keys.tolist(), range(len(keys)), strict=True))
        index._slots.pop(FREE, None)
        index._free = np.flatnonzero(keys == FREE).tolist()
        index._documents = [None] * stored.documents
        index._entries = index._untouched = stored.entries
        index._total = parts.total
        if (
            not len(index._keys) == len(index._lengths) == stored.documents
            or len(index._postings) != len(stored.terms)
            or len(index._slots) + len(index._free) != stored.documents
        ):
            raise ValueError("the stored texts do not fit each other")
        return index

    def _scores(self, query: Sequence[str]) -> NDArray[np.float32]:
        scores = np.zeros(len(self._keys), dtype=np.float32)
        if not self._slots:
            return scores
        if self._norms is None:
            mean = max(self._total / len(self._slots), 1e-9)
            self._norms = (K1 * (1 - B + B * self._lengths.values / mean)).astype(np.float32, copy=False)
        norms = self._norms
        for term in query:
            found = self._found(term)
            if found is not None:
                slots, weights = found
                scores[slots] += self._idf(len(slots)) * weights * (K1 + 1) / (weights + norms[slots])
        return scores

    def _spoken(self, query: Sequence[str]) -> NDArray[np.bool_]:
        named = np.zeros(len(self._keys), dtype=np.bool_)
        for term in query:
            found = self._found(SPEAKER + term)
            if found is not None:
                named[found[0]] = True
        return named

    def _told(self) -> NDArray[np.float32]:
        shares = np.zeros(len(self._keys), dtype=np.float32)
        found = self._found(TOLD)
        if found is not None:
            shares[found[0]] = found[1]
        return shares

    def _frequency(self, term: str) -> int:
        posting = self._postings.get(term)
        if isinstance(posting, int):
            return self._stored.frequency(posting)
        return 0 if posting is None else len(posting.slots)

    def _found(self, term: str) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Return the slots that have a term, and its weight in each."""
        posting = self._postings.get(term)
        if isinstance(posting, int):
            return self._stored.posting(posting)
        if posting is None:
            return None
        return np.array(posting.slots, dtype=np.int32), np.array(posting.weights, dtype=np.float32)

    def _posting(self, term: str) -> _Posting:
        """Return the posting of a term in a form that can change."""
        posting = self._postings.get(term)
        if isinstance(posting, _Posting):
            return posting
        made = _Posting(term, posting)
        if posting is not None:
            slots, weights = self._stored.posting(posting)
            made.slots, made.weights = array("i", slots.tobytes()), array("f", weights.tobytes())
            self._untouched -= len(slots)
        self._postings[term] = made
        self._opened += 1
        return made

    def _document(self, slot: int) -> tuple[str, ...]:
        document = self._documents[slot]
        return self._stored.document(slot) if document is None else document

    def _idf(self, frequency: int) -> float:
        return log(1 + (len(self._slots) + BACKGROUND - frequency + 0.5) / (frequency + 0.5))

    def _take_slot(self, key: int) -> int:
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            self._keys.append(key)
            self._lengths.append(0.0)
            self._documents.append(())
        self._slots[key] = slot
        return slot


class PinnedTerms:
    """A snapshot of an index; ``stored`` are its stored parts with the terms of that moment."""

    def __init__(
        self,
        pinned: Pinned,
        postings: Mapping[str, _Posting | int],
        documents: Sequence[tuple[str, ...] | None],
        stored: tuple[StoredTerms, list[str]],
        texts: tuple[bytes, bytes, float],
    ) -> None:
        self._pinned = pinned
        self._postings = postings
        self._documents = documents
        self._stored, self._terms = stored
        self._texts = texts

    async def parts(self) -> LexicalParts:
        """Return what `LexicalIndex.of_parts` takes; yields to the event loop in between."""
        turns = Turns()
        numbers: dict[str, int] = {}
        counts, slots, weights = array("L"), bytearray(), bytearray()
        for number, (term, posting) in enumerate(self._postings.items()):
            numbers[term] = number
            found = self._found(posting)
            counts.append(len(found[0]))
            slots += flat(found[0], "<i4")
            weights += flat(found[1], "<f4")
            await turns.give()
        document_counts, document_terms = array("L"), array("L")
        for slot, document in enumerate(self._documents):
            if document is None:
                of_slot = [numbers[self._terms[stored]] for stored in self._stored.numbers_in(slot)]
            else:
                of_slot = [numbers[term] for term in document]
            document_counts.append(len(of_slot))
            document_terms.extend(of_slot)
            await turns.give()
        keys, lengths, total = self._texts
        return LexicalParts(
            terms="\n".join(numbers).encode(),
            counts=flat(counts, "<u4"),
            slots=slots,
            weights=weights,
            document_counts=flat(document_counts, "<u4"),
            document_terms=flat(document_terms, "<u4"),
            keys=keys,
            lengths=lengths,
            total=total,
        )

    def _found(self, posting: _Posting | int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        if isinstance(posting, int):
            return self._stored.posting(posting)
        before = self._pinned.value_before(posting)
        return np.array(before.slots, np.int32), np.array(before.weights, np.float32)


def _speaker_terms(speaker: str | None) -> list[str]:
    if not speaker or speaker.casefold() in ROLES:
        return []
    return [SPEAKER + term for term in dict.fromkeys(terms(speaker))]


class _Posting:
    """The slots that have one term, with weights; ``number`` is the term's number in the stored parts, or None."""

    __slots__ = ("number", "slots", "term", "weights")

    def __init__(self, term: str, number: int | None) -> None:
        self.term = term
        self.number = number
        self.slots = array("i")
        self.weights = array("f")

    def __copy__(self) -> _Posting:
        copied = _Posting(self.term, self.number)
        copied.slots, copied.weights = self.slots[:], self.weights[:]
        return copied

    def discard(self, slot: int) -> None:
        at = self.slots.index(slot)
        last_slot, last_weight = self.slots.pop(), self.weights.pop()
        if at < len(self.slots):
            self.slots[at], self.weights[at] = last_slot, last_weight
