"""Which dialogues a namespace has, by session: records that nothing else of the view knows of."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Dialogues"]

# Measured with twenty to a session: an id, its number and its place in the session.
_EACH_BYTES = 270


class Dialogues:
    """Numbers of dialogues on the shelf, in the order of the log."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, tuple[int, str]] = {}
        self._by_session: dict[str, dict[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, record: bytes) -> bool:
        return record in self._numbers

    @property
    def nbytes(self) -> int:
        """About the bytes this takes in memory."""
        return len(self._numbers) * _EACH_BYTES

    def add(self, number: int, record: bytes, session: str) -> None:
        """Take one that has a place on the shelf; in the order of the log."""
        self._numbers[record] = (number, session)
        self._by_session.setdefault(session, {})[number] = record

    def drop(self, record: bytes) -> int | None:
        """Forget one; returns the number it had."""
        number, session = self._numbers.pop(record, (None, ""))
        if number is not None:
            del self._by_session[session][number]
            if not self._by_session[session]:
                del self._by_session[session]
        return number

    def number_of(self, record: bytes) -> int | None:
        """Return one's number, if it is there."""
        known = self._numbers.get(record)
        return None if known is None else known[0]

    def of_session(self, session: str) -> Iterator[tuple[bytes, int]]:
        """Yield the ids and numbers of a session's, oldest first."""
        for number, record in list(self._by_session.get(session, {}).items()):
            yield record, number

    def everything(self) -> Iterator[tuple[bytes, int]]:
        """Yield all ids and numbers, in no order."""
        for record, (number, _) in list(self._numbers.items()):
            yield record, number

    def numbers(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each session with its numbers."""
        for session, found in self._by_session.items():
            yield session, list(found)
