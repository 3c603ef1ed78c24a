"""Memory for Strands Agents: a store of its ``MemoryManager``, which recalls before the model and captures each invocation.

Example:
    store = MemrelayStore(AsyncMemory(agent="support"), user="ana")
    agent = Agent(model=..., memory_manager=MemoryManager(stores=[store], add_tool_config=True), tools=store.tools())
"""

from __future__ import annotations

from typing import Any

from strands import tool
from strands.memory import (
    AddMessagesContext,
    ExtractionConfig,
    InvocationTrigger,
    MemoryEntry,
    MemoryStore,
    SearchOptions,
)
from strands.types.content import Message
from strands.types.tools import AgentTool

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory

__all__ = ["MemrelayStore"]


class MemrelayStore(MemoryStore):
    """A memory store of a user. The relayer extracts what is worth keeping of each invocation, without a language model.

    If the relayer does not respond within the deadline, a search finds nothing and messages are not stored; both are logged.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; None for the agent's own memories.
        name: the name of the store in the manager's tools.
        min_score: the minimum score of a memory, because the manager searches before each request of the model.
        deadline: the maximum time in seconds of a call.

    Attributes:
        turns: the memory around a turn.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | None = None,
        name: str = "memrelay",
        min_score: float = 0.3,
        deadline: float = 2.0,
    ) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user
        self._min_score = min_score
        self.name = name
        self.description = "Long-term memory of earlier conversations with the user."
        self.max_search_results = 5
        self.writable = True
        self.extraction = ExtractionConfig(trigger=[InvocationTrigger()])

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return memories that are relevant to a query, best first."""
        limit = (options or {}).get("max_search_results") or self.max_search_results
        found = self.turns.memory.search(query, limit=limit, min_score=self._min_score, user=self._user)
        return [
            MemoryEntry(hit.text, self.name, hit.metadata | {"id": hit.id, "score": hit.score})
            for hit in await self.turns.attempt(found, ())
        ]

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Store a text as it is."""
        stored = self.turns.memory.add(content, metadata=metadata, user=self._user)
        await self.turns.attempt(stored, None)

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:
        """Store what is worth keeping of a conversation; failures are logged and not raised.

        Args:
            messages: messages of Strands, with ``role`` and ``content``; parts without text are ignored.
            context: not used.
        """
        await self.turns.capture(
            [
                {"role": one["role"], "content": "\n".join(part.get("text", "") for part in one["content"])}
                for one in messages
            ],
            user=self._user,
        )

    def get_tools(self) -> list[AgentTool]:
        """Return the tool that forgets a memory; the manager brings those that search and add."""
        return [tool(one) for one in self.turns.tools(self._user) if one.__name__ == "forget_memory"]
