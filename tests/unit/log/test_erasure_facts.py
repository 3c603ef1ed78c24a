"""What a log says of an erasure counts, whatever its report said before."""

from __future__ import annotations

import msgspec
import pytest
from log_operations import entry_of

from relayer.domain.namespace import LogPosition
from relayer.domain.operations import Erase, Operation, Origin, Put, Stored
from relayer.domain.state import NamespaceState
from relayer.log.erasure import REPORT_FORMAT, ErasureKind, ErasureReport, ErasureStage, retold, still_has

RECORDS = (b"r1", b"r2")
REPORT = ErasureReport(
    REPORT_FORMAT,
    erasure=b"r1",
    account="0x",
    namespace="research",
    incarnation=b"i",
    what=ErasureKind.MEMORY,
    asked_at=30,
    seq=3,
    records=RECORDS,
    slots=(1, 2),
    stage=ErasureStage.DESTROYED,
    epoch=4,
    destroyed_at=31,
)


def put(record: bytes) -> Put:
    return Put(Origin(b"a", record), Stored(record, b"text of " + record, b"sealed"))


def erase(*records: bytes) -> Erase:
    return Erase(Origin(b"a", b"erase" + records[0]), records)


def log_of(*operations: Operation) -> NamespaceState:
    """Return the state of a log with an entry for each operation, ten milliseconds apart."""
    state = NamespaceState(LogPosition(0, b""))
    for seq, operation in enumerate(operations, 1):
        state.apply(entry_of(seq, operation, time=seq * 10), b"d")
    return state


PUTS = tuple(map(put, RECORDS))


def test_a_report_of_what_the_log_says_stays_as_it_is() -> None:
    state = log_of(*PUTS, erase(*RECORDS))
    assert retold(REPORT, state) == REPORT
    assert not still_has(state, REPORT)


@pytest.mark.parametrize("again", [(b"r1", b"r2"), (b"r2", b"r1")], ids=["same id", "another id"])
def test_an_erasure_that_was_decided_again_begins_anew_once(again: tuple[bytes, ...]) -> None:
    state = log_of(*PUTS, put(b"r3"), put(b"r4"), erase(*again))
    told = retold(REPORT, state)
    assert (told.seq, told.asked_at, told.slots) == (5, 50, (1, 2))
    assert (told.stage, told.epoch, told.destroyed_at) == (ErasureStage.ERASED, 0, 0)
    destroyed = msgspec.structs.replace(told, stage=ErasureStage.DESTROYED, epoch=9)
    assert retold(destroyed, state) == destroyed


def test_what_was_decided_again_in_several_steps_is_cleaned_up_to_the_last() -> None:
    state = log_of(*PUTS, erase(b"r2"), put(b"r3"), erase(b"r1"))
    told = retold(REPORT, state)
    assert (told.seq, told.asked_at, told.slots) == (5, 50, (1, 2))


def test_a_log_that_is_shorter_than_its_report_and_never_held_this_is_cleaned_up_to_its_end() -> None:
    state = log_of(put(b"r3"))
    told = retold(REPORT, state)
    assert (told.seq, told.slots, told.stage) == (1, (), ErasureStage.ERASED)
    state.apply(entry_of(2, put(b"r4"), time=20), b"d")
    assert retold(told, state) == told


@pytest.mark.parametrize("there", [PUTS, (*PUTS, erase(b"r1")), PUTS[1:]])
def test_a_log_that_has_any_of_it_lost_the_erasure(there: tuple[Operation, ...]) -> None:
    assert still_has(log_of(*there), REPORT)
