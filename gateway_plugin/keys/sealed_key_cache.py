"""The keys of calls, made when first needed and used again while their sealed key lives: sealing costs more than the rest."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.errors import RelayerUntrusted
from gateway_plugin.identity import Identity
from relayer.wire import base64url
from relayer.wire.errors import Malformed
from relayer.wire.fleet_list import FleetKey
from relayer.wire.keys import route
from relayer.wire.sealed_keys import SealedKey

__all__ = ["CallKeys", "SealedKeyCache"]

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
        answer_key: proves answers, see `relayer.wire.proofs`.
        route: the ``memory-route`` header.
    """

    header: str = field(repr=False)
    not_after: int
    secret: bytes = field(repr=False)
    answer_key: bytes = field(repr=False)
    route: str = field(repr=False)


class SealedKeyCache:
    """Keys by identity and fleet key; the least recently used go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, str, int, bytes], CallKeys] = OrderedDict()

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
        known = self._kept.get(place)
        if known is None or not now + _MIN_LEFT_SECONDS < known.not_after <= now + LIFE_SECONDS:
            known = self._kept[place] = _seal(identity, fleet_key, now + LIFE_SECONDS)
        self._kept.move_to_end(place)
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
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
