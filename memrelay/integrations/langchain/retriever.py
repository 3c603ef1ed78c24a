"""A LangChain retriever over memories, and tools with which a model searches, stores and forgets them."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ConfigDict, Field

from memrelay import AsyncMemory
from memrelay.integrations.turns import TurnMemory, blocking, run_blocking


class MemrelayRetriever(BaseRetriever):
    """Retrieve memories of a user as documents, best first.

    If the relayer does not respond within the deadline, no documents are returned. A document's metadata has ``id``, ``score``, ``tags``
    and the fields of the memory's metadata.

    Example:
        MemrelayRetriever(memory=AsyncMemory(agent="support"), user="ana", k=3).invoke("What must I not cook?")

    Attributes:
        memory: the memories to use; `AsyncMemory` at its default settings if it is not given.
        user: the user; None for the agent's own memories.
        k: the maximum number of documents.
        where: a filter, see `AsyncMemory.search`.
        deadline: the maximum time in seconds.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: AsyncMemory = Field(default_factory=AsyncMemory)
    user: str | None = None
    k: int = 5
    where: dict[str, Any] | None = None
    deadline: float = 2.0

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
    ) -> list[Document]:
        turns = TurnMemory(self.memory, deadline=self.deadline)
        work = self.memory.search(query, limit=k or self.k, where=self.where, user=self.user)
        return [
            Document(
                id=hit.id,
                page_content=hit.text,
                metadata={**hit.metadata, "id": hit.id, "score": hit.score, "tags": list(hit.tags)},
            )
            for hit in await turns.attempt(work, ())
        ]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return run_blocking(self._aget_relevant_documents(query, k=k))


def memory_tools(
    memory: AsyncMemory | None = None, *, user: str | None = None, deadline: float = 2.0
) -> list[BaseTool]:
    """Return tools to search, remember and forget memories of a user; they can be invoked and awaited.

    Args:
        memory: the memories to use; None opens `AsyncMemory` at its default settings.
        user: the user; None for the agent's own memories.
        deadline: the maximum time in seconds that a call takes.
    """
    tools = TurnMemory(memory, deadline=deadline).tools(user)
    return [StructuredTool.from_function(func=blocking(tool), coroutine=tool) for tool in tools]


__all__ = ["MemrelayRetriever", "memory_tools"]
