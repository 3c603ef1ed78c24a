"""Fleet keys: one random X25519 pair per day, shared by the replicas through the store, gone two days later.

A gateway seals namespace secrets to the key of the day. Traffic recorded on the network stays unreadable once the
private half is deleted, even to someone who later takes the relayer's key and disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nacl.public import PrivateKey

from relayer.errors import WrongRelayerKey
from relayer.wire.errors import UnsealError
from relayer.wire.sealed_keys import FleetKey
from relayer.wire.sealing import ObjectType, SealingKey, context, seal, unseal

DAY_MS = 24 * 3600 * 1000
KEPT_DAYS = 2


def day_of(time_ms: int) -> str:
    """Return the UTC day of a time as ``YYYYMMDD``."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d")


def live_days(time_ms: int) -> tuple[str, ...]:
    """Return the days whose keys are accepted, newest first."""
    return tuple(day_of(time_ms - back * DAY_MS) for back in range(KEPT_DAYS))


@dataclass(frozen=True, slots=True)
class FleetPair:
    """The key pair of one day."""

    day: str
    private: PrivateKey = field(repr=False)

    @property
    def public(self) -> FleetKey:
        """What gateways may know."""
        start = datetime.strptime(self.day, "%Y%m%d").replace(tzinfo=UTC)
        end = start + timedelta(days=KEPT_DAYS)
        return FleetKey(self.day, bytes(self.private.public_key), int(end.timestamp()))

    def seal(self, metadata: SealingKey, *, salt: bytes) -> bytes:
        """Seal the private half for the store."""
        return seal(metadata, ObjectType.FLEET, _place(self.day), bytes(self.private), salt=salt)

    @classmethod
    def open(cls, day: str, metadata: SealingKey, sealed: bytes) -> FleetPair:
        """Open what the store holds for a day.

        Raises:
            WrongRelayerKey: sealed by another relayer key, or damaged.
        """
        try:
            return cls(day, PrivateKey(unseal(metadata, ObjectType.FLEET, _place(day), sealed)))
        except UnsealError as error:
            raise WrongRelayerKey(
                f"the object fleet/{day} of this store does not open: it is damaged, or was made with another relayer key; "
                "remove it, and a relayer that starts makes a new one"
            ) from error


def _place(day: str) -> bytes:
    return context(ObjectType.FLEET, "", b"", day)
