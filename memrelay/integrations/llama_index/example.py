"""An agent with long-term memory; run it with ``python -m memrelay.integrations.llama_index.example``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.llama_index import MemrelayMemoryBlock


def model(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
    """Answer as a language model would."""
    text = answer_to("\n".join(str(one.content) for one in messages))
    return ChatMessage(role="assistant", content=text)


async def main() -> None:
    """Tell a fact in one conversation, and ask for it in another one."""
    async with AsyncMemory(agent="llama-index-example") as memory:
        llm = MockFunctionCallingLLM(response_generator=model, is_chat_model=True)
        for chat, message in (("chat-1", SAID), ("chat-2", ASKED)):
            block = MemrelayMemoryBlock(memory=memory, user="ana", deadline=30)
            agent = FunctionAgent(llm=llm, tools=[*block.tools()], streaming=False)
            chat_memory = Memory.from_defaults(session_id=chat, memory_blocks=[block])
            result: Any = await agent.run(user_msg=message, memory=chat_memory)
            print(f"{message} -> {result}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
