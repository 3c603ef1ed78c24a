"""A request to erase that is known by an id counts once, whichever relayer it comes to."""

from __future__ import annotations

import asyncio

from doubles.seeded_randomness import SeededRandomness

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.crypto import RelayerKeys
from relayer.log.erasure import ErasureReports
from relayer.log.objects import LogPorts

ACCOUNT, NAME, REQUEST = f"0x{7:064x}", "memwal/notes", b"r" * 16


def two_relayers() -> list[ErasureReports]:
    clock = SystemClock()
    store, keys = MemoryStore(clock), RelayerKeys.derive(b"\x07" * 32)
    return [ErasureReports(LogPorts(store, clock, SeededRandomness(seed), keys)) for seed in (1, 2)]


async def test_a_request_is_new_at_one_relayer_of_those_it_comes_to_at_once() -> None:
    relayers = two_relayers()
    claims = [relayers[place % 2].claim(ACCOUNT, NAME, REQUEST) for place in range(6)]
    assert sorted(await asyncio.gather(*claims)) == [False] * 5 + [True]


async def test_other_requests_and_other_accounts_are_claimed_by_themselves() -> None:
    first, second = two_relayers()
    assert await first.claim(ACCOUNT, NAME, REQUEST)
    assert await second.claim(ACCOUNT, NAME, b"s" * 16)
    assert await second.claim(f"0x{8:064x}", NAME, REQUEST)
    assert not await second.claim(ACCOUNT, NAME, REQUEST)


async def test_a_claim_is_no_erasure_under_way() -> None:
    first, second = two_relayers()
    await first.claim(ACCOUNT, NAME, REQUEST)
    assert await second.pending() == []
