"""Memory for Pydantic AI: a capability that recalls into the instructions, captures each run, and brings the memory tools.

Example:
    agent = Agent(model, capabilities=[MemrelayCapability(AsyncMemory(agent="support"), user="ana")])
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from pydantic_ai import AgentRunResult, FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory

__all__ = ["MemrelayCapability"]


class MemrelayCapability(AbstractCapability[Any]):
    """Recall before the model, capture after the run, and add the memory tools.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; or a function that returns the user of a run from its dependencies.
        deadline: the maximum time in seconds of a recall, a capture or a tool.

    Attributes:
        turns: the memory around a turn; ``await capability.turns.flush()`` waits for captures.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | Callable[[Any], str | None] | None = None,
        deadline: float = 2.0,
    ) -> None:
        self.id, self.description, self.defer_loading = None, None, False
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user
        self._recalled: str | None = None

    async def for_run(self, ctx: RunContext[Any]) -> MemrelayCapability:
        """Return a copy for one run, with the user of the run."""
        one = copy(self)
        one._user = self._user(ctx.deps) if callable(self._user) else self._user  # noqa: SLF001 - of the same class
        return one

    def get_instructions(self) -> Callable[[RunContext[Any]], Any]:
        """Return a function that recalls once in a run."""
        return self._instructions

    async def _instructions(self, ctx: RunContext[Any]) -> str:
        if self._recalled is None:
            self._recalled = await self.turns.recall(_text(ctx.prompt), user=self._fixed)
        return self._recalled

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools to search, remember and forget memories."""
        return FunctionToolset([*self.turns.tools(self._fixed)])

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Store what is worth keeping of the run."""
        said = [{"role": "user", "content": _text(ctx.prompt)}]
        if isinstance(result.output, str):
            said.append({"role": "assistant", "content": result.output})
        await self.turns.capture(said, user=self._fixed, session=ctx.conversation_id)
        return result

    @property
    def _fixed(self) -> str | None:
        return None if callable(self._user) else self._user


def _text(prompt: Any) -> str:
    parts = (prompt,) if isinstance(prompt, str) else prompt or ()
    return "\n".join(part for part in parts if isinstance(part, str))
