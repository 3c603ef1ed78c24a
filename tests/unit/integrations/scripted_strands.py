"""One turn of a Strands agent whose memory manager has the store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from scripted import Script
from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model

from memrelay import AsyncMemory
from memrelay.integrations.strands import MemrelayStore


class ScriptedModel(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **_: Any
    ) -> AsyncIterator[Any]:
        self._script.tools = [tool["name"] for tool in tool_specs or ()]
        step = self._script.next((str(system_prompt), json.dumps(messages, ensure_ascii=False)))
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(step, str):
            yield {"contentBlockDelta": {"delta": {"text": step}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": step[0], "toolUseId": "1"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(step[1])}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(step, str) else "tool_use"}}


REMEMBER = "add_memory"


def remember(text: str) -> dict[str, Any]:
    return {"entries": [text]}


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    store = MemrelayStore(memory, user=user, deadline=script.deadline)
    manager = MemoryManager([store], add_tool_config=True)
    agent = Agent(
        model=ScriptedModel(script), memory_manager=manager, system_prompt="Help.", callback_handler=None
    )
    result = await agent.invoke_async(message)
    await manager.flush()
    return str(result).strip()
