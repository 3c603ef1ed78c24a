"""One turn of a LangGraph graph: recall, a model with tools, capture."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from scripted import Script
from scripted_langchain_model import ScriptedModel

from memrelay import AsyncMemory
from memrelay.integrations.langgraph import MemoryNodes


class State(MessagesState):
    memories: str


async def turn(memory: AsyncMemory, user: str, message: str, script: Script) -> str:
    nodes = MemoryNodes(memory, deadline=script.deadline)
    tools = nodes.tools(user)
    model = ScriptedModel(script=script).bind_tools(tools)

    async def answer(state: State) -> dict[str, Any]:
        return {
            "messages": await model.ainvoke([SystemMessage(f"Help. {state['memories']}"), *state["messages"]])
        }

    graph = StateGraph(State)
    graph.add_node("recall", nodes.recall)
    graph.add_node("answer", answer)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("capture", nodes.capture)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "answer")
    graph.add_conditional_edges(
        "answer", lambda state: "tools" if state["messages"][-1].tool_calls else "capture"
    )
    graph.add_edge("tools", "answer")
    graph.add_edge("capture", END)
    config: Any = {"configurable": {"user_id": user, "thread_id": "chat-1"}}
    result = await graph.compile().ainvoke({"messages": [("user", message)]}, config)
    await nodes.turns.flush()
    return str(result["messages"][-1].text)
