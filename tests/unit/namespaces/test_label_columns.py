"""A filter over columns of labels passes exactly the records that `relayer.wire.labels.passes` passes one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from relayer.namespaces.labels import LabelColumns, Labels, fields_of
from relayer.wire.labels import Filter, passes

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**53, 2**53 + 1, -(2**63)])
    | st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0**53, 1e300])
    | st.sampled_from(["", "a", "b", "é", "1"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b", "a.b", "a.b.a", "c"])
TAGS = st.sampled_from(["x", "y", "z"])
LABELS = st.builds(
    Labels,
    st.lists(TAGS, unique=True, max_size=3).map(tuple),
    st.sampled_from(["", "s1", "s2"]),
    st.dictionaries(NAMES, JSON, max_size=3),
)
OPERATORS = st.one_of(
    st.tuples(st.just("eq"), JSON),
    st.tuples(st.just("in"), st.lists(JSON, max_size=3)),
    st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), SCALARS),
    st.tuples(st.just("not"), SCALARS),
)
CONDITIONS = (
    JSON
    | st.lists(OPERATORS, min_size=1, max_size=2).map(dict)
    | st.lists(OPERATORS, min_size=1).map(lambda operators: {"not": dict(operators)})
)
OF_TAGS = (
    TAGS
    | st.lists(TAGS, max_size=2)
    | st.lists(TAGS, max_size=2).map(lambda tags: {"in": tags})
    | TAGS.map(lambda tag: {"not": tag})
)
LEAVES = st.one_of(
    st.tuples(NAMES, CONDITIONS),
    st.tuples(st.just("tags"), OF_TAGS),
    st.tuples(st.just("session"), st.sampled_from(["", "s1", {"in": ["s1", "s2"]}, {"not": "s1"}])),
).map(lambda pair: dict([pair]))
FILTERS = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda pair: dict([pair])
        )
        | inner.map(lambda one: {"not": one})
        | st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
    ),
    max_leaves=5,
)
CHECKED = TypeAdapter[Any](Filter)


def cover(columns: LabelColumns, where: dict[str, Any], records: list[Labels | None]) -> list[bool]:
    for number in range(columns.covered(where), len(records)):
        columns.append(number, records[number], fields_of(where))
    assert columns.covered(where) == len(records)
    return columns.passing(where).tolist()


def one_by_one(where: dict[str, Any], records: list[Labels | None]) -> list[bool]:
    return [
        one is not None and passes(where, tags=one.tags, session=one.session, metadata=one.metadata)
        for one in records
    ]


@given(
    st.lists(LABELS | st.none(), max_size=12), st.lists(FILTERS, min_size=1, max_size=3), st.integers(0, 12)
)
def test_columns_pass_what_the_filter_passes(
    records: list[Labels | None], filters: list[dict[str, Any]], early: int
) -> None:
    columns = LabelColumns()
    for where in filters:
        try:
            CHECKED.validate_python(where)
        except ValidationError:
            continue
        # Records are added while the columns exist, and other fields are asked for in between.
        assert cover(columns, where, records[:early]) == one_by_one(where, records[:early])
    for where in filters:
        try:
            CHECKED.validate_python(where)
        except ValidationError:
            continue
        assert cover(columns, where, records) == one_by_one(where, records)


def test_a_cleared_column_knows_nothing() -> None:
    columns = LabelColumns()
    records: list[Labels | None] = [Labels(("x",), "", {"secret": "text"})]
    assert cover(columns, {"secret": "text"}, records) == [True]
    assert columns.nbytes > 0
    columns.clear()
    assert columns.covered({"secret": "text"}) == columns.nbytes == 0


def test_only_the_fields_used_last_are_kept() -> None:
    columns = LabelColumns()
    records: list[Labels | None] = [Labels((), "", {"a": 1})]
    assert cover(columns, {"a": 1}, records) == [True]
    assert cover(columns, {"or": [{f"field{number}": 1} for number in range(100)]}, records) == [False]
    assert columns.covered({"a": 1}) == 0
    assert cover(columns, {"a": 1}, records) == [True]
