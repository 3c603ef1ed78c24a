"""The export of an account: what a relayer's operator can say of it without the keys of its agents.

`read_namespace` walks the log of one namespace. Its times, counts and sizes are known without any key of the account. The
texts of memories are included only under custody ``relayer``, where the relayer key and the store open them anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from relayer.crypto import NamespaceKeys
from relayer.domain.namespace import Custody
from relayer.domain.operations import Stored, decode_operation, decode_record, stored_in
from relayer.errors import UpgradeRequired
from relayer.log.objects import LinkedEntry, LogPorts
from relayer.namespaces.records import OpenedMemory
from relayer.operator.catalogue import Defect, Flaw, Listed
from relayer.operator.verify import keys_of
from relayer.operator.walk import Walk, walk_log
from relayer.use_cases.memories import kept_turn
from relayer.wire.errors import UnsealError
from relayer.wire.fields import render_time
from relayer.writing.present import show

_NO_TEXT = "its text cannot be opened and is not in the export"
_FIX = "memrelay verify names what is damaged"


@dataclass(frozen=True, slots=True)
class ExportedNamespace:
    """A namespace of an export.

    Attributes:
        row: its name, custody, state, times, counts and sizes, for JSON.
        memories: its memories and kept turns, oldest first, for JSON; empty under custody ``agent``.
        findings: what could not be read.
    """

    row: dict[str, Any]
    memories: list[dict[str, Any]] = field(repr=False)
    findings: list[Defect]


class _Bodies:
    """A visitor of log entries that keeps the sealed records, by id. A record that is stored again replaces the earlier one."""

    def __init__(self) -> None:
        self.stored: dict[bytes, Stored] = {}

    def __call__(self, linked: LinkedEntry) -> None:
        for raw in linked.entry.operations:
            try:
                operation = decode_operation(raw)
            except UpgradeRequired:
                continue  # the walk has a finding about it
            self.stored |= {item.record: item for item in stored_in(operation) if item.sealed}


async def read_namespace(ports: LogPorts, listed: Listed) -> ExportedNamespace:
    """Read one namespace for an export. Relayers may use the store meanwhile."""
    pointer = listed.pointer
    row: dict[str, Any] = {
        "account": listed.account,
        "name": pointer.name,
        "custody": pointer.custody.value,
        "state": pointer.state.value,
        "created_at": render_time(pointer.created_at),
    }
    if not listed.live:
        return ExportedNamespace(row, [], [])
    readable = pointer.custody is Custody.RELAYER
    bodies: list[_Bodies] = []

    def new_visit() -> _Bodies:
        bodies.append(_Bodies())
        return bodies[-1]

    keys, problem = await keys_of(ports, listed) if readable else (None, None)
    if keys is None:
        walk = await walk_log(ports, listed.account, listed.incarnation)
    else:
        walk = await walk_log(ports, listed.account, listed.incarnation, new_visit)
    findings = [*([problem] if problem else []), *walk.findings]
    records = walk.state.records.values()
    row |= {
        "memories": len(records),
        "bytes": walk.bytes,
        "last_entry_at": render_time(walk.state.last_time) if walk.state.last_time else None,
    }
    if keys is None:
        return ExportedNamespace(row, [], findings)
    opened = _opened(keys, walk, bodies[-1].stored, listed, findings)
    return ExportedNamespace(row, opened, findings)


def _opened(
    keys: NamespaceKeys, walk: Walk, stored: dict[bytes, Stored], listed: Listed, findings: list[Defect]
) -> list[dict[str, Any]]:
    """Return the records that have a text, for JSON; add a finding about each that does not open."""
    rows = []
    for state in sorted(walk.state.records.values(), key=lambda one: (one.created_at, one.record)):
        item = stored.get(state.record)
        if item is None:
            continue
        try:
            record = decode_record(keys.unseal_record(item.record, item.sealed))
        except (UnsealError, msgspec.MsgspecError):
            said = f"a memory of entry {state.seq}: {_NO_TEXT}"
            findings.append(Defect(Flaw.WRONG_SEAL, listed.key, said, _FIX, state.seq, state.seq))
            continue
        memory = OpenedMemory(record, state, bool(item.vector))
        shown = (
            {"type": "turn", **kept_turn(memory).model_dump(mode="json")}
            if record.is_dialogue
            else {"type": "memory", **show(memory).model_dump(mode="json")}
        )
        rows.append({"namespace": listed.pointer.name, **shown})
    return rows
