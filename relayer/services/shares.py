"""Places for requests that wait: so many in all, shared among accounts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relayer.errors import QueueFull

__all__ = ["Place", "Shares"]

_RETRY_SECONDS = 15.0


@dataclass(slots=True, eq=False)
class Place:
    """A place that is taken; when it is ``lost``, whoever has it is to stop waiting soon and answer what there is."""

    lost: bool = False


class Shares:
    """At most so many places, and so many of one account; where all are taken, an account with fewer gets one of another's.

    Args:
        what: waits in them, for the text of the refusal.
        most: places in all.
        per_account: of one account.
    """

    def __init__(self, what: str, *, most: int, per_account: int) -> None:
        self._what = what
        self._most = most
        self._per_account = per_account
        # The places of each account, the oldest first.
        self._taken: dict[str, list[Place]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    @contextmanager
    def place(self, account: str) -> Iterator[Place]:
        """Take a place for as long as the context lasts.

        Raises:
            QueueFull: the account has its share.
        """
        place = self._take(account)
        try:
            yield place
        finally:
            self._give_back(account, place)

    def _take(self, account: str) -> Place:
        own = len(self._taken.get(account, ()))
        if own >= self._per_account or (len(self) >= self._most and not self._displace(own)):
            raise QueueFull(f"too many {self._what} are open", retry_after=_RETRY_SECONDS)
        place = Place()
        self._taken.setdefault(account, []).append(place)
        return place

    def _displace(self, own: int) -> bool:
        richest = max(self._taken, key=lambda account: len(self._taken[account]))
        oldest = self._taken[richest][0]
        # One less there and one more here must be fairer than before, or two accounts would take turns for ever.
        if len(self._taken[richest]) <= own + 1:
            return False
        oldest.lost = True
        self._give_back(richest, oldest)
        return True

    def _give_back(self, account: str, place: Place) -> None:
        places = self._taken.get(account, [])
        if place in places:
            places.remove(place)
        if not places:
            self._taken.pop(account, None)
