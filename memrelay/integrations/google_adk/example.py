"""A runner with long-term memory; run it with ``python -m memrelay.integrations.google_adk.example``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.google_adk import MemrelayMemoryService, capture_turn


class StandIn(BaseLlm):
    """A stand-in for a model of Google."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer as a language model would."""
        part = types.Part(text=answer_to(llm_request.contents))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def main() -> None:
    """Tell a fact in one session, and ask for it in another one."""
    async with AsyncMemory(agent="google-adk-example") as memory:
        service = MemrelayMemoryService(memory, deadline=30)
        agent = LlmAgent(
            name="support",
            model=StandIn(model="stand-in"),
            tools=[PreloadMemoryTool(), *service.tools()],
            after_agent_callback=capture_turn,
        )
        sessions = InMemorySessionService()
        runner = Runner(app_name="example", agent=agent, session_service=sessions, memory_service=service)
        for message in (SAID, ASKED):
            session = await sessions.create_session(app_name="example", user_id="ana")
            content = types.Content(role="user", parts=[types.Part(text=message)])
            async for event in runner.run_async(user_id="ana", session_id=session.id, new_message=content):
                if event.content and event.content.parts:
                    print(f"{message} -> {event.content.parts[0].text}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
