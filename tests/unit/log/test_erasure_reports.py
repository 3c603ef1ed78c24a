"""One report for an erasure in a log: what another log had decided answers nobody."""

from __future__ import annotations

import msgspec
import pytest
from log_world import ACCOUNT, World

from relayer.log.erasure import (
    REPORT_FORMAT,
    ErasureKind,
    ErasureReport,
    ErasureReports,
    ErasureStage,
)

ID = b"erasure of sixte"
REPORT = ErasureReport(
    REPORT_FORMAT, ID, ACCOUNT, "research", b"i" * 16, ErasureKind.MEMORY, asked_at=10, seq=1, records=(ID,)
)
OF_ANOTHER_LOG = msgspec.structs.replace(REPORT, asked_at=99, seq=7)


@pytest.fixture
def reports() -> ErasureReports:
    return ErasureReports(World().ports())


async def confirmed(reports: ErasureReports, report: ErasureReport) -> ErasureReport:
    return await reports.conclude(msgspec.structs.replace(report, stage=ErasureStage.CONFIRMED))


async def test_a_report_is_begun_once(reports: ErasureReports) -> None:
    first = await reports.begin(REPORT)
    assert await reports.begin(REPORT) == first
    done = await confirmed(reports, REPORT)
    assert (await reports.begin(REPORT)).report == done
    assert await reports.pending() == []


async def test_a_report_of_another_log_begins_anew_and_keeps_what_had_to_be_destroyed(
    reports: ErasureReports,
) -> None:
    before = await reports.begin(REPORT)
    destroyed = msgspec.structs.replace(REPORT, stage=ErasureStage.DESTROYED, objects=("ns/1/seg/2",))
    assert await reports.advance(before, destroyed) is not None
    begun = await reports.begin(OF_ANOTHER_LOG)
    assert begun.report == msgspec.structs.replace(OF_ANOTHER_LOG, objects=("ns/1/seg/2",))


async def test_what_was_confirmed_of_another_log_makes_way_for_what_is_confirmed_of_this_one(
    reports: ErasureReports,
) -> None:
    await reports.begin(REPORT)
    await confirmed(reports, REPORT)
    begun = await reports.begin(OF_ANOTHER_LOG)
    assert (begun.report.stage, begun.report.asked_at) == (ErasureStage.ERASED, 99)
    found = await reports.find(ACCOUNT, ID)
    assert found is not None
    assert found.report == begun.report
    assert len(await reports.pending()) == 1
    done = await confirmed(reports, OF_ANOTHER_LOG)
    assert (done.asked_at, done.stage) == (99, ErasureStage.CONFIRMED)
    assert await reports.pending() == []


async def test_an_incarnation_is_erased_once_whoever_asked_and_when(reports: ErasureReports) -> None:
    whole = msgspec.structs.replace(REPORT, what=ErasureKind.NAMESPACE)
    await reports.begin(whole)
    await confirmed(reports, whole)
    begun = await reports.begin(msgspec.structs.replace(whole, asked_at=99))
    assert begun.report.stage is ErasureStage.CONFIRMED
