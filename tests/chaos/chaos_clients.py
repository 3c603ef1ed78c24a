"""Gateways that write, forget and read through whichever relayer comes up, and write down what they were told.

Each try is one signed request and one event. What is answered with anything but success or a clear refusal may have
happened: it is tried again under the same idempotency key, or as the very same request, or left alone.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import secrets
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from chaos_history import End, Event, Kind, Place, Seen

from gateway_plugin.calls.calling import HttpAnswer, Transport, signed_headers
from gateway_plugin.calls.trust import RelayerAddress, SealedKeyCache
from gateway_plugin.errors import RelayerUnreachable
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire.sealed_keys import FleetKey
from relayer.wire.sealing import RootKeys

__all__ = ["Client", "Town"]

DIMENSION = 384
# A recall answers at most a hundred memories, and a snapshot must have them all.
_MOST_LIVE = 80
_PAGE = 100
# After so many writes a new namespace is begun, so that beginnings are tried too.
_WRITES_EACH = 260
_TRIES = 6
# The store's time counts for the deadline of a commit; clients are less patient than relayers.
_PATIENCE = 4.0
_IMPATIENCE = 0.25
_GRACE = 1.0
# Answers after which a write has not happened and never will; whatever else is no success leaves it open.
_REFUSALS = {
    Kind.REMEMBER: frozenset({"idempotency_conflict"}),
    Kind.FORGET: frozenset({"not_found", "stale_head"}),
}


@dataclass
class Space:
    """A namespace: who may use it, and what its clients know of it; ``crowd`` memories were seen in it last."""

    identity: Identity
    writes: int = 0
    live: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    position: Place | None = None
    crowd: int = 0

    @property
    def full(self) -> float:
        """How much of what a snapshot can hold is there, as far as is known."""
        return max(len(self.live), self.crowd) / _MOST_LIVE

    @property
    def done(self) -> bool:
        """Whether it has had its writes, or is full of what nobody knows well enough to forget."""
        return self.writes >= _WRITES_EACH or (self.full >= 1 and len(self.live) < _MOST_LIVE // 2)

    @property
    def name(self) -> str:
        return self.identity.namespace


@dataclass
class Request:
    """One request, as it can be sent again."""

    method: str
    target: str
    body: bytes = b""
    relayer: int = 0
    patience: float = _PATIENCE
    headers: Mapping[str, str] = field(default_factory=dict)


class Town:
    """What all clients share: the relayers, the namespaces and the history."""

    def __init__(self, urls: Sequence[str], fleet_key: FleetKey, seed: int) -> None:
        self.endpoints = [RelayerAddress.parse(url) for url in urls]
        self.history: list[Event] = []
        self.spaces: list[Space] = []
        self.rng = random.Random(seed)
        self._root = RootHolder(RootKeys(secrets.token_bytes(32)))
        self._fleet_key = fleet_key
        self._sealed = SealedKeyCache()
        self._numbers = itertools.count()
        self.transports = [Transport(endpoint) for endpoint in self.endpoints]

    async def close(self) -> None:
        for transport in self.transports:
            await transport.aclose()

    def number(self) -> int:
        return next(self._numbers)

    def space(self) -> Space:
        """Return the namespace that is written to now."""
        if not self.spaces or self.spaces[-1].done:
            key = parse_session_key(f"agent:harbour-{len(self.spaces)}:main")
            self.spaces.append(Space(identify(self._root, key, default_agent=None)))
        return self.spaces[-1]

    def any_space(self) -> Space:
        """Return a namespace to read: mostly the one that is written to, sometimes an older one."""
        return self.spaces[-1] if self.rng.random() < 0.8 else self.rng.choice(self.spaces)

    def sign(self, space: Space, request: Request) -> Request:
        now = int(time.time())
        headers = signed_headers(
            space.identity,
            self.endpoints[request.relayer],
            method=request.method,
            target=request.target,
            body=request.body,
            memory_key=self._sealed.header(space.identity, self._fleet_key, now),
            now=now,
        )
        return replace(request, headers=headers)

    async def send(self, request: Request) -> HttpAnswer | None:
        """Return what was answered, or None when that will never be known."""
        transport = self.transports[request.relayer]
        deadline = {"x-deadline-ms": str(int(request.patience * 1000))}
        try:
            async with asyncio.timeout(request.patience + _GRACE):
                return await transport.send(
                    request.method,
                    request.target,
                    body=request.body,
                    headers={**request.headers, **deadline},
                    patience=request.patience + _GRACE,
                )
        except (RelayerUnreachable, TimeoutError):
            return None


class Client:
    """One gateway's stream of requests."""

    def __init__(self, town: Town, number: int, seed: int) -> None:
        self._town = town
        self._number = number
        self._rng = random.Random(f"{seed}/{number}")

    async def run(self, stop: asyncio.Event, pause: float) -> None:
        """Go on until told to stop; what is under way then is brought to its end."""
        while not stop.is_set():
            await self._step(self._town.space())
            await asyncio.sleep(self._rng.uniform(0, 2 * pause))

    async def _step(self, space: Space) -> None:
        choice = self._rng.random()
        if choice < 0.1 and space.keys:
            await self._conflict(space)
        elif space.live and choice < (0.45 if space.full > 0.75 else 0.17):
            await self._forget(space)
        elif choice < 0.55 and space.full < 1:
            await self._remember(space)
        elif choice < 0.62:
            await self.list(self._town.any_space(), self._any_relayer())
        else:
            await self._recall(self._town.any_space())

    def _any_relayer(self) -> int:
        return self._rng.randrange(len(self._town.endpoints))

    def _patience(self) -> float:
        return _IMPATIENCE if self._rng.random() < 0.1 else _PATIENCE

    async def _remember(self, space: Space) -> None:
        number = self._town.number()
        items = self._rng.choice((1, 1, 1, 2, 5))
        texts = tuple(f"Berth {number} at quay {item} of {space.name} is taken." for item in range(items))
        # Without a key, only the very same request is the same write.
        key = f"key-{number}" if self._rng.random() < 0.8 else ""
        space.writes += 1
        for event in await self._write(space, number, key, texts):
            if event.end is End.OK:
                space.live += zip(event.texts, event.ids, strict=True)
                space.keys += [key] if key else []

    async def _conflict(self, space: Space) -> None:
        """Use a key again for something else: refused, and nowhere to be seen."""
        number = self._town.number()
        text = f"Berth {number} of {space.name} is somebody else's."
        key = self._rng.choice(space.keys)
        await self._try(space, Kind.REMEMBER, number, self._remembering((text,), key), (text,), key=key)

    async def _write(self, space: Space, number: int, key: str, texts: tuple[str, ...]) -> list[Event]:
        """Try until answered, or until patience ends; returns what ended well, at most one."""
        request = self._remembering(texts, key)
        for _ in range(self._rng.choice((1, _TRIES, _TRIES, _TRIES))):
            event = await self._try(space, Kind.REMEMBER, number, request, texts, key=key)
            if event.end is not End.UNKNOWN:
                return [event] if event.end is End.OK else []
            request = replace(request, patience=self._patience())
            if key and self._rng.random() < 0.7:
                request = replace(request, relayer=self._any_relayer(), headers={})
            elif not key and self._rng.random() < 0.2:
                return []
            await asyncio.sleep(self._rng.uniform(0, 1))
        return []

    def _remembering(self, texts: Sequence[str], key: str) -> Request:
        body: dict[str, Any] = {"items": [{"text": text, "vector": self._vector()} for text in texts]}
        if key:
            body["idempotency_key"] = key
        return Request(
            "POST", "/v1/memories", json.dumps(body).encode(), self._any_relayer(), self._patience()
        )

    def _vector(self) -> str:
        # Given, not computed: as many commits as possible shall be under way when something breaks.
        numbers = [self._rng.gauss(0, 1) for _ in range(DIMENSION)]
        return base64.b64encode(struct.pack(f"<{DIMENSION}f", *numbers)).decode()

    async def _forget(self, space: Space) -> None:
        text, memory = space.live.pop(self._rng.randrange(len(space.live)))
        number = self._town.number()
        request = Request(
            "DELETE", f"/v1/memories/{memory}?mode=forget", b"", self._any_relayer(), self._patience()
        )
        for _ in range(_TRIES):
            event = await self._try(space, Kind.FORGET, number, request, (text,))
            if event.end is not End.UNKNOWN or self._rng.random() < 0.1:
                return
            request = replace(request, relayer=self._any_relayer(), headers={}, patience=self._patience())

    async def _recall(self, space: Space) -> None:
        consistency = self._rng.choice(("strong", "strong", "mine", "any"))
        at_least = space.position if self._rng.random() < 0.8 or consistency == "mine" else None
        await self.recall(space, self._any_relayer(), consistency, at_least)

    async def recall(
        self,
        space: Space,
        relayer: int,
        consistency: str,
        at_least: Place | None,
        *,
        patience: float | None = None,
        final: bool = False,
    ) -> Event:
        """Read everything that is live, with its position."""
        body: dict[str, Any] = {
            "vector": self._vector(),
            "limit": _PAGE,
            "floor": 0,
            "consistency": consistency,
        }
        if at_least is not None and at_least.seq > 0:
            body["min_position"] = {"seq": at_least.seq, "digest": at_least.digest}
        request = Request(
            "POST", "/v1/recall", json.dumps(body).encode(), relayer, patience or self._patience()
        )
        return await self._try(
            space,
            Kind.RECALL,
            self._town.number(),
            request,
            consistency=consistency,
            at_least=at_least,
            final=final,
        )

    async def list(
        self, space: Space, relayer: int, *, patience: float | None = None, final: bool = False
    ) -> Event:
        """List a namespace; at the end with all that was forgotten, over as many pages as it takes."""
        number, seen, cursor, begun = self._town.number(), (), "", 0.0
        while True:
            query = {"limit": str(_PAGE), "states": "live,forgotten" if final else "live"}
            target = "/v1/memories?" + urlencode(query | ({"cursor": cursor} if cursor else {}), safe=",")
            request = Request("GET", target, b"", relayer, patience or self._patience())
            event, answer = await self._attempt(space, Kind.LIST, number, request, final=final)
            begun = begun or event.begun
            event = replace(event, begun=begun, seen=(*seen, *event.seen))
            if event.end is End.OK and final and answer.get("next_cursor"):
                seen, cursor = event.seen, answer["next_cursor"]
                continue
            if final:
                event = replace(event, partial=False)
            self._town.history.append(event)
            return event

    async def _try(
        self,
        space: Space,
        kind: Kind,
        number: int,
        request: Request,
        texts: tuple[str, ...] = (),
        **known: Any,
    ) -> Event:
        event, _ = await self._attempt(space, kind, number, request, texts=texts, **known)
        self._town.history.append(event)
        return event

    async def _attempt(
        self, space: Space, kind: Kind, number: int, request: Request, **known: Any
    ) -> tuple[Event, dict[str, Any]]:
        """Send one request; what was signed before is sent as it was."""
        if not request.headers:
            signed = self._town.sign(space, request)
            request.headers = signed.headers
        begun = time.monotonic()
        answer = await self._town.send(request)
        ended = time.monotonic()
        event = Event(
            space.name, kind, number, self._number, request.relayer, begun, ended, End.UNKNOWN, **known
        )
        if answer is None:
            return event, {}
        body: dict[str, Any] = json.loads(answer.body)
        if answer.status >= 300:
            refused = body["code"] in _REFUSALS.get(kind, ())
            return replace(event, end=End.FAIL if refused else End.UNKNOWN, code=body["code"]), body
        event = _told(replace(event, end=End.OK), body)
        if event.position is not None:
            space.position = max(
                space.position or event.position, event.position, key=lambda place: place.seq
            )
        if kind is Kind.RECALL:
            space.crowd = len(event.seen)
        if event.partial and not event.final:
            space.writes = _WRITES_EACH  # no snapshot fits an answer any more: go on elsewhere
        return event, body


def _told(event: Event, body: Mapping[str, Any]) -> Event:
    """Take from an answer what the checker asks about."""
    memories = body.get("memories", ())
    if event.kind in {Kind.RECALL, Kind.LIST}:
        event = replace(
            event,
            seen=tuple(Seen(memory["text"], memory["id"], memory["state"]) for memory in memories),
            partial=len(memories) < body.get("considered", body.get("total", 0)),
        )
    if event.kind is Kind.REMEMBER:
        # Nothing speaks against these texts.
        odd = [memory["status"] for memory in memories if memory["status"] != "stored"]
        event = replace(event, ids=tuple(memory["id"] for memory in memories), code=odd[0] if odd else "")
    if event.kind is Kind.LIST:
        return event
    position = body.get("position") or {"seq": 0, "digest": ""}
    return replace(event, position=Place(position["seq"], position["digest"]))
