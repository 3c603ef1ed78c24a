"""What the modules of routes have in common: a table, and the context of the use cases that their handlers call."""

from __future__ import annotations

from abc import ABC, abstractmethod

from relayer.http.routing import Route
from relayer.services.context import Context

__all__ = ["RouteGroup"]


class RouteGroup(ABC):
    """Routes of one kind.

    Args:
        context: for the use cases.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @abstractmethod
    def table(self) -> tuple[Route, ...]:
        """Return the routes."""
