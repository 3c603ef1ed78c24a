"""Whatever happens around a turn, it ends, and in time."""

from __future__ import annotations

import fcntl
import os
import threading
import time

import pytest
from wire_relayer import QUESTION, SECRET, WireRelayer, hang

from gateway_plugin import MemoryPlugin
from gateway_plugin.client import LoopClosed, LoopThread
from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.private_files import config_directory, locked
from gateway_plugin.turn.query import parse_messages


def test_a_lock_that_another_process_keeps_costs_a_turn_no_more_than_its_deadline(wire: WireRelayer, environ):
    directory = config_directory(environ)
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "trust.json.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    plugin = MemoryPlugin(wire.url, secret=SECRET, environ=environ)
    try:
        start = time.monotonic()
        turn = plugin.before_turn(QUESTION, deadline=0.3)
        assert turn.status == "timeout"
        assert time.monotonic() - start < 3
    finally:
        os.close(descriptor)
        plugin.close()


def test_a_lock_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway_plugin.keys.private_files._LOCK_SECONDS", 0.1)
    with (
        locked(tmp_path / "trust.json"),
        pytest.raises(IdentityError, match=r"trust\.json\.lock"),
        locked(tmp_path / "trust.json"),
    ):
        pass


def test_a_turn_under_way_ends_when_the_plugin_is_closed(wire: WireRelayer, environ):
    plugin = MemoryPlugin(wire.url, secret=SECRET, environ=environ)
    wire.script = [hang]
    said = []
    turn = threading.Thread(
        target=lambda: said.append(plugin.before_turn(QUESTION, deadline=60)), daemon=True
    )
    turn.start()
    while plugin.status().recalls == 0:
        turn.join(0.01)
    plugin.close()
    turn.join(10)
    wire.released.set()
    assert [turn.status for turn in said] == ["failed"]


def test_work_handed_over_while_a_loop_closes_ends_one_way_or_the_other():
    async def nothing() -> str:
        return "done"

    loop = LoopThread("closing")
    ended: list[str] = []
    begun = threading.Barrier(5)

    def hand_over() -> None:
        begun.wait()
        try:
            while True:
                loop.call(nothing())
        except LoopClosed:
            ended.append("closed")

    threads = [threading.Thread(target=hand_over, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    loop.close()
    for thread in threads:
        thread.join(10)
    assert ended == ["closed"] * 4


@pytest.mark.parametrize(
    "odd",
    [
        {"content": [{"type": ["text"], "text": "x"}, {"type": "text", "text": "I like tea"}]},
        {"content": "I like tea", "id": 10**5000},
        {"content": "I like tea", "timestamp": "0001-01-01T00:00:00+14:00"},
        {"content": "I like tea", "timestamp": "9999-12-31T23:59:59-14:00"},
        {"content": "I like tea", "timestamp": float("nan"), "name": {"first": "Ada"}},
    ],
    ids=["block type", "huge id", "year 1", "year 9999", "nan"],
)
def test_what_a_host_gets_wrong_around_a_message_does_not_lose_the_message(odd):
    (message,) = parse_messages([{"role": "user", **odd}])
    assert message.text == "I like tea"
    assert (message.id, message.at, message.speaker) == (None, None, None)
