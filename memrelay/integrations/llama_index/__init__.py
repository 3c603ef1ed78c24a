"""Memory for LlamaIndex: a block of its ``Memory`` that recalls before the model and captures what was said.

Example:
    block = MemrelayMemoryBlock(memory=AsyncMemory(agent="support"), user="ana")
    memory = Memory.from_defaults(session_id="chat-1", memory_blocks=[block])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.tools import FunctionTool
from pydantic import Field, PrivateAttr

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory, asked_last

__all__ = ["MemrelayMemoryBlock"]

_ROLES = {MessageRole.USER: "user", MessageRole.ASSISTANT: "assistant"}


class MemrelayMemoryBlock(BaseMemoryBlock[str]):
    """Recall for the last messages of the user, and store what is worth keeping of the conversation.

    Messages are captured when the block is read, which is before each answer of the model, and when ``Memory`` moves them out of its
    short-term memory. A relayer that does not respond neither fails a run nor delays it for more than the deadline.

    Attributes:
        name: the name of the block in the prompt.
        memory: the memories to use; `AsyncMemory` at its default settings if it is not given.
        user: the user; None for the agent's own memories.
        deadline: the maximum time in seconds of a recall, a capture or a tool.
    """

    name: str = "memrelay"
    priority: int = 1
    memory: AsyncMemory = Field(default_factory=AsyncMemory, exclude=True)
    user: str | None = None
    deadline: float = 2.0
    _turns: TurnMemory = PrivateAttr()
    _captured: set[tuple[str, str]] = PrivateAttr(default_factory=set)

    def model_post_init(self, context: Any, /) -> None:
        """Connect the block to the memories."""
        super().model_post_init(context)
        self._turns = TurnMemory(self.memory, deadline=self.deadline)

    @property
    def turns(self) -> TurnMemory:
        """Return the memory around a turn; ``await block.turns.flush()`` waits for captures."""
        return self._turns

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        asked = asked_last(_said(messages or ()))
        recalled = await self._turns.recall(asked, user=self.user) if asked else ""
        await self._aput(messages or [])
        return recalled

    async def _aput(self, messages: list[ChatMessage]) -> None:
        new = [one for one in _said(messages) if one not in self._captured]
        self._captured.update(new)
        await self._turns.capture([{"role": role, "content": text} for role, text in new], user=self.user)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Remove the last memories until about ``tokens_to_truncate`` tokens are gone; None if no memory is left."""
        lines, excess = content.split("\n"), tokens_to_truncate * 4
        memories = [
            number for number, line in enumerate(lines) if line[:1].isdigit() or line.startswith("- ")
        ]
        while excess > 0 and memories:
            excess -= len(lines.pop(memories.pop())) + 1
        return "\n".join(lines) if memories else None

    def tools(self) -> list[FunctionTool]:
        """Return tools to search, remember and forget memories of the user."""
        return [FunctionTool.from_defaults(async_fn=tool) for tool in self._turns.tools(self.user)]


def _said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    return [(_ROLES[one.role], one.content) for one in messages if one.role in _ROLES and one.content]
