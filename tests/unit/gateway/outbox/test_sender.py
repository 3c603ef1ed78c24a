"""What one agent cannot deliver is its own trouble: the others' turns go on, in order."""

from __future__ import annotations

import sqlite3
import time
from contextlib import AsyncExitStack, aclosing

import pytest
from wire_relayer import COFFEE, answer

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import DeadlineExceeded, GatewayError, RelayerUnreachable, RelayerUntrusted
from gateway_plugin.keys.identity import NamespaceRef, identify, parse_session_key
from gateway_plugin.outbox.queue import Outbox, OutboxFull, OutboxItem
from gateway_plugin.outbox.sender import (
    Pauses,
    Positions,
    Sender,
    erase_people,
    erase_texts,
    forget_namespace,
)
from relayer.wire.fields import Position
from relayer.wire.schemas import AnalyzeRequest, TurnItem

SISTER = "My sister Lena visits me in the first week of May."
LASTING = [
    (401, "unauthorized"),
    (403, "account_revoked"),
    (409, "namespace_closed"),
    (500, "corrupt_namespace"),
    (503, "upgrade_required"),
]


def said(text):
    return [{"role": "user", "content": text}]


def item(namespace, text="I moved to Berlin"):
    request = AnalyzeRequest(
        turns=(TurnItem(role="user", text=text),),
        idempotency_key=f"{namespace}-{text}"[:100].replace(" ", "-"),
    )
    return OutboxItem(NamespaceRef(namespace, namespace, 1), request, 0)


@pytest.fixture
def outbox():
    return Outbox.in_memory()


@pytest.fixture
async def sending(wire, trust_store, holder):
    """Makes a sender of an outbox."""

    def identity_of(owner):
        return identify(holder, parse_session_key(f"agent:{owner.agent}:s"), default_agent=None)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(RelayerClient(wire.url, trust=trust_store))

        async def start(outbox, **more):
            return await stack.enter_async_context(aclosing(Sender(client, outbox, identity_of, **more)))

        yield start
        wire.refused_captures.clear()


@pytest.fixture
async def patient(sending, outbox):
    """A sender that, once it failed, does not try again by itself while a test lasts."""
    return await sending(outbox, first_pause=60)


@pytest.mark.parametrize("refusal", LASTING)
def test_an_agent_whose_captures_are_refused_does_not_hold_up_another(plugin, wire, refusal):
    wire.refused_captures["revoked"] = refusal
    plugin.after_turn(said(COFFEE), session_key="agent:revoked:s")
    plugin.after_turn(said(SISTER), session_key="agent:coder:s")
    assert not plugin.flush(10)
    status = plugin.status()
    assert wire.texts("coder") == [SISTER]
    assert (status.waiting, status.delivered, status.refused) == (1, 1, 0)
    assert refusal[1] in status.last_error


def test_a_flush_ends_when_only_what_was_just_refused_is_left(plugin, wire):
    wire.refused_captures["revoked"] = (401, "unauthorized")
    plugin.after_turn(said(COFFEE), session_key="agent:revoked:s")
    start = time.monotonic()
    assert not plugin.flush(30)
    assert time.monotonic() - start < 10


def test_a_turn_finds_what_its_agent_just_said_while_another_agent_is_refused(plugin, wire):
    wire.refused_captures["revoked"] = (401, "unauthorized")
    plugin.after_turn(said(SISTER), session_key="agent:revoked:s")
    plugin.flush(10)
    plugin.after_turn(said(COFFEE), session_key="agent:coder:s")
    turn = plugin.before_turn("How do I take my coffee?", session_key="agent:coder:t")
    assert [hit.text for hit in turn.hits] == [COFFEE]


async def test_whoever_waits_for_the_relayer_does_not_wait_for_this_machines_disk(sending, holder, tmp_path):
    outbox = Outbox(tmp_path / "outbox.db", holder)
    sender = await sending(outbox)
    outbox.put(item("coder"))
    assert outbox.waiting() == 1
    other = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    assert await sender.flush(10)
    assert time.monotonic() - start < 2.5, "half of what is waited for a file in use"
    assert (outbox.waiting(), sender.delivered) == (0, 1)
    assert other.execute("SELECT COUNT(*) FROM items").fetchone() == (1,)
    other.execute("ROLLBACK")
    await sender.aclose()
    assert other.execute("SELECT COUNT(*) FROM items").fetchone() == (0,)
    other.close()


async def test_within_a_namespace_nothing_overtakes_what_failed(wire, patient, outbox):
    wire.script = [answer(500, "internal_error")]
    for text in ("first", "second"):
        outbox.put(item("coder", text))
    outbox.put(item("writer", "third"))
    patient.wake()
    assert not await patient.flush(10)
    assert (wire.texts("coder"), wire.texts("writer")) == ([], ["third"])
    assert await patient.flush(10)
    assert wire.texts("coder") == ["first", "second"]


async def test_a_turn_does_not_wait_for_a_namespace_that_is_failing(wire, patient, outbox):
    wire.refused_captures["revoked"] = (401, "unauthorized")
    outbox.put(item("revoked"))
    await patient.flush(10)
    start = time.monotonic()
    assert not await patient.settled("revoked", 10)
    assert await patient.settled("coder", 10)
    assert time.monotonic() - start < 5


async def test_when_the_relayer_is_back_for_one_it_is_asked_again_for_all(wire, patient, outbox):
    for namespace in ("first", "second"):
        outbox.put(item(namespace))
    breaker = patient._client.breaker
    for _ in range(3):
        breaker.failed_by(None)
    assert not await patient.flush(10)
    breaker.succeeded()
    outbox.put(item("third"))
    patient.wake()
    assert await patient.settled("third", 10)
    assert await patient.settled("first", 10)
    assert await patient.settled("second", 10)


@pytest.mark.parametrize("code", ["wrong_namespace_key", "wrong_custody"])
def test_what_only_a_person_can_mend_is_given_up_at_once_and_said(plugin, wire, capsys, code):
    wire.refused_captures["coder"] = (409, code)
    plugin.after_turn(said(COFFEE), session_key="agent:coder:s")
    plugin.after_turn(said(SISTER), session_key="agent:coder:s")
    assert plugin.flush(10)
    status = plugin.status()
    assert (status.refused, status.waiting, status.delivered) == (2, 0, 0)
    assert code in status.last_refusal
    told = [line for line in capsys.readouterr().err.splitlines() if code in line]
    assert len(told) == 1
    assert not any(text in told[0] for text in (COFFEE, SISTER))


def test_a_good_delivery_of_one_agent_does_not_hide_anothers_failure(plugin, wire):
    wire.refused_captures["revoked"] = (401, "unauthorized")
    plugin.after_turn(said(COFFEE), session_key="agent:revoked:s")
    plugin.flush(10)
    plugin.after_turn(said(SISTER), session_key="agent:coder:s")
    plugin.flush(10)
    assert "unauthorized" in plugin.status().last_error
    wire.refused_captures.clear()
    assert plugin.flush(10)
    assert plugin.status().last_error == ""


def test_an_outbox_is_bounded_whatever_the_number_of_namespaces():
    outbox = Outbox.in_memory(capacity=10)
    for number in range(20):
        outbox.put(item(f"agent-{number}"))
    with pytest.raises(OutboxFull):
        outbox.put(item("one-more"))


async def test_what_a_quota_has_no_room_for_is_kept_told_once_and_not_asked_for_again_and_again(
    wire, sending, outbox
):
    told: list[str] = []
    sender = await sending(outbox, first_pause=0.01, notify=told.append)
    wire.refused_captures["crowded"] = (409, "quota_exceeded")
    for text in ("one", "two"):
        outbox.put(item("crowded", f"I moved to house {text}"))
    assert not await sender.flush(5)
    assert outbox.waiting("crowded") == 2
    assert outbox.dead_letters() == ()
    assert len(told) == 1
    assert "crowded wait in the outbox" in told[0]
    assert "quota_exceeded" in sender.last_error
    # Another agent's turns are delivered meanwhile; with a pause of a minute at most it would ask a few times in between.
    asked = len(wire.bodies("/v1/analyze"))
    for number in range(60):
        outbox.put(item("roomy", f"I moved to house {number}"))
    assert await sender.settled("roomy", 20)
    assert len(wire.bodies("/v1/analyze")) == asked + 60
    # A person's flush asks at once.
    del wire.refused_captures["crowded"]
    assert await sender.flush(5)
    assert len(wire.texts("crowded")) == 2


# Pauses after failed deliveries: of one namespace each, longer each time, over once somebody answers.
AWAY = RelayerUnreachable("no relayer answers")


@pytest.mark.parametrize(("failures", "longest"), [(1, 1.0), (2, 2.0), (4, 8.0), (9, 60.0), (2000, 60.0)])
def test_each_failure_doubles_the_pause_up_to_a_minute(failures, longest):
    pauses = Pauses(1.0)
    for _ in range(failures):
        pauses.failed("a", AWAY, 100.0)
    assert longest / 2 <= pauses.ends(100.0)["a"] - 100.0 <= longest


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(AWAY, True), (RelayerUntrusted("who is that"), True), (DeadlineExceeded("analyze"), False), (GatewayError("odd"), False)],
)  # fmt: skip
def test_a_delivery_ends_the_pauses_of_those_that_found_nobody(error, goes_on):
    pauses = Pauses(1.0)
    pauses.failed("mine", DeadlineExceeded("analyze"), 100.0)
    pauses.failed("other", error, 100.0)
    pauses.delivered("mine")
    assert ("mine" in pauses, "other" in pauses) == (False, not goes_on)


# What was erased at the relayer leaves this gateway's outbox, and what was said besides stays.
OWNER = NamespaceRef("researcher", "researcher", 0)
OTHER = NamespaceRef("coder", "coder", 0)


def _captured(owner: NamespaceRef, key: str, *texts: str) -> OutboxItem:
    turns = [{"role": "user", "text": text} for text in texts]
    return OutboxItem(owner, AnalyzeRequest(turns=turns, idempotency_key=key), 1)


def _turns(empty: Outbox) -> list[list[str]]:
    letters = (*empty.queued(), *empty.dead_letters())
    return [[turn.text for turn in letter.item.request.turns] for letter in letters if letter.item]


@pytest.fixture
def empty() -> Outbox:
    made = Outbox.in_memory()
    made.put(_captured(OWNER, "1", "The key hangs  behind the DOOR.", "The bakery opens at seven."))
    made.put(_captured(OWNER, "2", "The bakery opens at seven."))
    made.put(_captured(OTHER, "3", "The key hangs behind the door."))
    refused = _captured(OWNER, "4", "I _turns: the key hangs behind the door.")
    made.put(refused)
    made.refused(refused, "too_large")
    return made


def test_turns_that_hold_the_text_go_waiting_or_refused_and_their_neighbours_stay(empty: Outbox) -> None:
    assert erase_texts(empty, "researcher", ["The key hangs behind the door."]) == 2
    assert sorted(_turns(empty)) == [
        ["The bakery opens at seven."],
        ["The bakery opens at seven."],
        ["The key hangs behind the door."],
    ]
    assert len({letter.id for letter in empty.queued()}) == 3


def test_what_stays_of_a_turn_is_not_kept_word_for_word() -> None:
    empty = Outbox.in_memory()
    turns = [
        {"role": "user", "text": "The key hangs behind the door."},
        {"role": "user", "text": "I sail.", "calls": ["x"]},
    ]
    asked = AnalyzeRequest(turns=turns, idempotency_key="1", session="s", store_transcript=True)
    empty.put(OutboxItem(OWNER, asked, 1))
    erase_texts(empty, "researcher", ["the key hangs behind the door."])
    left = empty.head()
    assert left is not None
    assert _turns(empty) == [["I sail."]]
    assert (left.request.store_transcript, left.request.turns[0].calls) == (False, ())


def test_the_waiting_turns_of_a_person_go_from_groups_and_their_direct_chat_and_no_others() -> None:
    empty = Outbox.in_memory()
    for key, asked in enumerate((
        {"audience": "group", "place": "telegram:-1", "turns": [
            {"role": "user", "text": "I sail.", "sender": "telegram:222"},
            {"role": "user", "text": "I row.", "sender": "telegram:111"},
        ]},
        {"audience": "direct", "place": "telegram:222", "turns": [{"role": "user", "text": "I swim."}]},
        {"audience": "direct", "place": "telegram:111", "turns": [{"role": "user", "text": "I dive."}]},
        {"audience": "group", "place": "telegram:222", "turns": [{"role": "user", "text": "I climb."}]},
    )):  # fmt: skip
        empty.put(OutboxItem(OWNER, AnalyzeRequest(idempotency_key=str(key), **asked), 1))
    assert erase_people(empty, "somebody-else", ["telegram:222"]) == 0
    assert erase_people(empty, "researcher", ["telegram:222"]) == 2
    assert sorted(_turns(empty)) == [["I climb."], ["I dive."], ["I row."]]


def test_what_is_shorter_than_the_text_or_empty_matches_nothing(empty: Outbox) -> None:
    before = _turns(empty)
    assert erase_texts(empty, "researcher", ["", "  ", "The key hangs behind the door. And more."]) == 0
    assert _turns(empty) == before


def test_an_erased_namespace_takes_all_that_waits_for_it_and_its_position(empty: Outbox) -> None:
    positions = Positions(empty)
    positions.saw(OWNER, Position(seq=7, digest="ab" * 32))
    positions.persist()
    assert forget_namespace(empty, OWNER) == 4
    assert _turns(empty) == [["The key hangs behind the door."]]
    assert Positions(empty).newest(OWNER) is None
