"""A gateway remembers how far a log was, and notices one that was set back."""

from __future__ import annotations

import pytest
from wire_relayer import QUESTION, answer

from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable
from gateway_plugin.outbox.sender import Positions
from relayer.wire.fields import Position

ANOTHER = "Which coffee do I drink in the morning?"
OWNER = NamespaceRef("coder", "coder", 1)


def at(seq):
    return Position(seq=seq, digest=f"{seq:064x}")


def asked(wire):
    return [body.get("min_position") for body in wire.bodies("/v1/recall")]


def test_the_newest_position_wins_and_is_found_again():
    outbox = Outbox.in_memory()
    positions = Positions(outbox)
    positions.saw(OWNER, at(7))
    positions.saw(OWNER, at(3))
    positions.persist()
    assert Positions(outbox).newest(OWNER) == at(7)
    assert not positions.changed


def test_what_could_not_be_written_is_written_the_next_time():
    class Full(Outbox):
        full = True

        def compare_and_set(self, update):
            if self.full:
                raise OutboxUnavailable("no room")
            super().compare_and_set(update)

    outbox = Full.in_memory()
    positions = Positions(outbox)
    positions.saw(OWNER, at(7))
    with pytest.raises(OutboxUnavailable):
        positions.persist()
    outbox.full = False
    positions.persist()
    assert Positions(outbox).newest(OWNER) == at(7)


def test_a_recall_demands_what_was_seen_also_by_the_process_before(make, wire):
    first = make()
    wire.position = at(5)
    first.before_turn(QUESTION)
    first.before_turn(ANOTHER)
    first.close()
    make().before_turn(QUESTION)
    assert asked(wire) == [None, at(5).model_dump(), at(5).model_dump()]


def test_a_log_that_was_set_back_recalls_nothing_and_is_said_once(make, wire, capsys):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.script = [answer(409, "rollback_detected"), answer(409, "rollback_detected")]
    for question in (ANOTHER, "What coffee shop do I like?"):
        turn = plugin.before_turn(question)
        assert (turn.status, turn.text) == ("refused:rollback_detected", "")
    assert capsys.readouterr().err.count("doctor --accept-rollback") == 1


def test_a_namespace_that_is_gone_counts_as_set_back(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.position = None
    assert plugin.before_turn(ANOTHER).status == "refused:rollback_detected"


def test_a_rollback_that_a_person_accepts_is_accepted(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.position = None
    plugin.forget_position()
    assert plugin.before_turn(ANOTHER).status == "empty"


def test_a_position_too_old_to_compare_is_replaced_by_the_current_one(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.script = [answer(409, "position_unknown")]
    wire.position = at(9000)
    assert plugin.before_turn(ANOTHER).status == "empty"
    plugin.before_turn("What coffee shop do I like?")
    assert asked(wire)[-2:] == [None, at(9000).model_dump()]
