"""Trust in a relayer: its address, its pinned identity, and the keys that are sealed to it.

A relayer signs the list of its fleet keys with its identity. `TrustStore` pins the identity for each address, from the
configuration or at first use. If another identity answers later, `FleetKeys` raises `RelayerUntrusted` and no key is sent
there until a person runs ``memrelay-gateway trust URL``. `SealedKeyCache` seals namespace keys to the current fleet key.
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
from gateway_plugin.keys.identity import Identity
from gateway_plugin.keys.private_files import locked, read_private, replace_private
from relayer.wire import codec as base64url
from relayer.wire.calls import is_loopback
from relayer.wire.codec import Malformed, NotAccepted
from relayer.wire.sealed_keys import MAX_AGE_SECONDS, FleetKey, FleetList, SealedKey
from relayer.wire.sealing import route
from relayer.wire.service import KeysResponse
from relayer.wire.signing import normal_authority

IDENTITY_VARIABLE: Final = "MEMRELAY_RELAYER_IDENTITY"
"""The variable with the identity that the relayer must have, which takes precedence over the pinned one."""


@dataclass(frozen=True, slots=True)
class RelayerAddress:
    """A relayer's address.

    Attributes:
        scheme: ``http``, on loopback only, or ``https``.
        loopback: whether the address never leaves this machine.
    """

    scheme: str
    authority: str
    loopback: bool

    @property
    def origin(self) -> str:
        """Return scheme and authority, as a URL without a path."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> RelayerAddress:
        """Parse a URL.

        Raises:
            SettingsError: the URL is invalid, would send keys unencrypted, or has a path. A path is refused because the
                signature covers the target that the relayer sees, and a proxy that strips a prefix changes it: give the
                relayer a host name of its own.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong("is no URL") from error
        if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
            raise _wrong("is not the URL of a relayer")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong("has a path; a relayer needs its own host name or port")
        loopback = is_loopback(host)
        if parts.scheme == "http" and not loopback:
            raise _wrong(
                "would send keys unencrypted; http is only allowed for this machine's loopback address"
            )
        name = f"[{host}]" if ":" in host else host
        authority = normal_authority(name if port is None else f"{name}:{port}", parts.scheme)
        return cls(parts.scheme, authority, loopback)


def _wrong(problem: str) -> SettingsError:
    return SettingsError(
        SettingsIssue("url", problem, "use https://host, or http://127.0.0.1:8787 on this machine")
    )


_T = TypeVar("_T")
_FETCH_EVERY_SECONDS: Final = 3600
# A fleet key that ends sooner than this is not used, because what is sealed to it ends with it.
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
    """The pinned identities of relayers, by origin, in one private file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pinned(self, origin: str) -> bytes | None:
        """Return the identity pinned for an origin, or None. Raises `RelayerUntrusted` if the file is damaged."""
        text = self._read().relayers.get(origin)
        try:
            return None if text is None else bytes.fromhex(text)
        except ValueError as error:
            raise self._damaged() from error

    def pin_first(self, origin: str, identity: bytes) -> bytes:
        """Pin an identity unless one is pinned already, and return the pinned identity. Raises like `pinned`."""
        return self._change(origin, identity, replace=False)

    def replace(self, origin: str, identity: bytes) -> None:
        """Pin an identity, replacing any other. Raises like `pinned`."""
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
            raise RelayerUntrusted(f"the relayer's identity cannot be stored: {error}") from error
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
    """Parse a relayer's response to a list of fleet keys, and verify its signature and age.

    Raises:
        RelayerUntrusted: a check failed; the message says which.
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


class TrustedFleetKeys:
    """The fleet keys of one trusted relayer, fetched again after an hour.

    ``identity`` is the one that the relayer must have, from the environment; None uses the pinned one.
    """

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

        ``now`` is in seconds since the epoch.

        Raises:
            RelayerUntrusted: the relayer is not the one that was pinned, or offers no usable key.
            RelayerUnreachable, RelayerRefused: from fetching the list.
        """
        listed = await self._current_list(now)
        usable = [key for key in listed.keys if key.not_after > now + _MARGIN_SECONDS]
        if not usable:
            raise RelayerUntrusted("the relayer is not trusted: all keys that it offers have expired")
        return max(usable, key=lambda key: key.not_after)

    async def identity(self, now: int) -> bytes:
        """Return the identity with which the relayer signs responses. Raises like `current`."""
        return (await self._current_list(now)).identity

    async def _current_list(self, now: int) -> FleetList:
        async with self._fetching:
            known = self._list
            if (
                known is None
                or not 0 <= now - self._fetched_at < _FETCH_EVERY_SECONDS
                or now - known.issued_at >= MAX_AGE_SECONDS
            ):
                known = self._list = await self.fetch(now)
                self._fetched_at = now
            return known

    async def fetch(self, now: int) -> FleetList:
        """Fetch the list and verify that the expected identity signed it; pin the identity if none is. Raises like `current`."""
        found = parse_fleet_list(await self._fetch(), now)
        if self._identity is not None:
            if found.identity != self._identity:
                raise RelayerUntrusted(
                    f"{self._origin} has another identity than {IDENTITY_VARIABLE} names ({_differ(found.identity, self._identity)}); "
                    f"no key is sent to it. Correct {IDENTITY_VARIABLE}, or unset it"
                )
            return found
        pinned = self._store.pinned(self._origin)
        if pinned is None:
            # Pinning takes a lock that another process may hold, so it must not block the event loop.
            pinned = await _beside(self._store.pin_first, self._origin, found.identity)
        if found.identity != pinned:
            raise RelayerUntrusted(
                f"{self._origin} has another identity than the one it had before "
                f"({_differ(found.identity, pinned)}); no key is sent to it. "
                f"If its operator has changed it, run: memrelay-gateway trust {self._origin}"
            )
        return found

    async def accept_identity(self, now: int) -> FleetList:
        """Pin the identity of the relayer that answers now, because a person said so. Raises like `current`."""
        found = parse_fleet_list(await self._fetch(), now)
        await _beside(self._store.replace, self._origin, found.identity)
        self.drop()
        return found

    def drop(self) -> None:
        """Discard the list, so that the next use fetches a new one."""
        self._list = None


def _differ(found: bytes, wanted: bytes) -> str:
    return f"{found.hex()[:16]} instead of {wanted.hex()[:16]}"


async def _beside(work: Callable[[str, bytes], _T], origin: str, identity: bytes) -> _T:
    """Run a function that may wait for a lock: in a thread, or directly if no thread can be started any more."""
    try:
        return await asyncio.to_thread(work, origin, identity)
    except RuntimeError:
        # The interpreter is shutting down and starts no more threads. Blocking briefly is better than losing the last turns.
        return work(origin, identity)


LIFE_SECONDS: Final = 600
# Least remaining life of a sealed key, in seconds: a call may take this long after its key was chosen.
_MIN_LEFT_SECONDS: Final = 120
_MAX_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class CallKeys:
    """The keys of calls about one namespace.

    Attributes:
        header: the ``memory-key`` header, which contains the sealed key.
        not_after: when the sealed key ends, in seconds since the epoch.
        secret: the namespace's secret, which seals request bodies.
        answer_key: the key that verifies responses, see `relayer.wire.signing`.
        route: the ``memory-route`` header.
    """

    header: str = field(repr=False)
    not_after: int
    secret: bytes = field(repr=False)
    answer_key: bytes = field(repr=False)
    route: str = field(repr=False)


NO_KEYS: Final = CallKeys("", 0, b"", b"", "")
"""The keys of a call that is not about a namespace: none."""


class SealedKeyCache:
    """The 256 most recently used keys of calls, by identity and fleet key."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str, str, int, bytes], CallKeys] = LRUCache(_MAX_KEPT)

    def header(self, identity: Identity, fleet_key: FleetKey, now: int) -> str:
        """Return the ``memory-key`` header of `keys`."""
        return self.keys(identity, fleet_key, now).header

    def keys(self, identity: Identity, fleet_key: FleetKey, now: int) -> CallKeys:
        """Return keys whose sealed key is valid for another 2 to 10 minutes. Raises `RelayerUntrusted` if the fleet key is none."""
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
