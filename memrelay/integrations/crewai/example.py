"""A crew with long-term memory; run it with ``python -m memrelay.integrations.crewai.example``."""

from __future__ import annotations

from typing import Any

from crewai import Agent, BaseLLM, Crew, Task

from memrelay import AsyncMemory
from memrelay.integrations.crewai import MemrelayCallbacks
from memrelay.integrations.demonstration import ASKED, SAID, answer_to


class StandIn(BaseLLM):
    """A stand-in for a model of a provider."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        """Answer as a language model would."""
        return f"Thought: I now know the final answer\nFinal Answer: {answer_to(messages)}"

    def supports_function_calling(self) -> bool:
        """Return False: tools are described in the prompt."""
        return False


def main() -> None:
    """Run a crew twice and print its output: the first run tells a fact, the second one asks for it."""
    memory = MemrelayCallbacks(AsyncMemory(agent="crewai-example"), user="ana", deadline=30)
    agent = Agent(
        role="support",
        goal="Help",
        backstory="Knows the user",
        llm=StandIn(model="stand-in"),
        tools=memory.tools(),
    )
    task = Task(description="{memories} {question}", expected_output="An answer", agent=agent)
    crew = Crew(
        agents=[agent],
        tasks=[task],
        before_kickoff_callbacks=[memory.recall],
        after_kickoff_callbacks=[memory.capture],
    )
    for message in (SAID, ASKED):
        print(f"{message} -> {crew.kickoff({'question': message})}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    main()
