"""Long texts are cut into passages, each with a vector and terms of its own, and ranked as the memory that they belong to.

An embedding model reads only the beginning of a text, and so does the index of terms. A longer text therefore has further rows
in `VectorIndex`, one for each passage, and each passage has an entry in `PassageWords`, a lexical index of its own. Texts that
are read to their end have no passages. A passage's key consists of the memory's key and the offset at which the passage begins,
so that it need not be stored separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, KeysView, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.search.dense import DenseIndex, DenseParts, DenseQuery, PinnedDense
from relayer.search.lexical import LexicalIndex, LexicalParts, LexicalQuery, PinnedTerms
from relayer.search.ranking import coverage
from relayer.search.rows import Found, KeyMask, Vector
from relayer.wire.fields import cut, passage_end

# In bytes of UTF-8, because tokens per byte differ less between scripts than tokens per character: the model reads 256 tokens,
# about 1,100 bytes of English, and one for each character of three bytes.
LONG_BYTES = 900
# A vector is a mean: a fact among other things has a cosine of 0.20 to 0.41 with questions about it in passages of 400 bytes, of
# 0.16 to 0.25 in 1,000; unrelated prompts reach 0.11 at most. Embedding a text costs the same with both (bench/passages.py).
PASSAGE_BYTES = 400
# The maximum number of passages of one text that have a vector: in texts of more than 38 kB they are longer.
MOST_VECTORS = 128
# Of many passages one is near a query by chance: the largest of n draws rises with ln(n) (Gumbel, "Statistics of Extremes", 1958).
# So much of it is subtracted from the cosine of each further passage (bench/long_chats.py; docs/adr/0024).
CHANCE = 0.03
_START_BITS = 20
_STARTS = (1 << _START_BITS) - 1


def is_long(text: str) -> bool:
    """Return whether a text has passages; then it has at least two."""
    return 4 * len(text) > LONG_BYTES and len(text.encode()) > LONG_BYTES


def passages(text: str, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the start and end, in characters, of each passage of a text, see `relayer.wire.fields.cut`.

    Args:
        text: a long text, see `is_long`.
        most: the maximum number of passages; a text that would have more gets longer passages. None for no
            maximum, and passages of up to 400 bytes (`PASSAGE_BYTES`).
    """
    size = PASSAGE_BYTES
    if most is not None:
        # Each passage is at least three quarters full.
        size = max(size, -(-4 * len(text.encode()) // (3 * most)))
    return cut(text, size)


def passage_at(text: str, start: int) -> str:
    """Return the passage that begins at ``start``, as `passages` cuts the passages of the term index."""
    return text[start : passage_end(text, start, PASSAGE_BYTES)].strip()


class Meaning(NamedTuple):
    """The vectors of a memory: its row (`relayer.search.rows.search_row`), and start and vector of each further passage."""

    row: Vector
    passages: tuple[tuple[int, Vector], ...] = ()


def _key(memory: int, start: int) -> int:
    return memory << _START_BITS | start


def _starts_of(keys: Iterable[int]) -> defaultdict[int, list[int]]:
    starts: defaultdict[int, list[int]] = defaultdict(list)
    for key in keys:
        starts[key >> _START_BITS].append(key & _STARTS)
    return starts


def _parts_of(keys: Sequence[int], starts: dict[int, list[int]]) -> tuple[NDArray[np.intp], list[int]]:
    """Return, for each passage of these memories, the index of its memory in ``keys``, and the passage's key."""
    parts = [(at, _key(key, start)) for at, key in enumerate(keys) if key in starts for start in starts[key]]
    return np.array([at for at, _ in parts], np.intp), [part for _, part in parts]


def _best_by_memory(keys: NDArray[np.int64], scores: NDArray[np.floating]) -> dict[int, float]:
    best: dict[int, float] = {}
    for key, score in zip((keys >> _START_BITS).tolist(), scores.tolist(), strict=True):
        best[key] = max(score, best.get(key, score))
    return best


def _merged(found: Found, more: dict[int, float], k: int) -> Found:
    """Return the best ``k`` of both; a memory in both counts with the better of its scores."""
    keys, scores = found
    best = dict(zip(keys.tolist(), scores.tolist(), strict=True))
    for key, score in more.items():
        best[key] = max(score, best.get(key, score))
    ordered = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:k]
    return np.array([key for key, _ in ordered], np.int64), np.array(
        [score for _, score in ordered], np.float32
    )


class VectorQuery:
    """As `DenseQuery`, over whole memories and their passages; a memory's score is that of its best row."""

    def __init__(self, whole: DenseQuery, parts: DenseQuery, starts: dict[int, list[int]]) -> None:
        self._whole = whole
        self._parts = parts
        self._starts = starts

    def best(self, k: int, allowed: KeyMask | None = None) -> Found:
        """Return the best ``k`` of the allowed keys (None: all), ties by key; raises as `DenseQuery.best`."""
        found = self._whole.best(k, allowed)
        if allowed is None:
            parts = self._parts.best(k)
        else:
            inside = allowed.followed_by(_START_BITS)
            parts = self._parts.best(k, inside, self._parts.count(inside))
        return _merged(found, _best_by_memory(*parts), k)

    def scores(self, keys: Sequence[int]) -> NDArray[np.float64]:
        """Return the inner products of these keys' best rows with the query, less `CHANCE`, NaN for keys without a row."""
        scores = self._whole.scores(keys)
        owners, parts = _parts_of(keys, self._starts)
        chance = CHANCE * np.log1p(np.bincount(owners, minlength=len(keys)))
        np.fmax.at(scores, owners, self._parts.scores(parts) - chance[owners])
        return scores

    def of_whole(self, key: int) -> float:
        """Return the inner product of a memory's own row, which is of its beginning; 0 without one."""
        return float(np.nan_to_num(self._whole.scores([key])[0]))

    def of_passages(self, key: int) -> dict[int, float]:
        """Return the inner product of each further passage of a memory, by its start."""
        starts = self._starts.get(key, [])
        return dict(
            zip(starts, self._parts.scores([_key(key, start) for start in starts]).tolist(), strict=True)
        )


class VectorIndex:
    """The vectors of one model by integer key: a row of each memory, and of each further passage of a long one."""

    def __init__(self, dimension: int) -> None:
        self._whole = DenseIndex(dimension)
        self._parts = DenseIndex(dimension)
        self._starts: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._whole)

    def __contains__(self, key: int) -> bool:
        return key in self._whole

    def keys(self) -> KeysView[int]:
        """Return the keys that have a vector."""
        return self._whole.keys()

    def passages(self, allowed: KeyMask | None) -> int:
        """Return how many further passages the allowed memories have (None: all)."""
        if allowed is None or not len(self._parts):
            return len(self._parts)
        return self._parts.count(allowed.followed_by(_START_BITS))

    def count(self, allowed: KeyMask) -> int:
        """Return how many of the allowed memories have a vector."""
        return self._whole.count(allowed)

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return self._whole.nbytes + self._parts.nbytes

    def add(self, key: int, row: NDArray[np.floating], more: Sequence[tuple[int, Vector]] = ()) -> None:
        """Add a memory's row and those of its further passages, or replace those that ``key`` has.

        Raises:
            ValueError: a row is invalid or not of this dimension, see `relayer.search.rows.validated_vector`, or the key is negative. Then
                nothing was changed; or ``key`` has no vector any more, if it was a passage's row.
        """
        self._whole.add(key, row)
        self._drop(key)
        try:
            for start, passage in more:
                self._parts.add(_key(key, start), passage)
                self._starts.setdefault(key, []).append(start)
        except ValueError:
            self.remove(key)
            raise

    def remove(self, key: int) -> bool:
        """Remove a memory's vectors; return whether there were any."""
        self._drop(key)
        return self._whole.remove(key)

    def row(self, key: int) -> Vector | None:
        """Return the vector of a whole memory, shape (dimension,); None if the memory has none.

        After a graph was built, the values are rounded to float16.
        """
        return self._whole.row(key)

    def meaning(self, key: int) -> Meaning | None:
        """Return all vectors of a memory, so that they can be added to another index; None if it has none."""
        row = self._whole.row(key)
        if row is None:
            return None
        starts = self._starts.get(key, ())
        rows = ((start, self._parts.row(_key(key, start))) for start in starts)
        return Meaning(row, tuple((start, passage) for start, passage in rows if passage is not None))

    def ask(self, query: Vector) -> DenseQuery | VectorQuery:
        """Return a query; use it before anything is added or removed; raises as `DenseIndex.ask`."""
        whole = self._whole.ask(query)
        return VectorQuery(whole, self._parts.ask(query), self._starts) if self._starts else whole

    async def maintain(self, *, purge: bool = False) -> None:
        """Bring the graphs up to date, see `DenseIndex.maintain`."""
        await self._whole.maintain(purge=purge)
        await self._parts.maintain(purge=purge)

    def pin(self, *, removed: bool = False) -> tuple[PinnedDense, PinnedDense]:
        """Return snapshots, of memories and of passages; see `DenseIndex.pin`."""
        return self._whole.pin(removed=removed), self._parts.pin(removed=removed)

    def unpin(self) -> None:
        """Release the snapshots that `pin` returned."""
        self._whole.unpin()
        self._parts.unpin()

    @classmethod
    def of_parts(cls, dimension: int, whole: DenseParts, parts: DenseParts) -> VectorIndex:
        """Return an index from its parts; raises `ValueError` when they do not fit each other or the dimension."""
        index = cls(dimension)
        index._whole = DenseIndex.of_parts(dimension, whole)
        index._parts = DenseIndex.of_parts(dimension, parts)
        index._starts = dict(_starts_of(index._parts.keys()))
        if not index._starts.keys() <= index._whole.keys():
            raise ValueError("a stored passage is of no memory")
        return index

    def _drop(self, key: int) -> None:
        for start in self._starts.pop(key, ()):
            self._parts.remove(_key(key, start))


class PassageWords:
    """The index of terms of long texts' passages. Removed passages are not found; `tidy` deletes their terms in small steps."""

    def __init__(self) -> None:
        self._lexical = LexicalIndex()
        self._starts: defaultdict[int, list[int]] = defaultdict(list)
        self._gone: dict[int, None] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._starts

    def passages(self, allowed: KeyMask | None) -> int:
        """Return how many passages the allowed memories have (None: all)."""
        if allowed is None or not self._starts:
            return len(self._lexical) - len(self._gone)
        return self._lexical.count(allowed.followed_by(_START_BITS)) - sum(
            key >> _START_BITS in allowed for key in self._gone
        )

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return self._lexical.nbytes

    def put(self, key: int, start: int, text: str) -> None:
        """Index a passage, which takes about a quarter of a millisecond."""
        self._gone.pop(_key(key, start), None)
        self._lexical.put(_key(key, start), text)
        if start not in self._starts[key]:
            self._starts[key].append(start)

    def remove(self, key: int) -> None:
        """Stop finding a memory's passages; `tidy` deletes their terms later."""
        self._gone.update(dict.fromkeys(_key(key, start) for start in self._starts.pop(key, ())))

    def tidy(self) -> bool:
        """Delete the terms of one removed passage; return whether there is more to do."""
        if self._gone:
            self._lexical.remove(self._gone.popitem()[0])
        return not self.is_tidy

    @property
    def is_tidy(self) -> bool:
        """Return whether no removed passage is left for `tidy`."""
        return not self._gone

    def lacks(self, names: Collection[str]) -> bool:
        """Return whether at least one of the names occurs in no passage.

        Args:
            names: names of people or things, each of one or more words.
        """
        return self._lexical.lacks(names)

    def ask(self, asked: Sequence[str]) -> WordsOfPassages | None:
        """Return a query by its terms, valid until anything is added or removed; None when there are no passages to find."""
        if not self._starts:
            return None
        return WordsOfPassages(self._lexical.ask(asked), self._starts, self._gone)

    def pin(self) -> PinnedTerms:
        """Return a snapshot; call `tidy` first."""
        return self._lexical.pin()

    def unpin(self) -> None:
        """Release the snapshot that `pin` returned."""
        self._lexical.unpin()

    @classmethod
    def of_parts(cls, parts: LexicalParts) -> PassageWords:
        """Return an index from its parts; raises `ValueError` when they do not fit each other."""
        words = cls()
        words._lexical = LexicalIndex.of_parts(parts)
        words._starts = _starts_of(words._lexical.keys())
        return words


class WordsOfPassages:
    """The coverage of one query's terms by passages; valid until the index changes."""

    def __init__(self, asked: LexicalQuery, starts: dict[int, list[int]], gone: Collection[int]) -> None:
        self._asked = asked
        self._starts = starts
        self._gone = gone

    def best(self, k: int, allowed: KeyMask | None) -> set[int]:
        """Return the memories of the best ``k`` passages that share a term with the query, among the allowed ones (None: all)."""
        inside = None if allowed is None else allowed.followed_by(_START_BITS)
        found, _ = self._asked.best(k + len(self._gone), inside)
        left = [key for key in found.tolist() if key not in self._gone]
        return {key >> _START_BITS for key in left[:k]}

    def raised(self, keys: Sequence[int], covered: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coverage of each memory, or that of its best passage if it is higher."""
        best = np.array(covered, np.float64)
        owners, parts = _parts_of(keys, self._starts)
        np.maximum.at(best, owners, coverage(self._asked.scores(parts), self._asked.ceiling))
        return best

    def of_passages(self, key: int) -> dict[int, float]:
        """Return the coverage of each passage of a memory, by its start."""
        starts = self._starts.get(key, [])
        scores = self._asked.scores([_key(key, start) for start in starts])
        return dict(zip(starts, coverage(scores, self._asked.ceiling).tolist(), strict=True))
