"""One turn of a Pydantic AI agent with the capability."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.pydantic_ai import MemrelayCapability


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        script.tools = [tool.name for tool in info.function_tools]
        step = script.next((info.instructions or "", *map(str, messages)))
        return ModelResponse([TextPart(step) if isinstance(step, str) else ToolCallPart(*step)])

    capability = MemrelayCapability(memory, user=lambda deps: deps["user"], deadline=script.deadline)
    agent = Agent(FunctionModel(model), deps_type=dict, instructions="Help.", capabilities=[capability])
    result = await agent.run(message, deps={"user": user})
    await capability.turns.flush()
    return result.output
