"""One turn of a LlamaIndex agent whose memory has the block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import TextBlock, ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.llama_index import MemrelayMemoryBlock


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    def model(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        step = script.next(f"{one.role}: {one.blocks}" for one in messages)
        if isinstance(step, str):
            return ChatMessage(role="assistant", blocks=[TextBlock(text=step)])
        call = ToolCallBlock(tool_call_id="1", tool_name=step[0], tool_kwargs=step[1])
        return ChatMessage(role="assistant", blocks=[call])

    block = MemrelayMemoryBlock(memory=memory, user=user, deadline=script.deadline)
    tools = block.tools()
    script.tools = [str(tool.metadata.name) for tool in tools]
    agent = FunctionAgent(
        llm=MockFunctionCallingLLM(response_generator=model, is_chat_model=True),
        tools=list(tools),
        system_prompt="Help.",
        streaming=False,
    )
    kept = Memory.from_defaults(session_id=f"chat-{user}", memory_blocks=[block])
    result = await agent.run(user_msg=message, memory=kept)
    await block.turns.flush()
    return str(result.response.content)
