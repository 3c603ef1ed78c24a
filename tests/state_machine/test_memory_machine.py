"""Whatever is asked in whatever order, through whichever of two relayers: the answers are those of a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
import pytest
from hypothesis import Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model_memory import Model
from two_relayers import TwoRelayers

from relayer.domain.containers import Duplicates
from relayer.domain.operations import Operation, Outcome, Refusal
from relayer.domain.state import NamespaceState
from relayer.errors import Refused, RelayerError
from relayer.log.erasure import NamespaceEraser
from relayer.log.namespace_log import NamespaceLog
from relayer.log.replica import Replica
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import NamespaceView
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases import erase
from relayer.use_cases import lifecycle as supersede
from relayer.wire.schemas import RememberRequest, RememberResponse, SupersedeRequest
from relayer.writing.drafts import Draft

# Few texts, so that they meet; the second is the first one in another dress.
TEXTS = (
    "The harbour closes at noon.",
    "the  harbour closes at noon",
    "Oat milk, no sugar.",
    "Lena moved to Berlin.",
    "The spare key hangs behind the door.",
)
SAME = {TEXTS[1]: TEXTS[0]}
NOWHERE = "0" * 26
LIFE_SECONDS = 60
CARE = (TwoRelayers.go_on_erasing, TwoRelayers.compact, TwoRelayers.collect, TwoRelayers.store_index)
# About ten seconds on two busy cores.
EXAMPLES = 40
# The rarest of what is wrong shows in one example of fifty, and which ones are drawn differs with the modules that are
# loaded; the first that shows it ends the test.
ENOUGH = 1000

texts = st.sampled_from(TEXTS)
relayers = st.integers(0, 1)


@cache
def calibration() -> Calibration:
    return asyncio.run(calibrate(HashingEmbedder()))


@dataclass(frozen=True)
class Sent:
    """A write and what was answered to it."""

    nonce: bytes
    request: RememberRequest
    answer: RememberResponse
    life: int


@dataclass(frozen=True)
class Moment:
    """A time, and the ids of what could be recalled then; ``restored`` counts what had been brought back by then."""

    life: int
    at: int
    recallable: frozenset[str]
    restored: int


class MemoryMachine(RuleBasedStateMachine):
    """A new operation of the product is one more rule, a method of the model and one of `TwoRelayers`."""

    made = Bundle("made")
    sent = Bundle("sent")
    moments = Bundle("moments")
    ids = made | sent.flatmap(lambda write: st.sampled_from([memory.id for memory in write.answer.memories]))

    def __init__(self) -> None:
        super().__init__()
        self.relayers = TwoRelayers(calibration())
        self.model = Model()
        self.life = 0
        self.exists = False
        self.restored = 0
        self.nonces = 0
        # The keys of this life.
        self.keys: list[str] = []

    def teardown(self) -> None:
        try:
            # What is true must be so for a relayer that has seen nothing of it happen.
            self.relayers.restart(0)
            self.look(0)
            assert self.relayers.left_of_the_past() == []
            self.look(0)
        finally:
            self.relayers.close()

    def nonce(self) -> bytes:
        self.nonces += 1
        return self.nonces.to_bytes(16, "big")

    def request(self, *contents: str, key: str | None = None, ends: bool = False) -> RememberRequest:
        life = {"ttl_seconds": LIFE_SECONDS} if ends else {}
        return RememberRequest(items=[{"text": text} | life for text in contents], idempotency_key=key)

    def stored(self, request: RememberRequest, answer: RememberResponse) -> None:
        """Take into the model what was just written for the first time."""
        now = self.relayers.now()
        self.exists = True
        for item, told in zip(request.items, answer.memories, strict=True):
            ends = now + item.ttl_seconds * 1000 if item.ttl_seconds else None
            assert told.status == self.model.put(told.id, SAME.get(item.text, item.text), ends, now)

    @initialize(target=made)
    def nobody(self) -> str:
        return NOWHERE

    @rule(
        target=sent,
        which=relayers,
        contents=st.lists(texts, min_size=1, max_size=3),
        keyed=st.booleans(),
        ends=st.booleans(),
    )
    def put(self, which: int, contents: list[str], keyed: bool, ends: bool) -> Sent:
        nonce = self.nonce()
        request = self.request(*contents, key=nonce.hex() if keyed else None, ends=ends)
        answer = self.relayers.remember(which, nonce, request)
        self.stored(request, answer)
        if request.idempotency_key:
            self.keys.append(request.idempotency_key)
        return Sent(nonce, request, answer, self.life)

    @rule(target=sent, which=relayers, text=texts)
    def put_without_an_embedder(self, which: int, text: str) -> Sent:
        nonce, request = self.nonce(), self.request(text)
        answer = self.relayers.remember_without_vectors(which, nonce, request)
        self.stored(request, answer)
        return Sent(nonce, request, answer, self.life)

    @rule(target=sent, one=texts, other=texts)
    def put_through_both_at_once(self, one: str, other: str) -> object:
        nonces, requests = (self.nonce(), self.nonce()), (self.request(one), self.request(other))
        answers = self.relayers.remember_at_once(nonces, requests)
        # Which was first, the positions tell; of one entry, the only stored one was.
        order = sorted(range(2), key=lambda which: (answers[which].memories[0].status == "duplicate", which))
        if answers[0].memories[0].status == answers[1].memories[0].status:
            shown = [memory.id for memory in self.relayers.list(0)][::-1]
            order = sorted(range(2), key=lambda which: shown.index(answers[which].memories[0].id))
        for which in order:
            self.stored(requests[which], answers[which])
        return multiple(*(Sent(*write, self.life) for write in zip(nonces, requests, answers, strict=True)))

    @rule(which=relayers, write=sent, anew=st.booleans())
    def send_again(self, which: int, write: Sent, anew: bool) -> None:
        """The same signature, or with a key another one: the first answer, and nothing happens."""
        if write.life != self.life:
            return
        nonce = self.nonce() if anew and write.request.idempotency_key else write.nonce
        again = self.relayers.remember(which, nonce, write.request)
        assert [memory.id for memory in again.memories] == [memory.id for memory in write.answer.memories]
        assert [memory.status for memory in again.memories] == [
            memory.status for memory in write.answer.memories
        ]

    @precondition(lambda self: self.keys)
    @rule(which=relayers, number=st.integers(0, 5), text=texts)
    def use_a_key_for_something_else(self, which: int, number: int, text: str) -> None:
        key = self.keys[number % len(self.keys)]
        with pytest.raises(Refused) as caught:
            self.relayers.remember(which, self.nonce(), self.request(text, "and more", key=key))
        assert caught.value.code == "idempotency_conflict"

    @rule(which=relayers, memory=ids)
    def forget(self, which: int, memory: str) -> None:
        told = self.relayers.forget(which, self.nonce(), memory)
        assert told == self.model.forget(memory, self.relayers.now())

    @rule(target=made, which=relayers, memory=ids, text=texts)
    def supersede(self, which: int, memory: str, text: str) -> str:
        told, made = self.relayers.supersede(which, self.nonce(), memory, SupersedeRequest(text=text))
        assert told == self.model.supersede(memory, made, self.relayers.now(), text=SAME.get(text, text))
        return made if told == "superseded" else memory

    @rule(target=made, which=relayers, memory=ids, pinned=st.booleans())
    def pin_or_unpin(self, which: int, memory: str, pinned: bool) -> str:
        told, made = self.relayers.supersede(which, self.nonce(), memory, SupersedeRequest(pinned=pinned))
        assert told == self.model.supersede(memory, made, self.relayers.now(), pinned=pinned)
        return made if told == "superseded" else memory

    @rule(which=relayers, memory=ids)
    def restore(self, which: int, memory: str) -> None:
        told = self.relayers.restore(which, self.nonce(), memory)
        assert told == self.model.restore(memory, self.relayers.now())
        if told == "live":
            self.restored += 1
            self.recall(which, self.model.memories[memory].text)

    @rule(which=relayers, memory=ids)
    def erase(self, which: int, memory: str) -> None:
        assert self.relayers.erase(which, self.nonce(), memory) == self.model.erase(memory)

    @rule(which=relayers, meanwhile=st.none() | texts, after=st.none() | texts)
    def erase_the_namespace(self, which: int, meanwhile: str | None, after: str | None) -> None:
        """Nothing of the former life is left; what the other relayer writes then belongs to it, or begins the new one."""
        request = None if meanwhile is None else self.request(meanwhile)
        told = self.relayers.erase_namespace(which, self.nonce(), request)
        assert (told == "not_found") is not self.exists
        if not self.exists:
            return
        self.model, self.exists, self.life = Model(), False, self.life + 1
        self.keys.clear()
        if request is not None and isinstance(told, RememberResponse):
            if self.relayers.list(which):
                self.stored(request, told)
            self.look(which)
        if after is not None:
            self.put(1 - which, [after], keyed=False, ends=False)

    @rule(which=relayers, care=st.sampled_from(CARE))
    def care(self, which: int, care: Callable[[TwoRelayers, int], None]) -> None:
        """What a relayer does beside its requests, at any time; one rule, so that the others keep their share."""
        self.relayers.care(which, care)

    @rule(which=relayers, memory=ids)
    def get(self, which: int, memory: str) -> None:
        told = self.relayers.get(which, memory)
        expected = self.model.memories.get(memory)
        if expected is None:
            assert told == "not_found"
        else:
            assert not isinstance(told, str)
            assert (told.state, told.reinforced, told.pinned) == (
                expected.state,
                expected.reinforced,
                expected.pinned,
            )

    @rule(which=relayers)
    def look(self, which: int) -> None:
        shown = [
            (memory.id, SAME.get(memory.text, memory.text), memory.state, memory.superseded_by, memory.pinned)
            for memory in self.relayers.list(which)
        ]
        assert shown == [
            (memory.id, memory.text, memory.state, memory.superseded_by, memory.pinned)
            for memory in self.model.shown(self.relayers.now())
        ]

    @rule(which=relayers, query=texts)
    def recall(self, which: int, query: str) -> None:
        hits = [SAME.get(hit.text, hit.text) for hit in self.relayers.recall(which, query)]
        assert len(hits) == len(set(hits))
        assert set(hits) == self.model.recallable(self.relayers.now())

    @rule(which=relayers, query=texts, moment=moments)
    def recall_as_of(self, which: int, query: str, moment: Moment) -> None:
        now = self.relayers.now()
        expected = self.model.held(moment.at, now)
        if (moment.life, moment.restored) == (self.life, self.restored):
            # What was said then, less what was forgotten, erased or ended since.
            left = [memory for memory in self.model.shown(now) if memory.state != "forgotten"]
            assert expected == {memory.text for memory in left if memory.id in moment.recallable}
        hits = [SAME.get(hit.text, hit.text) for hit in self.relayers.recall(which, query, moment.at)]
        assert len(hits) == len(set(hits))
        assert set(hits) == expected

    @rule(which=relayers)
    def restart(self, which: int) -> None:
        self.relayers.restart(which)

    @rule(target=moments, seconds=st.sampled_from([3, LIFE_SECONDS + 1, 700, 4000]))
    def pass_time(self, seconds: int) -> Moment:
        """Long enough for a view to be stale, for a memory to end, for a namespace to be let go, for a collection to end."""
        now = self.relayers.now()
        recallable = frozenset(memory.id for memory in self.model.shown(now) if memory.state == "live")
        self.relayers.pass_time(seconds)
        return Moment(self.life, now, recallable, self.restored)


def run_machine(**changes: object) -> None:
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(
            **{"max_examples": EXAMPLES, "stateful_step_count": 40, "deadline": None, **changes}
        ),
    )


def test_relayers_answer_as_a_dictionary_would() -> None:
    run_machine()


async def read_nothing(self: Replica, *_: object) -> object:
    return self.state.position


def remember_no_key(*_: object) -> None:
    return None


def take_nobody_for_a_twin(*_: object) -> bytes:
    return b""


def let_anything_stand_at_the_head(self: NamespaceState, head: bytes) -> object:
    return self.records.get(head, Refusal.UNKNOWN_RECORD)


def show_nothing(*_: object, **__: object) -> None:
    return None


def erase_one_alone(_: object, wanted: list[bytes]) -> list[bytes]:
    return list(wanted)


def hold_for_ever(*_: object) -> bool:
    return True


async def close_nothing(*_: object) -> None:
    return None


def next_version_unpinned(*arguments: object) -> Draft:
    draft = NEXT_VERSION(*arguments)
    return msgspec.structs.replace(draft, record=msgspec.structs.replace(draft.record, pinned=False))


async def answer_as_ever(self: NamespaceLog, operations: Sequence[Operation]) -> list[Outcome]:
    return await self._committer.submit(operations)


NEXT_VERSION = supersede._next_version
WRONG = {
    "a strong read that reads nothing": (Replica, "read", read_nothing),
    "an idempotency key that is not remembered": (NamespaceState, "_by_idempotency", remember_no_key),
    "duplicates that are stored": (Duplicates, "newest", take_nobody_for_a_twin),
    "stale heads that are taken": (NamespaceState, "head", let_anything_stand_at_the_head),
    "an erasure that leaves other versions": (erase, "_whole", erase_one_alone),
    "a restore that recall does not hear of": (NamespaceView, "_show", show_nothing),
    "a past in which everything was true": (OpenNamespace, "_held_at", hold_for_ever),
    "a pin that the next version forgets": (supersede, "_next_version", next_version_unpinned),
    "a namespace that is erased and goes on": (NamespaceEraser, "_close", close_nothing),
    "a write to a log that has ended, answered as any other": (NamespaceLog, "append", answer_as_ever),
}


@pytest.mark.tier("prove")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[name])
    # Another answer than the dictionary's, or a refusal where there must be none.
    with pytest.raises((AssertionError, RelayerError, pytest.fail.Exception)):
        run_machine(
            phases=(Phase.generate,), database=None, derandomize=True, max_examples=ENOUGH, print_blob=False, report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
        )  # fmt: skip
