from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_vectors import vectors

from relayer.wire.codec import InvalidSecret
from relayer.wire.sealing import RootKeys, derive, is_account_id, parse_secret, route

FROZEN = vectors("derivation")
ROOT = RootKeys(bytes.fromhex(FROZEN["root"]))


def test_the_account_is_frozen():
    assert bytes(ROOT.account_identity.verify_key).hex() == FROZEN["account_public_key"]
    assert ROOT.account == FROZEN["account"]
    assert is_account_id(ROOT.account)


@pytest.mark.vectors("derivation", "agents")
def test_the_keys_of_agents_are_frozen(row):
    keys = ROOT.agent(row["agent"])
    assert keys.secret.hex() == row["secret"]
    assert bytes(keys.identity.verify_key).hex() == row["public_key"]
    assert keys.outbox_key.hex() == row["outbox_key"]
    for namespace in row["namespace_secrets"]:
        derived = keys.namespace_secret(namespace["namespace"], namespace["generation"])
        assert derived.hex() == namespace["secret"]


@pytest.mark.vectors("derivation", "shared")
def test_the_secrets_of_shared_namespaces_are_frozen(row):
    assert ROOT.shared_secret(row["scope"], row["generation"]).hex() == row["secret"]


def test_the_derivation_is_frozen():
    frozen = FROZEN["hkdf"]
    salt = bytes.fromhex(frozen["salt"])
    assert (
        derive(bytes.fromhex(frozen["secret"]), *frozen["label"], salt=salt, length=64).hex() == frozen["okm"]
    )


def test_the_route_of_a_namespace_is_frozen():
    secret = bytes.fromhex(FROZEN["agents"][0]["namespace_secrets"][0]["secret"])
    assert route(secret) == "45029496be3f2b4f2a56fc231a8f1c7f"


def test_no_two_namespaces_have_one_route_and_no_route_shows_its_secret():
    keys = ROOT.agent("researcher")
    secrets = [keys.namespace_secret(name, 1) for name in ("researcher", "researcher/sender-42", "coder")]
    routes = {route(secret) for secret in secrets}
    assert len(routes) == len(secrets)
    assert not [value for value in routes if any(value in secret.hex() for secret in secrets)]


def test_no_two_keys_of_an_account_are_alike():
    found = [ROOT.root, ROOT.shared_secret("researcher", 1), bytes(ROOT.account_identity)]
    for agent in ("researcher", "coder"):
        keys = ROOT.agent(agent)
        found += [keys.secret, bytes(keys.identity), keys.outbox_key]
        found += [
            keys.namespace_secret(name, generation)
            for name in ("researcher", "coder")
            for generation in (1, 2)
        ]
    assert len(set(found)) == len(found)


@pytest.mark.vectors("derivation", "malformed_secrets")
def test_a_malformed_secret_is_refused_by_its_source_and_not_shown(row):
    with pytest.raises(InvalidSecret) as raised:
        parse_secret(row, source="SOME_VARIABLE")
    assert "SOME_VARIABLE" in str(raised.value)
    assert not row or row not in str(raised.value)


@given(st.text(max_size=80))
def test_a_secret_is_32_bytes_or_refused(text):
    with contextlib.suppress(InvalidSecret):
        assert len(parse_secret(text)) == 32


def test_no_repr_shows_a_key():
    shown = repr((ROOT, ROOT.agent("a")))
    assert repr(ROOT.root) not in shown
    assert repr(ROOT.agent("a").secret) not in shown


@pytest.mark.parametrize("text", ["", "0x", "0x" + "A" * 64, "0x" + "0" * 63, "0x" + "0" * 64 + "\n"])
def test_anything_else_is_no_account_id(text):
    assert not is_account_id(text)
