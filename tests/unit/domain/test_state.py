"""The rules of a namespace, one by one."""

from collections.abc import Callable

import msgspec
import pytest
from log_operations import START, SmallLog

from relayer.domain.operations import (
    Close,
    Entry,
    Erase,
    Forget,
    JobAccepted,
    JobFinished,
    Operation,
    OperationResult,
    Outcome,
    Put,
    Refusal,
    Restore,
    Stored,
    Supersede,
    VectorSet,
)
from relayer.domain.state import EXPIRY_GRACE_MS, NONCE_LIFE_MS, NONCES_KEPT, NamespaceState
from relayer.errors import UpgradeRequired
from relayer.wire.fields import Status


@pytest.fixture
def log() -> SmallLog:
    return SmallLog()


def test_a_put_is_stored_and_live(log: SmallLog) -> None:
    assert log.append(log.put(b"r")) == [Outcome(OperationResult.STORED, b"r", 1)]
    assert log.state.records[b"r"].live_at(0)


def test_the_same_content_again_reinforces_the_first(log: SmallLog) -> None:
    log.append(log.put(b"r", b"tea"))
    assert log.append(log.put(b"s", b"tea"), time=5) == [Outcome(OperationResult.DUPLICATE, b"r", 2)]
    assert (log.state.records[b"r"].reinforced, log.state.records[b"r"].reinforced_at) == (1, 5)


def test_what_expired_is_no_duplicate(log: SmallLog) -> None:
    log.append(log.put(b"r", b"tea", expires_at=10))
    assert log.append(log.put(b"s", b"tea"), time=10)[0].result is OperationResult.STORED


def test_a_forgotten_content_is_not_captured_again_but_may_be_said_again(log: SmallLog) -> None:
    log.append(log.put(b"r", b"tea"), Forget(log.origin(), b"r"))
    assert log.append(log.put(b"s", b"tea", captured=True))[0].refusal is Refusal.TOMBSTONED
    assert log.append(log.put(b"t", b"tea"))[0].result is OperationResult.STORED


def test_a_record_id_is_used_once(log: SmallLog) -> None:
    log.append(log.put(b"r"), log.put(b"e"), Erase(log.origin(), (b"e",)))
    assert log.append(log.put(b"r", b"other"))[0].refusal is Refusal.RECORD_EXISTS
    assert log.append(log.put(b"e", b"other"))[0].refusal is Refusal.RECORD_EXISTS


def test_i7_superseding_needs_the_live_head(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    new = Stored(b"s", b"new", b"sealed")
    assert log.append(Supersede(log.origin(), b"r", new))[0] == Outcome(OperationResult.SUPERSEDED, b"s", 2)
    assert log.append(Supersede(log.origin(), b"r", Stored(b"t", b"t", b"")))[0].refusal is Refusal.STALE_HEAD
    assert (
        log.append(Supersede(log.origin(), b"x", Stored(b"t", b"t", b"")))[0].refusal
        is Refusal.UNKNOWN_RECORD
    )
    assert log.state.records[b"r"].status is Status.SUPERSEDED
    assert (log.state.records[b"r"].superseded_by, log.state.records[b"s"].supersedes) == (b"s", b"r")


def test_i7_forgetting_needs_the_live_head_and_restoring_undoes_it(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    assert log.append(Forget(log.origin(), b"r"))[0].result is OperationResult.FORGOTTEN
    assert log.append(Forget(log.origin(), b"r"))[0].refusal is Refusal.STALE_HEAD
    assert log.append(Restore(log.origin(), b"r"))[0].result is OperationResult.RESTORED
    assert log.append(Restore(log.origin(), b"r"))[0].refusal is Refusal.STALE_HEAD
    assert log.state.records[b"r"].live_at(0)


def test_restoring_a_superseded_memory_names_the_head_that_it_replaces(log: SmallLog) -> None:
    log.append(log.put(b"r"), Supersede(log.origin(), b"r", Stored(b"s", b"s", b"")))
    assert log.append(Restore(log.origin(), b"r", b"t"))[0].refusal is Refusal.STALE_HEAD
    assert log.append(Restore(log.origin(), b"r", b"s"))[0].result is OperationResult.RESTORED
    assert [log.state.records[record].status for record in (b"r", b"s")] == [Status.LIVE, Status.SUPERSEDED]


def test_what_another_memory_replaced_comes_back_beside_it(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    log.append(msgspec.structs.replace(log.put(b"s"), replaces=b"r"))
    assert log.state.records[b"r"].superseded_by == b"s"
    assert log.append(Restore(log.origin(), b"r"))[0].result is OperationResult.RESTORED
    old, new = (log.state.records[record] for record in (b"r", b"s"))
    assert (old.status, new.status) == (Status.LIVE, Status.LIVE)
    assert (old.superseded_by, new.supersedes) == (b"", b"")


def test_what_is_erased_is_gone_and_nothing_derived_from_it_is_stored_later(log: SmallLog) -> None:
    log.append(log.put(b"r", b"tea"))
    assert log.append(Erase(log.origin(), (b"r", b"unknown")))[0].result is OperationResult.ERASED
    assert b"r" not in log.state.records
    assert log.append(log.put(b"d", sources=(b"r",)))[0].refusal is Refusal.SOURCE_ERASED
    assert log.append(log.put(b"s", b"tea"))[0].result is OperationResult.STORED
    assert log.append(Erase(log.origin(), (b"r",)))[0].refusal is Refusal.UNKNOWN_RECORD


def test_erasing_a_record_that_is_named_twice_erases_it_once(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    assert log.append(Erase(log.origin(), (b"r", b"r")))[0] == Outcome(OperationResult.ERASED, b"r", 2)


def test_a_job_and_its_results_are_one(log: SmallLog) -> None:
    log.append(log.put(b"r"), JobAccepted(log.origin(), b"job", "extract", (b"r",)))
    done = log.append(JobFinished(b"job", stored=(Stored(b"f", b"fact", b"", sources=(b"r",)),)), time=9)
    assert done == [Outcome(OperationResult.FINISHED, b"job", 2)]
    assert (log.state.jobs[b"job"].state, log.state.jobs[b"job"].results) == ("done", (b"f",))
    assert log.state.records[b"f"].live_at(9)


def test_i7_a_job_that_finishes_again_gets_its_first_end_and_stores_nothing(log: SmallLog) -> None:
    log.append(JobAccepted(log.origin(), b"job", "extract"))
    first = log.append(JobFinished(b"job"))
    again = JobFinished(b"job", stored=(Stored(b"f", b"fact", b""),))
    assert log.append(again) == first
    assert log.state.outcome_of(again) == first[0]
    assert b"f" not in log.state.records


def test_the_end_of_a_job_nobody_accepted_is_refused_and_has_an_outcome(log: SmallLog) -> None:
    ended = JobFinished(b"job", stored=(Stored(b"f", b"fact", b""),))
    assert log.state.outcome_of(ended) is None
    outcome = log.append(ended)[0]
    assert outcome.refusal is Refusal.JOB_OVER
    assert log.state.outcome_of(ended) == outcome
    assert not log.state.records


def test_what_names_one_source_twice_is_erased_with_it_once(log: SmallLog) -> None:
    twice = Stored(b"f", b"fact", b"", sources=(b"r", b"r"))
    log.append(log.put(b"r"), Put(log.origin(), twice))
    assert log.append(Erase(log.origin(), (b"r",)))[0].result is OperationResult.ERASED
    assert log.state.erasures.known[b"r"].derived == (b"f",)


def test_a_job_of_which_no_input_is_left_is_cancelled_and_its_input_let_go(log: SmallLog) -> None:
    log.append(log.put(b"r"), JobAccepted(log.origin(), b"job", "extract", (b"r",), b"sealed input"))
    log.append(Erase(log.origin(), (b"r",)))
    job = log.state.jobs[b"job"]
    assert (job.state, job.reason, job.sealed) == ("failed", "source_erased", b"")
    late = log.append(JobFinished(b"job", stored=(Stored(b"f", b"fact", b""),)))[0]
    assert late.refusal is Refusal.SOURCE_ERASED
    assert b"f" not in log.state.records


def test_a_job_that_was_shown_an_erased_text_ends_and_nothing_of_it_is_kept(log: SmallLog) -> None:
    log.append(
        log.put(b"r"), log.put(b"s"), JobAccepted(log.origin(), b"job", "extract", (b"r", b"s"), b"in")
    )
    log.append(Erase(log.origin(), (b"r",)))
    job = log.state.jobs[b"job"]
    assert (job.state, job.reason, job.sealed) == ("failed", "source_erased", b"")
    log.append(JobFinished(b"job", stored=(Stored(b"2", b"2", b"", sources=(b"s",)),)))
    assert b"2" not in log.state.records
    assert log.state.erasures.known[b"r"].rest == (b"s",)


def test_a_promise_of_vectors_outlives_one_of_its_records(log: SmallLog) -> None:
    log.append(log.put(b"r"), log.put(b"s"), JobAccepted(log.origin(), b"job", "embed", (b"r", b"s")))
    log.append(Erase(log.origin(), (b"r",)))
    assert log.state.jobs[b"job"].outcome is None
    log.append(Erase(log.origin(), (b"s",)))
    assert log.state.jobs[b"job"].reason == "source_erased"


def test_results_that_come_from_an_erased_source_are_dropped_and_the_others_kept(log: SmallLog) -> None:
    log.append(log.put(b"r"), log.put(b"s"), JobAccepted(log.origin(), b"job", "extract", (b"s",)))
    log.append(Erase(log.origin(), (b"r",)))
    results = (
        Stored(b"1", b"1", b"", sources=(b"r",)),
        Stored(b"2", b"2", b"", sources=(b"s",)),
        Stored(b"3", b"3", b"", sources=(b"r", b"s")),
    )
    log.append(JobFinished(b"job", stored=results))
    assert log.state.jobs[b"job"].results == (b"2",)


def test_a_job_is_not_promised_over_what_is_erased(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    log.append(Erase(log.origin(), (b"r",)))
    promised = log.append(JobAccepted(log.origin(), b"job", "extract", (b"r",), b"in"))[0]
    assert promised.refusal is Refusal.SOURCE_ERASED
    assert b"job" not in log.state.jobs


def test_what_was_derived_goes_with_its_source_and_what_else_it_came_from_is_to_be_read_again(
    log: SmallLog,
) -> None:
    log.append(log.put(b"a"), log.put(b"b"), log.put(b"c"), log.put(b"apart"))
    log.append(log.put(b"fact", sources=(b"a",)), log.put(b"summary", sources=(b"a", b"b", b"c")))
    log.append(log.put(b"of the summary", sources=(b"summary",)))
    log.append(Forget(log.origin(), b"c"))
    log.append(Erase(log.origin(), (b"a",)))
    assert log.state.records.keys() == {b"b", b"c", b"apart"}
    erasure = log.state.erasures.known[b"a"]
    assert (erasure.records, set(erasure.derived)) == ((b"a",), {b"fact", b"summary", b"of the summary"})
    assert erasure.rest == (b"b",)
    assert log.state.erasures.erasure_of(b"summary") == erasure


def test_an_erasure_knows_every_slot_with_a_body_of_what_it_erased(log: SmallLog) -> None:
    log.append(log.put(b"r", b"text"))
    log.append(log.put(b"apart"))
    log.append(log.put(b"again", b"text"), JobAccepted(log.origin(), b"job", "extract", (b"again",), b"in"))
    log.append(log.put(b"next", context_of=b"r"))
    log.append(log.put(b"apart too"))
    log.append(JobFinished(b"job", stored=(Stored(b"fact", b"fact", b"", sources=(b"r",)),)))
    log.append(JobAccepted(log.origin(), b"vectors", "embed", (b"r",)))
    log.append(JobFinished(b"vectors", vectors=(VectorSet(b"r", b"own"),)))
    log.append(log.put(b"apart three"))
    log.append(Erase(log.origin(), (b"r",)))
    erasure = log.state.erasures.known[b"r"]
    assert (erasure.slots, erasure.seq) == ((1, 3, 4, 6, 7, 8), 10)
    assert list(log.state.erasures.late) == []


@pytest.mark.parametrize(
    "late",
    [
        lambda log: log.put(b"again", b"content of r", captured=True),
        lambda log: log.put(b"r", b"another"),
        lambda log: log.put(b"derived", sources=(b"r",)),
        lambda log: log.put(b"next", context_of=b"r"),
        lambda log: JobAccepted(log.origin(), b"another", "extract", (b"r",), b"in"),
        lambda log: JobFinished(b"job", stored=(Stored(b"fact", b"fact", b"sealed"),)),
        lambda log: JobFinished(b"vectors", vectors=(VectorSet(b"r", b"own"),)),
        lambda log: JobFinished(b"vectors", vectors=(VectorSet(b"s", b"own", b"mixed", b"r"),)),
    ],
    ids=["text", "record", "derived", "context", "promise", "results", "vectors", "vector in context"],
)
def test_a_body_that_arrives_after_its_erasure_is_known(
    log: SmallLog, late: Callable[[SmallLog], Operation]
) -> None:
    log.append(log.put(b"r"), log.put(b"s"), JobAccepted(log.origin(), b"job", "extract", (b"r",), b"in"))
    log.append(JobAccepted(log.origin(), b"vectors", "embed", (b"r", b"s")))
    log.append(Erase(log.origin(), (b"r",)))
    log.append(log.put(b"apart"), JobAccepted(log.origin(), b"other", "extract", (b"s",), b"in"))
    assert list(log.state.erasures.late) == []
    log.append(late(log))
    assert list(log.state.erasures.late) == [5]


def test_a_text_that_a_person_said_again_may_be_repeated(log: SmallLog) -> None:
    log.append(log.put(b"r", b"text"))
    log.append(Erase(log.origin(), (b"r",)))
    log.append(log.put(b"again", b"text"))
    log.append(log.put(b"once more", b"text"))
    assert not log.state.erasures.late


def test_after_close_everything_is_refused(log: SmallLog) -> None:
    log.append(JobAccepted(log.origin(), b"job", "extract"))
    assert log.append(Close(log.origin()))[0].result is OperationResult.CLOSED
    assert log.append(log.put(b"r"))[0].refusal is Refusal.CLOSED
    assert log.append(JobFinished(b"job"))[0].refusal is Refusal.JOB_OVER


def test_i7_a_repeated_id_gets_the_first_outcome_whatever_it_asks_now(log: SmallLog) -> None:
    operation = log.put(b"r")
    first = log.append(operation)
    again = Forget(operation.origin, b"r")
    applied = log.state.apply(log.entry(again), b"d")
    assert [one.outcome for one in applied] == first
    assert applied[0].repeated
    assert log.state.records[b"r"].live_at(0)


def test_i7_an_idempotency_key_gives_the_first_outcome_or_a_conflict(log: SmallLog) -> None:
    def keyed(record: bytes, body: bytes) -> Put:
        return Put(log.origin(idempotency=b"key", body=body), Stored(record, record, b""))

    first = log.append(keyed(b"r", b"body"))
    assert log.append(keyed(b"s", b"body")) == first
    assert log.append(keyed(b"t", b"other"))[0].refusal is Refusal.IDEMPOTENCY_CONFLICT
    assert list(log.state.records) == [b"r"]


def test_i8_an_operation_that_expired_long_ago_is_refused(log: SmallLog) -> None:
    def expiring(record: bytes) -> Put:
        return Put(log.origin(expires=1000), Stored(record, record, b""))

    assert log.append(expiring(b"r"), time=1000 + EXPIRY_GRACE_MS)[0].result is OperationResult.STORED
    assert log.append(expiring(b"s"), time=1001 + EXPIRY_GRACE_MS)[0].refusal is Refusal.EXPIRED


def test_i8_nonces_are_kept_for_ten_minutes_and_at_least_4096_operations(log: SmallLog) -> None:
    first = log.put(b"first")
    log.append(first, time=1)
    log.append(*(Forget(log.origin(), b"x") for _ in range(NONCES_KEPT - 1)), time=2 + NONCE_LIFE_MS)
    assert log.state.outcome_of(first) is not None  # old, and among the last 4,096
    log.append(Forget(log.origin(), b"x"))
    assert log.state.outcome_of(first) is None

    young = log.put(b"young")
    log.append(young)
    log.append(*(Forget(log.origin(), b"x") for _ in range(2 * NONCES_KEPT)), time=2 + 2 * NONCE_LIFE_MS)
    assert log.state.outcome_of(young) is not None  # far back, and ten minutes old


def test_i8_idempotency_keys_outlive_nonces(log: SmallLog) -> None:
    def keyed(record: bytes) -> Put:
        return Put(log.origin(idempotency=b"key", body=b"b"), Stored(record, record, b""))

    first = log.append(keyed(b"r"), time=1)
    log.append(*(Forget(log.origin(), b"x") for _ in range(NONCES_KEPT + 1)), time=2 + NONCE_LIFE_MS)
    assert log.append(keyed(b"s")) == first


def test_i11_time_never_goes_back(log: SmallLog) -> None:
    log.append(log.put(b"r"), time=100)
    log.append(log.put(b"s"), time=50)
    assert log.state.last_time == 100


def test_i12_an_unknown_operation_leaves_the_state_as_it_was(log: SmallLog) -> None:
    entry = log.entry(log.put(b"r"))
    newer = Entry(1, 1, b"", b"", b"", 5, (*entry.operations, b"\x92\xa5grant\x01"))
    with pytest.raises(UpgradeRequired):
        log.state.apply(newer, b"d")
    assert log.state == NamespaceState(START)


def test_only_what_is_alike_in_voice_and_audience_is_a_duplicate() -> None:
    log = SmallLog()
    log.append(log.put(b"r", b"text", likeness=b"a tool, in private"))
    said = log.append(log.put(b"s", b"text", likeness=b"the user, in a group"))[0]
    again = log.append(log.put(b"t", b"text", likeness=b"a tool, in private"))[0]
    assert (said.result, again.result, again.subject) == (
        OperationResult.STORED,
        OperationResult.DUPLICATE,
        b"r",
    )


def test_a_capture_does_not_bring_back_a_text_that_was_forgotten_or_erased_whoever_says_it() -> None:
    log = SmallLog()
    log.append(log.put(b"r", b"text", likeness=b"one"), Forget(log.origin(), b"r"))
    log.append(log.put(b"s", b"other", likeness=b"one more"), Erase(log.origin(), (b"s",)))
    for record, text in ((b"t", b"text"), (b"u", b"other")):
        captured = log.append(log.put(record, text, likeness=b"new " + text, captured=True))[0]
        assert captured.refusal is Refusal.TOMBSTONED
        assert (
            log.append(log.put(record + b"!", text, likeness=b"new " + text))[0].result
            is OperationResult.STORED
        )


def test_a_jobs_result_takes_the_place_of_a_live_memory_and_lets_go_of_the_input(log: SmallLog) -> None:
    log.append(log.put(b"old"), JobAccepted(log.origin(), b"job", "extract", (b"old",), b"input"))
    new = Stored(b"new", b"newer", b"")
    log.append(JobFinished(b"job", stored=(new,), supersedes=((b"new", b"old"),)), time=7)
    old = log.state.records[b"old"]
    assert (old.status, old.superseded_by, old.changed_at) == (Status.SUPERSEDED, b"new", 7)
    assert log.state.records[b"new"].supersedes == b"old"
    assert log.state.jobs[b"job"].sealed == b""


def test_a_jobs_result_replaces_nothing_that_somebody_dealt_with_meanwhile(log: SmallLog) -> None:
    log.append(log.put(b"old"), JobAccepted(log.origin(), b"job", "extract", (), b"input"))
    log.append(Forget(log.origin(), b"old"))
    new = Stored(b"new", b"newer", b"")
    log.append(JobFinished(b"job", stored=(new,), supersedes=((b"new", b"old"), (b"none", b"old"))))
    assert log.state.records[b"old"].status is Status.FORGOTTEN
    assert log.state.records[b"new"].supersedes == b""


def said_otherwise(log: SmallLog, record: bytes, twin: bytes) -> Put:
    return Put(log.origin(), Stored(record, b"other words", b"sealed", captured=True), twin=twin)


def changed(log: SmallLog, record: bytes, head: bytes) -> Put:
    return Put(log.origin(), Stored(record, b"content of " + record, b"sealed", captured=True), replaces=head)


def test_a_put_that_names_a_live_twin_reinforces_it(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    assert log.append(said_otherwise(log, b"s", b"r")) == [Outcome(OperationResult.DUPLICATE, b"r", 2)]
    assert log.state.records[b"r"].reinforced == 1


def test_a_put_whose_twin_was_superseded_is_stored(log: SmallLog) -> None:
    log.append(log.put(b"r"), Supersede(log.origin(), b"r", Stored(b"q", b"q", b"")))
    assert log.append(said_otherwise(log, b"s", b"r"))[0].result is OperationResult.STORED


@pytest.mark.parametrize("end", [Forget, lambda origin, record: Erase(origin, (record,))])
def test_a_capture_whose_twin_was_taken_back_is_refused(log: SmallLog, end: Callable[..., Operation]) -> None:
    log.append(log.put(b"r"), end(log.origin(), b"r"))
    assert log.append(said_otherwise(log, b"s", b"r"))[0].refusal is Refusal.TOMBSTONED


def test_erasing_a_memory_covers_the_entry_that_repeated_it_in_other_words(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    log.append(said_otherwise(log, b"s", b"r"))
    log.append(Erase(log.origin(), (b"r",)))
    assert {1, 2} <= set(log.state.erasures.known[b"r"].slots)


def test_a_put_takes_the_place_of_a_live_head(log: SmallLog) -> None:
    log.append(log.put(b"r"))
    assert log.append(changed(log, b"s", b"r"))[0].result is OperationResult.STORED
    assert log.state.records[b"r"].status is Status.SUPERSEDED
    assert (log.state.records[b"r"].superseded_by, log.state.records[b"s"].supersedes) == (b"s", b"r")


def test_a_put_whose_head_was_replaced_before_stands_beside_its_successor(log: SmallLog) -> None:
    log.append(log.put(b"r"), changed(log, b"s", b"r"))
    assert log.append(changed(log, b"t", b"r"))[0].result is OperationResult.STORED
    assert log.state.records[b"s"].live_at(0)
    assert log.state.records[b"t"].live_at(0)
    assert log.state.records[b"t"].conflicts_with == b"r"


def test_a_put_whose_head_was_forgotten_replaces_nothing_and_contradicts_nobody(log: SmallLog) -> None:
    log.append(log.put(b"r"), Forget(log.origin(), b"r"), changed(log, b"s", b"r"))
    assert log.state.records[b"r"].status is Status.FORGOTTEN
    assert (log.state.records[b"s"].conflicts_with, log.state.records[b"s"].supersedes) == (b"", b"")
