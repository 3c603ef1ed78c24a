"""Readiness of the process for ``GET /ready``.

`Readiness.check` runs the checks and returns each by name. Checks of the store are cached for two seconds, and its
rights are checked every ten seconds. Checks that other parts add with `Readiness.watch` are reported too, but the
process is ready even if they fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relayer.access.store_keys import FleetKeys, check_rights, probe
from relayer.errors import StoreError, StoreFull, StoreUnavailable, WrongRelayerKey
from relayer.log.objects import LogPorts
from relayer.telemetry import log
from relayer.wire.service import ReadyResponse

MOST_SKEW_MS = 30_000
# Several load balancers may ask every second; the store is asked less often.
_FRESH_SECONDS = 2.0
PROBE_SECONDS = 5.0
# Rights are rarely withdrawn, and checking them takes a write, so not every probe does it.
_RIGHTS_SECONDS = 10.0


class Readiness:
    """Answers ``GET /ready``; after `drain` it is never ready again."""

    def __init__(self, ports: LogPorts, fleet: FleetKeys) -> None:
        self._ports = ports
        self._fleet = fleet
        self._model = "loading"
        self._draining = False
        self._probed: dict[str, str] = {}
        self._probed_at = float("-inf")
        self._probing = asyncio.Lock()
        self._watched: dict[str, Callable[[], str]] = {}
        self._rights_at = float("-inf")
        self._store_state = "ok"
        # If the store is full, reads go on, and each write gets an error that says so.
        self._full = ""
        self.watch("room", lambda: self._full)

    def watch(self, name: str, trouble: Callable[[], str]) -> None:
        """Report a check that is not needed to serve; ``trouble`` returns the problem, or an empty text if there is none."""
        self._watched[name] = trouble

    def model_loaded(self) -> None:
        """Report that the embedding model is loaded."""
        self._model = "ok"

    def drain(self) -> None:
        """Report that this process is about to stop."""
        self._draining = True

    @property
    def store_usable(self) -> bool:
        """Return whether the store was usable at the last check; does not access it."""
        return self._store_state == "ok"

    async def check(self) -> ReadyResponse:
        """Run all checks; those of the store at most every two seconds."""
        checks = {
            "accepting": "draining" if self._draining else "ok",
            "model": self._model,
            "fleet_key": "ok" if self._fleet.current().keys else "none for today",
        }
        clock = self._ports.clock
        async with self._probing:
            if clock.monotonic() - self._probed_at >= _FRESH_SECONDS:
                self._probed = await self._probe()
                self._probed_at = clock.monotonic()
            checks |= self._probed
        watched = {name: trouble() or "ok" for name, trouble in self._watched.items()}
        return ReadyResponse(
            ready=all(state == "ok" for state in checks.values()),
            checks=checks | watched,
            degraded=any(state != "ok" for state in watched.values()),
        )

    async def _probe(self) -> dict[str, str]:
        clock = self._ports.clock
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                probed = await probe(self._ports)
                # Check that the store would not refuse requests; at most every ten seconds while it is fine.
                now = clock.monotonic()
                if now - self._rights_at >= _RIGHTS_SECONDS:
                    try:
                        await check_rights(self._ports, probed)
                        self._full = ""
                    except StoreFull as error:
                        self._full = f"{error.code}, nothing can be stored: {error.fix}"
                    self._rights_at = now
        except WrongRelayerKey:
            return {
                "store": "ok",
                "relayer_key": "the store was created with another relayer key",
                "clock": "unknown",
            }
        except TimeoutError:
            silent = StoreUnavailable(
                f"{self._ports.store.description} did not answer within {PROBE_SECONDS:g} s",
                code="silent",
                fix=f"no answer within {PROBE_SECONDS:g} s: look at the store's load and what is in between",
            )
            return self._failed(silent)
        except StoreError as error:
            return self._failed(error)
        if self._store_state != "ok":
            self._store_state = "ok"
            log.info("store_usable_again")
        skew = abs(probed.store_time - clock.now_ms())
        clock_state = (
            "ok" if skew <= MOST_SKEW_MS else f"{skew // 1000} s away from the store's: set this machine's"
        )
        return {"store": "ok", "relayer_key": "ok", "clock": clock_state}

    def _failed(self, error: StoreError) -> dict[str, str]:
        self._rights_at = float("-inf")
        if error.code != self._store_state:
            self._store_state = error.code
            log.warning("store_not_usable", code=error.code, what=str(error))
        # The error's own text names addresses, which not every client of /ready may learn.
        return {"store": f"{error.code}: {error.fix}", "relayer_key": "unknown", "clock": "unknown"}
