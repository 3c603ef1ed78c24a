"""The memory block of LlamaIndex: what ``Memory`` does with it, and truncation."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="make test-integrations installs LlamaIndex")

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory

from memrelay import AsyncMemory
from memrelay.integrations.llama_index import MemrelayMemoryBlock

pytestmark = pytest.mark.filterwarnings("default")


async def test_messages_that_leave_the_short_term_memory_are_recalled(memory: AsyncMemory) -> None:
    block = MemrelayMemoryBlock(memory=memory, user="ana", deadline=10)
    kept = Memory.from_defaults(
        session_id="chat-1",
        memory_blocks=[block],
        token_limit=300,
        chat_history_token_ratio=0.2,
        token_flush_size=50,
    )
    await kept.aput(ChatMessage(role="user", content="My bike is a red Brompton from 2019."))
    for number in range(20):
        await kept.aput(
            ChatMessage(role="assistant", content=f"This is answer number {number} of a long chat.")
        )
    await kept.aput(ChatMessage(role="user", content="Which bike do I have?"))
    shown = await kept.aget()
    assert "red Brompton" in str(shown[0].content)
    assert len(shown) < 20


async def test_truncation_drops_the_last_memories_first(memory: AsyncMemory) -> None:
    block = MemrelayMemoryBlock(memory=memory, user="ana", deadline=10)
    await memory.add_many(
        [f"The {kind} lamp costs {len(kind)} euro." for kind in ("desk", "floor", "kitchen")], user="ana"
    )
    content = await block.aget(
        [ChatMessage(role="user", content="What do the lamps cost, desk, floor, kitchen?")]
    )
    count = content.count("lamp costs")
    assert count > 1
    shorter = await block.atruncate(content, 5)
    assert shorter is not None
    assert shorter.count("lamp costs") == count - 1
    assert shorter.splitlines()[-1] == content.splitlines()[-1]
    assert await block.atruncate(content, 10_000) is None
