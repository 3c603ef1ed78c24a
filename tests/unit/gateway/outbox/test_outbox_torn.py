"""The outbox after power was lost, or its disk was full, in the middle of a write: what was acknowledged is there."""

from __future__ import annotations

import itertools
import random
import subprocess
from pathlib import Path

import pytest

from gateway_plugin import MemoryPlugin
from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, OutboxItem, OutboxUnavailable
from relayer.wire.schemas import AnalyzeRequest, TurnItem

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
    """Return where a log is cut: around the edges of each frame and its header, and every few bytes between."""
    edges = {
        _HEADER + frame * _FRAME + offset
        for frame in range(end // _FRAME + 1)
        for offset in (-1, 0, 1, 23, 24, 25, 24 + 512)
    }
    return sorted({*range(start, end, 509), *(edge for edge in edges if start <= edge <= end), end})


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
