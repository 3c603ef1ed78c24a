"""An agent with long-term memory; run it with ``python -m memrelay.integrations.openai_agents.example``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.openai_agents import MemrelayHooks, MemrelaySession


class StandIn(Model):
    """A stand-in for a model of OpenAI."""

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        """Answer as a language model would."""
        text = answer_to(f"{request['system_instructions']}\n{request['input'][-1]}")
        content = ResponseOutputText(text=text, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="1", content=[content], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **request: Any) -> AsyncIterator[Any]:
        """Refuse: the example does not stream."""
        raise NotImplementedError


async def main() -> None:
    """Tell a fact in one conversation, and ask for it in another one."""
    async with AsyncMemory(agent="openai-agents-example") as memory:
        hooks = MemrelayHooks(memory, user="ana", deadline=30)
        agent = Agent[Any]("support", model=StandIn(), tools=hooks.tools())
        config = hooks.run_config(tracing_disabled=True)
        for chat, message in (("chat-1", SAID), ("chat-2", ASKED)):
            session = MemrelaySession(chat, memory, user="ana", deadline=30)
            result = await Runner.run(agent, message, hooks=hooks, run_config=config, session=session)
            print(f"{message} -> {result.final_output}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
