"""List every stored type with its fields in order, because readers find a field by its position."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import msgspec

import relayer
from relayer.search.baseline import NullParts
from relayer.search.dense import DenseParts
from relayer.search.index import IndexParts
from relayer.search.lexical import LexicalParts

# Types that only read the first field of an encoded value; nothing writes them.
_PEEKED = {
    "operations._Version",
    "operations._Tag",
}
# Sections of an index that are not structs.
_SECTIONS = (IndexParts, DenseParts, LexicalParts, NullParts)

Fields = dict[str, list[list[str]]]


def stored_fields() -> Fields:
    """Return name, type and default of each field of each stored type; the tag of an operation is listed first.

    A type is stored if it is encoded by position. Types are named by module and class without the packages, so that a
    module may move.
    """
    for module in pkgutil.walk_packages(relayer.__path__, "relayer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    stored = [kind for kind in _structs(msgspec.Struct) if _is_stored(kind)]
    found = {_name(kind): _fields(kind) for kind in stored}
    assert len(found) == len(stored), "two stored types have the same module and name"
    found |= {_name(kind): [[name, "section", ""] for name in kind._fields] for kind in _SECTIONS}
    return dict(sorted(found.items()))


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


def _is_stored(kind: type[msgspec.Struct]) -> bool:
    is_ours = kind.__module__.startswith("relayer.")
    return is_ours and bool(kind.__struct_config__.array_like) and _name(kind) not in _PEEKED


def _fields(kind: type[msgspec.Struct]) -> list[list[str]]:
    tag = kind.__struct_config__.tag
    fields = [
        [field.encode_name, _type(field.type), _default(field)] for field in msgspec.structs.fields(kind)
    ]
    return [["tag", str(tag), ""], *fields] if tag else fields


def _name(kind: type) -> str:
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__qualname__}"


def _type(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return re.sub(r"\brelayer\.(?:\w+\.)*", "", str(annotation))


def _default(field: msgspec.structs.FieldInfo) -> str:
    return "required" if field.required else repr(field.default)
