"""Small objects that replicas agree on: whoever creates one first decides, and everybody uses what is read back."""

from __future__ import annotations

from relayer.errors import StoreUnavailable
from relayer.log.log_ports import LogPorts
from relayer.ports import Absent, Found, Throttled

__all__ = ["create_or_read"]

_ATTEMPTS = 5
_PAUSE = 0.2  # seconds; a store that throttles says how long, this is for unclear answers


async def create_or_read(ports: LogPorts, key: str, data: bytes) -> Found:
    """Return the object at a key of the layout as the store has it; ``data`` is written only if there is none.

    Raises:
        StoreUnavailable: five attempts in a row got no clear answer.
        StoreError: whatever else the store raises.
    """
    store, clock, place = ports.store, ports.clock, ports.layout.at(key)
    for _ in range(_ATTEMPTS):
        found = await store.get(place)
        if isinstance(found, Found):
            return found
        if isinstance(found, Absent):
            outcome = await store.create(place, data)
            if isinstance(outcome, Throttled):
                await clock.sleep(outcome.retry_after)
                continue
            # Created, Exists and Unknown all mean: what counts is what the next read says.
            found = await store.get(place)
            if isinstance(found, Found):
                return found
        await clock.sleep(_PAUSE)
    raise StoreUnavailable(f"{store.description} does not say what it holds")
