from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayer.wire.codec import NotAccepted, WireError
from relayer.wire.sealed_keys import FleetKey, FleetList


def read(row) -> FleetList:
    keys = tuple(FleetKey(k["day"], bytes.fromhex(k["public_key"]), k["not_after"]) for k in row["keys"])
    return FleetList(bytes.fromhex(row["identity"]), row["issued_at"], keys, bytes.fromhex(row["signature"]))


@pytest.mark.vectors("fleet_list", "verifies")
def test_a_list_of_this_format_verifies_for_ever(row):
    read(row).verify(row["now"])


@pytest.mark.vectors("fleet_list", "refused")
def test_a_list_that_breaks_a_rule_is_refused_by_its_name(row):
    with pytest.raises(NotAccepted) as raised:
        read(row).verify(row["now"])
    assert raised.value.rule == row["rule"]


@given(
    st.binary(max_size=40),
    st.integers(-(2**70), 2**70),
    st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=40), st.integers(-1, 2**65)), max_size=3),
    st.binary(max_size=70),
)
def test_anything_else_is_refused_without_another_error(identity, issued_at, keys, signature):
    found = FleetList(identity, issued_at, tuple(FleetKey(*key) for key in keys), signature)
    with pytest.raises(WireError):
        found.verify(0)
