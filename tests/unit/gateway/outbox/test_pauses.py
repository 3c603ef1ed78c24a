"""Pauses after failed deliveries: of one namespace each, longer each time, over once somebody answers."""

from __future__ import annotations

import pytest

from gateway_plugin.errors import DeadlineExceeded, GatewayError, RelayerUnreachable, RelayerUntrusted
from gateway_plugin.outbox.sender import Pauses

AWAY = RelayerUnreachable("no relayer answers")


@pytest.mark.parametrize(("failures", "longest"), [(1, 1.0), (2, 2.0), (4, 8.0), (9, 60.0), (2000, 60.0)])
def test_each_failure_doubles_the_pause_up_to_a_minute(failures, longest):
    pauses = Pauses(1.0)
    for _ in range(failures):
        pauses.failed("a", AWAY, 100.0)
    assert longest / 2 <= pauses.ends(100.0)["a"] - 100.0 <= longest


def test_a_pause_that_is_over_is_no_end_to_wait_for_and_still_counts():
    pauses = Pauses(1.0)
    pauses.failed("a", AWAY, 100.0)
    assert pauses.ends(200.0) == {}
    assert "a" in pauses


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(AWAY, True), (RelayerUntrusted("who is that"), True), (DeadlineExceeded("analyze"), False), (GatewayError("odd"), False)],
)  # fmt: skip
def test_a_delivery_ends_the_pauses_of_those_that_found_nobody(error, goes_on):
    pauses = Pauses(1.0)
    pauses.failed("mine", DeadlineExceeded("analyze"), 100.0)
    pauses.failed("other", error, 100.0)
    pauses.delivered("mine")
    assert ("mine" in pauses, "other" in pauses) == (False, not goes_on)


def test_the_newest_failure_that_still_counts_is_told():
    pauses = Pauses(1.0)
    assert pauses.latest == ""
    pauses.failed("a", GatewayError("first"), 100.0)
    pauses.failed("b", GatewayError("second"), 100.0)
    assert pauses.latest == "second"
    pauses.end("b")
    assert pauses.latest == "first"
    pauses.clear()
    assert pauses.latest == ""


def test_what_is_cut_short_is_tried_now_and_waits_longer_when_it_fails_again():
    pauses = Pauses(1.0)
    pauses.failed("a", AWAY, 100.0)
    pauses.cut_short()
    assert pauses.ends(100.0) == {}
    pauses.failed("a", AWAY, 100.0)
    assert pauses.ends(100.0)["a"] >= 101.0


def test_only_failures_after_a_moment_count_as_failed_since():
    pauses = Pauses(1.0)
    pauses.failed("a", AWAY, 100.0)
    moment = pauses.failures
    pauses.failed("b", AWAY, 100.0)
    assert pauses.failed_since(moment) == {"b"}
