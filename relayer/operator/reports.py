"""Printable reports of the operator's commands: lines in two columns for people, and a row for JSON.

Each command has a function that turns its result into a `CommandReport`: `verification`, `repairs`, `stats`, `backup` and `restoration`.
`found` renders findings, with what to do next, and `row_of` converts any result for JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from relayer.access.quotas import Quota
from relayer.operator.backup import Backup
from relayer.operator.catalogue import Defect, Listed
from relayer.operator.inspect import Lines, Stats, Traffic
from relayer.operator.repair import Repair, Replacement
from relayer.operator.restore import Restoration
from relayer.operator.verify import StoreReport
from relayer.wire.fields import render_time

_WIDTH = 10
# Maximum number of accounts that are shown one by one.
_LARGEST = 10


@dataclass(frozen=True, slots=True)
class CommandReport:
    """The printable result of a command.

    Attributes:
        lines: pairs of a word and a text, printed in two columns.
        row: the same for JSON.
        well: whether nothing was found that an operator has to act on.
    """

    lines: Lines
    row: Mapping[str, object]
    well: bool = True

    def text(self) -> str:
        """Return the lines as text, in two columns."""
        width = max(_WIDTH, *(len(word) + 2 for word, _ in self.lines))
        return "\n".join(f"{word:{width}}{text}".rstrip() for word, text in self.lines)


def found(findings: Iterable[Defect]) -> Lines:
    """Return the lines about findings."""
    lines: Lines = []
    for finding in findings:
        word = "note" if finding.flaw.harmless else "PROBLEM"
        lines.append((word, f"{finding.key}: {finding.sentence}"))
        if finding.last_seq:
            lines.append(("", f"entries {finding.first_seq} to {finding.last_seq}"))
        if finding.fix:
            lines.append(("", finding.fix))
    return lines


def row_of(value: Any) -> Any:
    """Convert a result for JSON: its fields, and the properties that its class lists in ``ALSO``, by name."""
    match value:
        case Defect():
            return value.row()
        case Listed():
            pointer = value.pointer
            incarnation, state = value.incarnation.hex(), pointer.state.value
            return {
                "account": value.account,
                "namespace": pointer.name,
                "incarnation": incarnation,
                "state": state,
            }
        case list() | tuple():
            return [row_of(item) for item in value]
        case dict():
            return {name: row_of(item) for name, item in value.items()}
    if not is_dataclass(value):
        return value
    names = [*getattr(value, "ALSO", ()), *(item.name for item in fields(value))]
    row = {name: row_of(getattr(value, name)) for name in names}
    return row.pop("listed", {}) | row


def verification(report: StoreReport) -> CommandReport:
    """Return the report of the verify command."""
    lines: Lines = []
    for space in report.namespaces:
        inner = "not opened" if space.inner_seals is None else f"{space.inner_seals} opened"
        counted = f"{space.entries} entries, {space.memories} memories, {space.bytes:,} bytes"
        pointer = space.listed.pointer
        text = f"{pointer.name} ({pointer.state.value}): {counted}, inner seals {inner}"
        lines += [("sound" if space.sound else "DAMAGED", text), *found(space.findings)]
    verdict = "the store is intact" if report.sound else "the store is damaged"
    result = ("result", f"{len(report.namespaces)} namespaces: {verdict}")
    return CommandReport([*lines, *found(report.findings), result], row_of(report), report.sound)


def repairs(
    looked_at: Iterable[Repair], beyond: Sequence[Defect], accounts: Sequence[str], *, apply: bool
) -> CommandReport:
    """Return the report of the repair command.

    It is about the repairs of all namespaces, findings ``beyond`` what repair can fix, and the ids of accounts whose objects
    were rebuilt. ``apply`` says whether the repairs were carried out.
    """
    needed = [item for item in looked_at if item.needed or item.hopeless]
    lines = [("account", f"{account}: its object was created again") for account in accounts]
    for repair in needed:
        lines += [("namespace", repair.listed.pointer.name), *found(repair.findings)]
        if repair.manifest_rebuilt:
            lines.append(("manifest", "created again from the existing segments and entries"))
        lines += [("mend", _mending(item)) for item in repair.mendings]
        lines += [("kept", f"{key}: copied to quarantine/") for key in repair.quarantined]
        if repair.hopeless:
            lines.append(("PROBLEM", "written by a newer version: update memrelay on this machine first"))
    lost = sum(len(repair.lost_entries) for repair in needed)
    if not needed and not beyond and not accounts:
        end = "there is nothing to repair"
    elif apply:
        end = f"{lost} entries are lost; check again with memrelay verify. A backup may contain them"
    else:
        end = f"nothing was changed; with --apply, {lost} entries would be lost. Stop the relayers, and have a backup, first"
    row = {"applied": apply, "accounts": list(accounts), "namespaces": needed, "findings": beyond}
    well = not beyond and all(item.done and not item.hopeless for item in needed)
    return CommandReport([*lines, *found(beyond), ("result", end)], row_of(row), well)


def _mending(item: Replacement) -> str:
    runs = []
    for _, group in groupby(enumerate(item.lost), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    found = f"{item.from_slots} from their slots, {item.salvaged} from the remaining part of the segment"
    lost = f"lost: {', '.join(runs)}" if runs else "none lost"
    return f"entries {item.first_seq} to {item.last_seq}: {found}, {lost}"


def stats(measured: Stats, traffic: Traffic | None, quota_of: Callable[[str], Quota]) -> CommandReport:
    """Return the report of the stats command: amounts, and the largest accounts with their quotas."""
    total, garbage = measured.total, measured.garbage
    covered, loose = garbage.covered_slots, garbage.unnamed
    dead = covered.bytes + loose.bytes
    share = dead / total.bytes if total.bytes else 0.0
    kinds = sorted(measured.kinds.items(), key=lambda item: -item[1].bytes)
    lines = [
        ("accounts", f"{measured.accounts:,}"),
        ("namespaces", f"{measured.namespaces:,}"),
        ("entries", f"{measured.entries:,}, {measured.tail_entries:,} of them not yet in a segment"),
        ("segments", f"{measured.segments:,}"),
        *((f"  {kind}", f"{kept.objects:,} objects, {kept.bytes:,} bytes") for kind, kept in kinds),
        ("total", f"{total.objects:,} objects, {total.bytes:,} bytes"),
        ("garbage", f"{dead:,} bytes ({share:.0%}), which collection deletes"),
        ("  in segments", f"{covered.objects:,} entries that are also in segments"),
        ("  unnamed", f"{loose.objects:,} objects without a reference"),
    ]
    if traffic is not None:
        asked = f"{traffic.writes:.3f} writes and {traffic.reads:.3f} reads of the store, on average"
        lines.append(("per request", asked))
    for account, keeps in list(measured.by_account.items())[:_LARGEST]:
        most = asdict(quota_of(account))
        amounts = (
            f"{used:,}{f' of {most[what]:,}' if most[what] else ''} {what}"
            for what, used in asdict(keeps).items()
        )
        lines.append((f"{account[:10]}...", ", ".join(amounts)))
    if measured.unread_manifests:
        lines.append(
            (
                "PROBLEM",
                f"{measured.unread_manifests} manifests cannot be opened: list them with memrelay verify",
            )
        )
    return CommandReport(lines, row_of(measured) | {"traffic": row_of(traffic)})


def backup(done: Backup, dropped: int) -> CommandReport:
    """Return the report of the backup command; ``dropped`` is the number of objects that were deleted with old runs."""
    lines = [
        *found(done.findings),
        ("run", f"{done.run}: {done.namespaces} namespaces, {done.objects} objects, {done.bytes:,} bytes"),
        ("copied", f"{done.copied_objects} objects, {done.copied_bytes:,} bytes"),
        ("ledger", f"{done.erased_memories} erased memories are not restorable"),
    ]
    if dropped:
        lines.append(("dropped", f"{dropped} objects that only older runs used"))
    result = "the backup is incomplete" if done.findings else "the backup is complete"
    row = row_of(done) | {"dropped": dropped}
    return CommandReport([*lines, ("result", result)], row, not done.findings)


def restoration(done: Restoration) -> CommandReport:
    """Return the report of the restore command."""
    run, ledger = done.run, done.ledger
    erased = f"{done.erased_memories} memories and {done.erased_namespaces} namespaces of the backup"
    written = f"{done.objects} objects, {done.bytes:,} bytes written"
    result = "the restore is incomplete" if done.findings else "relayers can now use the store"
    lines = [
        *found(done.findings),
        ("run", f"{run.number} of {_time(run.began)}"),
        (
            "ledger",
            f"{ledger.number} of {_time(ledger.ended)}: {erased} were erased since then and are not restored",
        ),
        ("restored", f"{done.namespaces} namespaces; {written}"),
        ("result", f"{result}; check the whole store with memrelay verify"),
    ]
    numbers = {"run": run.number, "run_began": render_time(run.began), "ledger": ledger.number}
    row = row_of(done) | numbers
    return CommandReport(lines, row, not done.findings)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
