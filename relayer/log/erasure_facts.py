"""What a log says of an erasure, for its report.

A report outlives the log that it is about: a backup brings the log back as it was before, a repair may find that the entry
with the erasure is lost. What the log says then counts, and nothing is confirmed that it does not say.
"""

from __future__ import annotations

import msgspec

from relayer.domain.state import NamespaceState
from relayer.log.erasure_reports import REPORT_FORMAT, ErasureReport, Stage, What
from relayer.log.replica import Replica

__all__ = ["report_of", "retold", "still_has"]


def report_of(account: str, namespace: str, replica: Replica, erasure: bytes) -> ErasureReport:
    """Return the first report of an erasure that a replica has applied."""
    known = replica.state.erasures.known[erasure]
    return ErasureReport(
        format=REPORT_FORMAT,
        erasure=erasure,
        account=account,
        namespace=namespace,
        incarnation=replica.incarnation,
        what=What.MEMORY,
        asked_at=known.at,
        seq=known.seq,
        records=known.records,
        derived=known.derived,
        slots=known.slots,
    )


def still_has(state: NamespaceState, report: ErasureReport) -> bool:
    """Whether a log lost an erasure, because it was restored or repaired: what the report is about must be erased again."""
    return any(record in state.records for record in (*report.records, *report.derived))


def retold(report: ErasureReport, state: NamespaceState) -> ErasureReport:
    """Return a report as the log tells of it, which may have lost the erasure and got it again, or never have held these."""
    known = state.erasures.known.get(report.erasure)
    if known is not None and known.at == report.asked_at:
        return report
    found = [state.erasures.erasure_of(record) for record in (*report.records, *report.derived)]
    known = max((one for one in found if one is not None), key=lambda one: one.seq, default=None)
    if known is None and report.seq <= state.position.seq:
        return report
    slots = {slot for one in found if one is not None for slot in one.slots}
    told = msgspec.structs.replace(
        report,
        asked_at=report.asked_at if known is None else known.at,
        seq=state.position.seq if known is None else known.seq,
        slots=tuple(sorted(slots)),
    )
    if told == report:
        return report
    return msgspec.structs.replace(told, stage=Stage.ERASED, epoch=0, destroyed_at=0)
