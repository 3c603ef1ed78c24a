"""Accounts as the workers of one relayer know them together."""

from __future__ import annotations

import pytest
from doubles.seeded_randomness import SeededRandomness

from relayer.access.accounts import AccountCaps, Accounts
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.crypto import RelayerKeys
from relayer.lib.shared import Shared
from relayer.log.objects import LogPorts
from relayer.wire.errors import NotAccepted


def account(number: int) -> str:
    return f"0x{number:064x}"


async def test_the_cap_on_accounts_is_the_relayers_and_not_a_workers() -> None:
    clock = SystemClock()
    ports = LogPorts(MemoryStore(clock), clock, SeededRandomness(1), RelayerKeys.derive(b"\x07" * 32))
    shared, caps = Shared(2), AccountCaps(total=4, per_address_and_hour=0)
    workers = [Accounts(ports, caps=caps, shared=shared) for _ in range(2)]
    for number in range(4):
        await workers[number % 2].make(account(number))
    for worker in workers:
        with pytest.raises(NotAccepted) as refused:
            await worker.make(account(9))
        assert refused.value.rule == "accounts_full"


async def test_an_hours_new_accounts_of_an_address_are_counted_together() -> None:
    clock = SystemClock()
    ports = LogPorts(MemoryStore(clock), clock, SeededRandomness(1), RelayerKeys.derive(b"\x07" * 32))
    shared, caps = Shared(2), AccountCaps(per_address_and_hour=2)
    workers = [Accounts(ports, caps=caps, shared=shared) for _ in range(2)]
    for number, worker in enumerate(workers):
        await worker.make(account(number), "192.0.2.7")
    for worker in workers:
        with pytest.raises(Exception, match="as many accounts as it may"):
            await worker.make(account(9), "192.0.2.7")
        await worker.make(account(5), "192.0.2.8")
