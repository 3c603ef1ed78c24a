"""Filters on tags and metadata, evaluated for all records of a namespace at once.

`LabelColumns` keeps, for each field that filters asked for, the value of every record as a code in a numpy array. Records are decrypted
once, when a filter asks for a new field. After that a filter takes a few numpy operations per condition, and its result is the same as that of
`relayer.wire.labels.passes` for each record.

Example:
    columns = LabelColumns()
    columns.append(0, Labels(("health",), "", {"ticket": 4711}), ["ticket"])
    columns.passing({"ticket": {"gte": 4000}}).tolist()  # [True]
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayer.domain.operations import Record
from relayer.search.rows import Column
from relayer.wire.labels import MISSING, decode_metadata, field_of

Flags = NDArray[np.bool_]

# The number of fields whose values are kept; beyond it the least recently used ones are dropped after a filter.
_MAX_FIELDS: Final = 64
# The size in bytes of a distinct value with its entries. Measured for short texts.
_VALUE_BYTES: Final = 250
_NO_VALUE: Final = -1
_COMBINING: Final = ("and", "or", "not")
_TAGS, _SESSION = "tags", "session"


class Labels(NamedTuple):
    """The labels of a record: its tags, session and metadata."""

    tags: Sequence[str]
    session: str
    metadata: Mapping[str, Any]


class _Field:
    """The values of one field by number, of which a record may have several if the field is ``tags``."""

    def __init__(self) -> None:
        # The codes of the records with one value at most. A record with several is listed in `_members` as well.
        self._codes = Column(np.empty(0, np.int32))
        self._known: dict[Hashable, int] = {}
        self._members: dict[int, list[int]] = {}
        # By whether they are texts: the distinct texts and numbers in rising order, and their codes.
        self._ordered: dict[bool, tuple[list[Any], array[int]]] = {
            is_text: ([], array("i")) for is_text in (True, False)
        }

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        members = sum(map(len, self._members.values()))
        return self._codes.values.nbytes + _VALUE_BYTES * len(self._known) + 8 * members

    def append(self, values: Sequence[Any]) -> None:
        codes = [self._code(value) for value in values]
        for code in codes if len(codes) > 1 else ():
            self._members.setdefault(code, []).append(len(self._codes))
        self._codes.append(codes[0] if len(codes) == 1 else _NO_VALUE)

    def _code(self, value: Any) -> int:
        key = _comparable(value)
        code = self._known.get(key)
        if code is None:
            code = self._known[key] = len(self._known)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                ordered, codes = self._ordered[isinstance(value, str)]
                place = bisect_left(ordered, value)
                ordered.insert(place, value)
                codes.insert(place, code)
        return code

    def equal_to(self, values: Iterable[Any]) -> Flags:
        known = (self._known.get(_comparable(value)) for value in values)
        return self._with([code for code in known if code is not None])

    def in_range(self, operator: str, bound: Any) -> Flags:
        """Return whether the value of each record is on this side of a bound, which is a number or a text."""
        ordered, codes = self._ordered[isinstance(bound, str)]
        split = (bisect_left if operator in {"gte", "lt"} else bisect_right)(ordered, bound)
        return self._with(codes[split:] if operator in {"gt", "gte"} else codes[:split])

    def _with(self, codes: Sequence[int]) -> Flags:
        # The last element is for records without a value, whose code is -1.
        table = np.zeros(len(self._known) + 1, np.bool_)
        table[np.asarray(codes, np.int32)] = True
        flags: Flags = table[self._codes.values]
        for code in codes if self._members else ():
            flags[self._members.get(code, [])] = True
        return flags


def _comparable(value: Any) -> Hashable:
    """Return a key that is equal for equal JSON values; in contrast to Python's ``==``, ``true`` is not 1."""
    if isinstance(value, Mapping):
        return "object", frozenset((key, _comparable(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return "list", tuple(map(_comparable, value))
    return isinstance(value, bool), value


class LabelColumns:
    """The labels of the records of a namespace by number, as far as filters asked for them."""

    def __init__(self) -> None:
        self._fields: dict[str, _Field] = {}
        self._present = Column(np.empty(0, np.bool_))

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory, in bytes."""
        return len(self._present) + sum(one.nbytes for one in self._fields.values())

    def clear(self) -> None:
        """Forget all values, because a record was erased."""
        self._fields, self._present = {}, Column(np.empty(0, np.bool_))

    def covered(self, where: Mapping[str, Any]) -> int:
        """Return up to which number the values of the filter's fields are known."""
        fields = [self._fields.get(name) for name in fields_of(where)]
        return min((0 if one is None else len(one) for one in fields), default=0)

    def append(self, number: int, labels: Labels | None, fields: Iterable[str]) -> None:
        """Add the labels of a record to fields that do not have them yet; None if there is no record with this number.

        For each field, numbers are added in rising order without gaps.
        """
        if number == len(self._present):
            self._present.append(labels is not None)
        for name in fields:
            field = self._fields.setdefault(name, _Field())
            if number == len(field):
                field.append(() if labels is None else _values(labels, name))

    def passing(self, where: Mapping[str, Any]) -> Flags:
        """Return for each record whether it passes a filter, whose fields must be covered."""
        present: Flags = self._present.values
        if not len(present):
            return present
        flags = self._all(where) & present
        for name in fields_of(where):
            # The fields are in the order of their use.
            self._fields[name] = self._fields.pop(name)
        for name in list(self._fields)[:-_MAX_FIELDS]:
            del self._fields[name]
        return flags

    def _all(self, where: Mapping[str, Any]) -> Flags:
        flags = np.ones(len(self._present), np.bool_)
        for key, condition in where.items():
            flags &= self._condition(key, condition)
        return flags

    def _condition(self, key: str, condition: Any) -> Flags:
        if key == "not":
            return ~self._all(condition)
        if key in _COMBINING:
            each = [self._all(one) for one in condition]
            combined: Flags = np.logical_or.reduce(each) if key == "or" else np.logical_and.reduce(each)
            return combined
        if not isinstance(condition, Mapping):
            return self._test(key, "eq", condition)
        flags = np.ones(len(self._present), np.bool_)
        for name, operand in condition.items():
            flags &= ~self._condition(key, operand) if name == "not" else self._test(key, name, operand)
        return flags

    def _test(self, key: str, name: str, operand: Any) -> Flags:
        field = self._fields[key]
        if name == "in":
            return field.equal_to(operand)
        if name != "eq":
            return field.in_range(name, operand)
        if key == _TAGS and isinstance(operand, list | tuple):
            each = [field.equal_to([one]) for one in operand]
            return np.logical_and.reduce(each) if each else np.ones(len(field), np.bool_)
        return field.equal_to([operand])


def labels_of(record: Record) -> Labels:
    """Return the labels of a record."""
    return Labels(record.tags, record.source.session, decode_metadata(record.metadata))


def fields_of(where: Mapping[str, Any]) -> set[str]:
    """Return the names of the fields in a filter."""
    return set(_names(where))


def _names(where: Mapping[str, Any]) -> Iterator[str]:
    for key, condition in where.items():
        if key == "not":
            yield from _names(condition)
        elif key in _COMBINING:
            for one in condition:
                yield from _names(one)
        else:
            yield key


def _values(labels: Labels, name: str) -> Sequence[Any]:
    if name == _TAGS:
        return labels.tags
    if name == _SESSION:
        return (labels.session,)
    value = field_of(labels.metadata, name)
    return () if value is MISSING else (value,)
