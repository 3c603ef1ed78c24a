"""The client of the relayer's API: `RelayerClient`, with one typed method for each call, and a cache of responses.

`SyncRelayerClient` is the same for synchronous code: its base, `OnThread`, runs an asynchronous object on an event loop in a
thread of its own.

A method builds a request and runs it under one deadline, with retries; see `gateway_plugin.calls.calling`. Writes that would
not be idempotent otherwise carry an idempotency key, so that a retry never stores anything twice. `RecallCache` keeps
responses to reads for some seconds. The module also exports the classes and functions that are needed to create a client and
to call it: `TrustStore`, `load_keys`, `parse_session_key` and `identify`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import functools
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.calls.calling import (
    DEFAULT_DEADLINE,
    ROTATION_DEADLINE,
    ApiCall,
    RelayerCaller,
    body_of,
    paged,
    segment,
)
from gateway_plugin.calls.clock import Clock
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.errors import GatewayError, RelayerUnreachable
from gateway_plugin.keys.gateway_secret import load_keys
from gateway_plugin.keys.identity import Identity, identify, parse_session_key
from relayer.wire import questions, schemas, service
from relayer.wire.sealed_keys import FleetList
from relayer.wire.signing import RevocationsRequest, RevocationsResponse, RevocationsView

__all__ = [
    "DEFAULT_DEADLINE",
    "Identity",
    "RecallCache",
    "RelayerClient",
    "SyncRelayerClient",
    "TrustStore",
    "identify",
    "load_keys",
    "parse_session_key",
]


_RECALL_DEADLINE: Final = 2.0
_ANALYZE_DEADLINE: Final = 55.0
_ACTIVE_DEADLINE: Final = 15.0
_EXPORT_DEADLINE: Final = 600.0
_PAGE: Final = 100
# Share of the remaining time, 0..1: the relayer gets a slightly shorter one for its model, so that it can still report that
# the model is too slow, instead of being taken for unreachable itself.
_MARGIN: Final = 0.05
# A turn waits for its recall, so there is one retry, after about a tenth of a second, and no more.
_RECALL_ATTEMPTS: Final = 2


_RequestT = TypeVar("_RequestT", bound=BaseModel)


def _keyed(request: _RequestT) -> _RequestT:
    """Return a request with an idempotency key: its own if it has one, else a new one."""
    if getattr(request, "idempotency_key", None) is not None:
        return request
    return request.model_copy(update={"idempotency_key": secrets.token_hex(16)})


def _filters(**values: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, ",".join(wanted)) for name, wanted in values.items() if wanted]


class _ExportedLine(BaseModel):
    """A line of an export. The head of the export has none of these fields."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    memory: schemas.Memory | None = None
    turn: service.KeptTurn | None = None
    end: bool = False


class RelayerClient(RelayerCaller):
    """The client of one relayer, for any number of agents; see `RelayerCaller` for its arguments.

    Every method takes its ``deadline`` in seconds. It raises `RelayerUnreachable`, `RelayerRefused`, `RelayerUntrusted`,
    `DeadlineExceeded` or, if a certificate expired, `IdentityError`. No other error has a cause outside of this process. Close it
    with `aclose`, or use it as an asynchronous context manager.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def recall(
        self, identity: Identity, request: schemas.RecallRequest, *, deadline: float = _RECALL_DEADLINE
    ) -> schemas.RecallResponse:
        """Search a namespace. An empty response is valid: nothing relevant is known."""
        call = ApiCall("recall", "POST", "/v1/recall", identity, body_of(request), attempts=_RECALL_ATTEMPTS)
        return await self._run(call, schemas.RecallResponse, deadline)

    async def active_recall(
        self, identity: Identity, request: schemas.ActiveRecallRequest, *, deadline: float = _ACTIVE_DEADLINE
    ) -> schemas.ActiveRecallResponse:
        """Have a model summarise the memories that are relevant to a turn. Cancelling the call also stops the model."""
        target, body = "/v1/active-recall", body_of(request)
        call = ApiCall("active recall", "POST", target, identity, body, attempts=1, margin=_MARGIN)
        return await self._run(call, schemas.ActiveRecallResponse, deadline)

    async def ask(
        self, identity: Identity, request: schemas.AskRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.AskResponse:
        """Have a question answered from memories only. The response names the memories that the answer is based on."""
        call = ApiCall("ask", "POST", "/v1/ask", identity, body_of(request), attempts=1, margin=_MARGIN)
        return await self._run(call, schemas.AskResponse, deadline)

    async def context(
        self,
        identity: Identity,
        *,
        days: int = 2,
        items: int = 15,
        offset_minutes: int = 0,
        audiences: Sequence[str] = (),
        trusts: Sequence[str] = (),
        deadline: float = _RECALL_DEADLINE,
    ) -> schemas.ContextResponse:
        """Fetch the newest memories of the newest days."""
        bounds = [("days", days), ("items", items), ("offset_minutes", offset_minutes)]
        query = [*bounds, *_filters(audiences=audiences, trusts=trusts)]
        target = f"/v1/context?{urlencode(query, safe=',')}"
        call = ApiCall("context", "GET", target, identity, attempts=_RECALL_ATTEMPTS)
        return await self._run(call, schemas.ContextResponse, deadline)

    async def profile(
        self,
        identity: Identity,
        *,
        max_tokens: int | None = None,
        audiences: Sequence[str] = (),
        trusts: Sequence[str] = (),
        deadline: float = DEFAULT_DEADLINE,
    ) -> service.ProfileResponse:
        """Fetch the profile. For arguments that are not given, the relayer's defaults apply."""
        query = [
            *([("max_tokens", str(max_tokens))] if max_tokens is not None else []),
            *_filters(audiences=audiences, trusts=trusts),
        ]
        target = "/v1/profile" + (f"?{urlencode(query, safe=',', errors='replace')}" if query else "")
        return await self._run(ApiCall("profile", "GET", target, identity), service.ProfileResponse, deadline)

    async def standing(
        self,
        identity: Identity,
        *,
        lines: int = 20,
        audiences: Sequence[str] = (),
        deadline: float = _RECALL_DEADLINE,
    ) -> service.StandingResponse:
        """Fetch the memories that belong in every prompt of a session, at most ``lines``."""
        query = [("lines", lines), *_filters(audiences=audiences)]
        target = f"/v1/standing?{urlencode(query, safe=',')}"
        call = ApiCall("standing", "GET", target, identity, attempts=1)
        return await self._run(call, service.StandingResponse, deadline)

    async def remember(
        self, identity: Identity, request: schemas.RememberRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.RememberResponse:
        """Store items. They are durable and can be recalled when the call returns."""
        request = _keyed(request)
        call = ApiCall("remember", "POST", "/v1/memories", identity, body_of(request), writes=True)
        return await self._run(call, schemas.RememberResponse, deadline)

    async def analyze(
        self, identity: Identity, request: schemas.AnalyzeRequest, *, deadline: float = _ANALYZE_DEADLINE
    ) -> schemas.AnalyzeResponse:
        """Send a turn. The relayer stores what is worth remembering."""
        request = _keyed(request)
        call = ApiCall("analyze", "POST", "/v1/analyze", identity, body_of(request), writes=True)
        return await self._run(call, schemas.AnalyzeResponse, deadline)

    async def model_work(
        self, identity: Identity, request: questions.ModelWorkRequest, *, deadline: float = _ANALYZE_DEADLINE
    ) -> questions.ModelWorkResponse:
        """Send the output of the host's model, if there is any, and fetch the next question for it."""
        writes = request.answer is not None
        target, body = "/v1/model-work", body_of(request)
        # A retry of fetching would not get the same question, because it counts as handed out already.
        call = ApiCall(
            "model work", "POST", target, identity, body, attempts=3 if writes else 1, writes=writes
        )
        return await self._run(call, questions.ModelWorkResponse, deadline)

    async def transcript(
        self, identity: Identity, request: service.TranscriptRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.TranscriptResponse:
        """Fetch the dialogue of a session, as far as its turns were stored word for word."""
        call = ApiCall("transcript", "POST", "/v1/transcript", identity, body_of(request))
        return await self._run(call, service.TranscriptResponse, deadline)

    async def list_memories(
        self,
        identity: Identity,
        *,
        limit: int = 50,
        cursor: str | None = None,
        kinds: Sequence[str] = (),
        states: Sequence[str] = (),
        audiences: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.ListResponse:
        """List memories, newest first; ``cursor`` is the ``next_cursor`` of the previous page, ``where`` a filter."""
        if where is not None or audiences:
            request = schemas.ListRequest(
                limit=limit,
                cursor=cursor,
                kinds=tuple(kinds),
                states=tuple(states),
                audiences=tuple(audiences),
                where=where,
            )
            call = ApiCall("list", "POST", "/v1/memories/list", identity, body_of(request))
            return await self._run(call, schemas.ListResponse, deadline)
        target = paged("/v1/memories", limit, cursor, _filters(kinds=kinds, states=states))
        return await self._run(ApiCall("list", "GET", target, identity), schemas.ListResponse, deadline)

    async def all_memories(
        self,
        identity: Identity,
        *,
        states: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        deadline: float = DEFAULT_DEADLINE,
    ) -> AsyncGenerator[schemas.Memory, None]:
        """Iterate over the memories, newest first; ``deadline`` is that of each page, which is requested when it is needed."""
        cursor = None
        while True:
            page = await self.list_memories(
                identity, limit=_PAGE, cursor=cursor, states=states, where=where, deadline=deadline
            )
            for memory in page.memories:
                yield memory
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get_memory(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.MemoryResponse:
        """Fetch one memory with its history."""
        target = f"/v1/memories/{segment(memory_id)}"
        return await self._run(ApiCall("get", "GET", target, identity), schemas.MemoryResponse, deadline)

    async def forget(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Hide a memory from recall. The call is idempotent."""
        target = f"/v1/memories/{segment(memory_id)}?mode=forget"
        call = ApiCall("forget", "DELETE", target, identity, writes=True)
        return await self._run(call, schemas.ForgetResponse, deadline)

    async def changes(
        self,
        identity: Identity,
        *,
        after: str = "0",
        limit: int = 100,
        wait_ms: int = 0,
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.ChangesResponse:
        """Fetch the changes of memories after a cursor, waiting up to ``wait_ms`` for the first one."""
        query = urlencode([("after", after), ("limit", limit), ("wait_ms", wait_ms)], errors="replace")
        call = ApiCall("changes", "GET", f"/v1/changes?{query}", identity)
        return await self._run(call, schemas.ChangesResponse, deadline)

    async def export(
        self, identity: Identity, request: service.ExportRequest, *, deadline: float = _EXPORT_DEADLINE
    ) -> AsyncGenerator[schemas.Memory | service.KeptTurn, None]:
        """Yield the memories that pass a filter, oldest first, then the stored turns if they are requested, as they arrive.

        Raises `RelayerUnreachable` also if the export ends early; then the elements before are incomplete.
        """
        # A stream is not retried. An ordinary call before it sets the clock offset and fetches the keys.
        await self.list_memories(identity, limit=1)
        call = ApiCall("export", "POST", "/v1/export", identity, body_of(request))
        ended = False
        async with aclosing(self._lines(call, deadline)) as lines:
            async for line in lines:
                try:
                    read = _ExportedLine.model_validate_json(line)
                except ValidationError as error:
                    raise RelayerUnreachable(
                        f"{self.endpoint.origin} sent no export; check the URL"
                    ) from error
                ended = read.end
                said = read.memory or read.turn
                if said is not None:
                    yield said
        if not ended:
            raise RelayerUnreachable("the export was cut short: what arrived is not everything")

    async def import_memories(
        self, identity: Identity, request: service.ImportRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.ImportResponse:
        """Store a page of memories from another system. What is stored already is not stored twice."""
        request = _keyed(request)
        call = ApiCall("import", "POST", "/v1/import", identity, body_of(request), writes=True)
        return await self._run(call, service.ImportResponse, deadline)

    async def supersede(
        self,
        identity: Identity,
        memory_id: str,
        request: schemas.SupersedeRequest,
        *,
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.SupersedeResponse:
        """Store a new version of a memory. Fields that the request does not set keep their values."""
        request = _keyed(request)
        target = f"/v1/memories/{segment(memory_id)}/supersede"
        call = ApiCall("supersede", "POST", target, identity, body_of(request), writes=True)
        return await self._run(call, schemas.SupersedeResponse, deadline)

    async def restore(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.RestoreResponse:
        """Restore a forgotten memory or an old version. The call is idempotent."""
        call = ApiCall("restore", "POST", f"/v1/memories/{segment(memory_id)}/restore", identity, writes=True)
        return await self._run(call, schemas.RestoreResponse, deadline)

    async def delete(
        self, identity: Identity, request: schemas.DeleteRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.DeleteResponse:
        """Forget the memories that pass a filter, at most 1,000; ``remaining`` is the number left for the next call."""
        call = ApiCall("delete", "POST", "/v1/memories/delete", identity, body_of(request), writes=True)
        return await self._run(call, schemas.DeleteResponse, deadline)

    async def proposals(
        self, identity: Identity, request: service.ConsolidationRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.ConsolidationResponse:
        """Fetch proposals for consolidating a page of memories. The call changes nothing."""
        call = ApiCall("consolidation", "POST", "/v1/consolidation", identity, body_of(request))
        return await self._run(call, service.ConsolidationResponse, deadline)

    async def take_proposals(
        self, identity: Identity, request: service.TakeRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.TakeResponse:
        """Carry out proposals of a consolidation. The call is idempotent."""
        call = ApiCall("take", "POST", "/v1/consolidation/take", identity, body_of(request), writes=True)
        return await self._run(call, service.TakeResponse, deadline)

    async def namespaces(
        self,
        identity: Identity,
        *,
        limit: int = 100,
        cursor: str | None = None,
        deadline: float = DEFAULT_DEADLINE,
    ) -> service.NamespacesResponse:
        """List the namespaces that the identity's certificate covers."""
        target = paged("/v1/namespaces", limit, cursor, [])
        call = ApiCall("namespaces", "GET", target, identity, keyed=False)
        return await self._run(call, service.NamespacesResponse, deadline)

    async def job(
        self, identity: Identity, job_id: str, *, wait_ms: int = 0, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.JobResponse:
        """Fetch the state of a job, waiting up to ``wait_ms`` for its end."""
        target = f"/v1/jobs/{segment(job_id)}?wait_ms={wait_ms}"
        return await self._run(ApiCall("job", "GET", target, identity), schemas.JobResponse, deadline)

    async def erase(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Delete a memory and everything derived from it permanently. The identity must be a person's: `RootHolder.person`."""
        target = f"/v1/memories/{segment(memory_id)}?mode=erase"
        call = ApiCall("erase", "DELETE", target, identity, writes=True)
        return await self._run(call, schemas.ForgetResponse, deadline)

    async def erase_namespace(
        self, identity: Identity, *, confirm: str | None = None, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.EraseNamespaceResponse:
        """Count the content of a namespace, or delete it permanently if ``confirm`` is given.

        The value for ``confirm`` is in the response to the call without it.
        """
        request = schemas.EraseNamespaceRequest(dry_run=confirm is None, confirm=confirm)
        call = ApiCall("erase", "POST", "/v1/namespaces/erase", identity, body_of(request), writes=True)
        return await self._run(call, schemas.EraseNamespaceResponse, deadline)

    async def rotate_keys(
        self, identity: Identity, generation: int, *, deadline: float = ROTATION_DEADLINE
    ) -> schemas.RotateKeysResponse:
        """Have a namespace sealed again under the secret of a later generation. The identity must be a person's.

        Calling it again with the same generation continues, or returns that it is done.
        """
        request = schemas.RotateKeysRequest(memory_key=await self._sealed_for(identity, generation))
        call = ApiCall("rotate", "POST", "/v1/namespaces/rotate", identity, body_of(request), writes=True)
        return await self._run(call, schemas.RotateKeysResponse, deadline)

    async def erasure(
        self, identity: Identity, erasure_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ErasureView:
        """Fetch the progress of an erasure."""
        call = ApiCall("erasure", "GET", f"/v1/erasures/{segment(erasure_id)}", identity, keyed=False)
        return await self._run(call, schemas.ErasureView, deadline)

    async def revocations(self, identity: Identity, *, deadline: float = DEFAULT_DEADLINE) -> RevocationsView:
        """Fetch the account's list of revocations. The identity must be a person's, see `RootHolder.person`."""
        call = ApiCall("revocations", "GET", "/v1/account/revocations", identity, keyed=False)
        return await self._run(call, RevocationsView, deadline)

    async def revoke(
        self, identity: Identity, request: RevocationsRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> RevocationsResponse:
        """Replace the account's list of revocations by a newer one. The identity must be a person's."""
        call = ApiCall("revoke", "PUT", "/v1/account/revocations", identity, body_of(request), keyed=False)
        return await self._run(call, RevocationsResponse, deadline)

    async def version(self, *, deadline: float = DEFAULT_DEADLINE) -> service.VersionResponse:
        """Fetch the version of the relayer. The call needs no identity and sends no key."""
        return await self._run(ApiCall("version", "GET", "/version"), service.VersionResponse, deadline)

    async def fleet(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Fetch the fleet keys and check the relayer's identity."""
        return await self._bounded(self._fleet.fetch, deadline)

    async def trust(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Pin the identity of the relayer that responds now. Call it only if a person asked for it."""
        return await self._bounded(self._fleet.accept_identity, deadline)


LIFE_SECONDS: Final = 15.0
MAX_ENTRIES: Final = 1000

_Q = TypeVar("_Q", bound=Hashable)
_A = TypeVar("_A")


class RecallCache(Generic[_Q, _A]):
    """A cache of responses by namespace and request, for ``life`` seconds, at most 1,000 of them (AM-21).

    Attributes:
        writes: the number of writes that `drop` was told of. A caller reads it before a request and passes it to `put`.
    """

    def __init__(self, clock: Clock, *, life: float = LIFE_SECONDS) -> None:
        self.writes = 0
        self._answers: TTLCache[tuple[str, _Q], _A] = TTLCache(MAX_ENTRIES, life, timer=clock.monotonic)

    def get(self, namespace: str, request: _Q) -> _A | None:
        """Return the cached response, or None if there is none or it has expired."""
        return self._answers.get((namespace, request))

    def put(self, namespace: str, request: _Q, answer: _A, *, since: int) -> None:
        """Cache a response, unless something was written since the request: then it may be outdated."""
        if since == self.writes:
            self._answers[namespace, request] = answer

    def drop(self, namespace: str) -> None:
        """Remove the responses of a namespace, because something was written to it or may have been."""
        self.writes += 1
        for key in [key for key in self._answers if key[0] == namespace]:
            with suppress(KeyError):  # it may expire meanwhile
                del self._answers[key]


_END: Final = object()

_R = TypeVar("_R")


class LoopClosed(GatewayError, RuntimeError):
    """Raised when the event loop is closed, was closed during the call, or belongs to the process before a fork."""

    def __init__(self) -> None:
        super().__init__("this object is closed, or was created before a fork: create a new one")


class LoopThread:
    """An event loop that runs in a thread of its own until `close`.

    The thread is a daemon, so a missing call of `close` does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        # Held while a coroutine is submitted, so that none is submitted to a loop that has stopped.
        self._gate = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine on the loop, wait for it and return its result.

        If waiting is interrupted, for example by Ctrl-C, the coroutine is cancelled.

        Raises:
            LoopClosed: the loop is closed, or was closed before the coroutine finished.
        """
        future = None
        # Check the process before taking the lock: after a fork, the copied lock may be held forever.
        if os.getpid() == self._process:
            with self._gate:
                if self._open:
                    future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if future is None:
            work.close()
            raise LoopClosed
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise LoopClosed from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait for its thread. Running calls raise `LoopClosed`. A second call does nothing."""
        if os.getpid() != self._process:
            return
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # A thread that waits for a task that still runs would otherwise wait forever.
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # asyncio closes a socket only in the iteration after its `close`.
            for _ in range(3):
                self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()


class _Closing(Protocol):
    async def aclose(self) -> None: ...


_T = TypeVar("_T", bound=_Closing)
_P = ParamSpec("_P")


class OnThread(Generic[_T]):
    """Base of synchronous wrappers: an asynchronous object whose methods run on a `LoopThread`.

    Subclasses define their methods with `waited` and `on_loop`.
    """

    def __init__(self, inner: _T, loop: str | LoopThread) -> None:
        self._inner = inner
        self._loop = LoopThread(loop) if isinstance(loop, str) else loop
        _ALIVE[self] = (inner, self._loop)

    def close(self) -> None:
        """Close the asynchronous object, then stop the loop and its thread."""
        self._loop.call(self._inner.aclose())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


_ALIVE: Final[WeakKeyDictionary[OnThread[Any], tuple[object, LoopThread]]] = WeakKeyDictionary()


def _keep_what_the_parent_uses() -> None:
    """Prevent a child process from ever finalizing the loops and connections of its parent.

    The child shares their sockets and the loop's epoll object with the parent. Closing them, which a finalizer would do when the
    child ends, would stop the parent's loop from receiving any events.
    """
    for inner, loop in list(_ALIVE.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((inner, loop.event_loop)))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_what_the_parent_uses)


def waited(
    method: Callable[Concatenate[_T, _P], Coroutine[Any, Any, _R]],
    *,
    closed: Callable[[_T, LoopClosed], _R] | None = None,
) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a synchronous version of an asynchronous method, with the same arguments, errors and docstring.

    If the object is closed, ``closed`` returns the result; without it, `LoopClosed` is raised.
    """

    @functools.wraps(method)
    def call(self: OnThread[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return self._loop.call(method(self._inner, *args, **kwargs))
        except LoopClosed as error:
            if closed is None:
                raise
            return closed(self._inner, error)

    return call


def iterated(
    method: Callable[Concatenate[_T, _P], AsyncGenerator[_R, None]],
) -> Callable[Concatenate[OnThread[_T], _P], Generator[_R, None, None]]:
    """Return a synchronous version of an asynchronous generator method; each element is computed when it is requested."""

    @functools.wraps(method)
    def call(self: OnThread[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_R, None, None]:
        elements = method(self._inner, *args, **kwargs)

        async def following() -> Any:
            return await anext(elements, _END)

        try:
            while (element := self._loop.call(following())) is not _END:
                yield element
        finally:
            with suppress(LoopClosed):
                self._loop.call(elements.aclose())

    return call


def on_loop(method: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a version of a synchronous method that runs on the loop's thread, which owns all state."""

    @functools.wraps(method)
    async def run(inner: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(inner, *args, **kwargs)

    return waited(run)


def takes_arguments_of(
    inner: Callable[_P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Return a decorator that declares the arguments of a constructor to be those of another class, also for `inspect`."""

    def declare(init: Callable[..., None]) -> Callable[Concatenate[Any, _P], None]:
        vars(init)["__wrapped__"] = getattr(inner, init.__name__)
        return init

    return declare


class SyncRelayerClient(OnThread[RelayerClient]):
    """A client of one relayer for any number of agents, for synchronous code.

    Its methods are those of `RelayerClient`, with the same arguments, deadlines and errors. Close
    it with `close`, or use it as a context manager.

    Its arguments are those of `RelayerClient`.

    Raises:
        SettingsError: the URL is malformed, has a path, or would send keys unencrypted.
    """

    @takes_arguments_of(RelayerClient)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(RelayerClient(*args, **kwargs), "memrelay-client")

    recall = waited(RelayerClient.recall)
    remember = waited(RelayerClient.remember)
    analyze = waited(RelayerClient.analyze)
    list_memories = waited(RelayerClient.list_memories)
    get_memory = waited(RelayerClient.get_memory)
    forget = waited(RelayerClient.forget)
    active_recall = waited(RelayerClient.active_recall)
    ask = waited(RelayerClient.ask)
    supersede = waited(RelayerClient.supersede)
    restore = waited(RelayerClient.restore)
    delete = waited(RelayerClient.delete)
    context = waited(RelayerClient.context)
    changes = waited(RelayerClient.changes)
    import_memories = waited(RelayerClient.import_memories)
    namespaces = waited(RelayerClient.namespaces)
    job = waited(RelayerClient.job)
    version = waited(RelayerClient.version)
    trust = waited(RelayerClient.trust)
