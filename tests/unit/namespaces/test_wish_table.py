"""The wishes not to be reminded that a namespace knows: live ones, for those who may read them, also from a stored index."""

from __future__ import annotations

import msgspec
import pytest

from relayer.domain.operations import Record
from relayer.namespaces.records import RecordTable, RosterParts, kept_out_by
from relayer.search.terms import subject
from relayer.wire.fields import Audience

NOW = 1_000_000
WISH = Record(b"w" * 16, "a", "please dont mention her", unmentioned=("leyla", "sailing boat"))
DIRECT = msgspec.structs.replace(WISH, id=b"d" * 16, audience=Audience.DIRECT, unmentioned=("leyla",))
EXPIRED = msgspec.structs.replace(WISH, id=b"e" * 16, expires_at=NOW - 1)
SUSPECT = msgspec.structs.replace(WISH, id=b"s" * 16, suspect=True)
OTHER = Record(b"o" * 16, "a", "Leyla's birthday is on May 4")


def _table() -> RecordTable:
    table = RecordTable()
    for record in (OTHER, WISH, DIRECT, EXPIRED, SUSPECT):
        table.add(record)
    return table


def _ids(table: RecordTable, *audiences: str) -> list[bytes]:
    return [wish for wish, _ in table.wishes(audiences, (), NOW)]


def test_a_wish_counts_for_those_who_may_read_it_until_it_ends():
    table = _table()
    assert _ids(table) == [WISH.id, DIRECT.id]
    assert _ids(table, "agent") == [WISH.id]
    table.shown.discard(table.numbers[WISH.id])
    assert _ids(table) == [DIRECT.id]
    table.drop(DIRECT.id)
    assert _ids(table) == []


def test_a_stored_index_and_a_copy_know_the_same_wishes():
    table = _table()
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(table.parts(())), type=RosterParts)
    restored, _ = RecordTable.of_parts(stored)
    wishes = table.wishes((), (), NOW)
    assert restored.wishes((), (), NOW) == wishes
    assert table.copy().wishes((), (), NOW) == wishes


def test_a_wish_keeps_out_itself_and_what_has_its_words():
    wishes = [(WISH.id, subject(("leyla",)))]
    assert kept_out_by(WISH, wishes) == WISH.id
    assert kept_out_by(OTHER, wishes) == WISH.id
    assert kept_out_by(msgspec.structs.replace(OTHER, text="The boat is in Kiel"), wishes) == b""
    assert kept_out_by(OTHER, []) == b""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Emil is severely allergic to peanuts.", "emil"),
        ("I'm allergic to latex, ask Emil.", "emil"),
        ("Emil es muy alérgico a los cacahuetes.", "emil"),
        ("我对花生严重过敏\uff0c丽拉知道", "丽拉"),
    ],
)
def test_a_wish_about_a_person_leaves_what_could_harm_them(text, words):
    wishes = [(WISH.id, subject((words,)))]
    assert kept_out_by(msgspec.structs.replace(OTHER, text=text), wishes) == b""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Emil is severely allergic to peanuts.", "emil allergy"),
        ("I have type 1 diabetes.", "diabetes"),
        ("Soy alérgico a las nueces.", "alérgico"),
        ("我对花生严重过敏", "过敏"),
        ("私は卵アレルギーです。", "アレルギー"),
        ("저는 땅콩 알레르기가 있어요.", "알레르기"),
    ],
)
def test_a_wish_about_a_harm_keeps_that_harm_out(text, words):
    wishes = [(WISH.id, subject((words,)))]
    assert kept_out_by(msgspec.structs.replace(OTHER, text=text), wishes) == WISH.id
