"""Results as people read them: a word, what it is about, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby

from relayer.access.quotas import Quota
from relayer.admin.backup import Backup
from relayer.admin.catalogue import Finding
from relayer.admin.repair import Repair, Replacement
from relayer.admin.restore import Restoration
from relayer.admin.stats import Prices, Stats, Traffic
from relayer.admin.upgrade import Upgrade
from relayer.admin.verify import StoreReport

# What a warm relayer asks of its store, by the protocol: a write alone in its entry is one create, a strong recall one get.
WRITE = Traffic(writes=1, reads=0)
RECALL = Traffic(writes=0, reads=1)
_WIDTH = 10
# Accounts that are shown one by one.
_LARGEST = 10


def aligned(lines: Sequence[tuple[str, str]]) -> str:
    """Lay out names and values in two columns."""
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:{width}}{value}" for name, value in lines)


def _line(word: str, text: str) -> str:
    return f"{word:{_WIDTH}}{text}"


def _findings(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for finding in findings:
        lines.append(
            _line("note" if finding.flaw.harmless else "PROBLEM", f"{finding.key}: {finding.sentence}")
        )
        if finding.last_seq:
            lines.append(_line("", f"entries {finding.first_seq} to {finding.last_seq}"))
        if finding.fix:
            lines.append(_line("", finding.fix))
    return lines


def verification(report: StoreReport) -> str:
    """Show what was verified and found."""
    lines: list[str] = []
    for space in report.namespaces:
        inner = "not opened" if space.bodies is None else f"{space.bodies} opened"
        pointer = space.listed.pointer
        state = "sound" if space.sound else "DAMAGED"
        lines.append(
            _line(
                state,
                f"{pointer.name} ({pointer.state.value}): {space.entries} entries, {space.memories} memories, "
                f"{space.bytes:,} bytes, inner seals {inner}",
            )
        )
        lines += _findings(space.findings)
    lines += _findings(report.findings)
    verdict = "everything is as it was written" if report.sound else "something is not as it was written"
    return "\n".join([*lines, _line("result", f"{len(report.namespaces)} namespaces: {verdict}")])


def repair_row(repair: Repair) -> dict[str, object]:
    """Return a repair for JSON."""
    return {
        "account": repair.listed.account,
        "namespace": repair.listed.pointer.name,
        "done": repair.done,
        "manifest_rebuilt": repair.manifest_rebuilt,
        "lost_entries": repair.lost,
        "mendings": [
            {
                "first_seq": item.first_seq,
                "last_seq": item.last_seq,
                "from_slots": item.from_slots,
                "salvaged": item.salvaged,
                "lost": list(item.lost),
            }
            for item in repair.mendings
        ],
        "quarantined": repair.quarantined,
        "findings": [finding.row() for finding in repair.findings],
    }


def repairs(
    needed: Sequence[Repair], beyond: Sequence[Finding], accounts: Sequence[str], *, apply: bool
) -> str:
    """Show what is repaired, or would be; ``accounts`` are those whose objects were made anew."""
    lines = [_line("account", f"{account}: its object was made anew") for account in accounts]
    for repair in needed:
        lines.append(_line("namespace", repair.listed.pointer.name))
        lines += _findings(repair.findings)
        if repair.manifest_rebuilt:
            lines.append(_line("manifest", "made anew from the segments and entries that are there"))
        lines += [_line("mend", _mending(item)) for item in repair.mendings]
        lines += [_line("kept", f"{key}: a copy is below quarantine/") for key in repair.quarantined]
        if repair.hopeless:
            lines.append(
                _line("PROBLEM", "written by a newer version: update memrelay on this machine first")
            )
    lines += _findings(beyond)
    if not needed and not beyond and not accounts:
        return _line("result", "there is nothing to repair")
    lost = sum(len(repair.lost) for repair in needed)
    if apply:
        end = f"{lost} entries are lost; memrelay verify looks again. What they said may be in a backup"
    else:
        end = f"nothing was changed; with --apply, {lost} entries would be lost. Stop the relayers, and have a backup, first"
    return "\n".join([*lines, _line("result", end)])


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


def stats(measured: Stats, prices: Prices, traffic: Traffic | None, quota_of: Callable[[str], Quota]) -> str:
    """Show amounts and costs, and the accounts that keep most beside what they may keep."""
    lines = [
        ("accounts", f"{measured.accounts:,}"),
        ("namespaces", f"{measured.namespaces:,}"),
        ("entries", f"{measured.entries:,}, {measured.tail:,} of them in no segment yet"),
        ("segments", f"{measured.segments:,}"),
    ]
    for kind, amount in sorted(measured.kinds.items(), key=lambda item: -item[1].bytes):
        lines.append((f"  {kind.value}", f"{amount.objects:,} objects, {amount.bytes:,} bytes"))
    total = measured.total
    garbage = measured.covered.bytes + measured.loose.bytes
    share = garbage / total.bytes if total.bytes else 0.0
    lines += [
        ("total", f"{total.objects:,} objects, {total.bytes:,} bytes"),
        ("garbage", f"{garbage:,} bytes ({share:.0%}), which collection deletes"),
        ("  in segments", f"{measured.covered.objects:,} entries that segments hold as well"),
        ("  unnamed", f"{measured.loose.objects:,} objects that no manifest names"),
        ("per month", f"{measured.monthly(prices):.4f} to keep it"),
        (
            "per million",
            f"{WRITE.per_million(prices):.2f} writes, {RECALL.per_million(prices):.2f} recalls, of a warm relayer",
        ),
    ]
    if traffic is not None:
        asked = f"{traffic.writes:.3f} writes and {traffic.reads:.3f} reads of the store for each"
        lines.append(
            ("  as counted", f"{traffic.per_million(prices):.2f} for requests as they came: {asked}")
        )
    for account, kept in measured.largest(_LARGEST):
        quota = quota_of(account)
        shown = (
            (measured.names[account], quota.namespaces, "namespaces"),
            (kept.memories, quota.memories, "memories"),
            (kept.bytes, quota.bytes, "bytes"),
        )
        amounts = (f"{used:,}{f' of {most:,}' if most else ''} {what}" for used, most, what in shown)
        lines.append((f"{account[:10]}...", ", ".join(amounts)))
    if measured.unread:
        lines.append(("PROBLEM", f"{measured.unread} manifests do not open: memrelay verify names them"))
    return aligned(lines)


def cost_row(measured: Stats, prices: Prices, traffic: Traffic | None) -> dict[str, object]:
    """Return costs for JSON, in the currency of the prices."""
    return {
        "per_month": measured.monthly(prices),
        "million_writes": WRITE.per_million(prices),
        "million_recalls": RECALL.per_million(prices),
        "million_requests_as_counted": None if traffic is None else traffic.per_million(prices),
    }


def upgrade(done: Upgrade, *, apply: bool) -> list[str]:
    """Show what was raised, or would be."""
    lines = _findings(done.findings)
    if not done.raised:
        return [*lines, _line("result", f"nothing to do: {done.had} namespaces have format {done.format}")]
    what = "have" if apply else "would get"
    after = (
        ""
        if apply
        else "; --apply does it. Relayers that do not know it refuse these namespaces from then on"
    )
    return [
        *lines,
        _line(
            "result", f"{done.raised} namespaces {what} format {done.format} now, {done.had} had it{after}"
        ),
    ]


def backup(done: Backup, dropped: int) -> str:
    """Show what was backed up."""
    lines = [
        *_findings(done.findings),
        _line(
            "run",
            f"{done.number}: {done.namespaces} namespaces, {done.objects} objects, {done.bytes:,} bytes",
        ),
        _line("copied", f"{done.copied} objects, {done.copied_bytes:,} bytes"),
        _line("ledger", f"{done.erased} erased memories will not come back"),
    ]
    if dropped:
        lines.append(_line("dropped", f"{dropped} objects that only older runs needed"))
    result = "not everything could be backed up" if done.findings else "the backup is whole"
    return "\n".join([*lines, _line("result", result)])


def restoration(done: Restoration) -> str:
    """Show what was restored."""
    lines = [
        *_findings(done.findings),
        _line("run", f"{done.run.number} of {_time(done.run.began)}"),
        _line(
            "ledger",
            f"{done.ledger.number} of {_time(done.ledger.ended)}: {done.erased_memories} memories and "
            f"{done.erased_namespaces} namespaces of the backup were erased since, and are not restored",
        ),
        _line(
            "restored", f"{done.namespaces} namespaces; {done.objects} objects, {done.bytes:,} bytes written"
        ),
    ]
    result = "not everything could be restored" if done.findings else "relayers may use the store"
    return "\n".join([*lines, _line("result", f"{result}; memrelay verify looks at all of it")])


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
