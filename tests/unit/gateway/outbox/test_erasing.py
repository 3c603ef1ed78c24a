"""What was erased at the relayer leaves this gateway's outbox, and what was said besides stays."""

from __future__ import annotations

import pytest

from gateway_plugin.keys.identity import NamespaceRef
from gateway_plugin.outbox.queue import Outbox, OutboxItem
from gateway_plugin.outbox.sender import Positions, erase_texts, forget_namespace
from relayer.wire.schemas import AnalyzeRequest, Position

OWNER = NamespaceRef("researcher", "researcher", 0)
OTHER = NamespaceRef("coder", "coder", 0)


def item(owner: NamespaceRef, key: str, *texts: str) -> OutboxItem:
    turns = [{"role": "user", "text": text} for text in texts]
    return OutboxItem(owner, AnalyzeRequest(turns=turns, idempotency_key=key), 1)


def said(outbox: Outbox) -> list[list[str]]:
    letters = (*outbox.queued(), *outbox.dead_letters())
    return [[turn.text for turn in letter.item.request.turns] for letter in letters if letter.item]


@pytest.fixture
def outbox() -> Outbox:
    made = Outbox.in_memory()
    made.put(item(OWNER, "1", "The key hangs  behind the DOOR.", "The bakery opens at seven."))
    made.put(item(OWNER, "2", "The bakery opens at seven."))
    made.put(item(OTHER, "3", "The key hangs behind the door."))
    refused = item(OWNER, "4", "I said: the key hangs behind the door.")
    made.put(refused)
    made.refused(refused, "too_large")
    return made


def test_turns_that_hold_the_text_go_waiting_or_refused_and_their_neighbours_stay(outbox: Outbox) -> None:
    assert erase_texts(outbox, "researcher", ["The key hangs behind the door."]) == 2
    assert sorted(said(outbox)) == [
        ["The bakery opens at seven."],
        ["The bakery opens at seven."],
        ["The key hangs behind the door."],
    ]
    assert len({letter.id for letter in outbox.queued()}) == 3


def test_what_stays_of_a_turn_is_not_kept_word_for_word() -> None:
    outbox = Outbox.in_memory()
    turns = [
        {"role": "user", "text": "The key hangs behind the door."},
        {"role": "user", "text": "I sail.", "calls": ["x"]},
    ]
    asked = AnalyzeRequest(turns=turns, idempotency_key="1", session="s", store_transcript=True)
    outbox.put(OutboxItem(OWNER, asked, 1))
    erase_texts(outbox, "researcher", ["the key hangs behind the door."])
    left = outbox.head()
    assert left is not None
    assert said(outbox) == [["I sail."]]
    assert (left.request.store_transcript, left.request.turns[0].calls) == (False, ())


def test_what_is_shorter_than_the_text_or_empty_matches_nothing(outbox: Outbox) -> None:
    before = said(outbox)
    assert erase_texts(outbox, "researcher", ["", "  ", "The key hangs behind the door. And more."]) == 0
    assert said(outbox) == before


def test_an_erased_namespace_takes_all_that_waits_for_it_and_its_position(outbox: Outbox) -> None:
    positions = Positions(outbox)
    positions.saw(OWNER, Position(seq=7, digest="ab" * 32))
    positions.persist()
    assert forget_namespace(outbox, OWNER) == 4
    assert said(outbox) == [["The key hangs behind the door."]]
    assert Positions(outbox).newest(OWNER) is None
