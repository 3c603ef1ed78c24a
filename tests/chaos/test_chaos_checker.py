"""The checker: good histories pass, and each way of being wrong is found in the smallest history that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chaos_checker import Flaw, check
from chaos_history import End, Event, Kind, Place, Seen, load, save

START = {"namespace": "n", "client": 0, "relayer": 0}


def at(seq: int, fork: str = "") -> Place:
    return Place(seq, f"digest of {seq}{fork}")


def put(number: int, begun: float, seq: int | None = None, *, items: int = 1, **changes) -> Event:
    texts = tuple(f"t{number}" if items == 1 else f"t{number}.{item}" for item in range(items))
    done = seq is not None
    given = {
        "kind": Kind.REMEMBER,
        "number": number,
        "begun": begun,
        "ended": begun + 1,
        "end": End.OK if done else End.UNKNOWN,
        "key": f"k{number}",
        "texts": texts,
        "ids": tuple(f"id-{text}" for text in texts) if done else (),
        "position": at(seq) if done else None,
    }
    return Event(**START | given | changes)


def forget(number: int, begun: float, seq: int | None = None, *, text: str, **changes) -> Event:
    given = {
        "kind": Kind.FORGET,
        "number": number,
        "begun": begun,
        "ended": begun + 1,
        "end": End.OK if seq is not None else End.UNKNOWN,
        "texts": (text,),
        "position": None if seq is None else at(seq),
    }
    return Event(**START | given | changes)


def read(begun: float, seq: int, *texts: str, consistency: str = "strong", **changes) -> Event:
    given = {
        "kind": Kind.RECALL,
        "number": 1000 + int(begun * 10),
        "begun": begun,
        "ended": begun + 1,
        "end": End.OK,
        "seen": tuple(Seen(text, f"id-{text}") for text in texts),
        "position": at(seq),
        "consistency": consistency,
    }
    return Event(**START | given | changes)


def listed(begun: float, *texts: str, **changes) -> Event:
    return replace(read(begun, 1, *texts), kind=Kind.LIST, position=None, **changes)


def flaws(*history: Event) -> set[Flaw]:
    return {violation.flaw for violation in check(history)}


GOOD = {
    "a write and a read": [put(1, 0, 1), read(2, 1, "t1")],
    "a read during the write sees it or not": [put(1, 0, 1, ended=9), read(2, 0), read(4, 1, "t1")],
    "group commit": [put(1, 0, 1), put(2, 0, 1), read(2, 1, "t1", "t2")],
    "an unknown write that never was": [put(1, 0), read(2, 0), read(9, 0)],
    "an unknown write that came late": [put(1, 0), read(2, 0), put(2, 4, 1), read(6, 2, "t1", "t2")],
    "an unknown write that was tried again": [put(1, 0), put(1, 2, 1), read(4, 1, "t1")],
    "a stale read that did not ask for more": [put(1, 0, 1), read(2, 0, consistency="any")],
    "mine": [put(1, 0, 1), put(2, 0, 2), read(3, 1, "t1", consistency="mine", at_least=at(1))],
    "forgotten": [put(1, 0, 1), read(2, 1, "t1"), forget(2, 4, 2, text="t1"), read(6, 2)],
    "forgotten before anybody looked": [put(1, 0, 1), forget(2, 2, 2, text="t1"), read(6, 2)],
    "an unknown forget that was": [put(1, 0, 1), forget(2, 2, text="t1"), put(3, 4, 3), read(6, 3, "t3")],
    "an unknown forget that was not": [put(1, 0, 1), forget(2, 2, text="t1"), read(6, 1, "t1")],
    "a refused write": [put(1, 0, 1), put(2, 2, end=End.FAIL, key="k1"), read(4, 1, "t1")],
    "the log's order is not that of the answers": [
        put(1, 0, 2), put(2, 0, 2), listed(3, "t1", "t2"), listed(5, "t1", "t2"),
    ],
    "a forget that lists may or may not show": [
        put(1, 0, 1), forget(2, 2, 2, text="t1", ended=9), listed(3), listed(4, "t1"), listed(10),
    ],
    "an empty namespace": [read(0, 0, position=Place(0, "")), read(2, 0)],
    "an answer with a part of what there is": [put(1, 0, 1), put(2, 0, 1), read(2, 1, "t1", partial=True)],
    "quiet at the end": [put(1, 0, 1), listed(2, "t1", final=True), listed(4, "t1", final=True)],
}  # fmt: skip

BAD = {
    "two logs": (Flaw.FORKED, [put(1, 0, 1), read(2, 1, "t1", position=at(1, "'"))]),
    "a strong read that is stale": (Flaw.WENT_BACK, [put(1, 0, 1), read(2, 0)]),
    "strong reads that go back": (
        Flaw.WENT_BACK,
        [put(1, 0), put(2, 0), read(2, 2, "t1", "t2"), read(4, 1, "t1")],
    ),
    "a write in a slot that was taken": (Flaw.WENT_BACK, [put(1, 0, 1), put(2, 2, 1)]),
    "a forget in a slot that was taken": (
        Flaw.WENT_BACK,
        [put(1, 0, 1), put(2, 2, 2), forget(3, 4, 1, text="t1")],
    ),
    "mine without mine": (Flaw.NOT_MINE, [put(1, 0, 1), read(2, 0, consistency="mine", at_least=at(1))]),
    "acknowledged and lost": (Flaw.LOST, [put(1, 0, 1), put(2, 2, 2), read(4, 2, "t2")]),
    "seen and lost": (Flaw.LOST, [put(1, 0), read(2, 1, "t1"), read(4, 2)]),
    "there, gone and there": (
        Flaw.LOST,
        [put(1, 0), put(2, 0), read(2, 1, "t1"), read(4, 2, "t2"), read(6, 3, "t1", "t2")],
    ),
    "gone before anybody forgot it": (
        Flaw.LOST,
        [put(1, 0, 1), read(2, 2), put(3, 4, 3), forget(2, 6, 4, text="t1")],
    ),
    "acknowledged and not in the list": (Flaw.LOST, [put(1, 0, 1), listed(2)]),
    "acknowledged and not there to be forgotten": (
        Flaw.LOST,
        [put(1, 0, 1), forget(2, 2, text="t1", end=End.FAIL, code="not_found")],
    ),
    "forgotten and back": (
        Flaw.RESURRECTED,
        [put(1, 0, 1), forget(2, 2, 2, text="t1"), put(3, 4, 3), read(6, 3, "t1", "t3")],
    ),
    "forgotten and in the list": (
        Flaw.RESURRECTED,
        [put(1, 0, 1), forget(2, 2, 2, text="t1"), listed(4, "t1")],
    ),
    "before its time": (Flaw.TOO_EARLY, [read(0, 1, consistency="any"), put(1, 2), read(4, 1, "t1")]),
    "in a list before its time": (Flaw.TOO_EARLY, [listed(0, "t1"), put(1, 2, 1)]),
    "nobody's": (Flaw.INVENTED, [put(1, 0, 1), read(2, 1, "t1", "x")]),
    "refused and there": (Flaw.INVENTED, [put(1, 0, end=End.FAIL), read(2, 1, "t1")]),
    "twice in one answer": (
        Flaw.DOUBLED,
        [put(1, 0, 1), read(2, 2, seen=(Seen("t1", "id-t1"), Seen("t1", "other")))],
    ),
    "one key, two ids": (Flaw.DOUBLED, [put(1, 0, 1), put(1, 2, 2, ids=("other",))]),
    "an id that is not the acknowledged one": (
        Flaw.DOUBLED,
        [put(1, 0, 1), read(2, 1, seen=(Seen("t1", "other"),))],
    ),
    "half a write": (Flaw.TORN, [put(1, 0, 1, items=2), read(2, 1, "t1.0")]),
    "half a write in a list": (Flaw.TORN, [put(1, 0, items=2), listed(2, "t1.1")]),
    "an order that answers contradict": (
        Flaw.DISORDERED,
        [put(1, 0, 1), put(2, 2, 2), listed(4, "t1", "t2")],
    ),
    "two bodies under one key": (
        Flaw.CONFLICT_ACCEPTED,
        [put(1, 0, 1), put(2, 2, 2, key="k1"), read(4, 2, "t1", "t2")],
    ),
    "two bodies under one key, one of them never answered": (
        Flaw.CONFLICT_ACCEPTED,
        [put(1, 0, 1), put(2, 2, key="k1"), read(4, 2, "t1", "t2")],
    ),
    "accepted and refused": (Flaw.CONFLICT_ACCEPTED, [put(1, 0, 1), put(1, 2, end=End.FAIL)]),
    "replicas that list differently": (
        Flaw.REPLICAS_DIFFER,
        [put(1, 0, 1), listed(2, "t1", final=True), listed(4, final=True)],
    ),
    "replicas that stand at different positions": (
        Flaw.REPLICAS_DIFFER,
        [put(1, 0, 1), put(2, 0), read(2, 1, "t1", final=True), read(4, 2, "t1", "t2", final=True)],
    ),
    "a rollback that was reported": (Flaw.ALARM, [read(0, 0, end=End.FAIL, code="rollback_detected")]),
    "a defect": (Flaw.ALARM, [put(1, 0, code="internal_error")]),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_of_one_log_passes(name):
    assert not check(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_history_is_found(name):
    flaw, history = BAD[name]
    assert flaw in flaws(*history)


def test_every_flaw_has_a_history_that_shows_it():
    assert {flaw for flaw, _ in BAD.values()} == set(Flaw)


def test_namespaces_are_judged_apart():
    other = [replace(event, namespace="m") for event in GOOD["forgotten"]]
    assert not check([*GOOD["a write and a read"], *other])


def test_a_history_survives_its_file(tmp_path: Path):
    history = [event for _, events in BAD.values() for event in events]
    save(tmp_path / "history.jsonl", history)
    assert load(tmp_path / "history.jsonl") == history
