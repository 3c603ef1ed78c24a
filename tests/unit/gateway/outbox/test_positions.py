"""A gateway remembers how far a log was, and notices one that was set back."""

from __future__ import annotations

import contextlib

import pytest
from wire_relayer import QUESTION, answer

from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, OutboxUnavailable
from gateway_plugin.outbox.sender import Positions, forget_namespace
from relayer.wire.fields import Position

ANOTHER = "Which coffee do I drink in the morning?"
OWNER = NamespaceRef("coder", "coder", 1)
DEFAULT = NamespaceRef("default", "default", 1)


def at(seq):
    return Position(seq=seq, digest=f"{seq:064x}")


def erased_by_another_process(plugin):
    outbox = plugin._inner._outbox
    with contextlib.closing(Outbox(outbox.path, plugin._inner._book.holder)) as beside:
        forget_namespace(beside, DEFAULT)


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


def test_a_position_too_old_to_compare_is_replaced_by_the_current_one(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.script = [answer(409, "position_unknown")]
    wire.position = at(9000)
    assert plugin.before_turn(ANOTHER).status == "empty"
    plugin.before_turn("What coffee shop do I like?")
    assert asked(wire)[-2:] == [None, at(9000).model_dump()]


def test_what_another_process_forgot_is_noticed_once_and_not_written_again():
    outbox = Outbox.in_memory()
    running = Positions(outbox)
    assert not running.was_reset(OWNER)
    running.saw(OWNER, at(7))
    Positions(outbox).forget(OWNER)
    running.persist()
    assert Positions(outbox).newest(OWNER) is None
    assert running.was_reset(OWNER)
    assert not running.was_reset(OWNER)
    assert running.newest(OWNER) is None
    running.saw(OWNER, at(2))
    running.persist()
    assert Positions(outbox).newest(OWNER) == at(2)


def test_what_is_forgotten_while_it_is_written_does_not_come_back():
    class Interrupted(Outbox):
        def get_all(self, wanted):
            found = super().get_all(wanted)
            if positions.changed is False and not self.once:
                self.once = True
                Positions(self).forget(OWNER)
            return found

    outbox = Interrupted.in_memory()
    outbox.once = True
    positions = Positions(outbox)
    positions.saw(OWNER, at(7))
    outbox.once = False
    positions.persist()
    assert outbox.once
    assert Positions(outbox).newest(OWNER) is None


def test_the_progress_of_another_process_is_no_reset():
    outbox = Outbox.in_memory()
    running, beside = Positions(outbox), Positions(outbox)
    running.saw(OWNER, at(7))
    running.persist()
    beside.saw(OWNER, at(9))
    beside.persist()
    assert not running.was_reset(OWNER)
    assert running.newest(OWNER) == at(7)


def test_an_outbox_that_was_lost_is_no_reset():
    outbox = Outbox.in_memory()
    Positions(outbox).forget(OWNER)
    running = Positions(outbox)
    running.saw(OWNER, at(7))
    with outbox._database.writing() as database:
        database.execute("DELETE FROM marks")
    assert not running.was_reset(OWNER)
    assert running.newest(OWNER) == at(7)
    running.persist()
    assert Positions(outbox).newest(OWNER) == at(7)


def test_after_the_owner_erased_everything_a_running_gateway_recalls_from_the_new_log(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    wire.position = None
    erased_by_another_process(plugin)
    assert plugin.before_turn(ANOTHER).status == "empty"
    wire.position = at(1)
    assert plugin.before_turn("What coffee shop do I like?").status == "empty"
    plugin.before_turn("Where do I buy coffee?")
    assert asked(wire) == [None, None, None, at(1).model_dump()]
    assert make().before_turn(ANOTHER).status == "empty"


def test_what_was_erased_is_not_recalled_from_the_cache(make, wire):
    plugin = make()
    plugin.after_turn([{"role": "user", "content": "I drink my coffee black."}])
    assert plugin.flush(10)
    wire.position = at(5)
    assert plugin.before_turn(QUESTION).status == "ok"
    for rows in wire.memories.values():
        rows.clear()
    erased_by_another_process(plugin)
    assert plugin.before_turn(QUESTION).status == "empty"


def test_an_erasure_while_the_relayer_is_asked_is_no_rollback(make, wire, capsys):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    refuse = answer(409, "rollback_detected")

    async def erase(request):
        erased_by_another_process(plugin)
        return await refuse(request)

    wire.script = [erase]
    assert plugin.before_turn(ANOTHER).status == "empty"
    assert asked(wire) == [None, at(5).model_dump(), None]
    assert "accept-rollback" not in capsys.readouterr().err


def test_a_log_that_is_set_back_after_an_erasure_is_refused_again(make, wire):
    plugin = make()
    wire.position = at(5)
    plugin.before_turn(QUESTION)
    erased_by_another_process(plugin)
    assert plugin.before_turn(ANOTHER).status == "empty"
    wire.script = [answer(409, "rollback_detected")]
    assert plugin.before_turn("What coffee shop do I like?").status == "refused:rollback_detected"
