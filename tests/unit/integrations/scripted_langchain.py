"""One turn of a LangChain agent of ``create_agent`` with the middleware."""

from __future__ import annotations

from langchain.agents import create_agent
from scripted import Script
from scripted_langchain_model import ScriptedModel

from memrelay import AsyncMemory
from memrelay.integrations.langchain import MemrelayMiddleware


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    middleware = MemrelayMiddleware(memory, user=user, deadline=script.deadline)
    agent = create_agent(ScriptedModel(script=script), middleware=[middleware], system_prompt="Help.")
    result = await agent.ainvoke({"messages": [("user", message)]})
    await middleware.turns.flush()
    return str(result["messages"][-1].text)
