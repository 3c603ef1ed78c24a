"""The relayer's API for code that is not asynchronous: each call of `RelayerClient`, waited for."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from gateway_plugin.calls.calling import DEFAULT_DEADLINE
from gateway_plugin.client import RelayerClient
from gateway_plugin.identity import Identity
from gateway_plugin.plugin import LoopThread
from relayer.wire import memories as answers
from relayer.wire import memories as life
from relayer.wire import schemas
from relayer.wire import service as transfer
from relayer.wire.memories import ChangesResponse, ContextResponse
from relayer.wire.sealed_keys import FleetList

__all__ = ["SyncRelayerClient"]


class SyncRelayerClient:
    """Takes the arguments of `RelayerClient`, whose methods these are: same deadlines, same errors."""

    def __init__(self, url: str, **options: Any) -> None:
        self._client = RelayerClient(url, **options)
        self._loop = LoopThread("memrelay-client")

    def recall(
        self, identity: Identity, request: schemas.RecallRequest, *, deadline: float = 2.0
    ) -> schemas.RecallResponse:
        """Search."""
        return self._loop.call(self._client.recall(identity, request, deadline=deadline))

    def remember(
        self, identity: Identity, request: schemas.RememberRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.RememberResponse:
        """Store items."""
        return self._loop.call(self._client.remember(identity, request, deadline=deadline))

    def analyze(
        self, identity: Identity, request: schemas.AnalyzeRequest, *, deadline: float = 55.0
    ) -> schemas.AnalyzeResponse:
        """Send a turn."""
        return self._loop.call(self._client.analyze(identity, request, deadline=deadline))

    def list_memories(self, identity: Identity, **filters: Any) -> schemas.ListResponse:
        """List memories; filters as in `RelayerClient.list_memories`."""
        return self._loop.call(self._client.list_memories(identity, **filters))

    def get_memory(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.MemoryResponse:
        """Fetch one memory."""
        return self._loop.call(self._client.get_memory(identity, memory_id, deadline=deadline))

    def forget(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Hide a memory from recall."""
        return self._loop.call(self._client.forget(identity, memory_id, deadline=deadline))

    def active_recall(
        self, identity: Identity, request: answers.ActiveRecallRequest, *, deadline: float = 15.0
    ) -> answers.ActiveRecallResponse:
        """Have a model say what to be reminded of."""
        return self._loop.call(self._client.active_recall(identity, request, deadline=deadline))

    def ask(
        self, identity: Identity, request: answers.AskRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> answers.AskResponse:
        """Have a question answered from memories alone."""
        return self._loop.call(self._client.ask(identity, request, deadline=deadline))

    def supersede(
        self, identity: Identity, memory_id: str, request: life.SupersedeRequest
    ) -> life.SupersedeResponse:
        """Store a new version of a memory."""
        return self._loop.call(self._client.supersede(identity, memory_id, request))

    def restore(self, identity: Identity, memory_id: str) -> life.RestoreResponse:
        """Bring back a forgotten memory or an old version."""
        return self._loop.call(self._client.restore(identity, memory_id))

    def delete(self, identity: Identity, request: life.DeleteRequest) -> life.DeleteResponse:
        """Forget what passes a filter, a thousand at most."""
        return self._loop.call(self._client.delete(identity, request))

    def context(self, identity: Identity, **wanted: Any) -> ContextResponse:
        """Fetch the newest memories of the newest days; ``wanted`` as in `RelayerClient.context`."""
        return self._loop.call(self._client.context(identity, **wanted))

    def changes(self, identity: Identity, **wanted: Any) -> ChangesResponse:
        """Fetch what became of memories after a cursor; ``wanted`` as in `RelayerClient.changes`."""
        return self._loop.call(self._client.changes(identity, **wanted))

    def import_memories(self, identity: Identity, request: transfer.ImportRequest) -> transfer.ImportResponse:
        """Store a page of memories from elsewhere."""
        return self._loop.call(self._client.import_memories(identity, request))

    def namespaces(self, identity: Identity, **page: Any) -> schemas.NamespacesResponse:
        """List namespaces; page as in `RelayerClient.namespaces`."""
        return self._loop.call(self._client.namespaces(identity, **page))

    def job(self, identity: Identity, job_id: str, *, wait_ms: int = 0) -> schemas.JobResponse:
        """Ask for a job's state."""
        return self._loop.call(self._client.job(identity, job_id, wait_ms=wait_ms))

    def version(self, *, deadline: float = DEFAULT_DEADLINE) -> schemas.VersionResponse:
        """Ask what runs there."""
        return self._loop.call(self._client.version(deadline=deadline))

    def trust(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Pin the identity of whoever answers now."""
        return self._loop.call(self._client.trust(deadline=deadline))

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.call(self._client.aclose())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
