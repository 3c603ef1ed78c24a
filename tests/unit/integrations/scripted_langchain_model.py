"""A scripted chat model of LangChain."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedModel(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> ScriptedModel:
        self.script.tools = [tool.name for tool in tools]
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        step = self.script.next(f"{one.type}: {one.content}" for one in messages)
        calls = [] if isinstance(step, str) else [{"name": step[0], "args": step[1], "id": "1"}]
        text = step if isinstance(step, str) else ""
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, tool_calls=calls))])
