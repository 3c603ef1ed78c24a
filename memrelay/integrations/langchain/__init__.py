"""Memory for LangChain: a retriever, tools, and a middleware that recalls before the model and captures after it.

Example:
    agent = create_agent(model, middleware=[MemrelayMiddleware(AsyncMemory(agent="support"), user="ana")])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memrelay.integrations.langchain.retriever import MemrelayRetriever, memory_tools

if TYPE_CHECKING:
    from memrelay.integrations.langchain.middleware import MemrelayMiddleware

__all__ = ["MemrelayMiddleware", "MemrelayRetriever", "memory_tools"]


def __getattr__(name: str) -> Any:
    # The middleware needs the package langchain, the rest langchain-core alone.
    if name != "MemrelayMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("memrelay.integrations.langchain.middleware").MemrelayMiddleware
