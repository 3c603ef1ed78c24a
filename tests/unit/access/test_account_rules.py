"""What a relayer's operator sets for an account: limits of its own, and that it is revoked as a whole."""

from __future__ import annotations

import msgspec
import pytest
from account_world import KEYS, ROOT, FlakyStore, House, certificate, revocations

from relayer.access.accounts import AccountLimits, AccountRules, Accounts, record_at
from relayer.access.quotas import Quota, Quotas
from relayer.adapters.memory_store import MemoryStore
from relayer.crypto import RelayerKeys
from relayer.errors import CorruptNamespace
from relayer.log.objects import Layout
from relayer.operator.catalogue import read_catalogue
from relayer.testing.fake_clock import FakeClock
from relayer.wire.codec import NotAccepted
from relayer.wire.sealing import ObjectType, RootKeys, context, seal

OWN, BESIDE = (make(KEYS.tag("account", ROOT.account)) for make in (Layout.account, Layout.revoked))
LIMITS = AccountLimits(bytes=5000)


@pytest.fixture
def house(clock: FakeClock) -> House:
    return House(clock, FlakyStore(MemoryStore(clock)))


def _list_of_another(counter: int) -> bytes:
    return revocations(counter, agent_keys=(certificate(agent="other").agent_key,))


def _revoked(rules: AccountRules) -> AccountRules:
    return msgspec.structs.replace(rules, revoked_at=7)


def _lifted(rules: AccountRules) -> AccountRules:
    return msgspec.structs.replace(rules, revoked_at=0)


def _limited(rules: AccountRules) -> AccountRules:
    return msgspec.structs.replace(rules, limits=LIMITS)


async def _refused(accounts: Accounts, rule: str = "account_revoked", **options: bool) -> None:
    assert not accounts.admits_now(certificate())
    with pytest.raises(NotAccepted) as caught:
        await accounts.admit(certificate(), **options)
    assert caught.value.rule == rule


async def test_a_revoked_account_is_out_at_once_here_and_within_fifteen_seconds_elsewhere(
    house: House,
) -> None:
    here, elsewhere = house.accounts(1), house.accounts(2)
    for accounts in (here, elsewhere):
        await accounts.admit(certificate())
        await accounts.make(ROOT.account)
    await house.clock.advance(15)
    await elsewhere.admit(certificate())
    assert (await here.set_rules(ROOT.account, _revoked)).is_revoked
    await _refused(here)
    assert elsewhere.admits_now(certificate())
    await house.clock.advance(15)
    await _refused(elsewhere)
    # Not even its list of revocations may be read or replaced.
    await _refused(elsewhere, revokes=True)
    await here.set_rules(ROOT.account, _lifted)
    await house.clock.advance(15)
    for accounts in (here, elsewhere):
        await accounts.admit(certificate())


async def test_keys_that_a_process_holds_are_dropped_when_the_account_is_revoked(house: House) -> None:
    accounts, told = house.accounts(), list[str]()

    async def revoked(account: str) -> None:
        told.append(account)

    accounts.on_revoked = revoked
    await accounts.admit(certificate())
    await accounts.make(ROOT.account)
    await house.accounts(2).set_rules(ROOT.account, _limited)
    await house.clock.advance(15)
    await accounts.admit(certificate())
    assert told == []
    await house.accounts(2).set_rules(ROOT.account, _revoked)
    await house.clock.advance(15)
    await _refused(accounts)
    assert told == [ROOT.account]


async def test_each_change_keeps_the_others_and_is_counted_in_both_objects(house: House) -> None:
    accounts = house.accounts()
    await accounts.revoke(_list_of_another(3), account=ROOT.account)
    await accounts.set_rules(ROOT.account, _limited)
    await house.accounts(2).set_rules(ROOT.account, _revoked)
    await house.accounts(3).revoke(_list_of_another(4), account=ROOT.account)
    for key in (OWN, BESIDE):
        record = record_at(KEYS, key, await house.data(key))
        assert (record.account, record.rules) == (ROOT.account, AccountRules(2, 7, LIMITS))
    assert await house.accounts(4).revocations(ROOT.account) == _list_of_another(4)


@pytest.mark.parametrize("rolled_back", [OWN, BESIDE])
async def test_an_object_that_was_rolled_back_does_not_lift_what_was_set(
    house: House, rolled_back: str
) -> None:
    running = house.accounts()
    await running.set_rules(ROOT.account, _limited)
    before = await house.data(rolled_back)
    await running.set_rules(ROOT.account, _revoked)
    await house.put(rolled_back, before)
    await house.clock.advance(15)
    for accounts in (running, house.accounts(2)):
        await _refused(accounts)
        assert accounts.rules_of(ROOT.account) == AccountRules(2, 7, LIMITS)
    # The next change counts from the newest, and both objects have it again.
    await house.accounts(3).set_rules(ROOT.account, _lifted)
    for key in (OWN, BESIDE):
        assert record_at(KEYS, key, await house.data(key)).rules == AccountRules(3, 0, LIMITS)


async def test_an_older_object_of_an_account_is_found_and_mended(house: House) -> None:
    accounts = house.accounts()
    await accounts.make(ROOT.account)
    before = await house.data(OWN)
    await accounts.set_rules(ROOT.account, _revoked)
    assert (await read_catalogue(house.ports())).mendable == ()
    await house.put(OWN, before)
    assert (await read_catalogue(house.ports())).mendable == (ROOT.account,)
    await house.accounts(2).mend(ROOT.account)
    assert record_at(KEYS, OWN, await house.data(OWN)).rules == AccountRules(1, 7)
    await house.store.delete(OWN)
    await house.accounts(3).mend(ROOT.account)
    await _refused(house.accounts(4))


async def test_rules_of_another_account_or_without_the_relayers_key_do_not_open(house: House) -> None:
    accounts, other = house.accounts(), RootKeys(b"o" * 32)
    await accounts.set_rules(ROOT.account, _revoked)
    await accounts.set_rules(other.account, _lifted)
    foreign = await house.data(Layout.account(KEYS.tag("account", other.account)))
    plain = msgspec.msgpack.encode([1, ROOT.account, 0, b"", None, [9, 0, None]])
    wrong = RelayerKeys.derive(b"w" * 32).metadata
    forged = seal(wrong, ObjectType.ACCOUNT, context(ObjectType.ACCOUNT, "", b"", OWN), plain, salt=bytes(32))
    for data in (foreign, forged):
        await house.put(OWN, data)
        with pytest.raises(CorruptNamespace):
            await house.accounts(2).admit(certificate())


async def test_an_object_without_the_field_has_no_rules(house: House) -> None:
    plain = msgspec.msgpack.encode([1, ROOT.account, 5, b"", None])
    place = context(ObjectType.ACCOUNT, "", b"", OWN)
    await house.put(OWN, seal(KEYS.metadata, ObjectType.ACCOUNT, place, plain, salt=bytes(32)))
    accounts = house.accounts()
    await accounts.admit(certificate())
    assert accounts.rules_of(ROOT.account) == AccountRules()
    assert accounts.rules_of("0x" + "00" * 32) == AccountRules()


@pytest.mark.parametrize(
    ("stored", "named", "counts"),
    [
        (None, None, Quota(100, 10, 50)),
        (None, Quota(7, 0, 7), Quota(7, 0, 7)),
        (AccountLimits(bytes=200), None, Quota(200, 10, 50)),
        (AccountLimits(bytes=0, memories=3), None, Quota(0, 10, 3)),
        (AccountLimits(bytes=200, memories=9), Quota(150, 0, 0), Quota(150, 0, 9)),
        (AccountLimits(bytes=120, namespaces=0, memories=0), Quota(150, 4, 0), Quota(120, 4, 0)),
    ],
)
async def test_limits_in_the_store_replace_the_usual_ones_and_the_smaller_counts_beside_a_file(
    house: House, stored: AccountLimits | None, named: Quota | None, counts: Quota
) -> None:
    own = {} if named is None else {ROOT.account: named}
    quotas = Quotas(house.ports(), Quota(100, 10, 50), own, limits_of=lambda _: stored)
    assert quotas.quota_of(ROOT.account) == counts
