"""Run hooks that put memories into the instructions of a model call, and store the run afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agents import Agent, AgentHookContext, RunConfig, RunHooks, Tool, function_tool
from agents.run import CallModelData, ModelInputData

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory


class MemrelayHooks(RunHooks[Any]):
    """Recall before each model call and capture when an agent has answered.

    A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; or a function that returns the user of a run from its context.
        deadline: the maximum time in seconds of a recall, a capture or a tool.

    Attributes:
        turns: the memory around a turn; ``await hooks.turns.flush()`` waits for captures.
    """

    def __init__(
        self,
        memory: AsyncMemory | None = None,
        *,
        user: str | Callable[[Any], str | None] | None = None,
        deadline: float = 2.0,
    ) -> None:
        self.turns = TurnMemory(memory, deadline=deadline)
        self._user = user

    def run_config(self, **settings: Any) -> RunConfig:
        """Return the configuration of a run that recalls, with other settings of ``RunConfig``."""
        return RunConfig(call_model_input_filter=self.recall, **settings)

    async def recall(self, data: CallModelData[Any]) -> ModelInputData:
        """Add what is known for the last message of the user to the instructions; a ``call_model_input_filter``."""
        asked = list(_texts(data.model_data.input))
        known = await self.turns.recall(asked[-1], user=self._of(data.context)) if asked else ""
        texts = (data.model_data.instructions, known)
        return ModelInputData(data.model_data.input, "\n\n".join(text for text in texts if text) or None)

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        """Store what is worth keeping of the last message of the user and of the answer."""
        said = [{"role": "user", "content": text} for text in list(_texts(context.turn_input))[-1:]]
        if isinstance(output, str):
            said.append({"role": "assistant", "content": output})
        await self.turns.capture(said, user=self._of(context.context))

    def tools(self, user: str | None = None) -> list[Tool]:
        """Return tools to search, remember and forget memories of a user; None for that of the object."""
        fixed = self._user if user is None and not callable(self._user) else user
        return [function_tool(tool) for tool in self.turns.tools(fixed)]

    def _of(self, context: Any) -> str | None:
        return self._user(context) if callable(self._user) else self._user


def _texts(items: Iterable[Any]) -> Iterable[str]:
    """Yield the texts of the messages of the user among input items."""
    for item in items:
        if item.get("role") == "user":
            content = item.get("content")
            parts = (
                (content,) if isinstance(content, str) else (part.get("text") or "" for part in content or ())
            )
            yield "\n".join(parts)
