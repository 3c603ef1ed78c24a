"""One turn of a CrewAI crew with the callbacks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from scripted import Script

from memrelay import AsyncMemory
from memrelay.integrations.crewai import MemrelayCallbacks


class ScriptedModel(BaseLLM):
    script: Any = None

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        shown = messages if isinstance(messages, str) else json.dumps(messages, ensure_ascii=False)
        step = self.script.next((shown,))
        if isinstance(step, str):
            return f"Thought: I now know the final answer\nFinal Answer: {step}"
        return f"Thought: I need a tool\nAction: {step[0]}\nAction Input: {json.dumps(step[1])}"

    def supports_function_calling(self) -> bool:
        return False


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    callbacks = MemrelayCallbacks(memory, user=user, deadline=script.deadline)
    tools = callbacks.tools()
    script.tools = [tool.name for tool in tools]
    agent = Agent(
        role="support",
        goal="Help.",
        backstory="Knows the user.",
        llm=ScriptedModel(model="scripted", script=script),
        tools=tools,
    )
    task = Task(description="{memories}\n\n{question}", expected_output="An answer", agent=agent)
    crew = Crew(
        agents=[agent],
        tasks=[task],
        before_kickoff_callbacks=[callbacks.recall],
        after_kickoff_callbacks=[callbacks.capture],
    )
    return str(await asyncio.to_thread(crew.kickoff, {"question": message}))
