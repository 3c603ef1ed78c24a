"""One turn of a runner of Google's ADK with the memory service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.google_adk import MemrelayMemoryService, capture_turn


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    script: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.script.tools = list(llm_request.tools_dict)
        step = self.script.next((str(llm_request.config.system_instruction), str(llm_request.contents)))
        part = (
            types.Part(text=step)
            if isinstance(step, str)
            else types.Part(function_call=types.FunctionCall(name=step[0], args=step[1]))
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    service = MemrelayMemoryService(memory, deadline=script.deadline)
    agent = LlmAgent(
        name="support",
        model=ScriptedModel(script=script),
        tools=[PreloadMemoryTool(), *service.tools()],
        after_agent_callback=capture_turn,
    )
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="shop", user_id=user)
    runner = Runner(app_name="shop", agent=agent, session_service=sessions, memory_service=service)
    said = types.Content(role="user", parts=[types.Part(text=message)])
    texts = [
        event.content.parts[0].text
        async for event in runner.run_async(user_id=user, session_id=session.id, new_message=said)
        if event.content and event.content.parts
    ]
    await service.turns.flush()
    return str(texts[-1])


def user_of(user: str) -> str:
    return MemrelayMemoryService.user_of("shop", user)
