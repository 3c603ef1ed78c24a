"""An agent with long-term memory; run it with ``python -m memrelay.integrations.strands.example``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.strands import MemrelayStore


class StandIn(Model):
    """A stand-in for a model of a provider."""

    def update_config(self, **model_config: Any) -> None:
        """Ignore the configuration."""

    def get_config(self) -> dict[str, Any]:
        """Return no configuration."""
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the example has no structured output."""
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Answer as a language model would."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": answer_to(messages)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


async def main() -> None:
    """Tell a fact in one conversation, and ask for it in another one."""
    async with AsyncMemory(agent="strands-example") as memory:
        for message in (SAID, ASKED):
            store = MemrelayStore(memory, user="ana", deadline=30)
            manager = MemoryManager([store], add_tool_config=True)
            agent = Agent(model=StandIn(), memory_manager=manager, callback_handler=None)
            result = await agent.invoke_async(message)
            # The manager captures in the background.
            await manager.flush()
            print(f"{message} -> {str(result).strip()}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
