"""Copy-on-write for a state that is written to the store while it goes on changing.

The writer of a state copies its containers, which takes one step of the event loop, and not the objects in them. Code that
changes such an object calls `Pinned.keep` first, which copies that object alone. The writer then gets each object as it was
from `Pinned.of`.
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar, cast

T = TypeVar("T")


class Pinned:
    """The former values of objects that have changed since this was created.

    They are found by the `id` of the object. The writer holds references to all objects, so no `id` is used twice.
    """

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def keep(self, held: object) -> None:
        """Copy an object that is about to change, unless it was copied before."""
        if id(held) not in self._before:
            self._before[id(held)] = copy(held)

    def value_before(self, held: T) -> T:
        """Return the former value of an object, or the object itself if it has not changed."""
        return cast("T", self._before.get(id(held), held))
