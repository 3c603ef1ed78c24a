"""Objects as they were at one moment, for what is written down while they go on changing.

A writer copies the containers, which takes a step, and pins what is in them. Whatever changes a member keeps it first: the
copy is made then, of that member alone.
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar, cast

T = TypeVar("T")


class Pinned:
    """Copies of the objects that changed since this was made. The writer holds the objects themselves, so no identity is used twice."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def keep(self, held: object) -> None:
        """Copy an object that is about to change, once."""
        if id(held) not in self._before:
            self._before[id(held)] = copy(held)

    def of(self, held: T) -> T:
        """Return an object as it was."""
        return cast("T", self._before.get(id(held), held))
