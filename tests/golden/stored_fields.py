"""Every stored type and its fields in order: what other versions read by position."""

from __future__ import annotations

from typing import Any

import msgspec

from relayer.domain import entry, namespace, operations, outcomes, record, segment_page
from relayer.log import erasure_reports
from relayer.operator import backup_store
from relayer.services import accounts

MODULES = (
    entry,
    namespace,
    operations,
    outcomes,
    record,
    segment_page,
    erasure_reports,
    backup_store,
    accounts,
)
# Read before the rest to learn a version; they are never written.
PEEKED = {"_Head", "_Tag"}


def stored_fields() -> dict[str, list[list[str]]]:
    """Return name, type and default of each field of each stored struct; the tag of an operation stands before them."""
    found: dict[str, list[list[str]]] = {}
    for module in MODULES:
        for name, kind in vars(module).items():
            if _is_stored(kind, module.__name__) and name not in PEEKED:
                tag = kind.__struct_config__.tag
                found[f"{module.__name__}.{name}"] = [
                    *([["tag", str(tag), ""]] if tag else []),
                    *(
                        [field.encode_name, _type(field.type), _default(field)]
                        for field in msgspec.structs.fields(kind)
                    ),
                ]
    return found


def _is_stored(kind: object, module: str) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module


def _type(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type)
        else str(annotation).replace("relayer.domain.", "")
    )


def _default(field: msgspec.structs.FieldInfo) -> str:
    return "required" if field.required else repr(field.default)
