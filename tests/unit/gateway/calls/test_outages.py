"""An outage is told once when it begins and once when it ends, by default, on standard error."""

from __future__ import annotations

import pytest
from wire_relayer import SECRET, answer

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.calling import Outages
from gateway_plugin.errors import DeadlineExceeded, RelayerRefused, RelayerUnreachable, RelayerUntrusted

QUESTION = "Where do I always park my bicycle?"


@pytest.fixture
def told():
    return []


@pytest.fixture
def outages(told):
    return Outages("http://relayer", told.append)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RelayerUnreachable("nobody answers"), "unavailable"),
        (RelayerUntrusted("another one"), "untrusted"),
        (RelayerRefused("not_accepted", "unknown account", status=401), "refused:not_accepted"),
    ],
)
def test_the_beginning_and_the_end_are_told_once(outages, told, error, status):
    for _ in range(5):
        outages.heard(error)
    assert len(told) == 1
    assert f"({status})" in told[0]
    outages.heard(None)
    outages.heard(None)
    assert len(told) == 2
    assert "answers again" in told[1]


def test_slow_and_away_are_one_outage_and_one_slow_turn_is_none(outages, told):
    outages.heard(DeadlineExceeded("recall"))
    outages.heard(None)
    assert told == []
    for error in (
        RelayerUnreachable("a"),
        DeadlineExceeded("b"),
        DeadlineExceeded("c"),
        RelayerUnreachable("d"),
    ):
        outages.heard(error)
    assert len(told) == 1


def test_what_is_refused_of_one_request_is_no_outage(outages, told):
    outages.heard(RelayerRefused("too_long", "the query", status=422))
    assert told == []


@pytest.mark.row("CP-30", level="e2e")
def test_a_turn_whose_recall_fails_goes_on_and_a_warning_is_printed(wire, environ, capsys):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        wire.script = [answer(401, "not_accepted")]
        turn = plugin.before_turn(QUESTION)
        assert (turn.text, turn.status) == ("", "refused:not_accepted")
        assert plugin.before_turn(QUESTION).status in {"ok", "empty"}
    said = capsys.readouterr().err
    assert said.index("memory does not work (refused:not_accepted)") < said.index("answers again")
    assert "bicycle" not in said
