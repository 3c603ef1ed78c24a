"""An agent with long-term memory; run it with ``python -m memrelay.integrations.langchain.example``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.langchain import MemrelayMiddleware


class StandIn(BaseChatModel):
    """A stand-in for a chat model of a provider."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> StandIn:  # type: ignore[override]
        """Accept tools and use none."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        text = answer_to("\n".join(one.text for one in messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


async def main() -> None:
    """Tell a fact in one conversation, and ask for it in another one."""
    async with AsyncMemory(agent="langchain-example") as memory:
        agent: Any = create_agent(StandIn(), middleware=[MemrelayMiddleware(memory, user="ana", deadline=30)])
        for message in (SAID, ASKED):
            result = await agent.ainvoke({"messages": [("user", message)]})
            print(f"{message} -> {result['messages'][-1].text}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
