"""Memory for Microsoft Agent Framework: a context provider that recalls, captures, and brings the memory tools.

Example:
    provider = MemrelayContextProvider(AsyncMemory(agent="support"), user="ana")
    agent = Agent(client=..., context_providers=[provider])
"""

from __future__ import annotations

from typing import Any

from agent_framework import AgentSession, ContextProvider, Message, SessionContext, SupportsAgentRun, tool

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory, asked_last

__all__ = ["MemrelayContextProvider"]

_ROLES = ("user", "assistant")


class MemrelayContextProvider(ContextProvider):
    """Recall before the model, capture after the run, and add the memory tools.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; None for the agent's own memories.
        source_id: the name of the provider in the agent.
        deadline: the maximum time in seconds of a recall, a capture or a tool.

    Attributes:
        turns: the memory around a turn; ``await provider.turns.flush()`` waits for captures.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | None = None,
        source_id: str = "memrelay",
        deadline: float = 2.0,
    ) -> None:
        super().__init__(source_id)
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add the memories to the instructions, and the tools."""
        asked = asked_last((one.role, one.text) for one in context.input_messages)
        recalled = await self.turns.recall(asked, user=self._user) if asked else ""
        if recalled:
            context.extend_instructions(self.source_id, recalled)
        context.extend_tools(self.source_id, [tool(one) for one in self.turns.tools(self._user)])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what is worth keeping of the run."""
        answered: list[Message] = list(context.response.messages) if context.response else []
        await self.turns.capture(
            [
                {"role": one.role, "content": one.text}
                for one in (*context.input_messages, *answered)
                if one.role in _ROLES
            ],
            user=self._user,
            session=session.session_id,
        )
