"""The outbox after power was lost, or its disk was full, in the middle of a write: what was acknowledged is there."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import sqlite3
import subprocess
from pathlib import Path

import pytest
from wire_relayer import QUESTION, SECRET, TURN

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.hosts.openclaw.host import run_command
from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox import queue
from gateway_plugin.outbox.queue import Outbox, OutboxItem, OutboxUnavailable, ValueUpdate, outbox_path
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import RootKeys

OWNER = NamespaceRef("researcher", "researcher", 1)
_FRAME, _HEADER, _PAGE = 24 + 4096, 32, 4096


def item(number: int) -> OutboxItem:
    turn = TurnItem(role="user", text=f"Berth {number} belongs to the harbour master. " * 40)
    request = AnalyzeRequest(turns=(turn,), idempotency_key=f"key-{number}")
    return OutboxItem(OWNER, request, number)


class Disk:
    """A file and its write-ahead log, as bytes that may be put back in any mixture."""

    def __init__(self, folder: Path, holder) -> None:
        self.holder = holder
        self.told: list[str] = []
        self._folder = folder
        self._number = itertools.count()

    def fresh(self) -> Outbox:
        place = self._folder / f"live-{next(self._number)}"
        return Outbox(place / "outbox.db", self.holder, notify=self.told.append)

    @staticmethod
    def read(outbox: Outbox) -> tuple[bytes, bytes]:
        return outbox.path.read_bytes(), outbox.path.with_name("outbox.db-wal").read_bytes()

    def after(self, database: bytes, log: bytes) -> Outbox:
        """Open what was left on the disk when the power came back; the index of the log is lost with the memory."""
        outbox = self.fresh()
        outbox.path.parent.mkdir()
        outbox.path.write_bytes(database)
        outbox.path.with_name("outbox.db-wal").write_bytes(log)
        return outbox

    def numbers(self, database: bytes, log: bytes) -> list[int]:
        """Return what waits then, having shown that the queue moves on."""
        outbox = self.after(database, log)
        try:
            waiting = [letter.item.queued_at for letter in outbox.queued() if letter.item]
            assert outbox.put(item(99))
            assert outbox.waiting() == len(waiting) + 1
            assert outbox.dead_letters() == ()
            return waiting
        finally:
            outbox.close()


@pytest.fixture
def disk(tmp_path, holder):
    return Disk(tmp_path, holder)


def filled(disk: Disk, count: int) -> Outbox:
    outbox = disk.fresh()
    for number in range(count):
        assert outbox.put(item(number))
    return outbox


def cuts(start: int, end: int) -> list[int]:
    """Return where a log is cut: around the edges of each frame and its header, and twice between."""
    edges = {
        _HEADER + frame * _FRAME + offset
        for frame in range(end // _FRAME + 1)
        for offset in (-1, 0, 1, 23, 24, 25, 24 + 512)
    }
    return sorted({*range(start, end, 2039), *(edge for edge in edges if start <= edge <= end), end})


@pytest.mark.parametrize("tail", ["nothing", "zeros", "noise"])
def test_a_write_that_was_torn_leaves_all_that_was_acknowledged_and_itself_whole_or_not_at_all(disk, tail):
    outbox = filled(disk, 3)
    _, before = disk.read(outbox)
    outbox.put(item(3))
    database, log = disk.read(outbox)
    outbox.close()
    noise = random.Random(5).randbytes(len(log))
    seen = set()
    for cut in cuts(len(before), len(log)):
        rest = {"nothing": b"", "zeros": b"\0" * (len(log) - cut), "noise": noise[cut:]}[tail]
        waiting = disk.numbers(database, log[:cut] + rest)
        assert waiting in ([0, 1, 2], [0, 1, 2, 3]), f"cut at {cut} of {len(log)}"
        seen.add(len(waiting))
    assert seen == {3, 4}
    assert disk.told == []


def test_a_disk_that_lost_what_it_had_confirmed_leaves_a_queue_that_opens_with_a_beginning_of_it(disk):
    outbox = filled(disk, 4)
    database, log = disk.read(outbox)
    outbox.close()
    for cut in range(0, len(log), 4051):
        waiting = disk.numbers(database, log[:cut])
        assert waiting == list(range(len(waiting)))


def test_a_checkpoint_that_was_torn_loses_nothing(disk):
    outbox = filled(disk, 4)
    old, log = disk.read(outbox)
    outbox._database.truncate_log()
    new, emptied = disk.read(outbox)
    outbox.close()
    assert (emptied, len(new) > len(old)) == (b"", True)
    for cut in range(0, len(new) + 1, 2048):
        assert disk.numbers(new[:cut] + old[cut:], log) == [0, 1, 2, 3]
    assert disk.numbers(new, b"") == [0, 1, 2, 3]


def test_a_file_that_was_torn_while_it_was_made_opens(disk):
    outbox = disk.fresh()
    assert outbox.get(OWNER, "cursor").revision == 0
    outbox.put(item(0))
    database, log = disk.read(outbox)
    outbox.close()
    for cut in (0, 1, 100, _PAGE - 1, _PAGE):
        for end in (0, _HEADER, _HEADER + _FRAME, len(log) // 2):
            assert disk.numbers(database[:cut], log[:end]) == []


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", str(place)],
        check=False,
        capture_output=True,
        timeout=30,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()[:100]}")
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=30)


def fill(outbox: Outbox) -> list[int]:
    """Put items until one is refused, and return those that were taken."""
    stored: list[int] = []
    while len(stored) < 1000:
        try:
            outbox.put(item(len(stored)))
        except OutboxUnavailable:
            break
        stored.append(len(stored))
    return stored


def test_a_full_disk_refuses_a_turn_whole_and_takes_it_when_there_is_room_again(small_disk, holder):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 128 * 1024)
    outbox = Outbox(small_disk / "memrelay" / "outbox.db", holder)
    stored = fill(outbox)
    assert 3 < len(stored) < 1000
    with pytest.raises(OutboxUnavailable, match="make room"):
        outbox.put(item(len(stored)))
    assert [letter.item.queued_at for letter in outbox.queued()] == stored
    # What is delivered meanwhile cannot be taken out of the file, and is passed over.
    outbox.delivered(item(0))
    assert outbox.head() == item(1)
    ballast.unlink()
    assert outbox.put(item(len(stored)))
    outbox.delivered(item(1))
    outbox.close()
    again = Outbox(small_disk / "memrelay" / "outbox.db", holder)
    assert [letter.item.queued_at for letter in again.queued()] == [*stored[2:], len(stored)]
    again.close()


def test_a_gateway_on_a_full_disk_says_so_and_captures_the_turn_later(small_disk, wire, environ):
    environ = {**environ, "XDG_STATE_HOME": str(small_disk)}
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 4096)
    said = [{"role": "user", "content": "I only drink oat milk coffee, never after 2 pm."}]
    with MemoryPlugin(wire.url, secret="11" * 32, environ=environ) as plugin:
        plugin.after_turn([{"role": "user", "content": "The deployment runs on Tuesdays in Frankfurt."}])
        assert plugin.flush(10)
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(b"\0" * 2**20)
        report = plugin.after_turn(said, session_key="agent:main:s")
        assert (report.status, "make room" in report.detail) == ("unwritable", True)
        assert plugin.before_turn("When does the deployment run?").status == "ok"
        ballast.unlink()
        assert plugin.after_turn(said, session_key="agent:main:s").status == "queued"
        assert plugin.flush(10)
    assert said[0]["content"] in wire.texts("default")


# A gateway whose outbox cannot be read: silent, because a no may be kept there, and honest about why.
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


def test_a_turn_that_could_not_be_captured_is_captured_once_the_file_can_be_read(plugin, blocked, wire):
    plugin.after_turn(TURN, session_key=KEY)
    blocked.rmdir()
    assert plugin.after_turn(TURN, session_key=KEY).status == "queued"
    assert plugin.before_turn(QUESTION, session_key=KEY).status == "ok"


def test_tool_status_and_chat_command_say_what_is_wrong_and_the_terminal_is_told_once(
    plugin, blocked, capsys
):
    for _ in range(3):
        plugin.before_turn(QUESTION, session_key=KEY)
        plugin.after_turn(TURN, session_key=KEY)
    assert capsys.readouterr().err.count(str(blocked)) == 1
    answer = plugin.tool("memory_search", {"query": QUESTION}, session_key=KEY)
    assert answer.failed
    assert str(blocked) in answer.text
    assert "switched off" not in answer.text
    assert str(blocked) in plugin.status().warning
    shown = run_command(plugin, "status", {"sessionKey": KEY}).splitlines()
    assert shown[0].startswith("Memory: silent here: ")
    assert str(blocked) in shown[0]


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
