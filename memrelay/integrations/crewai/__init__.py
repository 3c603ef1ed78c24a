"""Memory for CrewAI: callbacks of a crew that recall before it starts and capture when it has finished, and memory tools.

Example:
    memory = MemrelayCallbacks(AsyncMemory(agent="support"), user="ana")
    task = Task(description="{memories} {question}", ...)
    crew = Crew(..., before_kickoff_callbacks=[memory.recall], after_kickoff_callbacks=[memory.capture])
    crew.kickoff(inputs={"question": "What must I not cook?"})
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, TypeVar

from crewai.tools import BaseTool, tool

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory, blocking, run_blocking

__all__ = ["MemrelayCallbacks"]

_OutputT = TypeVar("_OutputT")


class MemrelayCallbacks:
    """Recall into an input of a crew, capture its question and answer, and bring the memory tools.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; None for the agent's own memories.
        question: the input with the message of the user.
        memories: the input that gets the memories; ``{memories}`` in the description of a task shows them.
        deadline: the maximum time in seconds of a recall, a capture or a tool.

    Attributes:
        turns: the memory around a turn.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | None = None,
        question: str = "question",
        memories: str = "memories",
        deadline: float = 2.0,
    ) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user
        self._question = question
        self._memories = memories
        self._asked: ContextVar[str] = ContextVar("memrelay_question", default="")

    def recall(self, inputs: dict[str, Any] | None) -> dict[str, Any]:
        """Add the memories to the inputs; a ``before_kickoff_callback``."""
        given = dict(inputs or {})
        asked = str(given.get(self._question, ""))
        self._asked.set(asked)
        return given | {self._memories: run_blocking(self.turns.recall(asked, user=self._user))}

    def capture(self, output: _OutputT) -> _OutputT:
        """Store what is worth keeping of the question and the answer; an ``after_kickoff_callback``."""
        said = [{"role": "user", "content": self._asked.get()}, {"role": "assistant", "content": str(output)}]
        run_blocking(self.turns.capture(said, user=self._user))
        return output

    def tools(self) -> list[BaseTool]:
        """Return tools to search, remember and forget memories of the user."""
        return [tool(one.__name__)(blocking(one)) for one in self.turns.tools(self._user)]  # type: ignore[attr-defined]
