"""One turn of an agent of Microsoft Agent Framework with the context provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.agent_framework import MemrelayContextProvider


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any
    ) -> ChatResponse[Any]:
        self.script.tools = [tool.name for tool in options.get("tools") or ()]
        step = self.script.next(
            (
                str(options.get("instructions")),
                *(str([part.to_dict() for part in one.contents]) for one in messages),
            )
        )
        content = (
            Content.from_text(step)
            if isinstance(step, str)
            else Content.from_function_call("1", step[0], arguments=step[1])
        )
        return ChatResponse(messages=[Message("assistant", [content])])


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    provider = MemrelayContextProvider(memory, user=user, deadline=script.deadline)
    agent = Agent(client=ScriptedClient(script), instructions="Help.", context_providers=[provider])
    result = await agent.run(message)
    await provider.turns.flush()
    return str(result.text)
