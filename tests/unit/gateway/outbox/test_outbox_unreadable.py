"""A gateway whose outbox cannot be read: silent, because a no may be kept there, and honest about why."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3

import pytest
from wire_relayer import QUESTION, SECRET, TURN

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.hosts.openclaw.host import run_command
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox import queue
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable, ValueUpdate, outbox_path
from relayer.wire.sealing import RootKeys

KEY = "agent:coder:main"


@pytest.fixture
def blocked(wire, environ):
    """What stands in the place of the outbox: a directory, which nobody can read as a file, not even root."""
    origin = RelayerAddress.parse(wire.url).origin
    path = outbox_path(environ, RootHolder(RootKeys(bytes.fromhex(SECRET))), origin)
    path.mkdir(parents=True)
    return path


@pytest.fixture
def plugin(blocked, make):
    return make()


def test_neither_recall_nor_capture_blames_a_switch_that_nobody_set(plugin, blocked, wire):
    turn = plugin.before_turn(QUESTION, session_key=KEY)
    report = plugin.after_turn(TURN, session_key=KEY)
    assert (turn.status, report.status, turn.text) == ("skipped:outbox", "skipped:outbox", "")
    for detail in (turn.detail, report.detail):
        assert str(blocked) in detail
        assert "Is a directory" in detail
        assert "remove the file at this path" in detail
        assert "off for this session" not in detail
    assert wire.seen == []


def test_the_trace_stops_at_the_outbox_and_says_that_the_switch_is_not_known(plugin):
    plugin.before_turn(QUESTION, session_key=KEY)
    objections = {gate.gate: gate.reason for gate in plugin.why().gates if not gate.allowed}
    assert list(objections) == ["outbox", "session_toggle"]
    assert objections["session_toggle"] == "the memory switch of this session cannot be read"


def test_a_person_at_the_terminal_is_told_once(plugin, blocked, capsys):
    for _ in range(3):
        plugin.before_turn(QUESTION, session_key=KEY)
        plugin.after_turn(TURN, session_key=KEY)
    assert capsys.readouterr().err.count(str(blocked)) == 1


def test_a_turn_that_could_not_be_captured_is_captured_once_the_file_can_be_read(plugin, blocked, wire):
    plugin.after_turn(TURN, session_key=KEY)
    blocked.rmdir()
    assert plugin.after_turn(TURN, session_key=KEY).status == "queued"
    assert plugin.before_turn(QUESTION, session_key=KEY).status == "ok"


def test_a_tool_says_why_it_does_not_answer(plugin, blocked):
    answer = plugin.tool("memory_search", {"query": QUESTION}, session_key=KEY)
    assert answer.failed
    assert str(blocked) in answer.text
    assert "switched off" not in answer.text


@pytest.mark.parametrize("enabled", [False, True])
def test_a_switch_that_cannot_be_kept_is_refused(plugin, enabled):
    with pytest.raises(OutboxUnavailable):
        plugin.set_session(KEY, enabled=enabled)
    with pytest.raises(OutboxUnavailable):
        plugin.set_everywhere(enabled=enabled)


def test_nobody_is_told_that_all_was_delivered(plugin, blocked):
    assert plugin.flush(5) is False
    blocked.rmdir()
    assert plugin.flush(5) is True


def test_the_status_warns(plugin, blocked):
    assert str(blocked) in plugin.status().warning


def test_a_chat_command_says_what_is_wrong_instead_of_off(plugin, blocked):
    shown = run_command(plugin, "status", {"sessionKey": KEY}).splitlines()
    assert shown[0].startswith("Memory: silent here: ")
    assert str(blocked) in shown[0]


def test_a_gateway_whose_memory_is_disabled_does_not_look(blocked, wire, environ):
    with MemoryPlugin(wire.url, secret=SECRET, environ={**environ, "MEMRELAY_DISABLE": "1"}) as plugin:
        assert plugin.before_turn(QUESTION, session_key=KEY).status == "skipped:switch"


def test_status_and_doctor_name_the_file_and_what_it_costs(typed, blocked):
    shown = typed("status")
    assert shown.exit_code == 0, shown.output
    assert "silent: " in shown.stdout
    assert str(blocked) in shown.stdout
    assert "off for every session" not in shown.stdout
    found = typed("doctor")
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    failing = [number for number, line in enumerate(lines) if line.startswith("FAIL")]
    assert [lines[number].split()[1] for number in failing] == ["outbox:"]
    assert "nothing is recalled or captured" in lines[failing[0]]
    assert str(blocked) in lines[failing[0]]


def test_doctor_finds_the_switch_that_a_person_set(typed):
    assert typed("off").exit_code == 0
    lines = typed("doctor").stdout.splitlines()
    assert lines[0] == "FAIL  switches: memory is off for every session of this gateway"
    assert "memrelay-gateway on" in lines[1]
    assert typed("on").exit_code == 0
    assert typed("doctor").exit_code == 0


def test_a_file_that_another_process_holds_is_no_matter_of_room_or_permissions(
    environ, holder, tmp_path, monkeypatch
):
    monkeypatch.setattr(queue, "_BUSY_SECONDS", 0.0)
    outbox = Outbox(tmp_path / "outbox.db", holder)
    owner = NamespaceRef("coder", "coder", 1)
    outbox.compare_and_set(ValueUpdate(owner, "seen", b"1"))
    outbox.close()
    with contextlib.closing(sqlite3.connect(outbox.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OutboxUnavailable, match=r"it is locked by another process"):
            outbox.compare_and_set(ValueUpdate(owner, "seen", b"2"))
    outbox.compare_and_set(ValueUpdate(owner, "seen", b"2"))
    assert outbox.get(owner, "seen").value == b"2"
    outbox.close()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "fix its permissions"),
        (OSError(errno.EROFS, "Read-only file system"), "fix its permissions"),
        (OSError(errno.ENOSPC, "No space left on device"), "make room, or fix its permissions"),
    ],
)
def test_what_a_person_can_do_about_it_follows_from_what_the_system_says(
    holder, tmp_path, monkeypatch, error, advice
):
    def refused(*_: object) -> int:
        raise error

    outbox = Outbox(tmp_path / "outbox.db", holder)
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(OutboxUnavailable, match=f"{error.strerror}\\); {advice}$"):
        outbox.compare_and_set(ValueUpdate(NamespaceRef("coder", "coder", 1), "seen", b"1"))
