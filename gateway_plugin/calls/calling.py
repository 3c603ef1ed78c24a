"""How a call is made: one deadline, every attempt signed anew, and nothing left running when it ends.

A deadline covers the whole call: fetching keys, connecting, every retry and every pause between them. When it passes,
the request is aborted, not abandoned. A call is tried again when nothing answered, when the relayer is busy, once when
the clocks disagree and once when the relayer does not know the fleet key. Whatever is answered counts only if it is
proven to be the relayer's answer to this request, see `relayer.wire.proofs`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from gateway_plugin.calls.breaker import Breaker
from gateway_plugin.calls.endpoint import Endpoint
from gateway_plugin.calls.refusals import Refusal, unproven
from gateway_plugin.calls.transport import MAX_ANSWER_BYTES, Answer, Transport, signed_headers
from gateway_plugin.calls.trust import FleetKeys, TrustStore
from gateway_plugin.clock import Clock, SystemClock
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
)
from gateway_plugin.identity import Identity
from gateway_plugin.keys.sealed_key_cache import SealedKeyCache
from relayer.wire import schemas, signing
from relayer.wire.errors import NotAccepted
from relayer.wire.fleet_list import FleetList
from relayer.wire.proofs import PROOF_HEADER, Verifier
from relayer.wire.sealed_bodies import SEALED_TYPE, seal_body

__all__ = ["DEFAULT_DEADLINE", "Call", "Caller"]

DEFAULT_DEADLINE: Final = 30.0
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
class Call:
    """A request before it is signed. ``identity`` is None for public routes; ``keyed`` ones carry a sealed key.

    ``margin`` is the share of the time left, 0..1, by which the relayer is told to be ready sooner than the call ends.
    """

    name: str
    method: str
    target: str
    identity: Identity | None = None
    keyed: bool = True
    body: bytes = b""
    attempts: int = 4
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class _Signed:
    """A call as it is sent once. ``verifier`` checks the answer; None for public routes."""

    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    verifier: Verifier | None = field(repr=False)


class _Deadline:
    """The end of a call, and what it is doing now."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self.step = "connect"

    @property
    def remaining(self) -> float:
        return self._end - self._clock.monotonic()


class Caller:
    """Makes calls to one relayer for any number of agents.

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

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _write(self, call: Call, identity: Identity, shape: type[_AnswerT], seconds: float) -> _AnswerT:
        try:
            return await self._run(call, shape, seconds)
        finally:
            for watcher in self._watchers:
                watcher(identity.namespace)

    async def _run(self, call: Call, shape: type[_AnswerT], seconds: float) -> _AnswerT:
        self.breaker.check()
        limit = _Deadline(self._clock, seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._attempts(call, limit)
        except TimeoutError as error:
            self.breaker.failed()
            raise DeadlineExceeded(limit.step) from error
        except (RelayerUnreachable, RelayerUntrusted, DeadlineExceeded) as error:
            self.breaker.failed(error)
            raise
        except RelayerRefused as error:
            # A busy relayer is spared like one that is down; one that says no is well.
            busy = error.status >= 500 and error.code not in _ABOUT_ONE
            (self.breaker.failed if busy else self.breaker.succeeded)()
            raise
        self.breaker.succeeded()
        return self._parsed(answer, shape)

    async def _attempts(self, call: Call, limit: _Deadline) -> Answer:
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

    async def _lines(self, call: Call, seconds: float) -> AsyncGenerator[bytes, None]:
        """Make a call whose answer is read line by line, each proven; one attempt, for ``seconds`` in all."""
        self.breaker.check()
        limit = _Deadline(self._clock, seconds)
        try:
            async with asyncio.timeout(seconds):
                signed = await self._signed(call, limit)
                assert signed.verifier is not None  # no public route is read in lines
                sent = self._transport.stream(
                    call.method, call.target, body=signed.body, headers=signed.headers, patience=seconds + 1
                )
                async with sent as (answer, chunks):
                    if answer.status >= 300:
                        raise Refusal.parse(self._proven(answer, signed)).error()
                    proven = signed.verifier.lines(chunks, most=MAX_ANSWER_BYTES)
                    try:
                        async with aclosing(proven) as lines:
                            async for line in lines:
                                yield line
                    except NotAccepted as error:
                        raise self._unproven(answer) from error
        except TimeoutError as error:
            raise DeadlineExceeded(limit.step) from error
        except RelayerUntrusted as error:
            self.breaker.failed(error)
            raise

    async def _once(self, call: Call, limit: _Deadline) -> Answer:
        signed = await self._signed(call, limit)
        remaining = max(limit.remaining, 0.001)
        # The transport's own bound comes after the call's: it is the call that decides.
        answer = await self._transport.send(
            call.method, call.target, body=signed.body, headers=signed.headers, patience=remaining + 1
        )
        return self._proven(answer, signed)

    def _proven(self, answer: Answer, signed: _Signed) -> Answer:
        """Return an answer that is the relayer's, or that of a public route, whose word counts only where it is good.

        Raises:
            RelayerUntrusted, RelayerUnreachable: see `unproven`.
        """
        try:
            if signed.verifier is not None:
                signed.verifier.check(answer.headers.get(PROOF_HEADER, ""), answer.status, answer.body)
            elif answer.status >= 300:
                raise self._unproven(answer)
        except NotAccepted as error:
            raise self._unproven(answer) from error
        return answer

    def _unproven(self, answer: Answer) -> GatewayError:
        error = unproven(answer, self.endpoint.origin)
        if isinstance(error, RelayerUntrusted):
            # If it is another relayer, its list of keys shows that; if a person trusted that one since, its answers count.
            self._fleet.drop()
        return error

    async def _signed(self, call: Call, limit: _Deadline) -> _Signed:
        """Sign a call, with the keys that it needs."""
        signed = _Signed({}, call.body, None)
        if call.identity is not None:
            limit.step = "keys"
            signed = await (self._keyed if call.keyed else self._unkeyed)(call, call.identity)
        limit.step = call.name
        remaining = max(limit.remaining, 0.001)
        signed.headers["x-deadline-ms"] = str(max(int(remaining * (1 - call.margin) * 1000), 1))
        return signed

    async def _keyed(self, call: Call, identity: Identity) -> _Signed:
        """Sign a call about a namespace. What says that it comes from this machine may be anybody there: it is not sent text."""
        now = self._now()
        fleet_key, relayer = await self._fleet.current(now), await self._fleet.identity(now)
        keys, nonce = self._sealed.keys(identity, fleet_key, now), secrets.token_bytes(signing.NONCE_SIZE)
        body, typed = call.body, {}
        if body and self.endpoint.scheme == "http":
            body, typed = seal_body(keys.secret, nonce, body), {"content-type": SEALED_TYPE}
        headers = signed_headers(
            identity,
            self.endpoint,
            method=call.method,
            target=call.target,
            body=body,
            memory_key=keys.header,
            now=self._now(),
            nonce=nonce,
            route=keys.route,
        )
        verifier = Verifier(headers[signing.SIGNATURE_HEADER], relayer, keys.answer_key)
        return _Signed({**headers, **typed}, body, verifier)

    async def _unkeyed(self, call: Call, identity: Identity) -> _Signed:
        """Sign a call about the account, which says nothing of what is in its memories."""
        relayer = await self._fleet.identity(self._now())
        headers = signed_headers(
            identity,
            self.endpoint,
            method=call.method,
            target=call.target,
            body=call.body,
            memory_key="",
            now=self._now(),
        )
        return _Signed(headers, call.body, Verifier(headers[signing.SIGNATURE_HEADER], relayer))

    async def _fetch_keys(self) -> schemas.KeysResponse:
        answer = await self._transport.send("GET", "/v1/keys", headers={}, patience=DEFAULT_DEADLINE)
        if answer.status >= 300:
            raise self._unproven(answer)
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
