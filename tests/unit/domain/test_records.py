"""Records, of memories and of kept turns, are read by versions that have more fields and by versions that have fewer."""

from __future__ import annotations

import msgspec
import pytest

from relayer.domain.operations import DIALOGUE, Line, Record, Source, decode_record, encode_stored
from relayer.wire.fields import Role, Trust

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


def as_wider(record: Record, added: str) -> Wider:
    return Wider(**{name: getattr(record, name) for name in Record.__struct_fields__}, added_later=added)


@pytest.mark.parametrize("record", [TURN, MEMORY], ids=["turn", "memory"])
def test_a_later_version_reads_what_was_stored_before_its_field_was_added(record: Record) -> None:
    read = msgspec.msgpack.decode(encode_stored(record), type=Wider)
    assert read == as_wider(record, "default")
    assert read.is_dialogue is (record is TURN)


def test_an_earlier_version_reads_what_a_later_one_stored() -> None:
    for record in (TURN, MEMORY):
        assert decode_record(msgspec.msgpack.encode(as_wider(record, "other"))) == record


def test_only_a_text_tells_a_memory_of_a_dialogue_from_the_dialogue() -> None:
    memory = Record(ID, "notes", "Ada has a boat.", source=Source(transcript=DIALOGUE))
    assert not memory.is_dialogue
    assert decode_record(encode_stored(TURN)).is_dialogue
