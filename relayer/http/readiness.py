"""Ready to serve? Each check by name, so that an operator sees which one fails."""

from __future__ import annotations

import asyncio

from relayer.errors import StoreError, WrongRelayerKey
from relayer.log.log_ports import LogPorts
from relayer.services.fleet import FleetKeys
from relayer.services.relayer_check import probe
from relayer.wire.schemas import ReadyResponse

__all__ = ["Readiness"]

MOST_SKEW_MS = 30_000
# Balancers of several kinds may ask every second; the store is asked less often.
_FRESH_SECONDS = 2.0
_PROBE_SECONDS = 5.0


class Readiness:
    """Answers ``GET /ready``; draining makes it false for good."""

    def __init__(self, ports: LogPorts, fleet: FleetKeys) -> None:
        self._ports = ports
        self._fleet = fleet
        self._model = "loading"
        self._draining = False
        self._probed: dict[str, str] = {}
        self._probed_at = float("-inf")
        self._probing = asyncio.Lock()

    def model_loaded(self) -> None:
        """Say that vectors can be computed."""
        self._model = "ok"

    def drain(self) -> None:
        """Say that this process is about to end."""
        self._draining = True

    async def check(self) -> ReadyResponse:
        """Run all checks; the store's at most every two seconds."""
        checks = {
            "accepting": "draining" if self._draining else "ok",
            "model": self._model,
            "fleet_key": "ok" if self._fleet.current().keys else "none for today",
            **await self._store_checks(),
        }
        return ReadyResponse(ready=all(state == "ok" for state in checks.values()), checks=checks)

    async def _store_checks(self) -> dict[str, str]:
        clock = self._ports.clock
        async with self._probing:
            if clock.monotonic() - self._probed_at >= _FRESH_SECONDS:
                self._probed = await self._probe()
                self._probed_at = clock.monotonic()
            return self._probed

    async def _probe(self) -> dict[str, str]:
        clock = self._ports.clock
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                store_time = await probe(self._ports)
        except WrongRelayerKey:
            return {
                "store": "ok",
                "relayer_key": "the store belongs to another relayer key",
                "clock": "unknown",
            }
        except (StoreError, TimeoutError):
            return {"store": "not reachable", "relayer_key": "unknown", "clock": "unknown"}
        skew = abs(store_time - clock.now_ms())
        clock_state = (
            "ok" if skew <= MOST_SKEW_MS else f"{skew // 1000} s away from the store's: set this machine's"
        )
        return {"store": "ok", "relayer_key": "ok", "clock": clock_state}
