"""Who is served, how many may come, and what an account takes back."""

from __future__ import annotations

import pytest
from account_world import ROOT, FlakyStore, House, certificate, revocations
from hypothesis import given
from hypothesis import strategies as st

from relayer.access.accounts import AccountCaps, Accounts
from relayer.adapters.memory_store import MemoryStore
from relayer.errors import CorruptNamespace, RateLimited, Refused, StoreUnavailable
from relayer.testing.fake_clock import FakeClock
from relayer.wire.codec import NotAccepted
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Revocations


@pytest.fixture
def house(clock: FakeClock) -> House:
    return House(clock, FlakyStore(MemoryStore(clock)))


async def _admit(accounts: Accounts, whose: Certificate, *, creates: bool = True, address=None) -> None:
    await accounts.admit(whose)
    if creates:
        await accounts.make(whose.account, address or "")


async def _refused(accounts: Accounts, whose: Certificate, rule: str, **options) -> None:
    with pytest.raises(NotAccepted) as caught:
        await _admit(accounts, whose, **options)
    assert caught.value.rule == rule


async def test_an_account_that_is_not_listed_is_refused_without_asking_the_store(house: House) -> None:
    accounts = house.accounts(served=frozenset({"0x" + "00" * 32}))
    await _refused(accounts, certificate(), "account_not_served")
    assert house.store.calls == []
    await _admit(house.accounts(served=frozenset({ROOT.account})), certificate())


async def test_a_read_makes_no_account_and_a_write_makes_one(house: House) -> None:
    accounts = house.accounts()
    await _admit(accounts, certificate(), creates=False)
    assert house.store.count("create") == 0
    await _admit(accounts, certificate())
    await _admit(accounts, certificate())
    assert house.store.count("create", "acct/") == 1


async def test_the_store_is_asked_at_most_every_fifteen_seconds(house: House) -> None:
    accounts = house.accounts()
    await _admit(accounts, certificate())
    house.store.clear()
    for _ in range(10):
        await _admit(accounts, certificate())
        await house.clock.advance(1.4)
    assert house.store.calls == []
    await house.clock.advance(1.1)
    await _admit(accounts, certificate())
    assert house.store.count("get") == 1


async def test_open_is_capped_in_all_and_counts_what_is_there_already(house: House) -> None:
    roots = [RootKeys(bytes([number]) * 32) for number in range(4)]
    for root in roots[:2]:
        await _admit(house.accounts(), certificate(root))
    late = house.accounts(caps=AccountCaps(total=3))
    await _admit(late, certificate(roots[2]))
    await _refused(late, certificate(roots[3]), "accounts_full")
    await _admit(late, certificate(roots[3]), creates=False)
    await _admit(late, certificate(roots[0]))


async def test_open_is_capped_by_address_and_hour(house: House) -> None:
    accounts = house.accounts(caps=AccountCaps(per_address_and_hour=2))
    roots = [RootKeys(bytes([number]) * 32) for number in range(5)]
    for root in roots[:2]:
        await _admit(accounts, certificate(root), address="192.0.2.1")
    with pytest.raises(RateLimited) as caught:
        await _admit(accounts, certificate(roots[2]), address="192.0.2.1")
    assert caught.value.retry_after == 1800
    await _admit(accounts, certificate(roots[2]), address="192.0.2.2")
    await house.clock.advance(1801)
    await _admit(accounts, certificate(roots[3]), address="192.0.2.1")


@pytest.mark.parametrize("by", ["agent key", "serial"])
async def test_what_is_revoked_is_out_at_once_here_and_within_fifteen_seconds_elsewhere(
    house: House, by: str
) -> None:
    here, elsewhere = house.accounts(1), house.accounts(2)
    revoked, kept = certificate(serial=b"s" * 16), certificate(agent="other")
    for accounts in (here, elsewhere):
        await _admit(accounts, revoked)
    lists = {"agent_keys": (revoked.agent_key,)} if by == "agent key" else {"serials": (b"s" * 16,)}
    await here.revoke(revocations(1, **lists), account=ROOT.account)
    await _refused(here, revoked, "revoked")
    await _admit(here, kept)
    await house.clock.advance(15)
    await _refused(elsewhere, revoked, "revoked")


async def test_an_older_list_cannot_bring_a_key_back(house: House) -> None:
    accounts, revoked = house.accounts(), certificate()
    newest = revocations(5, agent_keys=(revoked.agent_key,))
    await accounts.revoke(newest, account=ROOT.account)
    for counter in (4, 5):
        with pytest.raises(Refused) as caught:
            await accounts.revoke(revocations(counter), account=ROOT.account)
        assert caught.value.code == "stale_counter"
    await accounts.revoke(newest, account=ROOT.account)
    await _refused(house.accounts(2), revoked, "revoked")


@pytest.mark.parametrize("has_something_here", [True, False])
async def test_a_list_is_told_once_also_where_it_makes_the_account_s_object(
    house: House, has_something_here: bool
) -> None:
    accounts, told = house.accounts(), []

    async def revoked(account: str) -> None:
        told.append(account)

    accounts.on_revoked = revoked
    if has_something_here:
        await accounts.make(ROOT.account)
    await accounts.revoke(revocations(1), account=ROOT.account)
    assert told == [ROOT.account]


async def test_only_the_account_itself_revokes(house: House) -> None:
    accounts, other = house.accounts(), RootKeys(b"o" * 32)
    forged = bytearray(revocations(1))
    forged[-1] ^= 1
    for encoded in (revocations(1, other), bytes(forged), b"", b"\x00" * 80):
        with pytest.raises(Refused) as caught:
            await accounts.revoke(encoded, account=ROOT.account)
        assert caught.value.code == "revocations_invalid"
    assert house.store.calls == []


async def test_an_unreachable_store_is_borne_for_five_minutes_and_then_nobody_comes_in(house: House) -> None:
    accounts = house.accounts()
    await _admit(accounts, certificate())
    house.store.down = True
    await house.clock.advance(299)
    await _admit(accounts, certificate())
    await house.clock.advance(2)
    with pytest.raises(StoreUnavailable):
        await _admit(accounts, certificate())
    with pytest.raises(StoreUnavailable):
        await _admit(accounts, certificate(RootKeys(b"n" * 32)))
    house.store.down = False
    await _admit(accounts, certificate())


async def test_a_store_rolled_back_does_not_bring_a_key_back(house: House) -> None:
    accounts, revoked = house.accounts(), certificate()
    await _admit(accounts, revoked)
    place = house.store.calls[-1].key
    before = await house.store.get(place)
    await accounts.revoke(revocations(1, agent_keys=(revoked.agent_key,)), account=ROOT.account)
    current = await house.store.get(place)
    await house.store.swap(place, before.data, current.etag)
    await house.clock.advance(15)
    for again in (accounts, house.accounts(2)):
        await _refused(again, revoked, "revoked")
        await _admit(again, certificate(agent="other"))


async def test_an_account_s_object_shows_no_name_and_does_not_open_elsewhere(house: House) -> None:
    accounts, other = house.accounts(), RootKeys(b"o" * 32)
    await _admit(accounts, certificate())
    await _admit(accounts, certificate(other))
    mine, theirs = [call.key for call in house.store.calls if call.operation == "create"]
    found, foreign = await house.store.get(mine), await house.store.get(theirs)
    assert ROOT.account.encode() not in found.data
    assert ROOT.account.removeprefix("0x") not in mine
    await house.store.swap(mine, foreign.data, found.etag)
    with pytest.raises(CorruptNamespace):
        await _admit(house.accounts(2), certificate())


@given(st.binary(max_size=300))
def test_random_bytes_are_no_list_ofrevocations(encoded: bytes) -> None:
    with pytest.raises(NotAccepted):
        Revocations.verify(encoded)


@given(st.integers(min_value=0), st.binary(min_size=1, max_size=8))
def test_no_change_of_a_list_goes_unnoticed(position: int, change: bytes) -> None:
    encoded = bytearray(revocations(3, agent_keys=(b"a" * 32,), serials=(b"s" * 16,)))
    before = bytes(encoded)
    at = position % len(encoded)
    encoded[at : at + len(change)] = change
    if bytes(encoded) != before:
        with pytest.raises(NotAccepted):
            Revocations.verify(bytes(encoded))
