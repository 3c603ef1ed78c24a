"""Memory switched off and on from the command line, while a gateway runs."""

from __future__ import annotations

import pytest
from wire_relayer import QUESTION, TURN

KEY = "agent:coder:main"
OTHER = "agent:coder:telegram:direct:7"


@pytest.fixture
def run(typed):
    def good(*arguments):
        done = typed(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    return good


def statuses(plugin, *keys):
    return [plugin.before_turn(QUESTION, session_key=key).status for key in keys]


def test_a_running_gateway_is_silent_until_memory_is_switched_on_again(run, plugin, wire):
    assert "for every session" in run("off")
    assert "off for every session: memrelay-gateway on" in run("status")
    seen = len(wire.seen)
    assert statuses(plugin, KEY, OTHER) == ["skipped:session_toggle"] * 2
    assert plugin.after_turn(TURN, session_key=KEY).status == "skipped:session_toggle"
    assert plugin.tool("memory_search", {"query": QUESTION}, session_key=KEY).failed
    assert len(wire.seen) == seen
    run("on")
    assert "memory            on" in run("status")
    assert statuses(plugin, KEY) == ["empty"]


def test_one_session_is_switched_alone(run, plugin):
    assert f"session {KEY} of agent coder" in run("off", "--session", KEY)
    assert statuses(plugin, KEY, OTHER) == ["skipped:session_toggle", "empty"]
    run("on", "--session", KEY)
    assert statuses(plugin, KEY) == ["empty"]


def test_the_kill_switch_is_named_where_switching_on_alone_does_not_help(run, monkeypatch):
    monkeypatch.setenv("MEMRELAY_DISABLE", "1")
    assert "MEMRELAY_DISABLE is also set" in run("on")
    assert "off: MEMRELAY_DISABLE is set" in run("status")
