"""Which records say the same: what duplicates and tombstones are decided by, from keyed hashes alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

__all__ = ["Twins"]


@dataclass(slots=True)
class Twins:
    """Records by two MACs: of the text, and of the text with who said it among whom.

    Only a record that is alike in all of that makes another one a duplicate: what a tool said must not swallow what
    the user says, nor a direct message what is said in a group. A tombstone is of the text, whoever repeats it.

    Attributes:
        repeats: whether any two records ever had the same text.
    """

    _alike: dict[bytes, bytes] = field(default_factory=dict)
    _by_text: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    _erased_texts: set[bytes] = field(default_factory=set)
    repeats: bool = False

    def add(self, record: bytes, *, text: bytes, likeness: bytes) -> None:
        """Note a record; the newest of several alike is the one that `like` returns."""
        self._alike[likeness] = record
        others = self._by_text.get(text, ())
        if record not in others:
            self.repeats = self.repeats or bool(others)
            self._by_text[text] = (*others, record)

    def erase(self, record: bytes, *, text: bytes, likeness: bytes) -> None:
        """Note that a record was destroyed; that its text was known stays known, as a MAC."""
        if self._alike.get(likeness) == record:
            del self._alike[likeness]
        left = tuple(other for other in self._by_text.get(text, ()) if other != record)
        if left:
            self._by_text[text] = left
        else:
            self._by_text.pop(text, None)
        self._erased_texts.add(text)

    @property
    def erased_texts(self) -> frozenset[bytes]:
        """The texts of which a record was destroyed, as MACs."""
        return frozenset(self._erased_texts)

    def restore(
        self,
        records: Sequence[bytes],
        *,
        texts: Sequence[bytes],
        likenesses: Sequence[bytes],
        older: AbstractSet[bytes],
    ) -> None:
        """Note records of a stored state, in the order in which they were added.

        ``older`` are those that `like` did not return for their likeness.
        """
        if older.isdisjoint(records):
            self._alike.update(zip(likenesses, records, strict=True))
        else:
            alike = zip(likenesses, records, strict=True)
            self._alike.update((likeness, record) for likeness, record in alike if record not in older)
        different = set(texts)
        if len(different) == len(texts) and self._by_text.keys().isdisjoint(different):
            self._by_text.update(zip(texts, zip(records, strict=True), strict=True))
            return
        for text, record in zip(texts, records, strict=True):
            self._by_text[text] = (*self._by_text.get(text, ()), record)

    def restore_erased(self, texts: Iterable[bytes]) -> None:
        """Note texts that a stored state knew as destroyed."""
        self._erased_texts.update(texts)

    def like(self, likeness: bytes) -> bytes:
        """Return the newest record of this likeness, or nothing."""
        return self._alike.get(likeness, b"")

    def saying(self, text: bytes) -> tuple[bytes, ...]:
        """Return the records of this text, oldest first."""
        return self._by_text.get(text, ())

    def was_erased(self, text: bytes) -> bool:
        """Whether a record of this text was destroyed."""
        return text in self._erased_texts
