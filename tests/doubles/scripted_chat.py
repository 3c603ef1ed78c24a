"""A chat model without a model: it answers what a test wrote down, and keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from relayer.ports import ChatAnswer, ChatMessage

__all__ = ["ScriptedChat"]

Step = str | Exception | Callable[[str], str]
_NOTHING = '{"facts": [], "summary": ""}'


class ScriptedChat:
    """The `ChatModel` port for tests.

    Attributes:
        script: the next answers: a text, an error to raise, or what makes a text of the user message.
        asked: the messages of every call.
        efforts: how much each was to reason.
        gate: while it is not set, answers wait; set at first.
        tokens: what each answer costs.
    """

    def __init__(self, *script: Step, tokens: int = 10) -> None:
        self.script: deque[Step] = deque(script)
        self.asked: list[tuple[ChatMessage, ...]] = []
        self.efforts: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.tokens = tokens

    @property
    def name(self) -> str:
        """``scripted``."""
        return "scripted"

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: Mapping[str, object] | None,
        max_tokens: int,
        seconds: float,
        effort: str = "",
    ) -> ChatAnswer:
        """Answer with the script's next step; without one, that there is nothing to say."""
        del schema, max_tokens, seconds
        self.asked.append(tuple(messages))
        self.efforts.append(effort)
        step = self.script.popleft() if self.script else _NOTHING
        await self.gate.wait()
        if isinstance(step, Exception):
            raise step
        return ChatAnswer(step if isinstance(step, str) else step(messages[-1].text), self.tokens)

    async def close(self) -> None:
        """Nothing to release."""
