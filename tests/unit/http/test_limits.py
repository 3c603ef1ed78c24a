"""Rates are charged to account and agent at once, and the time to wait is exact."""

from __future__ import annotations

import ipaddress

import pytest

from relayer.http.limits import Limits, peer_behind, peer_name
from relayer.http.problems import HttpProblem
from relayer.lib.work import Buckets, Limit, take
from relayer.testing.fake_clock import FakeClock

ROOMY = Limit(1000, 1000)


def _refused(limits: Limits, account: str, agent: bytes, cost: float = 1) -> HttpProblem:
    with pytest.raises(HttpProblem) as caught:
        limits.charge(account, agent, cost)
    return caught.value


@pytest.mark.row("MW-41")
async def test_who_waits_as_told_gets_in_and_not_a_moment_earlier() -> None:
    clock = FakeClock()
    limits = Limits(clock, account=ROOMY, agent=Limit(2, 0.5))
    limits.charge("account", b"agent", 2)
    problem = _refused(limits, "account", b"agent")
    assert problem.status == 429
    assert problem.retry_after == pytest.approx(2.0)
    assert problem.headers["Retry-After"] == "2"
    await clock.advance(1.99)
    _refused(limits, "account", b"agent")
    await clock.advance(0.01)
    limits.charge("account", b"agent", 1)


def test_what_one_bucket_refuses_costs_nothing_in_the_other() -> None:
    accounts, agents = Buckets(Limit(10, 1)), Buckets(Limit(1, 1))
    assert take(((accounts, "account"), (agents, "agent")), 1, 0.0) == 0
    for _ in range(50):
        assert take(((accounts, "account"), (agents, "agent")), 1, 0.0) > 0
    assert take(((accounts, "account"),), 9, 0.0) == 0


def test_agents_of_one_account_share_its_limit() -> None:
    limits = Limits(FakeClock(), account=Limit(3, 1), agent=Limit(2, 1))
    limits.charge("account", b"one", 2)
    limits.charge("account", b"two", 1)
    assert _refused(limits, "account", b"two").code == "rate_limited"
    limits.charge("other account", b"two", 1)


def test_what_costs_nothing_is_never_refused_and_limits_can_be_off() -> None:
    limits = Limits(FakeClock(), account=Limit(1, 1), agent=Limit(1, 1))
    limits.charge("account", b"agent", 1)
    limits.charge("account", b"agent", 0)
    off = Limits(FakeClock(), enabled=False, account=Limit(1, 1), agent=Limit(1, 1), failures=Limit(1, 1))
    for _ in range(5):
        off.charge("account", b"agent", 1)
        off.note_failure("198.51.100.7")
        off.check_peer("198.51.100.7")


async def test_a_peer_that_fails_too_often_has_to_wait_and_others_do_not() -> None:
    clock = FakeClock()
    limits = Limits(clock, failures=Limit(2, 1))
    for _ in range(2):
        limits.check_peer("198.51.100.7")
        limits.note_failure("198.51.100.7")
    with pytest.raises(HttpProblem, match="rate_limited"):
        limits.check_peer("198.51.100.7")
    limits.check_peer("198.51.100.8")
    await clock.advance(1.0)
    limits.check_peer("198.51.100.7")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_host_cannot_multiply_itself_within_its_network(address: str, name: str) -> None:
    assert peer_name(address) == name


def test_a_table_forgets_the_name_unused_for_longest() -> None:
    buckets = Buckets(Limit(1, 0.001), most=2)
    for name in ("one", "two"):
        buckets.spend(name, 1, 0.0)
    buckets.spend("one", 0, 0.0)
    buckets.spend("three", 1, 0.0)
    assert len(buckets) == 2
    assert buckets.wait("one", 1, 0.0) > 0
    assert buckets.wait("two", 1, 0.0) == 0


def test_a_cost_above_the_capacity_gets_through_when_the_bucket_is_full() -> None:
    buckets = Buckets(Limit(5, 1))
    assert take(((buckets, "name"),), 10, 0.0) == 0
    assert buckets.wait("name", 10, 0.0) == pytest.approx(5.0)
    assert take(((buckets, "name"),), 10, 5.0) == 0


@pytest.mark.parametrize(
    ("address", "forwarded", "peer"),
    [
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("::ffff:10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9, 198.51.100.7,10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "198.51.100.7, unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7:4711", "10.0.0.1"),
        ("", "198.51.100.7", ""),
    ],
)
def test_a_peer_is_the_last_address_that_no_trusted_proxy_has(
    address: str, forwarded: str, peer: str
) -> None:
    assert peer_behind(address, forwarded, (ipaddress.ip_network("10.0.0.0/24"),)) == peer
    assert peer_behind(address, forwarded, ()) == address
