"""Postings and documents of a lexical index as flat arrays: the form in which they are stored and used after loading.

A stored index is not converted when it is loaded: a term's posting is copied into a form that can change only when it changes.
Most terms of a large namespace are rare and never queried, so loading is cheap and takes little memory.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview


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
