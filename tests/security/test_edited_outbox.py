"""Rows of the outbox that somebody with the file exchanged, renamed or put back: nothing reaches another namespace, or twice."""

from __future__ import annotations

import sqlite3

import pytest

from gateway_plugin.keys.identity import NamespaceRef, RootHolder
from gateway_plugin.outbox.queue import Outbox, OutboxItem, ValueUpdate
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import RootKeys

ALICE, BOB = (NamespaceRef(name, name, 1) for name in ("alice", "bob"))


def item(owner: NamespaceRef, text: str) -> OutboxItem:
    request = AnalyzeRequest(
        turns=(TurnItem(role="user", text=text),), idempotency_key=f"{owner.namespace}-{text}"
    )
    return OutboxItem(owner, request, 0)


@pytest.fixture
def outbox(tmp_path):
    made = Outbox(tmp_path / "outbox.db", RootHolder(RootKeys(bytes(range(32)))))
    made.put(item(ALICE, "one"))
    made.put(item(BOB, "two"))
    yield made
    made.close()


def edit(outbox: Outbox, *statements: str) -> None:
    with sqlite3.connect(outbox.path) as file:
        for statement in statements:
            file.execute(statement)
    file.close()


def delivered(outbox: Outbox) -> list[tuple[str, str]]:
    """Deliver everything; more than ten times is for ever."""
    found = []
    for _ in range(10):
        head = outbox.head()
        if head is None:
            return found
        found.append((head.owner.namespace, head.request.turns[0].text))
        outbox.delivered(head)
    pytest.fail(f"delivered again and again: {found}")


def exchange(outbox: Outbox, column: str) -> None:
    with sqlite3.connect(outbox.path) as file:
        rows = file.execute(f"SELECT seq, {column} FROM items").fetchall()
        for (seq, _), (_, value) in zip(rows, reversed(rows), strict=True):
            file.execute(f"UPDATE items SET {column} = ? WHERE seq = ?", (value, seq))
    file.close()


@pytest.mark.parametrize("column", ["content", "owner"])
def test_what_is_sealed_is_bound_to_its_row(outbox, column):
    exchange(outbox, column)
    assert delivered(outbox) == []
    assert [letter.item for letter in outbox.dead_letters()] == [None, None]


def test_a_row_under_the_place_of_another_namespace_is_not_delivered(outbox):
    exchange(outbox, "place")
    assert delivered(outbox) == []
    assert outbox.waiting() == 0


@pytest.mark.parametrize("write", ["x'00'", "randomblob(16)"])
def test_a_row_under_another_key_is_not_delivered_for_ever(outbox, write):
    edit(outbox, f"UPDATE items SET write = {write} WHERE seq = 1")
    assert delivered(outbox) == [("bob", "two")]
    assert outbox.waiting() == 0


def test_a_row_under_another_key_that_is_refused_is_not_tried_for_ever(outbox):
    edit(outbox, "DELETE FROM items WHERE seq = 2", "UPDATE items SET write = x'00'")
    for _ in range(3):
        head = outbox.head()
        if head is None:
            break
        outbox.refused(head, "400 malformed")
    assert outbox.head() is None
    assert len(outbox.dead_letters()) == 1


def test_a_row_that_was_put_back_goes_under_the_key_that_the_relayer_knows(outbox):
    with sqlite3.connect(outbox.path) as file:
        (kept,) = file.execute("SELECT row, write, place, owner, content FROM items WHERE seq = 1").fetchall()
    file.close()
    first = outbox.head()
    outbox.delivered(first)
    with sqlite3.connect(outbox.path) as file:
        file.execute("INSERT INTO items (row, write, place, owner, content) VALUES (?, ?, ?, ?, ?)", kept)
    file.close()
    again = [outbox.head()]
    outbox.delivered(again[0])
    again.append(outbox.head())
    assert first.key in {one.key for one in again if one is not None}


def test_a_value_of_another_namespace_counts_as_never_set(outbox):
    outbox.compare_and_set(ValueUpdate(ALICE, "cursor:s", b"alice's"))
    outbox.compare_and_set(ValueUpdate(BOB, "cursor:s", b"bob's"))
    with sqlite3.connect(outbox.path) as file:
        rows = file.execute("SELECT tag, value FROM marks").fetchall()
        for (tag, _), (_, value) in zip(rows, reversed(rows), strict=True):
            file.execute("UPDATE marks SET value = ? WHERE tag = ?", (value, tag))
    file.close()
    assert (outbox.get(ALICE, "cursor:s").value, outbox.get(BOB, "cursor:s").value) == (b"", b"")
