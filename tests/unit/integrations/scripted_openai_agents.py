"""One turn of an agent of the OpenAI Agents SDK with the hooks and the session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.openai_agents import MemrelayHooks, MemrelaySession


class ScriptedModel(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_response(self, *_: Any, **request: Any) -> ModelResponse:
        self._script.tools = [tool.name for tool in request["tools"]]
        shown = (str(request["system_instructions"]), json.dumps(request["input"], ensure_ascii=False))
        step = self._script.next(shown)
        output: Any
        if isinstance(step, str):
            text = ResponseOutputText(text=step, type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            output = ResponseFunctionToolCall(
                arguments=json.dumps(step[1]), call_id="1", name=step[0], type="function_call"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    hooks = MemrelayHooks(memory, user=user, deadline=script.deadline)
    agent = Agent("support", instructions="Help.", model=ScriptedModel(script), tools=hooks.tools())
    config = hooks.run_config(tracing_disabled=True)
    # Each turn is a conversation of its own.
    session = MemrelaySession(f"chat-{message}", memory, user=user, deadline=script.deadline)
    result = await Runner.run(agent, message, hooks=hooks, run_config=config, session=session)
    await hooks.turns.flush()
    return str(result.final_output)
