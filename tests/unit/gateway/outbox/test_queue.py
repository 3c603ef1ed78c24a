"""The outbox: what it promises to whoever dies, runs out of disk, shares the file or reads it without the keys."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gateway_plugin.keys.identity import AgentHolder, NamespaceRef, RootHolder, mint
from gateway_plugin.outbox.queue import (
    Outbox,
    OutboxFull,
    OutboxItem,
    OutboxUnavailable,
    RevisionConflict,
    ValueUpdate,
    Versioned,
    outbox_path,
)
from relayer.wire import codec as base64url
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import RootKeys

TEXT = "My sister Lena visits me in the first week of May."
OWNER = NamespaceRef("researcher", "researcher/private-corner", 1)


def item(text=TEXT, owner=OWNER, key=None):
    key = key or text.replace(" ", "-")[:100]
    request = AnalyzeRequest(
        turns=(TurnItem(role="user", text=text),), idempotency_key=key, session="agent:researcher:s1"
    )
    return OutboxItem(owner, request, 1_767_225_600_000)


def other(namespace):
    return NamespaceRef(namespace, namespace, 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "outbox.db"


@pytest.fixture
def told():
    return []


@pytest.fixture
def reopened(path, holder, told):
    """Opens the file anew each time, as a process that starts does."""
    made = []

    def build(**options):
        made.append(Outbox(path, options.pop("holder", holder), notify=told.append, **options))
        return made[-1]

    yield build
    for outbox in made:
        outbox.close()


@pytest.fixture
def outbox(reopened):
    return reopened()


@pytest.fixture(params=["file", "memory"])
def either(request, reopened):
    return reopened(capacity=10) if request.param == "file" else Outbox.in_memory(capacity=10)


def test_items_come_out_as_they_went_in_and_in_order(either):
    for number in range(3):
        assert either.put(item(f"turn number {number}"))
    for number in range(3):
        head = either.head()
        assert head == item(f"turn number {number}")
        either.delivered(head)
    assert either.head() is None
    assert either.waiting() == 0


def test_the_same_write_waits_once(either):
    assert either.put(item())
    assert not either.put(item())
    assert either.waiting() == 1


def test_the_head_passes_over_namespaces_and_counts_each(either):
    for namespace in ("a", "b", "a"):
        either.put(item(f"{namespace} {either.waiting()}", other(namespace)))
    assert either.head({"a"}).owner.namespace == "b"
    assert either.head({"a", "b"}) is None
    assert (either.waiting("a"), either.waiting("b"), either.waiting("c")) == (2, 1, 0)


def test_a_full_outbox_refuses_and_leaves_room_for_others(either):
    for number in range(10):
        either.put(item(f"turn {number}", other("busy")))
    with pytest.raises(OutboxFull):
        either.put(item("one more", other("busy")))
    assert either.put(item("mine", other("quiet")))


def test_a_refused_item_is_a_dead_letter_with_its_reason_and_the_next_comes_up(either):
    either.put(item("first"))
    either.put(item("second"))
    either.refused(either.head(), "422 invalid")
    assert either.head().request.turns[0].text == "second"
    (letter,) = either.dead_letters()
    assert (letter.reason, letter.item.request.turns[0].text) == ("422 invalid", "first")
    assert either.waiting() == 1


def test_removing_takes_what_matches_waiting_or_dead_and_nothing_else(either):
    for text in ("keep me", "burn me", "burn me too"):
        either.put(item(text))
    either.refused(item("burn me"), "422 invalid")
    assert either.remove(lambda one: "burn" in one.request.turns[0].text) == 2
    assert [letter.item.request.turns[0].text for letter in either.queued()] == ["keep me"]
    assert either.dead_letters() == ()


def test_a_mark_is_found_again_and_counts_its_changes(either):
    assert either.get(OWNER, "cursor") == either.get(other("b"), "cursor")
    either.compare_and_set(ValueUpdate(OWNER, "cursor", b"one", 0))
    either.compare_and_set(ValueUpdate(OWNER, "cursor", b"two", 1))
    assert (either.get(OWNER, "cursor").revision, either.get(OWNER, "cursor").value) == (2, b"two")
    assert either.get(other("b"), "cursor").value == b""


def test_a_mark_that_moved_meanwhile_stops_the_item_that_goes_with_it(either):
    either.compare_and_set(ValueUpdate(OWNER, "cursor", b"one", 0))
    with pytest.raises(RevisionConflict):
        either.put(item(), ValueUpdate(OWNER, "cursor", b"mine", 0))
    assert either.waiting() == 0
    assert either.get(OWNER, "cursor").value == b"one"


def test_an_item_without_room_leaves_its_mark_where_it_was(reopened):
    outbox = reopened(capacity=0)
    with pytest.raises(OutboxFull):
        outbox.put(item(), ValueUpdate(OWNER, "cursor", b"here"))
    assert outbox.waiting() == 0
    assert outbox.get(OWNER, "cursor").revision == 0


def test_what_was_put_is_there_for_the_next_process(reopened):
    first = reopened()
    first.put(item(), ValueUpdate(OWNER, "cursor", b"here"))
    first.refused(item("never put"), "nothing")
    first.put(item("dead one"))
    first.refused(item("dead one"), "422 invalid")
    second = reopened()
    assert second.head() == item()
    assert second.get(OWNER, "cursor").value == b"here"
    assert [letter.reason for letter in second.dead_letters()] == ["422 invalid"]


def test_an_outbox_that_an_earlier_version_left_is_read(reopened, path):
    path.parent.mkdir()
    stored = Path(__file__).parents[3] / "vectors" / "outbox.sql"
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(stored.read_text("utf-8"))
    outbox = reopened(holder=RootHolder(RootKeys(bytes(range(32)))))
    (waiting,), (dead,) = outbox.queued(), outbox.dead_letters()
    assert outbox.head() == waiting.item == item("The bees live behind the barn.")
    assert (dead.item, dead.reason) == (item("The barn was painted in May."), "422 invalid")
    assert outbox.get(OWNER, "cursor") == Versioned(1, b"seven turns")
    assert outbox.get(NamespaceRef("", "", 0), "everywhere").value == b"off"


def test_reading_an_outbox_that_was_never_written_makes_no_file(outbox, path):
    assert (outbox.head(), outbox.waiting(), outbox.dead_letters()) == (None, 0, ())
    assert outbox.get(OWNER, "cursor").revision == 0
    assert not path.parent.exists()


def test_only_this_user_may_read_the_files(outbox, path):
    outbox.put(item())
    outbox.claim()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    found = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert {"outbox.db", "outbox.db.lock"} <= set(found)
    assert set(found.values()) == {0o600}


def test_a_file_that_others_could_read_is_made_private(reopened, path):
    reopened().put(item())
    path.chmod(0o644)
    reopened().put(item("another"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_files_show_no_text_and_no_name(outbox, path):
    outbox.put(item(), ValueUpdate(OWNER, "cursor:agent:researcher:s1", b"cursor value"))
    outbox.put(item("a dead turn of somebody"))
    outbox.refused(item("a dead turn of somebody"), "422 invalid")
    everything = b"".join(entry.read_bytes() for entry in path.parent.iterdir())
    assert b"422 invalid" in everything  # the search does find what is there
    for secret in (
        "Lena",
        "first week",
        "researcher",
        "private-corner",
        "agent:",
        "cursor",
        "somebody",
        "May",
    ):
        assert secret.encode() not in everything, secret


def test_what_was_delivered_leaves_nothing_in_the_file(reopened, path):
    outbox = reopened()
    outbox.put(item("x" * 5000))
    with sqlite3.connect(path) as raw:
        (content,) = raw.execute("SELECT content FROM items").fetchone()
    raw.close()
    outbox.delivered(outbox.head())
    outbox.close()
    assert content[200:260] not in path.read_bytes()


def test_another_secret_opens_nothing_and_the_queue_moves_on(reopened, told):
    reopened().put(item())
    stranger = reopened(holder=RootHolder(RootKeys(bytes(32))))
    stranger.put(item("mine"))
    assert stranger.head() == item("mine")
    (letter,) = stranger.dead_letters()
    assert letter.item is None
    assert "cannot be opened" in letter.reason


def test_a_row_moved_to_another_place_does_not_open(outbox, path):
    outbox.put(item("first"))
    outbox.put(item("second"))
    raw = sqlite3.connect(path)
    one, two = (row[0] for row in raw.execute("SELECT content FROM items ORDER BY seq"))
    raw.execute("UPDATE items SET content = ? WHERE seq = 1", (two,))
    raw.execute("UPDATE items SET content = ? WHERE seq = 2", (one,))
    raw.commit()
    raw.close()
    assert outbox.head() is None
    assert len(outbox.dead_letters()) == 2


def test_one_agents_keys_open_that_agents_file(tmp_path, holder):
    certificate = mint(holder.root, "researcher", now=int(time.time()))
    alone = AgentHolder.parse(
        holder.agent("researcher").secret, base64url.encode(certificate.issue(holder.root.account_identity))
    )
    outbox = Outbox(tmp_path / "o.db", alone)
    outbox.put(item())
    assert outbox.head() == item()
    outbox.close()
    environ = {"HOME": str(tmp_path)}
    assert outbox_path(environ, alone, "http://a") != outbox_path(environ, holder, "http://a")


def test_each_relayer_has_an_outbox_of_its_own(holder, tmp_path):
    environ = {"HOME": str(tmp_path)}
    assert outbox_path(environ, holder, "http://a") != outbox_path(environ, holder, "http://b")
    assert outbox_path(environ, holder, "http://a") == outbox_path(environ, holder, "http://a")


def test_a_damaged_file_is_set_aside_and_said_and_captures_go_on(reopened, path, told):
    first = reopened()
    first.put(item())
    first.close()
    path.write_bytes(b"this is no database at all" * 200)
    second = reopened()
    assert second.put(item("after the damage"))
    assert second.head() == item("after the damage")
    assert "damaged" in told[0]
    assert [entry for entry in path.parent.iterdir() if ".damaged-" in entry.name]


def test_damage_that_is_read_while_another_thread_writes_is_not_waited_for(reopened, path, told):
    outbox = reopened()
    for number in range(20):
        outbox.put(item(f"turn {number}"))
    outbox.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    writing, read = threading.Event(), threading.Event()

    def write():
        with outbox._database._writer.lock:
            writing.set()
            assert read.wait(10)

    writer = threading.Thread(target=write)
    writer.start()
    assert writing.wait(10)
    try:
        with pytest.raises(OutboxUnavailable):
            outbox.queued()
        assert writer.is_alive()
    finally:
        read.set()
        writer.join()
    assert "damaged" in told[0]
    assert outbox.put(item("after the damage"))
    assert outbox.waiting() == 1


def test_a_file_of_a_newer_version_is_left_alone(reopened, path):
    reopened().put(item())
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version=99")
    raw.commit()
    raw.close()
    with pytest.raises(OutboxUnavailable, match="newer version"):
        reopened().put(item("another"))


def test_one_process_delivers_at_a_time_and_the_next_takes_over(reopened):
    first, second = reopened(), reopened()
    assert first.claim()
    assert first.claim()
    assert not second.claim()
    first.release()
    assert second.claim()


def test_the_right_to_deliver_ends_with_the_process_that_had_it(reopened, path):
    holding = "import fcntl,os,sys; d=os.open(sys.argv[1], os.O_RDWR|os.O_CREAT); fcntl.flock(d, 2); print(1, flush=True); sys.stdin.read()"
    path.parent.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", holding, f"{path}.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    outbox = reopened()
    assert not outbox.claim()
    process.kill()
    process.communicate()
    assert outbox.claim()


def test_two_processes_that_put_at_once_lose_nothing(path, holder):
    writer = (
        "import sys; from pathlib import Path; from test_queue import Outbox, RootHolder, RootKeys, item\n"
        "box = Outbox(Path(sys.argv[1]), RootHolder(RootKeys(bytes(range(32)))))\n"
        "for n in range(25): box.put(item(f'turn {n} of {sys.argv[2]}'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{Path.cwd()}"}
    writers = [
        subprocess.Popen([sys.executable, "-c", writer, str(path), name], env=environment) for name in "ab"
    ]
    assert [process.wait(60) for process in writers] == [0, 0]
    outbox = Outbox(path, holder)
    texts = [letter.item.request.turns[0].text for letter in outbox.queued()]
    outbox.close()
    assert sorted(texts) == sorted(f"turn {n} of {name}" for n in range(25) for name in "ab")
    assert [text for text in texts if text.endswith("a")] == [f"turn {n} of a" for n in range(25)]


# What a command of the CLI does with the outbox of a running gateway; its last argument is what it puts, if anything.
BESIDE = (
    "import sys; from pathlib import Path; from test_queue import Outbox, RootHolder, RootKeys, item\n"
    "box = Outbox(Path(sys.argv[1]), RootHolder(RootKeys(bytes(range(32)))))\n"
    "print(box.waiting())\n"
    "for text in sys.argv[2:]: box.put(item(text))\n"
    "box.close()\n"
)


def beside(path, *texts):
    """Open the outbox in another process, and return how many items that process saw."""
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{Path.cwd()}"}
    command = [sys.executable, "-c", BESIDE, str(path), *texts]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    return int(done.stdout)


def test_another_process_that_closes_the_file_leaves_the_log_of_this_one(outbox, path):
    log = path.with_name("outbox.db-wal")
    outbox.put(item("first"))
    assert outbox.waiting() == 1  # the second connection of this process, for reading
    before = log.stat().st_ino
    assert beside(path, "of the other process") == 1
    assert log.stat().st_ino == before
    assert outbox.put(item("second"))
    assert outbox.waiting() == 3
    assert beside(path) == 3


def test_a_second_outbox_in_this_process_leaves_the_locks_of_the_first(reopened, path):
    first = reopened()
    first.put(item("first"))
    second = reopened()
    second.put(item("second"))
    second.close()
    assert beside(path) == 2
    assert first.put(item("third"))
    assert beside(path) == 3


@pytest.fixture
def no_room():
    """From now on no file of this process may grow beyond a few pages."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

    yield fill
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_another_makes_at_this_instant_is_waited_for(reopened, path):
    path.parent.mkdir(mode=0o700, parents=True)
    # Reserved as by a connection that is just changing the journal's mode: SQLite does not wait for that by itself.
    making = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    making.execute("BEGIN IMMEDIATE")
    done = threading.Timer(0.1, making.close)
    done.start()
    try:
        assert reopened().get(OWNER, "position").value == b""
    finally:
        done.join()


def test_without_room_a_put_is_refused_and_what_was_there_stays_whole(reopened, no_room):
    outbox = reopened()
    outbox.put(item("first"))
    no_room(120_000)
    kept = 1

    def put_many():
        nonlocal kept
        for number in range(200):
            outbox.put(item(f"turn {number} " + "long " * 2000))
            kept += 1

    with pytest.raises(OutboxUnavailable, match="make room"):
        put_many()
    assert outbox.waiting() == kept
    no_room(resource.RLIM_INFINITY)
    assert outbox.put(item("there is room again"))
    texts = [letter.item.request.turns[0].text for letter in reopened().queued()]
    assert len(texts) == kept + 1
    assert (texts[0], texts[-1]) == ("first", "there is room again")


def test_what_was_passed_over_by_a_process_that_died_is_delivered_under_the_same_key(reopened):
    outbox = reopened()
    outbox.put(item("first", key="one"))
    outbox.put(item("second"))
    outbox.pass_over(outbox.head())
    assert (outbox.head(), outbox.waiting()) == (item("second"), 1)
    after = reopened()
    assert after.head().key == "one"
    outbox.tidy()
    assert (after.head(), after.waiting()) == (item("second"), 1)


def test_what_was_delivered_while_nothing_could_be_written_is_not_delivered_again(reopened, no_room):
    outbox = reopened()
    outbox.put(item("first"))
    outbox.put(item("second"))
    no_room(1)
    outbox.delivered(outbox.head())
    assert outbox.head() == item("second")
    assert outbox.waiting() == 1
    no_room(resource.RLIM_INFINITY)
    outbox.delivered(outbox.head())
    assert reopened().waiting() == 0


def test_dead_letters_are_bounded(outbox, monkeypatch):
    monkeypatch.setattr("gateway_plugin.outbox.queue.MAX_DEAD", 3)
    for number in range(5):
        outbox.put(item(f"turn {number}"))
        outbox.refused(item(f"turn {number}"), "422 invalid")
    letters = outbox.dead_letters()
    assert [letter.item.request.turns[0].text for letter in letters] == ["turn 2", "turn 3", "turn 4"]


def test_a_dead_letter_can_be_tried_again_or_dropped(outbox):
    for text in ("first", "second", "third"):
        outbox.put(item(text))
        outbox.refused(item(text), "422 invalid")
    first, second, _ = outbox.dead_letters()
    assert outbox.retry(first.id) == 1
    assert outbox.head() == item("first")
    assert outbox.drop(second.id, dead_only=True) == 1
    assert outbox.drop("00", dead_only=True) == outbox.retry("no id") == 0
    assert outbox.retry(None) == 1
    assert outbox.waiting() == 2


def test_a_lasting_mark_outlives_any_number_of_others(outbox, monkeypatch):
    monkeypatch.setattr("gateway_plugin.outbox.queue.MAX_VALUES", 70)
    outbox.compare_and_set(ValueUpdate(OWNER, "said no", b"off", lasting=True))
    for number in range(140):
        outbox.compare_and_set(ValueUpdate(OWNER, f"cursor {number}", b"value"))
    assert outbox.get(OWNER, "said no").value == b"off"
    assert outbox.get(OWNER, "cursor 0").value == b""
    assert outbox.get(OWNER, "cursor 139").value == b"value"


def test_a_put_takes_milliseconds(outbox):
    outbox.put(item("the first one makes the file"))
    times = []
    for number in range(50):
        start = time.perf_counter()
        outbox.put(item(f"turn {number}"), ValueUpdate(OWNER, "cursor", b"value"))
        times.append(time.perf_counter() - start)
    assert sorted(times)[25] < 0.05
