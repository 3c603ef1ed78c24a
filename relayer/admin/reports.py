"""Results as they are printed: a row for JSON, or lines of a word, what it is about, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from relayer.access.quotas import Quota
from relayer.admin.backup import Backup
from relayer.admin.catalogue import Finding, Listed
from relayer.admin.inspect import Lines
from relayer.admin.repair import Repair, Replacement
from relayer.admin.restore import Restoration
from relayer.admin.stats import Prices, Stats, Traffic
from relayer.admin.verify import NamespaceReport, StoreReport
from relayer.wire.fields import render_time

# What a warm relayer asks of its store, by the protocol: a write alone in its entry is one create, a strong recall one get.
WRITE = Traffic(writes=1, reads=0)
RECALL = Traffic(writes=0, reads=1)
_WIDTH = 10
# Accounts that are shown one by one.
_LARGEST = 10


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found or did.

    Attributes:
        lines: words and what they are about, laid out in two columns.
        row: the same for JSON.
        well: whether nothing was found that needs a person.
    """

    lines: Lines
    row: Mapping[str, object]
    well: bool = True

    def text(self) -> str:
        """Return what people read."""
        width = max(_WIDTH, *(len(word) + 2 for word, _ in self.lines))
        return "\n".join(f"{word:{width}}{text}".rstrip() for word, text in self.lines)


def found(findings: Iterable[Finding]) -> Lines:
    """Show findings."""
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
    """Return a result for JSON: its fields and what its class says ``ALSO`` belongs to it, by their names."""
    match value:
        case Finding():
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


def verification(report: StoreReport) -> Report:
    """Show what was verified and found."""
    lines = [line for space in report.namespaces for line in (_space(space), *found(space.findings))]
    verdict = "everything is as it was written" if report.sound else "something is not as it was written"
    result = ("result", f"{len(report.namespaces)} namespaces: {verdict}")
    return Report([*lines, *found(report.findings), result], row_of(report), report.sound)


def _space(space: NamespaceReport) -> tuple[str, str]:
    inner = "not opened" if space.inner_seals is None else f"{space.inner_seals} opened"
    counted = f"{space.entries} entries, {space.memories} memories, {space.bytes:,} bytes"
    pointer = space.listed.pointer
    text = f"{pointer.name} ({pointer.state.value}): {counted}, inner seals {inner}"
    return "sound" if space.sound else "DAMAGED", text


def repairs(
    looked_at: Iterable[Repair], beyond: Sequence[Finding], accounts: Sequence[str], *, apply: bool
) -> Report:
    """Show what is repaired, or would be; ``accounts`` are those whose objects were made anew."""
    needed = [item for item in looked_at if item.needed or item.hopeless]
    lines = [("account", f"{account}: its object was made anew") for account in accounts]
    for repair in needed:
        lines += _repair(repair)
    lost = sum(len(repair.lost_entries) for repair in needed)
    if not needed and not beyond and not accounts:
        end = "there is nothing to repair"
    elif apply:
        end = f"{lost} entries are lost; memrelay verify looks again. What they said may be in a backup"
    else:
        end = f"nothing was changed; with --apply, {lost} entries would be lost. Stop the relayers, and have a backup, first"
    row = {"applied": apply, "accounts": list(accounts), "namespaces": needed, "findings": beyond}
    well = not beyond and all(item.done and not item.hopeless for item in needed)
    return Report([*lines, *found(beyond), ("result", end)], row_of(row), well)


def _repair(repair: Repair) -> Lines:
    lines = [("namespace", repair.listed.pointer.name), *found(repair.findings)]
    if repair.manifest_rebuilt:
        lines.append(("manifest", "made anew from the segments and entries that are there"))
    lines += [("mend", _mending(item)) for item in repair.mendings]
    lines += [("kept", f"{key}: a copy is below quarantine/") for key in repair.quarantined]
    if repair.hopeless:
        lines.append(("PROBLEM", "written by a newer version: update memrelay on this machine first"))
    return lines


def _mending(item: Replacement) -> str:
    found = f"{item.from_slots} from their slots, {item.salvaged} from what is left of the segment"
    lost = f"lost: {_ranges(item.lost)}" if item.lost else "none lost"
    return f"entries {item.first_seq} to {item.last_seq}: {found}, {lost}"


def _ranges(numbers: Sequence[int]) -> str:
    runs = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(runs)


def stats(
    measured: Stats, prices: Prices, traffic: Traffic | None, quota_of: Callable[[str], Quota]
) -> Report:
    """Show amounts and costs in the currency of the prices, and the accounts that keep most beside what they may keep."""
    total, garbage = measured.total, measured.garbage
    covered, loose = garbage.covered_slots, garbage.unnamed
    dead = covered.bytes + loose.bytes
    share = dead / total.bytes if total.bytes else 0.0
    monthly, writes, recalls = measured.monthly(prices), WRITE.per_million(prices), RECALL.per_million(prices)
    counted = None if traffic is None else traffic.per_million(prices)
    kinds = sorted(measured.kinds.items(), key=lambda item: -item[1].bytes)
    lines = [
        ("accounts", f"{measured.accounts:,}"),
        ("namespaces", f"{measured.namespaces:,}"),
        ("entries", f"{measured.entries:,}, {measured.tail_entries:,} of them in no segment yet"),
        ("segments", f"{measured.segments:,}"),
        *((f"  {kind}", f"{kept.objects:,} objects, {kept.bytes:,} bytes") for kind, kept in kinds),
        ("total", f"{total.objects:,} objects, {total.bytes:,} bytes"),
        ("garbage", f"{dead:,} bytes ({share:.0%}), which collection deletes"),
        ("  in segments", f"{covered.objects:,} entries that segments hold as well"),
        ("  unnamed", f"{loose.objects:,} objects that no manifest names"),
        ("per month", f"{monthly:.4f} to keep it"),
        ("per million", f"{writes:.2f} writes, {recalls:.2f} recalls, of a warm relayer"),
    ]
    if traffic is not None:
        asked = f"{traffic.writes:.3f} writes and {traffic.reads:.3f} reads of the store for each"
        lines.append(("  as counted", f"{counted:.2f} for requests as they came: {asked}"))
    for account, keeps in list(measured.by_account.items())[:_LARGEST]:
        most = asdict(quota_of(account))
        amounts = (
            f"{used:,}{f' of {most[what]:,}' if most[what] else ''} {what}"
            for what, used in asdict(keeps).items()
        )
        lines.append((f"{account[:10]}...", ", ".join(amounts)))
    if measured.unread_manifests:
        lines.append(
            ("PROBLEM", f"{measured.unread_manifests} manifests do not open: memrelay verify names them")
        )
    cost = {
        "per_month": monthly,
        "million_writes": writes,
        "million_recalls": recalls,
        "million_requests_as_counted": counted,
    }
    return Report(lines, row_of(measured) | {"cost": cost})


def backup(done: Backup, dropped: int) -> Report:
    """Show what was backed up."""
    lines = [
        *found(done.findings),
        ("run", f"{done.run}: {done.namespaces} namespaces, {done.objects} objects, {done.bytes:,} bytes"),
        ("copied", f"{done.copied_objects} objects, {done.copied_bytes:,} bytes"),
        ("ledger", f"{done.erased_memories} erased memories will not come back"),
    ]
    if dropped:
        lines.append(("dropped", f"{dropped} objects that only older runs needed"))
    result = "not everything could be backed up" if done.findings else "the backup is whole"
    row = row_of(done) | {"dropped": dropped}
    return Report([*lines, ("result", result)], row, not done.findings)


def restoration(done: Restoration) -> Report:
    """Show what was restored."""
    run, ledger = done.run, done.ledger
    erased = f"{done.erased_memories} memories and {done.erased_namespaces} namespaces of the backup"
    written = f"{done.objects} objects, {done.bytes:,} bytes written"
    result = "not everything could be restored" if done.findings else "relayers may use the store"
    lines = [
        *found(done.findings),
        ("run", f"{run.number} of {_time(run.began)}"),
        (
            "ledger",
            f"{ledger.number} of {_time(ledger.ended)}: {erased} were erased since, and are not restored",
        ),
        ("restored", f"{done.namespaces} namespaces; {written}"),
        ("result", f"{result}; memrelay verify looks at all of it"),
    ]
    numbers = {"run": run.number, "run_began": render_time(run.began), "ledger": ledger.number}
    row = row_of(done) | numbers
    return Report(lines, row, not done.findings)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
