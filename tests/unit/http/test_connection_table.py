"""Who goes when there is no room for the next connection, and who was too slow."""

from __future__ import annotations

from relayer.wire.connections import ConnectionLimits, Connections


class _Room:
    def __init__(self, **limits: float) -> None:
        self.table = Connections(ConnectionLimits(**limits))  # type: ignore[arg-type]
        self.ended: list[str] = []

    def enter(self, name: str, address: str = "a", now: float = 0.0) -> bool:
        return self.table.enter(name, lambda: self.ended.append(name), address, now)

    def signed(self, name: str, account: str, *, busy: bool) -> None:
        self.table.asked(name)
        self.table.accepted(name, account)
        if not busy:
            self.table.answered(name)


def test_the_oldest_stranger_goes_before_anybody_who_signed() -> None:
    room = _Room(most=3)
    for name in ("known", "stranger", "newer"):
        assert room.enter(name)
    room.signed("known", "A", busy=False)
    assert room.enter("next")
    assert room.ended == ["stranger"]
    assert len(room.table) == 3


def test_of_those_who_signed_an_idle_one_goes_and_the_one_unused_for_longest() -> None:
    room = _Room(most=3)
    for name in ("first", "second", "busy"):
        assert room.enter(name)
        room.signed(name, "A", busy=name == "busy")
    room.signed("first", "A", busy=False)
    assert room.enter("next")
    assert room.ended == ["second"]


def test_where_all_are_busy_the_account_with_most_of_them_gives_one_up() -> None:
    room = _Room(most=3)
    for name, account in (("poor", "B"), ("rich", "A"), ("richer", "A")):
        assert room.enter(name)
        room.signed(name, account, busy=True)
    assert room.enter("next")
    assert room.ended == ["rich"]


def test_where_everybody_has_one_nobody_has_to_go() -> None:
    room = _Room(most=2)
    for name in ("A", "B"):
        assert room.enter(name)
        room.signed(name, name, busy=True)
    assert not room.enter("next")
    assert not room.ended


def test_an_address_makes_room_among_its_own() -> None:
    room = _Room(most=10, per_address=2)
    assert room.enter("other", "b")
    for name in ("one", "two", "three"):
        assert room.enter(name)
    assert room.ended == ["one"]
    room.table.leave("two")
    room.table.leave("two")
    assert room.enter("four")
    assert room.ended == ["one"]


def test_a_head_has_its_time_from_its_first_byte_and_an_idle_connection_is_not_late() -> None:
    room = _Room(head_seconds=15)
    assert room.enter("silent", now=0)
    assert room.enter("slow", now=0)
    assert room.enter("idle", now=0)
    for name in ("slow", "idle"):
        room.table.asked(name)
        room.table.heard(name, now=5)
        room.table.answered(name)
    room.table.heard("slow", now=10)
    room.table.heard("slow", now=24)
    room.table.end_late(14)
    assert room.ended == []
    room.table.end_late(15)
    assert room.ended == ["silent"]
    room.table.end_late(25)
    assert room.ended == ["silent", "slow"]
    assert room.table.ended == 2
