"""LangChain's own standard tests of retrievers and tools, and the middleware in a synchronous run."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="make test-integrations installs LangChain")

from langchain.agents import create_agent
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from scripted import Script
from scripted_langchain_model import ScriptedModel

from memrelay import AsyncMemory, StoredMemory
from memrelay.integrations.langchain import MemrelayMiddleware, MemrelayRetriever, memory_tools
from memrelay.integrations.turns import run_blocking

pytestmark = pytest.mark.filterwarnings("default")


class WithMemories:
    """Three memories about lamps."""

    memory: AsyncMemory

    @pytest.fixture(autouse=True)
    def _memories(self, unopened: AsyncMemory) -> None:
        type(self).memory = unopened
        texts = [
            f"The {kind} lamp costs {price} euro."
            for kind, price in (("desk", 40), ("floor", 90), ("wall", 30))
        ]
        run_blocking(unopened.add_many(texts, metadata={"price": 40}, user="ana"))


class TestRetriever(WithMemories, RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return MemrelayRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory, "user": "ana"}

    @property
    def retriever_query_example(self) -> str:
        return "What does the lamp cost?"

    def test_a_document_has_its_score_and_metadata(self, retriever: BaseRetriever) -> None:
        best = retriever.invoke("desk lamp")[0]
        assert best.page_content == "The desk lamp costs 40 euro."
        assert best.metadata["price"] == 40
        assert 0 < best.metadata["score"] <= 1
        assert best.id == best.metadata["id"]


class TestSearchTool(WithMemories, ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return memory_tools(self.memory, user="ana")[0]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "desk lamp"}


class TestRememberTool(WithMemories, ToolsIntegrationTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return memory_tools(self.memory, user="ana")[1]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"text": "The ceiling lamp costs 70 euro."}


async def test_a_retriever_finds_nothing_while_the_relayer_is_away(away: AsyncMemory) -> None:
    assert await MemrelayRetriever(memory=away, deadline=0.3).ainvoke("lamp") == []


def test_a_synchronous_agent_recalls_and_captures(unopened: AsyncMemory) -> None:
    for message in ("My bike is a red Brompton from 2019.", "Which bike do I have?"):
        script = Script("Fine.")
        middleware = MemrelayMiddleware(unopened, user=lambda context: context["user"], deadline=10)
        agent = create_agent(ScriptedModel(script=script), middleware=[middleware], context_schema=dict)
        agent.invoke({"messages": [("user", message)]}, context={"user": "ana"})
    assert "red Brompton" in script.shown[0]


def test_messages_of_the_user_in_a_row_are_one_turn(unopened: AsyncMemory) -> None:
    for messages in (
        ("My bike is a red Brompton from 2019.", "Our staging database is called heron."),
        ("Which bike do I have?", "Please be brief."),
    ):
        script = Script("Fine.")
        middleware = MemrelayMiddleware(unopened, user="ana", deadline=10)
        agent = create_agent(ScriptedModel(script=script), middleware=[middleware])
        agent.invoke({"messages": [("user", message) for message in messages]})
    assert "red Brompton" in script.shown[0]
    assert {"My bike is a red Brompton from 2019.", "Our staging database is called heron."} <= {
        one.text for one in run_blocking(listed(unopened))
    }


async def listed(memory: AsyncMemory) -> list[StoredMemory]:
    return [one async for one in memory.list(user="ana")]
