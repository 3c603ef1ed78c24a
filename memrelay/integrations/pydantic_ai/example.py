"""An agent with long-term memory; run it with ``python -m memrelay.integrations.pydantic_ai.example``."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.pydantic_ai import MemrelayCapability


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer as a language model would."""
    return ModelResponse([TextPart(answer_to(f"{info.instructions}\n{messages[-1]}"))])


async def main() -> None:
    """Tell a fact in one run, and ask for it in another one."""
    async with AsyncMemory(agent="pydantic-ai-example") as memory:
        agent = Agent(
            FunctionModel(model), capabilities=[MemrelayCapability(memory, user="ana", deadline=30)]
        )
        for message in (SAID, ASKED):
            result = await agent.run(message)
            print(f"{message} -> {result.output}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
