"""A LangChain middleware that puts memories into the prompt, captures each run, and brings the memory tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.messages import AnyMessage, SystemMessage
from langgraph.runtime import Runtime

from memrelay import AsyncMemory
from memrelay.integrations.langchain.retriever import memory_tools
from memrelay.integrations.turns import TurnMemory, asked_last, last_turn, run_blocking

__all__ = ["MemrelayMiddleware"]


class _State(AgentState[Any]):
    memories: NotRequired[str]  # type: ignore[valid-type]  # only where LangChain is not installed


class MemrelayMiddleware(AgentMiddleware[_State, Any, Any]):
    """Recall before the model, capture after the run, and add the memory tools, for agents of ``create_agent``.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; or a function that returns the user of a run from its context.
        deadline: the maximum time in seconds of a recall or a capture.

    Attributes:
        turns: the memory around a turn.
    """

    state_schema = _State

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | Callable[[Any], str | None] | None = None,
        deadline: float = 2.0,
    ) -> None:
        super().__init__()
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user
        # The user of a tool must be fixed: a model must not choose it.
        fixed = None if callable(user) else user
        self.tools = [] if callable(user) else memory_tools(self.turns.memory, user=fixed, deadline=deadline)

    async def abefore_agent(self, state: _State, runtime: Runtime[Any]) -> dict[str, Any]:
        """Recall for the last messages of the user."""
        asked = asked_last(_said(state["messages"]))
        return {"memories": await self.turns.recall(asked, user=self._of(runtime)) if asked else ""}

    def before_agent(self, state: _State, runtime: Runtime[Any]) -> dict[str, Any]:
        """Recall, in a synchronous run."""
        return run_blocking(self.abefore_agent(state, runtime))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add the recalled memories to the system message of each request."""
        return await handler(_with_memories(request))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Add the recalled memories, in a synchronous run."""
        return handler(_with_memories(request))

    async def aafter_agent(self, state: _State, runtime: Runtime[Any]) -> None:
        """Store what is worth keeping of the run."""
        await self.turns.capture(last_turn(_said(state["messages"])), user=self._of(runtime))

    def after_agent(self, state: _State, runtime: Runtime[Any]) -> None:
        """Store what is worth keeping, in a synchronous run."""
        run_blocking(self.aafter_agent(state, runtime))

    def _of(self, runtime: Runtime[Any]) -> str | None:
        return self._user(runtime.context) if callable(self._user) else self._user


def _with_memories(request: ModelRequest[Any]) -> ModelRequest[Any]:
    memories = request.state.get("memories", "")
    if not memories:
        return request
    instructions = request.system_message.text if request.system_message else ""
    return request.override(system_message=SystemMessage(f"{instructions}\n\n{memories}".strip()))


def _said(messages: Sequence[AnyMessage]) -> list[tuple[str, str]]:
    roles = {"human": "user", "ai": "assistant"}
    return [(roles[one.type], one.text) for one in messages if one.type in roles]
