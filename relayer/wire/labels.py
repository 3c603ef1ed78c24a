"""Tags and metadata of a memory, and the filter language over them.

A memory has up to 32 tags, which are short strings, and metadata, a JSON object of up to 4 KiB. Both are sealed like its text. A
filter is a JSON object whose conditions must all hold:

    {"tags": "health", "ticket": 4711}                          has the tag, and metadata.ticket is 4711
    {"price": {"gte": 10, "lt": 20}, "currency": {"in": ["EUR", "CHF"]}}
    {"or": [{"status": {"not": "closed"}}, {"customer.vip": true}]}

A key names a field of the metadata; with dots, a field of an object in it. The keys ``tags`` and ``session`` name those of the
memory, and ``and``, ``or`` and ``not`` combine filters. A field that a memory does not have equals nothing and is in no range.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, WithJsonSchema

from relayer.wire.fields import at_most

MAX_TAGS: Final = 32
MAX_TAG: Final = 64
MAX_METADATA_BYTES: Final = 4096
MAX_FILTER_BYTES: Final = 8192
_MAX_DEPTH: Final = 8
_MAX_INTEGER: Final = 2**63
_SHOWN_KEY: Final = 64
_COMBINING: Final = ("and", "or", "not")
_OWN: Final = ("tags", "session")
RESERVED_KEYS: Final = frozenset({*_COMBINING, *_OWN})
"""Keys that metadata cannot have, because they mean something else in a filter."""

PROJECTS: Final = "project_scope"
"""The key of the metadata that names the repositories for which a memory was noted. Such a memory is in no standing block."""

_RANGES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_OPERATORS: Final = ("eq", "in", "not", *_RANGES)
_UNKNOWN_OPERATOR: Final = f"has an unknown operator; there are {', '.join(_OPERATORS)}"
MISSING: Final = object()
"""The value of a field that a memory does not have."""
# The rules of the fields, as refusals state them, for the OpenAPI document.
_TAG_RULE: Final = f"must be 1 to {MAX_TAG} visible characters, without spaces around them"
_JSON_RULES: Final = "; ".join((
    f"must be nested at most {_MAX_DEPTH} levels deep", "must have keys that are not empty", "must be valid Unicode",
    "must be an integer of 64 bits", "must be finite; JSON has neither NaN nor infinity",
    "must be JSON: text, number, true, false, null, list or object",
))  # fmt: skip
_METADATA_RULES: Final = f"must be a JSON object; is reserved for filters; choose another key; must have at most {MAX_METADATA_BYTES} bytes of JSON; {_JSON_RULES}"
_FILTER_RULES: Final = "; ".join((
    f"must have at most {MAX_FILTER_BYTES} bytes of JSON", "must be an object with at least one condition",
    "must name a key before each condition", "must be a list of filters", _UNKNOWN_OPERATOR,
    f"must have an operator: {', '.join(_OPERATORS)}", "must be a list of values", "must be a number or a text",
    "must be a text or a list of texts, and has no order", _JSON_RULES,
))  # fmt: skip


def _check_tag(tag: str) -> str:
    if (
        not 1 <= len(tag) <= MAX_TAG
        or tag != tag.strip()
        or any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in tag)
    ):
        raise ValueError(_TAG_RULE)
    return tag


def _check_is_list(value: object) -> object:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError("must be a list of texts")  # noqa: TRY004 - pydantic collects ValueError
    return value


Tag = Annotated[
    StrictStr,
    Field(min_length=1, max_length=MAX_TAG, json_schema_extra={"description": _TAG_RULE}),
    AfterValidator(_check_tag),
]
Tags = Annotated[
    tuple[Tag, ...],
    Field(max_length=MAX_TAGS),
    at_most(MAX_TAGS),
    Field(json_schema_extra={"description": "must be a list of texts"}),
    BeforeValidator(_check_is_list),
    AfterValidator(lambda tags: tuple(dict.fromkeys(tags))),
]


def _check_metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a JSON object")  # noqa: TRY004 - pydantic collects ValueError
    _check_json(value, "", 1)
    reserved = sorted(key for key in value if key in RESERVED_KEYS)
    if reserved:
        raise ValueError(f"{reserved[0]}: is reserved for filters; choose another key")
    metadata = dict(value)
    if len(encode_metadata(metadata).encode()) > MAX_METADATA_BYTES:
        raise ValueError(f"must have at most {MAX_METADATA_BYTES} bytes of JSON")
    return metadata


def _check_json(value: object, place: str, depth: int) -> None:
    """Raise `ValueError` naming the place if a value is not JSON, or is nested deeper than eight levels."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"{place}: must be nested at most {_MAX_DEPTH} levels deep")
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check_json(item, f"{place}[{number}]", depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str) or not key.strip():
                raise ValueError(f"{place}: must have keys that are not empty".removeprefix(": "))
            _check_scalar(key, place)
            _check_json(item, f"{place}.{key[:_SHOWN_KEY]}" if place else key[:_SHOWN_KEY], depth + 1)
    else:
        _check_scalar(value, place)


def _check_scalar(value: object, place: str) -> None:
    problem = ""
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            problem = "must be valid Unicode"
    elif isinstance(value, int):  # including true and false
        if not -_MAX_INTEGER <= value < _MAX_INTEGER:
            problem = "must be an integer of 64 bits"
    elif isinstance(value, float):
        if not math.isfinite(value):
            problem = "must be finite; JSON has neither NaN nor infinity"
    elif value is not None:
        problem = "must be JSON: text, number, true, false, null, list or object"
    if problem:
        raise ValueError(f"{place}: {problem}".removeprefix(": "))


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """Encode metadata as compact JSON; "" for an empty object."""
    return json.dumps(metadata, ensure_ascii=False, separators=(",", ":"), default=dict) if metadata else ""


def decode_metadata(encoded: str) -> dict[str, Any]:
    """Decode what `encode_metadata` returned."""
    decoded: dict[str, Any] = json.loads(encoded) if encoded else {}
    return decoded


Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(_check_metadata),
    WithJsonSchema(
        {
            "type": "object",
            "description": f"at most {MAX_METADATA_BYTES} bytes of JSON; the keys {', '.join(sorted(RESERVED_KEYS))} are reserved. "
            f"Refusals: {_METADATA_RULES}",
        }
    ),
]


def _check_filter(value: object) -> dict[str, Any]:
    _check_conditions(value, "", 1)
    filters: dict[str, Any] = dict(value)  # type: ignore[call-overload]  # _check_conditions refuses all but mappings
    if len(json.dumps(filters, ensure_ascii=False).encode()) > MAX_FILTER_BYTES:
        raise ValueError(f"must have at most {MAX_FILTER_BYTES} bytes of JSON")
    return filters


def _check_conditions(value: object, place: str, depth: int) -> None:
    """Raise `ValueError` naming the place if a filter is malformed."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{place}: must be an object with at least one condition".removeprefix(": "))
    if depth > _MAX_DEPTH:
        raise ValueError(f"{place}: must be nested at most {_MAX_DEPTH} levels deep")
    for key, condition in value.items():
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{place}: must name a key before each condition".removeprefix(": "))
        below = f"{place}.{key[:_SHOWN_KEY]}" if place else key[:_SHOWN_KEY]
        if key == "not":
            _check_conditions(condition, below, depth + 1)
        elif key in _COMBINING:
            if not isinstance(condition, list | tuple) or not condition:
                raise ValueError(f"{below}: must be a list of filters")
            for number, one in enumerate(condition):
                _check_conditions(one, f"{below}[{number}]", depth + 1)
        else:
            _check_condition(key, condition, below, depth)


def _check_condition(key: str, condition: object, place: str, depth: int) -> None:
    if not isinstance(condition, Mapping):
        _check_operand(key, "eq", condition, place, depth)
        return
    if not condition:
        raise ValueError(f"{place}: must have an operator: {', '.join(_OPERATORS)}")
    for name, operand in condition.items():
        if name not in _OPERATORS:
            raise ValueError(f"{place}: {_UNKNOWN_OPERATOR}")
        if name == "not" and isinstance(operand, Mapping):
            _check_condition(key, operand, f"{place}.not", depth)
        else:
            _check_operand(key, name, operand, f"{place}.{name}", depth)


def _check_operand(key: str, name: str, operand: object, place: str, depth: int) -> None:
    _check_json(operand, place, depth)
    if name == "in" and not isinstance(operand, list | tuple):
        raise ValueError(f"{place}: must be a list of values")
    if name in _RANGES and (isinstance(operand, bool) or not isinstance(operand, str | int | float)):
        raise ValueError(f"{place}: must be a number or a text")
    if key in _OWN:
        operands = operand if isinstance(operand, list | tuple) else (operand,)
        if name in _RANGES or not all(isinstance(one, str) for one in operands):
            raise ValueError(f"{place}: must be a text or a list of texts, and has no order")


Filter = Annotated[
    dict[str, Any],
    BeforeValidator(_check_filter),
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "description": f"conditions on tags, session and metadata, see Tags, metadata and filters. Refusals: {_FILTER_RULES}",
        }
    ),
]


def passes(
    where: Mapping[str, Any], *, tags: Sequence[str], session: str, metadata: Mapping[str, Any]
) -> bool:
    """Return whether a memory passes a filter.

    Example:
        >>> passes({"price": {"gt": 5}}, tags=(), session="", metadata={"price": 7})
        True
    """

    def holds(conditions: Mapping[str, Any]) -> bool:
        return all(_one_holds(key, condition) for key, condition in conditions.items())

    def _one_holds(key: str, condition: Any) -> bool:
        if key == "and":
            return all(map(holds, condition))
        if key == "or":
            return any(map(holds, condition))
        if key == "not":
            return not holds(condition)
        if key == "tags":
            return _meets(condition, lambda name, operand: _tags_meet(tags, name, operand))
        value = session if key == "session" else field_of(metadata, key)
        return _meets(condition, lambda name, operand: _value_meets(value, name, operand))

    return holds(where)


def _meets(condition: Any, test: Callable[[str, Any], bool]) -> bool:
    if not isinstance(condition, Mapping):
        return test("eq", condition)
    return all(
        not _meets(operand, test) if name == "not" else test(name, operand)
        for name, operand in condition.items()
    )


def _tags_meet(tags: Sequence[str], name: str, operand: Any) -> bool:
    wanted = operand if isinstance(operand, list | tuple) else (operand,)
    return any(one in tags for one in wanted) if name == "in" else all(one in tags for one in wanted)


def _value_meets(value: Any, name: str, operand: Any) -> bool:
    if value is MISSING:
        return False
    if name == "eq":
        return _equal(value, operand)
    if name == "in":
        return any(_equal(value, one) for one in operand)
    comparable = all(isinstance(one, str) for one in (value, operand)) or all(
        map(_is_number, (value, operand))
    )
    return comparable and _RANGES[name](value, operand)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; in contrast to Python's ``==``, ``true`` is not 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def field_of(metadata: Any, path: str) -> Any:
    """Return a field of the metadata; with dots in the path, of an object in it unless a key has these dots itself."""
    return next(_fields(metadata, path), MISSING)


def _fields(value: Any, path: str) -> Iterator[Any]:
    if not isinstance(value, Mapping):
        return
    if path in value:
        yield value[path]
    at = path.find(".")
    while at >= 0:
        yield from _fields(value.get(path[:at]), path[at + 1 :])
        at = path.find(".", at + 1)
