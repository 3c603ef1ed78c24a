"""Memory for Google's Agent Development Kit: a memory service, a callback that captures each turn, and memory tools.

Example:
    service = MemrelayMemoryService(AsyncMemory(agent="support"))
    agent = LlmAgent(name="support", model=..., tools=[PreloadMemoryTool(), *service.tools()], after_agent_callback=capture_turn)
    runner = Runner(app_name="shop", agent=agent, session_service=..., memory_service=service)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from memrelay import AsyncMemory
from memrelay.integrations.turns import MemoryTool, TurnMemory

__all__ = ["MemrelayMemoryService", "capture_turn"]

_log: Final = logging.getLogger("memrelay.integrations")
_USER: Final = "user"


class MemrelayMemoryService(BaseMemoryService):
    """Long-term memory of a runner, apart for each app and user.

    If the relayer does not respond within the deadline, a search finds nothing and events are not stored; both are logged.
    ``delete_memory`` is final.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        min_score: the minimum score of a memory, because ``PreloadMemoryTool`` searches before each request of the model.
        deadline: the maximum time in seconds of a call.

    Attributes:
        turns: the memory around a turn; ``await service.turns.flush()`` waits for captures.
    """

    def __init__(
        self, memory: AsyncMemory | None = None, *, min_score: float = 0.3, deadline: float = 2.0
    ) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)
        self._min_score = min_score
        self._memory = self.turns.memory

    @staticmethod
    def user_of(app_name: str, user_id: str) -> str:
        """Return the user of `AsyncMemory` with the memories of a user of an app."""
        return f"{app_name}/{user_id}"

    async def add_session_to_memory(self, session: Session) -> None:
        """Store what is worth keeping of a session; adding it again stores nothing twice."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store what is worth keeping of some events; ``custom_metadata`` becomes the metadata of the memories."""
        said = [
            {"role": "user" if event.author == _USER else "assistant", "content": text}
            for event in events
            if not event.partial and (text := _text(event.content))
        ]
        user = self.user_of(app_name, user_id)
        await self.turns.capture(said, metadata=custom_metadata, user=user, session=session_id)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store memories as they are."""
        for entry in memories:
            fields = {**entry.custom_metadata, **(custom_metadata or {})}
            stored = self._memory.add(
                _text(entry.content), metadata=fields, user=self.user_of(app_name, user_id)
            )
            await self.turns.attempt(stored, None)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the memories that are relevant to a query, best first."""
        found = self._memory.search(query, min_score=self._min_score, user=self.user_of(app_name, user_id))
        return SearchMemoryResponse(
            memories=[
                MemoryEntry(
                    id=hit.id,
                    content=types.Content(role=_USER, parts=[types.Part(text=hit.text)]),
                    custom_metadata=hit.metadata,
                    author=_USER,
                    timestamp=(hit.occurred_at or hit.created_at).isoformat(),
                )
                for hit in await self.turns.attempt(found, ())
            ]
        )

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory permanently, or without an id all memories of the user.

        Raises:
            MemrelayError: it was not deleted.
        """
        user = self.user_of(app_name, user_id)
        if memory_id is not None:
            await self._memory.erase(memory_id, user=user)
        elif user in await self._memory.users():
            await self._memory.erase_all(user=user)

    def tools(self) -> list[Callable[..., Any]]:
        """Return tools to search, remember and forget memories of the user of a session."""

        async def search_memory(query: str, tool_context: ToolContext) -> str:
            """Search long-term memory for what was said in earlier conversations."""
            return await self._tools_of(tool_context)[0](query)

        async def remember(text: str, tool_context: ToolContext) -> str:
            """Remember something lasting, in a sentence that can be understood by itself."""
            return await self._tools_of(tool_context)[1](text)

        async def forget_memory(memory_id: str, tool_context: ToolContext) -> str:
            """Forget a memory that is wrong or no longer wanted, by the id that search_memory returned."""
            return await self._tools_of(tool_context)[2](memory_id)

        return [search_memory, remember, forget_memory]

    def _tools_of(self, context: ToolContext) -> tuple[MemoryTool, MemoryTool, MemoryTool]:
        return self.turns.tools(self.user_of(context.session.app_name, context.session.user_id))


async def capture_turn(callback_context: CallbackContext) -> None:
    """Store what is worth keeping of the current turn; an ``after_agent_callback``."""
    events = callback_context.session.events
    current = [one for one in events if one.invocation_id == callback_context.invocation_id]
    try:
        await callback_context.add_events_to_memory(events=current)
    except ValueError as error:  # the runner has no memory service
        _log.warning("memrelay: %s", error)


def _text(content: types.Content | None) -> str:
    parts = content.parts if content is not None else None
    return "\n".join(part.text for part in parts or () if part.text and not part.thought).strip()
