"""Which relayer is called: its address, whether it may be told a key, and the sealed keys that it was told.

A relayer signs its list of fleet keys with its identity. The identity is pinned per address, by configuration or at
first use; when another one answers later, nothing more is sent there until a person says
``memrelay-gateway trust URL``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from cachetools import LRUCache
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.errors import IdentityError, RelayerUntrusted, SettingsError, SettingsIssue
from gateway_plugin.identity import Identity
from gateway_plugin.private_files import locked, read_private, replace_private
from relayer.wire import codec as base64url
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.loopback import is_loopback
from relayer.wire.schemas import KeysResponse
from relayer.wire.sealed_keys import MAX_AGE_SECONDS, FleetKey, FleetList, SealedKey
from relayer.wire.sealing import route
from relayer.wire.signing import normal_authority


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A relayer's address.

    Attributes:
        scheme: ``http``, on loopback only, or ``https``.
        authority: host and port in normal form.
        loopback: whether the address never leaves this machine.
    """

    scheme: str
    authority: str
    loopback: bool

    @property
    def origin(self) -> str:
        """Scheme and authority, as a URL without a path."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a URL.

        Raises:
            SettingsError: it is none; it would send keys in the clear; or it has a path. A path is refused because
                the signature covers the target that the relayer sees, which a proxy that strips a prefix changes:
                give the relayer a host name of its own.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong("is no URL") from error
        if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
            raise _wrong("is no URL of a relayer")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong("has a path; a relayer needs a host name, or a port, of its own")
        loopback = is_loopback(host)
        if parts.scheme == "http" and not loopback:
            raise _wrong("would send keys unencrypted; http is for this machine's loopback address only")
        name = f"[{host}]" if ":" in host else host
        authority = normal_authority(name if port is None else f"{name}:{port}", parts.scheme)
        return cls(parts.scheme, authority, loopback)


def _wrong(problem: str) -> SettingsError:
    return SettingsError(
        SettingsIssue("url", problem, "write https://host, or http://127.0.0.1:8787 on this machine")
    )


_T = TypeVar("_T")
_FETCH_EVERY_SECONDS: Final = 3600
# A key that is about to end would cut short what is sealed to it.
_MARGIN_SECONDS: Final = 600
_MAX_KEYS: Final = 16

_RULES: Final = {
    "keys_signature": "its list of keys is not signed by the identity it names",
    "keys_stale": "its list of keys is more than a day old; compare the clocks of both machines",
    "keys_future": "its list of keys is from the future; compare the clocks of both machines",
}


class _Pins(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    version: int = 1
    relayers: dict[str, str] = {}


class TrustStore:
    """The pinned identities, by the relayer's origin, in one private file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pinned(self, origin: str) -> bytes | None:
        """Return the identity pinned for an origin.

        Raises:
            RelayerUntrusted: the file cannot be read, or is damaged.
        """
        text = self._read().relayers.get(origin)
        try:
            return None if text is None else bytes.fromhex(text)
        except ValueError as error:
            raise self._damaged() from error

    def pin_first(self, origin: str, identity: bytes) -> bytes:
        """Pin an identity unless one is pinned; return the one that is pinned afterwards; raises as `pinned`."""
        return self._change(origin, identity, replace=False)

    def replace(self, origin: str, identity: bytes) -> None:
        """Pin an identity in place of any other; raises as `pinned`."""
        self._change(origin, identity, replace=True)

    def _change(self, origin: str, identity: bytes, *, replace: bool) -> bytes:
        try:
            with locked(self._path):
                pins = self._read()
                if replace or origin not in pins.relayers:
                    pins.relayers[origin] = identity.hex()
                    text = json.dumps(pins.model_dump(), indent=2, sort_keys=True)
                    replace_private(self._path, text.encode() + b"\n")
                return bytes.fromhex(pins.relayers[origin])
        except IdentityError as error:
            raise RelayerUntrusted(f"the relayer's identity cannot be kept: {error}") from error
        except ValueError as error:
            raise self._damaged() from error

    def _read(self) -> _Pins:
        try:
            return _Pins.model_validate_json(read_private(self._path))
        except FileNotFoundError:
            return _Pins()
        except IdentityError as error:
            raise RelayerUntrusted(str(error)) from error
        except ValidationError as error:
            raise self._damaged() from error

    def _damaged(self) -> RelayerUntrusted:
        return RelayerUntrusted(f"{self._path} is damaged; remove it, then run `memrelay-gateway trust URL`")


def parse_fleet_list(answer: KeysResponse, now: int) -> FleetList:
    """Turn a relayer's answer into a list whose signature and age were checked.

    Raises:
        RelayerUntrusted: says which check failed.
    """
    try:
        keys = tuple(
            FleetKey(view.day, base64url.decode(view.public_key), view.not_after)
            for view in answer.keys[:_MAX_KEYS]
        )
        found = FleetList(
            base64url.decode(answer.identity), answer.issued_at, keys, base64url.decode(answer.signature)
        )
        found.verify(now)
    except Malformed as error:
        raise RelayerUntrusted("the relayer is not trusted: its list of keys is malformed") from error
    except NotAccepted as error:
        raise RelayerUntrusted(f"the relayer is not trusted: {_RULES.get(error.rule, error.rule)}") from error
    return found


class FleetKeys:
    """The key to seal to, from a list that is fetched at most hourly and of a relayer that is trusted."""

    def __init__(
        self,
        origin: str,
        store: TrustStore,
        fetch: Callable[[], Awaitable[KeysResponse]],
        *,
        identity: bytes | None = None,
    ) -> None:
        self._origin = origin
        self._store = store
        self._fetch = fetch
        self._identity = identity
        self._list: FleetList | None = None
        self._fetched_at = 0
        self._fetching = asyncio.Lock()

    async def current(self, now: int) -> FleetKey:
        """Return the newest usable fleet key.

        Args:
            now: seconds since the epoch.

        Raises:
            RelayerUntrusted: the relayer is not the one that was pinned, or offers no usable key.
            RelayerUnreachable, RelayerRefused: from fetching the list.
        """
        listed = await self._current_list(now)
        usable = [key for key in listed.keys if key.not_after > now + _MARGIN_SECONDS]
        if not usable:
            raise RelayerUntrusted("the relayer is not trusted: every key that it offers has ended")
        return max(usable, key=lambda key: key.not_after)

    async def identity(self, now: int) -> bytes:
        """Return the identity by which the relayer signs answers; raises as `current`."""
        return (await self._current_list(now)).identity

    async def _current_list(self, now: int) -> FleetList:
        async with self._fetching:
            if self._list is None or not self._fresh(now):
                self._list = await self.fetch(now)
                self._fetched_at = now
            return self._list

    async def fetch(self, now: int) -> FleetList:
        """Fetch the list and check who signed it; raises as `current`."""
        found = parse_fleet_list(await self._fetch(), now)
        pinned = self._identity or self._store.pinned(self._origin)
        if pinned is None:
            # Writing takes a lock that another process may hold: it is waited for beside the event loop.
            pinned = await _beside(self._store.pin_first, self._origin, found.identity)
        if found.identity != pinned:
            raise RelayerUntrusted(
                f"{self._origin} has another identity than the one it had before "
                f"({found.identity.hex()[:16]} instead of {pinned.hex()[:16]}); no key is sent to it. "
                f"If its operator changed it, run: memrelay-gateway trust {self._origin}"
            )
        return found

    async def accept_identity(self, now: int) -> FleetList:
        """Pin whoever answers now, because a person said so; raises as `current`."""
        found = parse_fleet_list(await self._fetch(), now)
        await _beside(self._store.replace, self._origin, found.identity)
        self.drop()
        return found

    def drop(self) -> None:
        """Fetch a new list before the next use: the relayer does not know the key that was used."""
        self._list = None

    def _fresh(self, now: int) -> bool:
        assert self._list is not None
        age = now - self._fetched_at
        return 0 <= age < _FETCH_EVERY_SECONDS and now - self._list.issued_at < MAX_AGE_SECONDS


async def _beside(work: Callable[[str, bytes], _T], origin: str, identity: bytes) -> _T:
    """Do something that may wait for a lock, beside the event loop while there is something beside it."""
    try:
        return await asyncio.to_thread(work, origin, identity)
    except RuntimeError:
        # The interpreter is ending and starts no thread any more; the last turns are worth a short wait.
        return work(origin, identity)


LIFE_SECONDS: Final = 600
# A call may take this long after its key was chosen.
_MIN_LEFT_SECONDS: Final = 120
_MAX_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class CallKeys:
    """What calls about one namespace need.

    Attributes:
        header: the ``memory-key`` header.
        not_after: when it ends, in seconds since the epoch.
        secret: the namespace's, which seals bodies.
        answer_key: proves answers, see `relayer.wire.signing`.
        route: the ``memory-route`` header.
    """

    header: str = field(repr=False)
    not_after: int
    secret: bytes = field(repr=False)
    answer_key: bytes = field(repr=False)
    route: str = field(repr=False)


NO_KEYS: Final = CallKeys("", 0, b"", b"", "")
"""Of a call that is about no namespace."""


class SealedKeyCache:
    """Keys by identity and fleet key; the least recently used go first."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str, str, int, bytes], CallKeys] = LRUCache(_MAX_KEPT)

    def header(self, identity: Identity, fleet_key: FleetKey, now: int) -> str:
        """Return a ``memory-key`` header; lives and raises as `keys`."""
        return self.keys(identity, fleet_key, now).header

    def keys(self, identity: Identity, fleet_key: FleetKey, now: int) -> CallKeys:
        """Return keys whose sealed key lives for 2 to 10 more minutes.

        Raises:
            RelayerUntrusted: the fleet key is not a usable public key.
        """
        place = (
            identity.account,
            identity.agent,
            identity.namespace,
            identity.generation,
            fleet_key.public_key,
        )
        known = self._known.get(place)
        if known is None or not now + _MIN_LEFT_SECONDS < known.not_after <= now + LIFE_SECONDS:
            known = self._known[place] = _seal(identity, fleet_key, now + LIFE_SECONDS)
        return known


def _seal(identity: Identity, fleet_key: FleetKey, not_after: int) -> CallKeys:
    key = SealedKey(
        account=identity.account,
        agent_key=bytes(identity.keys.identity.verify_key),
        namespace=identity.namespace,
        generation=identity.generation,
        not_after=not_after,
        secret=identity.namespace_secret,
    )
    try:
        header = base64url.encode(key.seal(fleet_key.public_key))
    except Malformed as error:
        raise RelayerUntrusted(f"the relayer is not trusted: {error}") from error
    return CallKeys(header, not_after, key.secret, key.answer_key, route(key.secret))
