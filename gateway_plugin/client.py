"""The relayer's API as typed calls, each under one deadline (see `gateway_plugin.calls.calling`), and a cache of answers.

Writes carry an idempotency key where one is needed, so that trying again never stores twice. What a client is made with,
and whose memories it calls for, can be had from here as well: where relayers are pinned, keys, and identities.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import aclosing, suppress
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from cachetools import TTLCache
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.calls.calling import (
    DEFAULT_DEADLINE,
    ApiCall,
    Caller,
    body_of,
    paged,
    segment,
)
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.clock import Clock
from gateway_plugin.errors import RelayerUnreachable
from gateway_plugin.identity import Identity, identify, parse_session_key
from gateway_plugin.keys import load_keys
from relayer.wire import memories, questions, schemas, service
from relayer.wire.sealed_keys import FleetList
from relayer.wire.signing import RevocationsRequest, RevocationsResponse, RevocationsView

__all__ = [
    "DEFAULT_DEADLINE",
    "Identity",
    "RecallCache",
    "RelayerClient",
    "TrustStore",
    "identify",
    "load_keys",
    "parse_session_key",
]


_RECALL_DEADLINE: Final = 2.0
_ANALYZE_DEADLINE: Final = 55.0
_ACTIVE_DEADLINE: Final = 15.0
_EXPORT_DEADLINE: Final = 600.0
# A model that is slow is the model's failure: the relayer says so in time, and is not taken for dead itself.
_MARGIN: Final = 0.05
# A turn waits for a recall: a second try is worth its tenth of a second, a fourth is not.
_RECALL_ATTEMPTS: Final = 2


_RequestT = TypeVar("_RequestT", bound=BaseModel)


def _keyed(request: _RequestT, key: str) -> _RequestT:
    """Return a request with an idempotency key, its own if it has one."""
    if getattr(request, "idempotency_key", None) is not None:
        return request
    return request.model_copy(update={"idempotency_key": key})


def _filters(**values: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, ",".join(wanted)) for name, wanted in values.items() if wanted]


class _ExportedLine(BaseModel):
    """Any line of an export: its head has none of these."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    memory: schemas.Memory | None = None
    turn: service.KeptTurn | None = None
    end: bool = False


class RelayerClient(Caller):
    """Talks to one relayer for any number of agents; made as a `Caller` is.

    Every method raises `RelayerUnreachable`, `RelayerRefused`, `RelayerUntrusted`, `DeadlineExceeded` or, when a
    certificate ran out, `IdentityError`; nothing else for reasons outside this process. ``deadline`` is in seconds.
    """

    async def recall(
        self, identity: Identity, request: schemas.RecallRequest, *, deadline: float = _RECALL_DEADLINE
    ) -> schemas.RecallResponse:
        """Search; an empty answer is a good one."""
        call = ApiCall("recall", "POST", "/v1/recall", identity, body_of(request), attempts=_RECALL_ATTEMPTS)
        return await self._run(call, schemas.RecallResponse, deadline)

    async def active_recall(
        self, identity: Identity, request: memories.ActiveRecallRequest, *, deadline: float = _ACTIVE_DEADLINE
    ) -> memories.ActiveRecallResponse:
        """Have a model say what to be reminded of; whoever cancels the call ends the model's work, too."""
        target, body = "/v1/active-recall", body_of(request)
        call = ApiCall("active recall", "POST", target, identity, body, attempts=1, margin=_MARGIN)
        return await self._run(call, memories.ActiveRecallResponse, deadline)

    async def ask(
        self, identity: Identity, request: memories.AskRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> memories.AskResponse:
        """Have a question answered from memories alone, with the memories that the answer rests on."""
        call = ApiCall("ask", "POST", "/v1/ask", identity, body_of(request), attempts=1, margin=_MARGIN)
        return await self._run(call, memories.AskResponse, deadline)

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
    ) -> memories.ContextResponse:
        """Fetch the newest memories of the newest days."""
        bounds = [("days", days), ("items", items), ("offset_minutes", offset_minutes)]
        query = [*bounds, *_filters(audiences=audiences, trusts=trusts)]
        target = f"/v1/context?{urlencode(query, safe=',')}"
        call = ApiCall("context", "GET", target, identity, attempts=_RECALL_ATTEMPTS)
        return await self._run(call, memories.ContextResponse, deadline)

    async def profile(
        self,
        identity: Identity,
        *,
        max_tokens: int | None = None,
        audiences: Sequence[str] = (),
        trusts: Sequence[str] = (),
        deadline: float = DEFAULT_DEADLINE,
    ) -> service.ProfileResponse:
        """Fetch the profile; what is not given is the relayer's default."""
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
        """Fetch what should stand in every prompt of a session."""
        query = [("lines", lines), *_filters(audiences=audiences)]
        target = f"/v1/standing?{urlencode(query, safe=',')}"
        call = ApiCall("standing", "GET", target, identity, attempts=1)
        return await self._run(call, service.StandingResponse, deadline)

    async def remember(
        self, identity: Identity, request: schemas.RememberRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.RememberResponse:
        """Store items; durable and recallable when it returns."""
        request = _keyed(request, secrets.token_hex(16))
        call = ApiCall("remember", "POST", "/v1/memories", identity, body_of(request), writes=True)
        return await self._run(call, schemas.RememberResponse, deadline)

    async def analyze(
        self, identity: Identity, request: schemas.AnalyzeRequest, *, deadline: float = _ANALYZE_DEADLINE
    ) -> schemas.AnalyzeResponse:
        """Send a turn, of which the relayer keeps what is worth keeping."""
        request = _keyed(request, secrets.token_hex(16))
        call = ApiCall("analyze", "POST", "/v1/analyze", identity, body_of(request), writes=True)
        return await self._run(call, schemas.AnalyzeResponse, deadline)

    async def model_work(
        self, identity: Identity, request: questions.ModelWorkRequest, *, deadline: float = _ANALYZE_DEADLINE
    ) -> questions.ModelWorkResponse:
        """Give what the host's model answered, if it did, and fetch the next question for it."""
        writes = request.answer is not None
        target, body = "/v1/model-work", body_of(request)
        # A second try to fetch a question would find it handed out already.
        call = ApiCall(
            "model work", "POST", target, identity, body, attempts=3 if writes else 1, writes=writes
        )
        return await self._run(call, questions.ModelWorkResponse, deadline)

    async def transcript(
        self, identity: Identity, request: service.TranscriptRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.TranscriptResponse:
        """Fetch the dialogue of a session, of the turns that were kept word for word."""
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
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.ListResponse:
        """List memories, newest first; ``cursor`` is the ``next_cursor`` of the page before."""
        target = paged("/v1/memories", limit, cursor, _filters(kinds=kinds, states=states))
        return await self._run(ApiCall("list", "GET", target, identity), schemas.ListResponse, deadline)

    async def get_memory(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.MemoryResponse:
        """Fetch one memory with its history."""
        target = f"/v1/memories/{segment(memory_id)}"
        return await self._run(ApiCall("get", "GET", target, identity), schemas.MemoryResponse, deadline)

    async def forget(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Hide a memory from recall; doing it twice is doing it once."""
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
    ) -> memories.ChangesResponse:
        """Fetch what became of memories after a cursor, waiting up to ``wait_ms`` for the first change."""
        query = urlencode([("after", after), ("limit", limit), ("wait_ms", wait_ms)], errors="replace")
        call = ApiCall("changes", "GET", f"/v1/changes?{query}", identity)
        return await self._run(call, memories.ChangesResponse, deadline)

    async def export(
        self, identity: Identity, request: service.ExportRequest, *, deadline: float = _EXPORT_DEADLINE
    ) -> AsyncGenerator[schemas.Memory | service.KeptTurn, None]:
        """Yield the memories that pass a filter, oldest first, then the kept turns if they are asked for, as they arrive.

        Raises `RelayerUnreachable` also for an export that was cut short: what came before is not all.
        """
        # An ordinary call settles clock and keys, which a stream has no second attempt for.
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
        """Store a page of memories from elsewhere; the same page again stores nothing twice."""
        request = _keyed(request, f"import-{hashlib.sha256(body_of(request)).hexdigest()}")
        call = ApiCall("import", "POST", "/v1/import", identity, body_of(request), writes=True)
        return await self._run(call, service.ImportResponse, deadline)

    async def supersede(
        self,
        identity: Identity,
        memory_id: str,
        request: memories.SupersedeRequest,
        *,
        deadline: float = DEFAULT_DEADLINE,
    ) -> memories.SupersedeResponse:
        """Store a new version of a memory; what the request leaves out stays as it was."""
        request = _keyed(request, secrets.token_hex(16))
        target = f"/v1/memories/{segment(memory_id)}/supersede"
        call = ApiCall("supersede", "POST", target, identity, body_of(request), writes=True)
        return await self._run(call, memories.SupersedeResponse, deadline)

    async def restore(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> memories.RestoreResponse:
        """Bring back a forgotten memory or an old version; doing it twice is doing it once."""
        call = ApiCall("restore", "POST", f"/v1/memories/{segment(memory_id)}/restore", identity, writes=True)
        return await self._run(call, memories.RestoreResponse, deadline)

    async def delete(
        self, identity: Identity, request: memories.DeleteRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> memories.DeleteResponse:
        """Forget what passes a filter, a thousand at most; ``remaining`` says how many are left for the next call."""
        call = ApiCall("delete", "POST", "/v1/memories/delete", identity, body_of(request), writes=True)
        return await self._run(call, memories.DeleteResponse, deadline)

    async def proposals(
        self,
        identity: Identity,
        request: service.ConsolidationRequest,
        *,
        deadline: float = DEFAULT_DEADLINE,
    ) -> service.ConsolidationResponse:
        """Ask what could be tidied up among a page of memories; changes nothing."""
        call = ApiCall("consolidation", "POST", "/v1/consolidation", identity, body_of(request))
        return await self._run(call, service.ConsolidationResponse, deadline)

    async def take_proposals(
        self, identity: Identity, request: service.TakeRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> service.TakeResponse:
        """Carry out proposals of a consolidation; doing it twice is doing it once."""
        call = ApiCall("take", "POST", "/v1/consolidation/take", identity, body_of(request), writes=True)
        return await self._run(call, service.TakeResponse, deadline)

    async def namespaces(
        self,
        identity: Identity,
        *,
        limit: int = 100,
        cursor: str | None = None,
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.NamespacesResponse:
        """List the namespaces that the identity's certificate covers."""
        target = paged("/v1/namespaces", limit, cursor, [])
        call = ApiCall("namespaces", "GET", target, identity, keyed=False)
        return await self._run(call, schemas.NamespacesResponse, deadline)

    async def job(
        self, identity: Identity, job_id: str, *, wait_ms: int = 0, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.JobResponse:
        """Ask for a job's state, waiting up to ``wait_ms`` for its end."""
        target = f"/v1/jobs/{segment(job_id)}?wait_ms={wait_ms}"
        return await self._run(ApiCall("job", "GET", target, identity), schemas.JobResponse, deadline)

    async def erase(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Destroy a memory and what was made of it; the identity must be a person's, see `RootHolder.person`."""
        target = f"/v1/memories/{segment(memory_id)}?mode=erase"
        call = ApiCall("erase", "DELETE", target, identity, writes=True)
        return await self._run(call, schemas.ForgetResponse, deadline)

    async def erase_namespace(
        self, identity: Identity, *, confirm: str | None = None, deadline: float = DEFAULT_DEADLINE
    ) -> memories.EraseNamespaceResponse:
        """Say what is in a namespace, or destroy it: ``confirm`` is the answer's to the call without it."""
        request = memories.EraseNamespaceRequest(dry_run=confirm is None, confirm=confirm)
        call = ApiCall("erase", "POST", "/v1/namespaces/erase", identity, body_of(request), writes=True)
        return await self._run(call, memories.EraseNamespaceResponse, deadline)

    async def erasure(
        self, identity: Identity, erasure_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> memories.ErasureView:
        """Ask how far an erasure is."""
        call = ApiCall("erasure", "GET", f"/v1/erasures/{segment(erasure_id)}", identity, keyed=False)
        return await self._run(call, memories.ErasureView, deadline)

    async def revocations(self, identity: Identity, *, deadline: float = DEFAULT_DEADLINE) -> RevocationsView:
        """Fetch the account's list of revocations; the identity must be a person's, see `RootHolder.person`."""
        call = ApiCall("revocations", "GET", "/v1/account/revocations", identity, keyed=False)
        return await self._run(call, RevocationsView, deadline)

    async def revoke(
        self, identity: Identity, request: RevocationsRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> RevocationsResponse:
        """Put a newer list of revocations in place; the identity must be a person's."""
        call = ApiCall("revoke", "PUT", "/v1/account/revocations", identity, body_of(request), keyed=False)
        return await self._run(call, RevocationsResponse, deadline)

    async def version(self, *, deadline: float = DEFAULT_DEADLINE) -> schemas.VersionResponse:
        """Ask what runs there; needs no identity and sends no key."""
        return await self._run(ApiCall("version", "GET", "/version"), schemas.VersionResponse, deadline)

    async def fleet(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Fetch the fleet keys and check the relayer's identity."""
        return await self._bounded("keys", self._fleet.fetch, deadline)

    async def trust(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Pin the identity of whoever answers now: only on a person's word."""
        return await self._bounded("keys", self._fleet.accept_identity, deadline)


LIFE_SECONDS: Final = 15.0
MAX_ENTRIES: Final = 1000

_Q = TypeVar("_Q", bound=Hashable)
_A = TypeVar("_A")


class RecallCache(Generic[_Q, _A]):
    """Answers by account-wide namespace and request, for ``life`` seconds, 1,000 of them at most (AM-21).

    ``writes`` counts the writes heard of. Who asks notes it first and gives it to `put`.
    """

    def __init__(self, clock: Clock, *, life: float = LIFE_SECONDS) -> None:
        self.writes = 0
        self._answers: TTLCache[tuple[str, _Q], _A] = TTLCache(MAX_ENTRIES, life, timer=clock.monotonic)

    def get(self, namespace: str, request: _Q) -> _A | None:
        """Return the answer, if one is fresh."""
        return self._answers.get((namespace, request))

    def put(self, namespace: str, request: _Q, answer: _A, *, since: int) -> None:
        """Keep an answer, unless something was written since it was asked for: then it may be from before."""
        if since == self.writes:
            self._answers[namespace, request] = answer

    def drop(self, namespace: str) -> None:
        """Forget a namespace's answers: something was, or may have been, written."""
        self.writes += 1
        for key in [key for key in self._answers if key[0] == namespace]:
            with suppress(KeyError):  # it may end by itself meanwhile
                del self._answers[key]
