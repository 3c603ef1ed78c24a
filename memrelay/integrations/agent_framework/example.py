"""An agent with long-term memory; run it with ``python -m memrelay.integrations.agent_framework.example``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

from memrelay import AsyncMemory
from memrelay.integrations.agent_framework import MemrelayContextProvider
from memrelay.integrations.demonstration import ASKED, SAID, answer_to


class StandIn(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A stand-in for a client of a provider."""

    async def _inner_get_response(  # type: ignore[override]
        self, *, messages: Sequence[Message], options: Any, **kwargs: Any
    ) -> ChatResponse[Any]:
        text = answer_to(f"{options.get('instructions')}\n{messages[-1].text}")
        return ChatResponse(messages=[Message("assistant", [Content.from_text(text)])])


async def main() -> None:
    """Tell a fact in one run, and ask for it in another one."""
    async with AsyncMemory(agent="agent-framework-example") as memory:
        provider = MemrelayContextProvider(memory, user="ana", deadline=30)
        agent = Agent(client=StandIn(), context_providers=[provider])
        for message in (SAID, ASKED):
            result = await agent.run(message)
            print(f"{message} -> {result.text}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
