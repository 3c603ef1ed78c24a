"""Which memory follows which in a conversation: neighbours of a hit are looked at, too."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable

import numpy as np

__all__ = ["REACH", "Links"]

# Turns away, in either direction.
REACH = 3
# Of the memories that name one memory as the turn before them, as many are looked at.
MOST_FOLLOWERS = 4
NONE = -1


class Links:
    """For each key the one before it, and those after it; 12 bytes a key, so keys are numbers from 0 without gaps.

    A link stays when a memory is hidden, since it may be shown again; whether a memory may be passed is for the
    caller to say.
    """

    def __init__(self) -> None:
        self._before = array("i")
        self._first_after = array("i")
        self._sibling = array("i")

    def __len__(self) -> int:
        """How many keys have a place in it; 0 where no memory follows another."""
        return len(self._before)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return 3 * self._before.itemsize * len(self._before)

    def put(self, key: int, before: int) -> None:
        """Note that ``key`` follows ``before``; the first time counts, since a turn has one predecessor."""
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
        """Neighbours within `REACH` with their distance: backwards first, then those that follow.

        Args:
            key: where to start.
            passable: the memories that count; one that does not hides what lies behind it.
        """
        if key >= len(self._before):
            return []
        # A recall asks this forty times: plain loops cost half of what generators do.
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
        """The predecessor of each key, four little-endian bytes each; what `of_flat` takes."""
        return np.array(self._before, "<i4").tobytes()

    @classmethod
    def of_flat(cls, data: bytes | bytearray | memoryview) -> Links:
        """Links from their flat form.

        Raises:
            ValueError: not a whole number of keys, or a predecessor that is none of them.
        """
        links = cls()
        before = np.frombuffer(data, "<i4").tolist()
        if any(not NONE <= one < len(before) for one in before):
            raise ValueError("a link leads outside of its namespace")
        for key, one in enumerate(before):
            if one != NONE:
                links.put(key, one)
        return links
