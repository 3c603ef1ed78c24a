"""The relayer's API as typed calls, each under one deadline.

A deadline covers the whole call: fetching keys, connecting, every retry and every pause between them. When it passes,
the request is aborted, not abandoned. A call is tried again when nothing answered, when the relayer is busy, once when
the clocks disagree and once when the relayer does not know the fleet key; every attempt is signed anew. Writes carry an
idempotency key, so that trying again never stores twice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel, ValidationError

from gateway_plugin.breaker import Breaker
from gateway_plugin.clock import Clock, SystemClock
from gateway_plugin.endpoint import Endpoint
from gateway_plugin.errors import DeadlineExceeded, GatewayError, RelayerRefused, RelayerUnreachable
from gateway_plugin.identity import Identity
from gateway_plugin.refusals import Refusal
from gateway_plugin.sealed_key_cache import SealedKeyCache
from gateway_plugin.transport import Answer, Transport, signed_headers
from gateway_plugin.trust import FleetKeys, TrustStore
from relayer.wire import schemas
from relayer.wire.fleet_list import FleetList

__all__ = ["DEFAULT_DEADLINE", "RelayerClient"]

DEFAULT_DEADLINE: Final = 30.0
_RECALL_DEADLINE: Final = 2.0
_ANALYZE_DEADLINE: Final = 55.0
# A turn waits for a recall: a second try is worth its tenth of a second, a fourth is not.
_RECALL_ATTEMPTS: Final = 2
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
# Beyond this, the clock is wrong in a way that a person should know about.
_MAX_SKEW_SECONDS: Final = 24 * 3600

# The relayer answered, and would answer others: sparing it would cost them their memory, and it nothing.
_ABOUT_ONE: Final = frozenset({"internal_error", "corrupt_namespace", "upgrade_required", "queue_full"})

_AnswerT = TypeVar("_AnswerT", bound=BaseModel)
_FleetWork = Callable[[int], Awaitable[FleetList]]
_jitter = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class _Call:
    """A request before it is signed. ``identity`` is None for public routes; ``keyed`` ones carry a sealed key."""

    name: str
    method: str
    target: str
    identity: Identity | None = None
    keyed: bool = True
    body: bytes = b""
    attempts: int = 4


class _Deadline:
    """The end of a call, and what it is doing now."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self.step = "connect"

    @property
    def remaining(self) -> float:
        return self._end - self._clock.monotonic()


class RelayerClient:
    """Talks to one relayer for any number of agents.

    Every method raises `RelayerUnreachable`, `RelayerRefused`, `RelayerUntrusted`, `DeadlineExceeded` or, when a
    certificate ran out, `IdentityError`; nothing else for reasons outside this process. ``deadline`` is in seconds.

    Args:
        url: the relayer; no path, see `Endpoint`.
        trust: where identities of relayers are pinned.
        relayer_identity: the identity that the relayer must have, from configuration; pins nothing.
        clock: the time.
        http: an HTTP client to use instead of an own one; the caller closes it.
    """

    def __init__(
        self,
        url: str,
        *,
        trust: TrustStore,
        relayer_identity: bytes | None = None,
        clock: Clock | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.endpoint = Endpoint.parse(url)
        self.clock_offset = 0
        self._clock = clock or SystemClock()
        self.breaker = Breaker(self._clock)
        self._transport = Transport(self.endpoint, http)
        self._fleet = FleetKeys(self.endpoint.origin, trust, self._fetch_keys, identity=relayer_identity)
        self._sealed = SealedKeyCache()
        self._watchers: list[Callable[[str], None]] = []

    def watch_writes(self, watcher: Callable[[str], None]) -> None:
        """Have a watcher told the namespace of every write that ended, well or not: a lost answer may be to one done."""
        self._watchers.append(watcher)

    async def recall(
        self, identity: Identity, request: schemas.RecallRequest, *, deadline: float = _RECALL_DEADLINE
    ) -> schemas.RecallResponse:
        """Search; an empty answer is a good one."""
        call = _Call("recall", "POST", "/v1/recall", identity, body=_json(request), attempts=_RECALL_ATTEMPTS)
        return await self._run(call, schemas.RecallResponse, deadline)

    async def remember(
        self, identity: Identity, request: schemas.RememberRequest, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.RememberResponse:
        """Store items; durable and recallable when it returns."""
        if request.idempotency_key is None:
            request = request.model_copy(update={"idempotency_key": secrets.token_hex(16)})
        call = _Call("remember", "POST", "/v1/memories", identity, body=_json(request))
        return await self._write(call, identity, schemas.RememberResponse, deadline)

    async def analyze(
        self, identity: Identity, request: schemas.AnalyzeRequest, *, deadline: float = _ANALYZE_DEADLINE
    ) -> schemas.AnalyzeResponse:
        """Send a turn, of which the relayer keeps what is worth keeping."""
        if request.idempotency_key is None:
            request = request.model_copy(update={"idempotency_key": secrets.token_hex(16)})
        call = _Call("analyze", "POST", "/v1/analyze", identity, body=_json(request))
        return await self._write(call, identity, schemas.AnalyzeResponse, deadline)

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
        filters = [
            (name, ",".join(values)) for name, values in (("kinds", kinds), ("states", states)) if values
        ]
        target = _paged("/v1/memories", limit, cursor, filters)
        return await self._run(_Call("list", "GET", target, identity), schemas.ListResponse, deadline)

    async def get_memory(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.MemoryResponse:
        """Fetch one memory with its history."""
        target = f"/v1/memories/{_segment(memory_id)}"
        return await self._run(_Call("get", "GET", target, identity), schemas.MemoryResponse, deadline)

    async def forget(
        self, identity: Identity, memory_id: str, *, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.ForgetResponse:
        """Hide a memory from recall; doing it twice is doing it once."""
        target = f"/v1/memories/{_segment(memory_id)}?mode=forget"
        call = _Call("forget", "DELETE", target, identity)
        return await self._write(call, identity, schemas.ForgetResponse, deadline)

    async def namespaces(
        self,
        identity: Identity,
        *,
        limit: int = 100,
        cursor: str | None = None,
        deadline: float = DEFAULT_DEADLINE,
    ) -> schemas.NamespacesResponse:
        """List the namespaces that the identity's certificate covers."""
        target = _paged("/v1/namespaces", limit, cursor, [])
        call = _Call("namespaces", "GET", target, identity, keyed=False)
        return await self._run(call, schemas.NamespacesResponse, deadline)

    async def job(
        self, identity: Identity, job_id: str, *, wait_ms: int = 0, deadline: float = DEFAULT_DEADLINE
    ) -> schemas.JobResponse:
        """Ask for a job's state, waiting up to ``wait_ms`` for its end."""
        target = f"/v1/jobs/{_segment(job_id)}?wait_ms={wait_ms}"
        return await self._run(_Call("job", "GET", target, identity), schemas.JobResponse, deadline)

    async def version(self, *, deadline: float = DEFAULT_DEADLINE) -> schemas.VersionResponse:
        """Ask what runs there; needs no identity and sends no key."""
        return await self._run(_Call("version", "GET", "/version"), schemas.VersionResponse, deadline)

    async def fleet(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Fetch the fleet keys and check the relayer's identity."""
        return await self._bounded("keys", self._fleet.fetch, deadline)

    async def trust(self, *, deadline: float = DEFAULT_DEADLINE) -> FleetList:
        """Pin the identity of whoever answers now: only on a person's word."""
        return await self._bounded("keys", self._fleet.accept_identity, deadline)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _write(
        self, call: _Call, identity: Identity, shape: type[_AnswerT], seconds: float
    ) -> _AnswerT:
        try:
            return await self._run(call, shape, seconds)
        finally:
            for watcher in self._watchers:
                watcher(identity.namespace)

    async def _run(self, call: _Call, shape: type[_AnswerT], seconds: float) -> _AnswerT:
        self.breaker.check()
        limit = _Deadline(self._clock, seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._attempts(call, limit)
        except TimeoutError as error:
            self.breaker.failed()
            raise DeadlineExceeded(limit.step) from error
        except (RelayerUnreachable, DeadlineExceeded):
            self.breaker.failed()
            raise
        except RelayerRefused as error:
            # A busy relayer is spared like one that is down; one that says no is well.
            busy = error.status >= 500 and error.code not in _ABOUT_ONE
            (self.breaker.failed if busy else self.breaker.succeeded)()
            raise
        self.breaker.succeeded()
        return self._parsed(answer, shape)

    async def _attempts(self, call: _Call, limit: _Deadline) -> Answer:
        corrected = refetched = False
        pause = _FIRST_PAUSE
        attempt = 0
        while True:
            attempt += 1
            wanted = 0.0
            failure: GatewayError
            try:
                answer = await self._once(call, limit)
                if answer.status < 300:
                    return answer
                refusal = Refusal.parse(answer)
                if refusal.code == "clock_skew" and not corrected and self._correct_clock(refusal):
                    corrected = True
                    attempt -= 1
                    continue
                if refusal.code == "unknown_fleet_key" and not refetched:
                    refetched = True
                    attempt -= 1
                    self._fleet.drop()
                    continue
                failure, again, wanted = refusal.error(), refusal.temporary, refusal.retry_after
            except RelayerUnreachable as error:
                failure, again = error, True
            wait = max(wanted, pause * _jitter.uniform(0.5, 1.0))
            if not again or attempt >= call.attempts or wait >= limit.remaining:
                raise failure
            limit.step = "wait for the relayer"
            await self._clock.sleep(wait)
            pause = min(pause * 3, _LONGEST_PAUSE)

    async def _once(self, call: _Call, limit: _Deadline) -> Answer:
        headers: dict[str, str] = {}
        if call.identity is not None:
            memory_key = ""
            if call.keyed:
                limit.step = "keys"
                fleet_key = await self._fleet.current(self._now())
                memory_key = self._sealed.header(call.identity, fleet_key, self._now())
            headers = signed_headers(
                call.identity,
                self.endpoint,
                method=call.method,
                target=call.target,
                body=call.body,
                memory_key=memory_key,
                now=self._now(),
            )
        limit.step = call.name
        remaining = max(limit.remaining, 0.001)
        headers["x-deadline-ms"] = str(max(int(remaining * 1000), 1))
        # The transport's own bound comes after the call's: it is the call that decides.
        return await self._transport.send(
            call.method, call.target, body=call.body, headers=headers, patience=remaining + 1
        )

    async def _fetch_keys(self) -> schemas.KeysResponse:
        answer = await self._transport.send("GET", "/v1/keys", headers={}, patience=DEFAULT_DEADLINE)
        if answer.status >= 300:
            raise Refusal.parse(answer).error()
        return self._parsed(answer, schemas.KeysResponse)

    async def _bounded(self, step: str, work: _FleetWork, seconds: float) -> FleetList:
        try:
            async with asyncio.timeout(seconds):
                return await work(self._now())
        except TimeoutError as error:
            raise DeadlineExceeded(step) from error

    def _parsed(self, answer: Answer, shape: type[_AnswerT]) -> _AnswerT:
        try:
            return shape.model_validate_json(answer.body)
        except ValidationError as error:
            raise RelayerUnreachable(
                f"{self.endpoint.origin} does not answer as a memrelay relayer does; check the URL"
            ) from error

    def _correct_clock(self, refusal: Refusal) -> bool:
        if refusal.server_time is None:
            return False
        offset = refusal.server_time - int(self._clock.now())
        if abs(offset) > _MAX_SKEW_SECONDS:
            return False
        self.clock_offset = offset
        return True

    def _now(self) -> int:
        return int(self._clock.now()) + self.clock_offset


def _json(request: BaseModel) -> bytes:
    # What the caller said, and no more: defaults are the relayer's business.
    return request.model_dump_json(exclude_unset=True).encode()


def _segment(value: str) -> str:
    # Bytes that are no text, as a shell may hand them over, are no id either: the relayer says so.
    return quote(value, safe="", errors="replace")


def _paged(path: str, limit: int, cursor: str | None, filters: list[tuple[str, str]]) -> str:
    query = [("limit", str(limit)), *([("cursor", cursor)] if cursor else []), *filters]
    return f"{path}?{urlencode(query, safe=',', errors='replace')}"
