"""Memory for the OpenAI Agents SDK: hooks that recall and capture, function tools, and a session with an encrypted history.

Example:
    memory = MemrelayHooks(AsyncMemory(agent="support"), user="ana")
    agent = Agent("support", tools=memory.tools())
    await Runner.run(agent, "What must I not cook?", hooks=memory, run_config=memory.run_config())
"""

from __future__ import annotations

from memrelay.integrations.openai_agents.hooks import MemrelayHooks
from memrelay.integrations.openai_agents.session import MemrelaySession

__all__ = ["MemrelayHooks", "MemrelaySession"]
