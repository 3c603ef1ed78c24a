"""Which records say the same: what duplicates and tombstones are decided by, from keyed hashes alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relayer.domain.stored_twins import StoredTwins

__all__ = ["Twins"]


@dataclass(slots=True)
class Twins:
    """Records by two MACs: of the text, and of the text with who said it among whom.

    Only a record that is alike in all of that makes another one a duplicate: what a tool said must not swallow what
    the user says, nor a direct message what is said in a group. A tombstone is of the text, whoever repeats it.

    Attributes:
        repeats: whether any two records ever had the same text.
        older: records that are there, and that `like` does not return because others, alike, came later.
    """

    # What changed since the state was stored, or all there is: nothing where what was there is erased.
    _alike: dict[bytes, bytes] = field(default_factory=dict)
    _by_text: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    _erased_texts: set[bytes] = field(default_factory=set)
    _stored: StoredTwins | None = None
    repeats: bool = False
    older: set[bytes] = field(default_factory=set)

    def add(self, record: bytes, *, text: bytes, likeness: bytes) -> None:
        """Note a record; the newest of several alike is the one that `like` returns."""
        before = self.like(likeness)
        if before:
            self.older.add(before)
        self.older.discard(record)
        self._alike[likeness] = record
        others = self.saying(text)
        if record not in others:
            self.repeats = self.repeats or bool(others)
            self._by_text[text] = (*others, record)

    def erase(self, record: bytes, *, text: bytes, likeness: bytes) -> None:
        """Note that a record was destroyed; that its text was known stays known, as a MAC."""
        if self.like(likeness) == record:
            self._alike[likeness] = b""
        self.older.discard(record)
        self._by_text[text] = tuple(other for other in self.saying(text) if other != record)
        self._erased_texts.add(text)

    @property
    def erased_texts(self) -> frozenset[bytes]:
        """The texts of which a record was destroyed, as MACs."""
        return frozenset(self._erased_texts)

    @classmethod
    def restored(cls, stored: StoredTwins, erased_texts: Iterable[bytes], *, repeats: bool) -> Twins:
        """Go on from a stored state."""
        return cls(_erased_texts=set(erased_texts), _stored=stored, repeats=repeats, older=set(stored.older))

    def like(self, likeness: bytes) -> bytes:
        """Return the newest record of this likeness, or nothing."""
        known = self._alike.get(likeness)
        if known is None:
            return b"" if self._stored is None else self._stored.like(likeness)
        return known

    def saying(self, text: bytes) -> tuple[bytes, ...]:
        """Return the records of this text, oldest first."""
        known = self._by_text.get(text)
        if known is None:
            return () if self._stored is None else self._stored.saying(text)
        return known

    def was_erased(self, text: bytes) -> bool:
        """Whether a record of this text was destroyed."""
        return text in self._erased_texts
