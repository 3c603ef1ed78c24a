"""Nodes of a graph that put memories into its state before the model, and store its messages afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory, last_turn


class MemoryNodes:
    """The nodes ``recall`` and ``capture``, for graphs with ``messages`` and ``memories`` in their state.

    The user is ``config["configurable"]["user_id"]``, the session ``thread_id``. The nodes neither fail nor delay a run for more than
    the deadline if the relayer does not respond.

    Example:
        nodes = MemoryNodes(AsyncMemory(agent="support"))
        graph.add_node("recall", nodes.recall)
        graph.add_node("capture", nodes.capture)

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        deadline: the maximum time in seconds that a node takes.

    Attributes:
        turns: the memory around a turn; ``await nodes.turns.flush()`` waits for captures.
    """

    def __init__(self, memory: AsyncMemory | None = None, *, deadline: float = 2.0) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)

    async def recall(self, state: Any, config: RunnableConfig) -> dict[str, str]:
        """Return ``memories``: the block for the prompt, which is empty if nothing relevant is known."""
        asked = [one.text for one in state["messages"] if isinstance(one, HumanMessage)]
        return {"memories": await self.turns.recall(asked[-1], user=_user(config)) if asked else ""}

    async def capture(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Store what is worth keeping of the last turn, which begins with the last message of the user."""
        session = config.get("configurable", {}).get("thread_id")
        await self.turns.capture(last_turn(_said(state["messages"])), user=_user(config), session=session)
        return {}

    def tools(self, user: str | None = None) -> list[BaseTool]:
        """Return tools to search, remember and forget memories of a user."""
        return [StructuredTool.from_function(coroutine=tool) for tool in self.turns.tools(user)]


def _said(messages: Sequence[AnyMessage]) -> list[tuple[str, str]]:
    roles = {"human": "user", "ai": "assistant"}
    return [(roles[one.type], one.text) for one in messages if one.type in roles]


def _user(config: RunnableConfig) -> str | None:
    user: str | None = config.get("configurable", {}).get("user_id")
    return user
