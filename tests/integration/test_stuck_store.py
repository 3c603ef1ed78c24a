"""A store that does not answer holds a request no longer than its deadline."""

from __future__ import annotations

import asyncio

from border import border

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import GetOutcome


class _StuckStore(MemoryStore):
    """Answers everything but reads of accounts."""

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        if key.startswith("acct/") and key.endswith("/account"):
            await asyncio.Event().wait()
        return await super().get(key, byte_range=byte_range, if_none_match=if_none_match)


async def test_admission_has_the_request_s_deadline_too() -> None:
    async with border(_StuckStore(SystemClock())) as at:
        answer = await at.call("POST", "/v1/recall", {"query": "anything"}, extra={"x-deadline-ms": "200"})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (504, "deadline_exceeded")
    assert "admit" in problem["detail"]
