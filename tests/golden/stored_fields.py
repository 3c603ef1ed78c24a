"""Every stored type and its fields in order: what other versions read by position."""

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
from relayer.search.stored_terms import LexicalParts

# Read before the rest to learn a version, or what an operation is; they are never written.
PEEKED = {
    "relayer.domain.operations._Version",
    "relayer.domain.namespace._Format",
    "relayer.log.segments._PageFormat",
    "relayer.log.erasure.reports._ReportFormat",
    "relayer.domain.operations._Tag",
}
# What only an index holds. It is written anew when it does not fit, so its types change with its format.
OF_INDEXES = (
    "relayer.domain.erasures.",
    "relayer.domain.snapshot.",
    "relayer.domain.state.",
    "relayer.log.index_pack.",
    "relayer.search.",
    "relayer.services.journal.",
    "relayer.services.roster.",
    "relayer.services.stored_view.",
)
# Types that stand in another module by now, and where they stood when the buckets were written: that is no other format.
MOVED = {
    "relayer.access.accounts._Stored": "relayer.services.accounts._Stored",
    "relayer.admin.backup_store.Erased": "relayer.operator.backup_store.Erased",
    "relayer.admin.backup_store.BackupHead": "relayer.operator.backup_store.Head",
    "relayer.admin.backup_store.Row": "relayer.operator.backup_store.Row",
    "relayer.admin.probe._Record": "relayer.services.probe_record._Record",
    "relayer.domain.operations.Entry": "relayer.domain.entry.Entry",
    "relayer.domain.operations.Dialogue": "relayer.domain.record.Dialogue",
    "relayer.domain.operations.Line": "relayer.domain.record.Line",
    "relayer.domain.operations.Model": "relayer.domain.record.Model",
    "relayer.domain.operations.Record": "relayer.domain.record.Record",
    "relayer.domain.operations.Source": "relayer.domain.record.Source",
    "relayer.domain.operations.Outcome": "relayer.domain.outcomes.Outcome",
    "relayer.domain.operations.Refusal": "relayer.domain.outcomes.Refusal",
    "relayer.domain.snapshot._SnapshotHead": "relayer.domain.snapshot._Head",
    "relayer.domain.operations.JobState": "relayer.domain.state.JobState",
    "relayer.domain.operations.RecordState": "relayer.domain.state.RecordState",
    "relayer.jobs.tasks.JobInput": "relayer.services.fact_jobs.JobInput",
    "relayer.jobs.tasks.JobLine": "relayer.services.fact_jobs.JobLine",
    "relayer.log.erasure.reports.ErasureReport": "relayer.log.erasure_reports.ErasureReport",
    "relayer.log.index_file.IndexHead": "relayer.log.index_pack.Head",
    "relayer.log.segments.PageRow": "relayer.domain.segment_page.PageRow",
    "relayer.log.segments.Page": "relayer.domain.segment_page.Page",
    "relayer.namespaces.projection.JournalParts": "relayer.services.journal.JournalParts",
    "relayer.namespaces.records.RosterParts": "relayer.services.roster.RosterParts",
    "relayer.namespaces.stored._Index": "relayer.services.stored_view._Index",
    "relayer.namespaces.stored._Small": "relayer.services.stored_view._Small",
    "relayer.search.baseline.NullParts": "relayer.search.own_null.NullParts",
}
# Types that have another name by now, and the one that they had then.
RENAMED = {"Status": "Standing"}
# Sections of an index that are no structs.
_SECTIONS = (IndexParts, DenseParts, LexicalParts, NullParts)

Fields = dict[str, list[list[str]]]


def stored_fields() -> Fields:
    """Return name, type and default of each field of each stored type; the tag of an operation stands before them.

    Stored is whatever is encoded by position: nothing else in the relayer is.
    """
    for module in pkgutil.walk_packages(relayer.__path__, "relayer."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {_name(kind): _fields(kind) for kind in _structs(msgspec.Struct) if _is_stored(kind)}
    found |= {_name(kind): [[name, "section", ""] for name in kind._fields] for kind in _SECTIONS}
    return dict(sorted(found.items()))


def durable(fields: Fields) -> Fields:
    """Return the types of what is kept for ever, that is all but an index's; a default that is a struct by its type alone."""
    return {
        name: [[field, kind, _STRUCT.sub(r"\1()", default)] for field, kind, default in value]
        for name, value in fields.items()
        if not name.startswith(OF_INDEXES)
    }


# A struct that got a field is still the default that it was.
_STRUCT = re.compile(r"^([A-Z]\w+)\(.*\)$")


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


def _is_stored(kind: type[msgspec.Struct]) -> bool:
    return (
        kind.__module__.startswith("relayer.")
        and bool(kind.__struct_config__.array_like)
        and _name(kind) not in PEEKED
    )


def _fields(kind: type[msgspec.Struct]) -> list[list[str]]:
    tag = kind.__struct_config__.tag
    fields = [
        [field.encode_name, _type(field.type), _default(field)] for field in msgspec.structs.fields(kind)
    ]
    return [["tag", str(tag), ""], *fields] if tag else fields


def _name(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return MOVED.get(name, name)


def _type(annotation: Any) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return RENAMED.get(annotation.__name__, annotation.__name__)
    text = str(annotation)
    for now, then in MOVED.items():
        text = text.replace(now, then)
    return text.replace("relayer.domain.", "")


def _default(field: msgspec.structs.FieldInfo) -> str:
    text = "required" if field.required else repr(field.default)
    for now, then in RENAMED.items():
        text = text.replace(f"<{now}.", f"<{then}.")
    return text
