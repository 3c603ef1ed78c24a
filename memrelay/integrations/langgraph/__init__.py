"""Memory for LangGraph: a store of items over memrelay, and nodes that recall before the model and capture after it.

Example:
    graph.compile(store=MemrelayStore(AsyncMemory(agent="support")))
"""

from __future__ import annotations

from memrelay.integrations.langgraph.nodes import MemoryNodes
from memrelay.integrations.langgraph.store import MemrelayStore

__all__ = ["MemoryNodes", "MemrelayStore"]
