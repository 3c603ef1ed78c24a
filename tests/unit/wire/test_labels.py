"""Tags, metadata and filters: what is accepted, what is refused by name, and which memories pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from relayer.wire.labels import (
    RESERVED_KEYS,
    Filter,
    Metadata,
    Tags,
    decode_metadata,
    encode_metadata,
    passes,
)


class _Fields(BaseModel):
    tags: Tags = ()
    metadata: Metadata = {}
    where: Filter | None = None


def refusal(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        _Fields(**fields)
    return "; ".join(str(one["msg"]) for one in caught.value.errors())


MEMORY = {
    "tags": ("health", "food"),
    "session": "s1",
    "metadata": {
        "ticket": 4711,
        "open": True,
        "name": "Ana",
        "price": 9.5,
        "none": None,
        "customer": {"vip": True, "level": 3},
        "a.b": "exact",
        "list": [1, "two"],
    },
}


@pytest.mark.parametrize(
    "where",
    [
        {"tags": "health"},
        {"tags": ["health", "food"]},
        {"tags": {"in": ["other", "food"]}},
        {"tags": {"not": "other"}},
        {"session": "s1"},
        {"session": {"in": ["s1", "s2"]}},
        {"ticket": 4711},
        {"ticket": 4711.0},
        {"ticket": {"eq": 4711}},
        {"ticket": {"gt": 4710, "lt": 4712}},
        {"ticket": {"gte": 4711, "lte": 4711}},
        {"ticket": {"not": {"gt": 5000}}},
        {"ticket": {"in": [1, 4711]}},
        {"name": {"gte": "A", "lt": "B"}},
        {"none": None},
        {"open": True},
        {"customer.vip": True},
        {"customer": {"eq": {"level": 3, "vip": True}}},
        {"a.b": "exact"},
        {"list": [1, "two"]},
        {"missing": {"not": 1}},
        {"not": {"missing": 1}},
        {"or": [{"ticket": 1}, {"tags": "food"}]},
        {"and": [{"ticket": 4711}, {"tags": "food"}]},
        {"ticket": 4711, "tags": "food"},
    ],
    ids=str,
)
def test_a_memory_passes(where: dict[str, Any]) -> None:
    _Fields(where=where)
    assert passes(where, **MEMORY)
    assert not passes({"not": where}, **MEMORY)


@pytest.mark.parametrize(
    "where",
    [
        {"tags": "other"},
        {"tags": ["health", "other"]},
        {"session": "s2"},
        {"ticket": "4711"},
        {"ticket": {"gt": "4"}},
        {"ticket": {"gt": 4710, "lt": 4711}},
        {"open": 1},
        {"open": {"gt": 0}},
        {"missing": 1},
        {"missing": None},
        {"missing": {"lt": 1}},
        {"missing": {"in": [1]}},
        {"customer.none": True},
        {"name.first": "Ana"},
        {"list": [1]},
        {"or": [{"ticket": 1}, {"tags": "other"}]},
        {"ticket": 4711, "tags": "other"},
    ],
    ids=str,
)
def test_a_memory_does_not_pass(where: dict[str, Any]) -> None:
    _Fields(where=where)
    assert not passes(where, **MEMORY)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "must be an object with at least one condition"),
        ([], "must be an object with at least one condition"),
        ({"": 1}, "must name a key"),
        ({"ticket": {}}, "ticket: must have an operator"),
        ({"ticket": {"near": 1}}, "ticket: has an unknown operator"),
        ({"ticket": {"in": 1}}, "ticket.in: must be a list"),
        ({"ticket": {"gt": None}}, "ticket.gt: must be a number or a text"),
        ({"ticket": {"gt": True}}, "ticket.gt: must be a number or a text"),
        ({"ticket": {"not": {"near": 1}}}, "ticket.not: has an unknown operator"),
        ({"ticket": float("nan")}, "ticket: must be finite"),
        ({"tags": 1}, "tags: must be a text"),
        ({"tags": {"gt": "a"}}, "tags.gt: must be a text or a list of texts"),
        ({"or": {}}, "or: must be a list of filters"),
        ({"or": []}, "or: must be a list of filters"),
        ({"or": [{"a": {"x": 1}}]}, "or[0].a: has an unknown operator"),
        ({"not": 1}, "not: must be an object"),
        ({"a": "x" * 9000}, "must have at most 8192 bytes"),
    ],
    ids=str,
)
def test_a_bad_filter_is_refused_by_the_name_of_its_field(where: Any, message: str) -> None:
    assert message in refusal(where=where)


def test_a_filter_that_is_nested_too_deep_is_refused() -> None:
    where: dict[str, Any] = {"a": 1}
    for _ in range(2000):
        where = {"not": where}
    assert "nested at most 8 levels" in refusal(where=where)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("text", "must be a JSON object"),
        ({"": 1}, "must have keys that are not empty"),
        ({1: 1}, "must have keys"),
        ({"a": {"b": [1, float("nan")]}}, "a.b[1]: must be finite"),
        ({"a": float("inf")}, "a: must be finite"),
        ({"a": 2**63}, "a: must be an integer of 64 bits"),
        ({"a": {1, 2}}, "a: must be JSON"),
        ({"a": "\ud800"}, "a: must be valid Unicode"),
        ({"a": "x" * 5000}, "must have at most 4096 bytes"),
        *(({key: 1}, f"{key}: is reserved") for key in sorted(RESERVED_KEYS)),
    ],
    ids=str,
)
def test_bad_metadata_is_refused_by_the_name_of_its_field(metadata: Any, message: str) -> None:
    assert message in refusal(metadata=metadata)


@pytest.mark.parametrize(
    "tags", ["health", [1], [None], [""], [" a"], ["a\n"], ["x" * 65], [f"t{number}" for number in range(33)]]
)
def test_bad_tags_are_refused(tags: Any) -> None:
    assert refusal(tags=tags)


def test_a_tag_given_twice_counts_once() -> None:
    assert _Fields(tags=["a", "b", "a"]).tags == ("a", "b")


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.text("klm", min_size=1, max_size=3), _JSON, max_size=3))
def test_metadata_survives_storing_and_each_of_its_fields_equals_itself(metadata: dict[str, Any]) -> None:
    kept = decode_metadata(encode_metadata(_Fields(metadata=metadata).metadata))
    assert kept == metadata
    for key, value in metadata.items():
        assert passes({key: {"eq": value}}, tags=(), session="", metadata=kept)
        assert not passes({key: {"not": {"eq": value}}}, tags=(), session="", metadata=kept)
