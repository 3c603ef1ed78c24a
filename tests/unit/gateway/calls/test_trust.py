from __future__ import annotations

import dataclasses
import stat

import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from gateway_plugin.calls.trust import (
    LIFE_SECONDS,
    SealedKeyCache,
    TrustedFleetKeys,
    TrustStore,
    parse_fleet_list,
)
from gateway_plugin.errors import RelayerUntrusted
from gateway_plugin.keys.identity import Identity
from relayer.wire import codec as base64url
from relayer.wire.sealed_keys import FleetKey, FleetList, SealedKey
from relayer.wire.service import FleetKeyView, KeysResponse

NOW = 1_767_225_600
ORIGIN = "http://127.0.0.1:8787"
RELAYER = SigningKey(bytes(32))
FLEET = PrivateKey(bytes([7]) * 32)


def answer(issued=NOW, identity=RELAYER, keys=((bytes(FLEET.public_key), NOW + 86_400),)) -> KeysResponse:
    listed = tuple(FleetKey("20260101", public, end) for public, end in keys)
    found = FleetList.issue(identity, issued, listed)
    return KeysResponse(
        identity=base64url.encode(found.identity),
        issued_at=found.issued_at,
        keys=tuple(
            FleetKeyView(day=k.day, public_key=base64url.encode(k.public_key), not_after=k.not_after)
            for k in listed
        ),
        signature=base64url.encode(found.signature),
    )


class Answers:
    def __init__(self, *answers: KeysResponse) -> None:
        self.answers = list(answers)
        self.fetched = 0

    async def __call__(self) -> KeysResponse:
        self.fetched += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_a_pin_is_kept_privately_and_first_come_stays(trust_store, tmp_path):
    assert trust_store.pin_first(ORIGIN, b"a" * 32) == b"a" * 32
    assert trust_store.pin_first(ORIGIN, b"b" * 32) == b"a" * 32
    path = tmp_path / "config" / "memrelay" / "trust.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert TrustStore(path).pinned(ORIGIN) == b"a" * 32


def test_a_pin_of_one_address_says_nothing_about_another(trust_store):
    trust_store.pin_first(ORIGIN, b"a" * 32)
    assert trust_store.pinned("https://example.com") is None


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"relayers": {"http://127.0.0.1:8787": "zz"}}'])
def test_a_damaged_trust_file_is_an_error_and_no_first_use(trust_store, tmp_path, damage):
    trust_store.pin_first("https://other", b"a" * 32)
    (tmp_path / "config" / "memrelay" / "trust.json").write_bytes(damage)
    with pytest.raises(RelayerUntrusted, match="damaged"):
        trust_store.pin_first(ORIGIN, b"b" * 32)


def test_a_trust_file_that_others_may_change_is_refused(trust_store, tmp_path):
    trust_store.pin_first(ORIGIN, b"a" * 32)
    (tmp_path / "config" / "memrelay" / "trust.json").chmod(0o666)
    with pytest.raises(RelayerUntrusted, match="chmod 600"):
        trust_store.pinned(ORIGIN)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issued_at": NOW - 1}, "not signed"),
        ({"identity": base64url.encode(bytes(SigningKey(b"x" * 32).verify_key))}, "not signed"),
        ({"keys": ()}, "not signed"),
        ({"signature": "!!"}, "malformed"),
        ({"identity": ""}, "not signed"),
        ({"issued_at": -1}, "malformed"),
    ],
)
def test_a_list_that_was_changed_is_refused(changed, said):
    with pytest.raises(RelayerUntrusted, match=said):
        parse_fleet_list(answer().model_copy(update=changed), NOW)


@pytest.mark.parametrize(("issued", "said"), [(NOW - 86_401, "day old"), (NOW + 86_401, "future")])
def test_a_list_of_another_day_is_refused(issued, said):
    with pytest.raises(RelayerUntrusted, match=said):
        parse_fleet_list(answer(issued), NOW)


async def test_the_list_is_fetched_at_most_hourly(trust_store):
    fetch = Answers(answer())
    keys = TrustedFleetKeys(ORIGIN, trust_store, fetch)
    for later in (0, 60, 3599):
        await keys.current(NOW + later)
    assert fetch.fetched == 1
    await keys.current(NOW + 3600)
    assert fetch.fetched == 2


async def test_the_newest_key_that_still_lives_is_used(trust_store):
    old, new = bytes(PrivateKey.generate().public_key), bytes(FLEET.public_key)
    keys = TrustedFleetKeys(
        ORIGIN, trust_store, Answers(answer(keys=((old, NOW + 4000), (new, NOW + 90_000))))
    )
    assert (await keys.current(NOW)).public_key == new


async def test_keys_that_are_about_to_end_are_not_used(trust_store):
    keys = TrustedFleetKeys(
        ORIGIN, trust_store, Answers(answer(keys=((bytes(FLEET.public_key), NOW + 600),)))
    )
    with pytest.raises(RelayerUntrusted, match="have expired"):
        await keys.current(NOW)


async def test_a_changed_identity_is_refused_on_every_fetch_until_a_person_accepts_it(trust_store):
    fetch = Answers(answer(), answer(identity=SigningKey(b"x" * 32)))
    keys = TrustedFleetKeys(ORIGIN, trust_store, fetch)
    await keys.current(NOW)
    for later in (3600, 3601):
        with pytest.raises(RelayerUntrusted):
            await keys.current(NOW + later)
    await keys.accept_identity(NOW + 3602)
    await keys.current(NOW + 3603)


async def test_an_identity_that_the_environment_names_is_corrected_there(trust_store):
    wrong = TrustedFleetKeys(ORIGIN, trust_store, Answers(answer()), identity=b"x" * 32)
    await wrong.accept_identity(NOW)
    with pytest.raises(RelayerUntrusted, match="MEMRELAY_RELAYER_IDENTITY names") as caught:
        await wrong.current(NOW)
    assert "memrelay-gateway trust" not in str(caught.value)


def test_a_sealed_key_says_whose_and_for_how_long(identity: Identity):
    fleet_key = FleetKey("d", bytes(FLEET.public_key), NOW + 86_400)
    header = SealedKeyCache().header(identity, fleet_key, NOW)
    opened = SealedKey.open(base64url.decode(header), FLEET)
    assert (opened.account, opened.namespace) == (identity.account, identity.namespace)
    assert opened.secret == identity.namespace_secret
    assert opened.not_after == NOW + LIFE_SECONDS <= NOW + 600


def test_a_sealed_key_is_reused_while_two_minutes_are_left(identity: Identity):
    cache = SealedKeyCache()
    fleet_key = FleetKey("d", bytes(FLEET.public_key), NOW + 86_400)
    first = cache.header(identity, fleet_key, NOW)
    assert cache.header(identity, fleet_key, NOW + 479) == first
    assert cache.header(identity, fleet_key, NOW + 480) != first


def test_each_namespace_has_a_sealed_key_of_its_own(identity: Identity):
    cache = SealedKeyCache()
    fleet_key = FleetKey("d", bytes(FLEET.public_key), NOW + 86_400)
    other = dataclasses.replace(identity, namespace="researcher/sender-1")
    assert cache.header(identity, fleet_key, NOW) != cache.header(other, fleet_key, NOW)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), b"short"])
def test_no_key_is_sealed_to_an_unusable_point(identity: Identity, point):
    with pytest.raises(RelayerUntrusted):
        SealedKeyCache().header(identity, FleetKey("d", point, NOW + 86_400), NOW)
