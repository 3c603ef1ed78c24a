"""What a scripted model says, and what it was shown, for one turn of any framework."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Step = str | tuple[str, dict[str, Any]]


class Script:
    """The steps of a model: answers, and calls of tools with their arguments.

    Attributes:
        shown: everything that the model was shown, one text for each request.
        tools: the names of the tools that the model was offered.
        deadline: the deadline of the integration.
    """

    def __init__(self, *steps: Step, deadline: float = 10.0) -> None:
        self._steps = list(steps) or ["Noted."]
        self.shown: list[str] = []
        self.tools: list[str] = []
        self.deadline = deadline

    def next(self, shown: Iterable[str]) -> Step:
        self.shown.append("\n".join(shown))
        return self._steps.pop(0)
