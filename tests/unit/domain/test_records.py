"""Records, of memories and of kept turns, are read by versions that have more fields and by versions that have fewer."""

from __future__ import annotations

import msgspec

from relayer.domain.operations import (
    DIALOGUE,
    Line,
    Record,
    Role,
    Source,
    Trust,
    decode_record,
    encode_record,
)

ID = b"i" * 16
MEMORY = Record(ID, "notes", "Ada has a boat.", importance=0.7, contradicts=(b"c" * 16,))
LINES = (
    Line(Role.USER, "I have a boat.", 1_700_000_000_000, "m1"),
    Line(Role.ASSISTANT, "(called look_up)", call=True),
)
TURN = Record(
    ID, "notes", "", trust=Trust.TOOL, suspect=True, source=Source(transcript=DIALOGUE), lines=LINES
)


class Wider(Record, frozen=True, array_like=True):
    """A record of a later version, which appended a field."""

    added_later: str = "default"


def read_by_a_later_version(record: Record) -> Wider:
    return msgspec.msgpack.decode(encode_record(record), type=Wider)


def as_wider(record: Record, added: str) -> Wider:
    return Wider(**{name: getattr(record, name) for name in Record.__struct_fields__}, added_later=added)


def test_a_stored_turn_keeps_its_lines_where_a_field_was_added() -> None:
    read = read_by_a_later_version(TURN)
    assert read.is_dialogue
    assert read == as_wider(TURN, "default")
    assert read.lines == LINES


def test_a_stored_memory_is_read_where_a_field_was_added() -> None:
    read = read_by_a_later_version(MEMORY)
    assert not read.is_dialogue
    assert read == as_wider(MEMORY, "default")


def test_an_earlier_version_reads_what_a_later_one_stored() -> None:
    for record in (TURN, MEMORY):
        assert decode_record(msgspec.msgpack.encode(as_wider(record, "other"))) == record


def test_a_record_has_no_subclasses_whose_fields_a_new_one_would_move() -> None:
    assert [kind for kind in Record.__subclasses__() if kind is not Wider] == []


def test_only_a_text_tells_a_memory_of_a_dialogue_from_the_dialogue() -> None:
    memory = Record(ID, "notes", "Ada has a boat.", source=Source(transcript=DIALOGUE))
    assert not memory.is_dialogue
    assert decode_record(encode_record(TURN)).is_dialogue
