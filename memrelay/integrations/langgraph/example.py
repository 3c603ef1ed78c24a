"""A graph that recalls and captures, and a store of its nodes; run it with ``python -m memrelay.integrations.langgraph.example``."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph

from memrelay import AsyncMemory
from memrelay.integrations.demonstration import ASKED, SAID, answer_to
from memrelay.integrations.langgraph import MemoryNodes, MemrelayStore


class State(MessagesState):
    """The messages of a conversation, and the block of memories for the prompt."""

    memories: str


def answer(state: State) -> dict[str, Any]:
    """Answer as a language model would."""
    text = answer_to(f"{state['memories']}\n{state['messages'][-1].text}")
    return {"messages": [AIMessage(text)]}


async def main() -> None:
    """Tell a fact in one conversation, and ask for it in another one."""
    async with AsyncMemory(agent="langgraph-example") as memory:
        nodes = MemoryNodes(memory, deadline=30)
        graph = StateGraph(State)
        graph.add_node("recall", nodes.recall)
        graph.add_node("answer", answer)
        graph.add_node("capture", nodes.capture)
        for begin, end in ((START, "recall"), ("recall", "answer"), ("answer", "capture"), ("capture", END)):
            graph.add_edge(begin, end)
        app = graph.compile(store=MemrelayStore(memory))
        for chat, message in (("chat-1", SAID), ("chat-2", ASKED)):
            config: RunnableConfig = {"configurable": {"user_id": "ana", "thread_id": chat}}
            begin_state = State(messages=[HumanMessage(message)], memories="")
            result = await app.ainvoke(begin_state, config)
            print(f"{message} -> {result['messages'][-1].text}")  # noqa: T201 - the output of the example


if __name__ == "__main__":
    asyncio.run(main())
