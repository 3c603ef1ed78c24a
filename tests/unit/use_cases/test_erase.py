"""Erased is gone: from every answer, from what a process holds in memory, and from the store's readable contents."""

from __future__ import annotations

import asyncio
import gc
import logging
import types
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from model_jobs import says, until, with_model, working

from relayer.domain.bodies import take_out
from relayer.domain.namespace import Custody
from relayer.domain.operations import decode_entry
from relayer.errors import NamespaceClosed, Refused, WrongCustody
from relayer.log.collector import GRACE_MS
from relayer.log.objects import ObjectLocation, ObjectSealer
from relayer.log.segments import open_pack, pack_place
from relayer.maintenance.open_namespaces import maintain
from relayer.ports import Found
from relayer.search.terms import indexed_text
from relayer.use_cases.capture import analyze, get_job
from relayer.use_cases.erase import erase_memory, erase_namespace, get_erasure
from relayer.use_cases.lifecycle import delete, supersede
from relayer.use_cases.memories import get_memory
from relayer.use_cases.overview import list_namespaces
from relayer.use_cases.recall import recall
from relayer.wire import codec as ulid
from relayer.wire.codec import UnsealError
from relayer.wire.schemas import (
    AnalyzeRequest,
    DeleteRequest,
    EraseNamespaceRequest,
    RecallRequest,
    SupersedeRequest,
)
from relayer.wire.sealing import ObjectType

CANARY = "heliotrope"
SAID = f"My sister Ana keeps the {CANARY} in Lisbon since 3 May 2026."
NEXT = "Her brother Rui moved to Porto on 4 May 2026."
HOUR = GRACE_MS / 1000


async def say(house, *texts, session="s1"):
    turns = [
        {"role": "user", "text": text, "id": f"m{number}", "speaker": "Kim"}
        for number, text in enumerate(texts)
    ]
    request = AnalyzeRequest(turns=turns, session=session)
    body = "".join(texts).encode()
    return await house.call(analyze, request, access=house.access(body=body))


async def texts_of(house):
    return [memory.text for memory in await house.listed("live", "superseded", "forgotten")]


async def erase(house, memory):
    return (await house.call(erase_memory, memory)).erasure


async def rounds(house, count=1):
    """Let a relayer go on with erasures, with nothing that fails."""
    errors: list[BaseException] = []
    for _ in range(count):
        await house.ctx.erasures.round(errors.append)
    assert errors == []


async def view_of(house, erasure):
    return await house.call(get_erasure, erasure, access=house.principal("researcher"))


async def confirmed(house, erasure):
    """Let hours pass in which a relayer goes on with erasures; return what is told of one then."""
    for _ in range(4):
        await rounds(house, 2)
        await house.clock.advance(HOUR + 1)
    return await view_of(house, erasure)


async def bodies(house) -> list[str]:
    """Open every body in the store with the namespace's own keys: what somebody with all keys could read there."""
    opened = house.ctx.namespaces.all()[0]
    keys, incarnation, account = opened.keys, opened.namespace.pointer.incarnation, opened.namespace.account
    sealer = ObjectSealer(house.ctx.ports)
    raws: list[bytes] = []
    async for row in house.store.list(f"ns/{incarnation.hex()}/"):
        got = await house.store.get(row.key)
        assert isinstance(got, Found)
        if "/wal/" in row.key:
            place = ObjectLocation(ObjectType.ENTRY, account, incarnation, row.key)
            raws += decode_entry(sealer.unseal(place, got.data)).operations
        if "/seg/" in row.key:
            pack = pack_place(sealer, account, incarnation, row.key)
            raws += [raw for linked in open_pack(got.data, pack) for raw in linked.entry.operations]
    ids = {
        one for state in opened.log.state.jobs.values() for one in (state.job, *state.records, *state.results)
    }
    ids |= {*opened.log.state.records, *opened.log.state.erased}
    return [
        text for raw in raws for _, body in take_out(raw)[1] if body for text in opened_by(keys, ids, body)
    ]


def opened_by(keys, ids, body):
    for one in ids:
        with suppress(UnsealError):
            yield keys.unseal_record(one, body).decode(errors="replace")


def reachable(*roots: object):
    """Yield everything that these hold, however deep."""
    seen: set[int] = set()
    rest = list(roots)
    while rest:
        one = rest.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType | logging.Logger):
            continue
        seen.add(id(one))
        yield one
        rest += gc.get_referents(one)


def held(house, word=CANARY) -> list[str]:
    """Return every text in what a relayer holds for its open namespaces that has a word in it."""
    stems = {word, word[:-1]}
    return [
        one
        for one in reachable(*house.ctx.namespaces.all())
        if isinstance(one, str) and any(stem in one.lower() for stem in stems)
    ]


def rows_like(house, text) -> int:
    """Count rows of vectors in memory that are that of a text."""
    vector = house.embedder._direction(text)
    blocks = [
        one for one in reachable(*house.ctx.namespaces.all()) if isinstance(one, np.ndarray) and one.ndim == 2
    ]
    return sum(
        int((np.abs(block.astype(np.float32) - vector).max(axis=1) < 1e-2).sum())
        for block in blocks
        if block.shape[1] == len(vector)
    )


@pytest.mark.row("MW-42")
async def test_what_is_erased_is_in_no_answer_of_any_relayer_and_in_no_memory_of_one(house):
    other = await house.another()
    (secret,) = await house.put(SAID)
    await house.put("The bakery at the corner opens at seven.")
    assert SAID in await other.found(f"where is the {CANARY}")
    assert held(house)
    # In the index, and as what was embedded last.
    assert rows_like(house, SAID) == 2
    erasure = await erase(house, secret)
    assert (erasure.state, erasure.memories, erasure.what) == ("erased", (secret,), "memory")
    for each in (house, other):
        assert SAID not in await each.found(f"where is the {CANARY}")
        assert SAID not in await texts_of(each)
        with pytest.raises(Refused) as caught:
            await each.call(get_memory, secret)
        assert caught.value.code == "not_found"
        await maintain(each.ctx)
        await each.found("what is open")  # the last query is kept as well
        assert held(each) == []
        assert rows_like(each, SAID) == 0
        assert each.ctx.namespaces.all()[0].view.purge_due is False


async def test_a_relayer_forgets_the_vectors_of_questions_when_it_hears_of_an_erasure(house):
    (secret,) = await house.put(SAID)
    opened, embedder = house.ctx.namespaces.all()[0], house.ctx.embedder
    await opened.embed(embedder, [CANARY])
    known = len(embedder.calls)
    await opened.embed(embedder, [CANARY])
    assert len(embedder.calls) == known
    await erase(house, secret)
    await opened.embed(embedder, [CANARY])
    assert len(embedder.calls) == known + 1


async def test_the_memory_said_after_it_keeps_its_own_vector_and_loses_the_others_words(house):
    answer = await say(house, SAID, NEXT)
    first, second = (item.id for item in answer.memories)
    assert NEXT in await house.found(CANARY)
    assert (await house.found("Rui Porto"))[0] == NEXT
    await erase(house, first)
    assert await house.found(CANARY) == []
    await maintain(house.ctx)
    assert held(house) == []
    assert (await house.found("Rui Porto"))[0] == NEXT
    opened = house.ctx.namespaces.all()[0]
    assert not opened.view.space.lacking
    assert rows_like(house, indexed_text("Kim", None, NEXT)) == 1
    fresh = await house.another()
    query = RecallRequest(query="Rui moved to Porto", floor=0, explain=True)
    await texts_of(fresh)
    await maintain(fresh.ctx)
    answers = [await each.call(recall, query) for each in (house, fresh)]
    assert answers[0].memories == answers[1].memories
    assert opened.record(ulid.parse(second)) is not None


async def test_every_version_and_every_memory_of_the_same_text_goes_with_it(house):
    (first,) = await house.put("The spare key hangs behind the door.")
    changed = await house.call(supersede, first, SupersedeRequest(text=SAID), access=house.access(body=b"1"))
    (among,) = await house.put(SAID, audience="group")
    (kept,) = await house.put("The bakery opens at seven.")
    erasure = await erase(house, among)
    assert set(erasure.memories) == {first, changed.id, among}
    assert await texts_of(house) == ["The bakery opens at seven."]
    assert (await house.call(get_memory, kept)).memory.id == kept


async def test_erasing_again_or_what_went_with_it_answers_with_the_same_report(house):
    first, second = await house.put(SAID, "another note")
    erasure = await erase(house, first)
    assert await erase(house, first) == erasure
    again = await house.another()
    assert await erase(again, first) == erasure
    assert (await view_of(again, first)) == erasure
    with pytest.raises(Refused) as caught:
        await erase(house, "0" * 26)
    assert caught.value.code == "not_found"
    assert await texts_of(house) == ["another note"]
    assert second


async def test_a_report_is_shown_to_those_alone_who_may_read_the_namespace(house):
    (secret,) = await house.put(SAID)
    await erase(house, secret)
    for principal, wanted in (
        (house.principal("coder"), secret),
        (house.principal("researcher"), "0" * 26),
        (house.principal("researcher"), "no id"),
    ):
        with pytest.raises(Refused) as caught:
            await house.call(get_erasure, wanted, access=principal)
        assert caught.value.code == "not_found"


async def test_an_erasure_is_destroyed_at_once_and_confirmed_after_an_hour_by_whoever_runs_then(house):
    (secret,) = await house.put(SAID)
    await house.put("The bakery opens at seven.")
    assert any(CANARY in text for text in await bodies(house))
    await erase(house, secret)
    await rounds(house)
    view = await view_of(house, secret)
    assert (view.state, view.entries) == ("destroyed", 1)
    another = await house.another()
    assert "The bakery opens at seven." in await another.found("bakery")
    for _ in range(3):
        await house.clock.advance(HOUR + 1)
        await rounds(another, 2)
    view = await view_of(house, secret)
    assert view.state == "confirmed"
    assert view.confirmed_at >= view.destroyed_at + GRACE_MS
    texts = await bodies(another)
    assert any("bakery" in text for text in texts)
    assert not any(CANARY in text for text in texts)


async def test_no_word_of_a_turn_that_was_kept_is_left_of_a_memory_that_was_erased(house):
    turns = [{"role": "user", "text": SAID}, {"role": "assistant", "text": f"so a {CANARY}, ok"}]
    for key in ("one", "two"):
        request = AnalyzeRequest(turns=turns, session="s1", store_transcript=True, idempotency_key=key)
        answer = await house.call(analyze, request)
    assert sum(f"so a {CANARY}" in body for body in await bodies(house)) == 2
    report = await erase(house, answer.memories[0].id)
    assert len(report.derived) == 2
    gc.collect()
    assert held(house) == []
    await rounds(house)
    await house.clock.advance(HOUR + 1)
    await rounds(house, 3)
    assert (await view_of(house, report.id)).state == "confirmed"
    assert not any(CANARY in body for body in await bodies(house))


async def test_an_erasure_goes_on_without_a_key_and_without_anybody_who_asks(house):
    (secret,) = await house.put(SAID)
    await erase(house, secret)
    await house.ctx.namespaces.close(1.0)
    another = await house.another()
    view = await confirmed(another, secret)
    assert view.state == "confirmed"
    assert len(another.ctx.namespaces) == 0


async def test_erasing_by_filter_takes_what_is_hidden_too_and_counts_first(house):
    ids = await house.put(SAID, "The bakery opens at seven.", "The library opens at nine.")
    request = DeleteRequest(ids=ids[:2], mode="erase", dry_run=True)
    counted = await house.call(delete, request)
    assert (counted.matched, counted.erased, counted.erasure) == (2, 0, None)
    assert len(await texts_of(house)) == 3
    done = await house.call(delete, DeleteRequest(ids=ids[:2], mode="erase"))
    assert (done.matched, done.erased, done.remaining, done.forgotten) == (2, 2, 0, 0)
    assert set(done.erasure.memories) == set(ids[:2])
    assert await texts_of(house) == ["The library opens at nine."]


FACT = {"text": f"Kim's sister Ana keeps the {CANARY}.", "message": 1, "evidence": f"Ana keeps the {CANARY}"}
RUI = {"text": "Kim's brother Rui moved to Porto.", "message": 2, "evidence": "Rui moved to Porto"}
LEFT = {"text": "Kim's brother Rui moved to Porto in May.", "message": 1, "evidence": "Rui moved to Porto"}


class TestWhatWasDerived:
    async def test_facts_and_summaries_go_with_their_source_and_are_made_again_from_the_rest(self, house):
        house, chat = with_model(
            house,
            says(FACT, RUI, summary=f"Kim spoke of the {CANARY} and of Porto."),
            says(LEFT, summary="Kim spoke of Porto."),
            summaries=True,
        )
        async with working(house):
            answer = await say(house, SAID, NEXT)
            opened = house.ctx.namespaces.all()[0]
            await until(lambda: opened.log.state.jobs[ulid.parse(answer.job_id)].outcome is not None)
            assert sum(CANARY in text for text in await texts_of(house)) == 3
            erasure = await erase(house, answer.memories[0].id)
            assert len(erasure.derived) == 2
            assert not any(CANARY in text for text in await texts_of(house))
            await maintain(house.ctx)
            await until(lambda: len(chat.asked) == 2)
            await until(lambda: all(job.outcome for job in opened.log.state.jobs.values()))
        assert CANARY not in str(chat.asked[1])
        texts = await texts_of(house)
        assert "Kim spoke of Porto." in texts
        assert NEXT in texts
        assert not any(CANARY in text for text in texts)
        before = len(opened.log.state.jobs)
        await maintain(house.ctx)
        await house.put("something else")
        await maintain(house.ctx)
        assert len(opened.log.state.jobs) == before, "what is left is read again once"

    async def test_an_extraction_under_way_is_dropped_and_what_it_read_besides_is_read_again(self, house):
        house, chat = with_model(house, says(FACT, RUI), says(LEFT))
        chat.gate.clear()
        answer = await say(house, SAID, NEXT)
        opened = house.ctx.namespaces.all()[0]
        async with working(house):
            await until(lambda: chat.asked)
            await erase(house, answer.memories[0].id)
            chat.gate.set()
            await maintain(house.ctx)
            await until(lambda: len(chat.asked) == 2)
            await until(lambda: all(job.outcome for job in opened.log.state.jobs.values()))
        job = await house.call(get_job, answer.job_id, 0)
        assert (job.state, job.reason) == ("failed", "source_erased")
        texts = await texts_of(house)
        assert set(texts) == {NEXT, LEFT["text"]}
        assert held(house) == []

    async def test_nothing_of_it_is_in_the_store_when_that_is_confirmed(self, house, caplog):
        caplog.set_level(logging.DEBUG)
        house, _ = with_model(house, says(FACT, RUI, summary=f"Of the {CANARY}."), summaries=True)
        async with working(house):
            answer = await say(house, SAID, NEXT)
            opened = house.ctx.namespaces.all()[0]
            await until(lambda: opened.log.state.jobs[ulid.parse(answer.job_id)].outcome is not None)
            await say(house, SAID, session="s2")
            assert sum(CANARY in text for text in await bodies(house)) >= 4
        house = replace(house, ctx=replace(house.ctx, facts=None))
        await erase(house, answer.memories[0].id)
        view = await confirmed(house, answer.memories[0].id)
        assert view.state == "confirmed"
        await texts_of(house)
        texts = await bodies(house)
        assert any("Porto" in text for text in texts)
        assert not any(CANARY in text for text in texts)
        assert CANARY not in caplog.text


class TestVanishing:
    async def test_a_record_that_is_erased_while_its_vector_is_computed_stops_nobody(self, house):
        house.embedder.down = True
        ids = await house.put(*(f"note number {number}" for number in range(40)))
        house.embedder.down = False
        opened = house.ctx.namespaces.all()[0]
        tending = asyncio.create_task(maintain(house.ctx))
        await asyncio.sleep(0)
        await asyncio.gather(tending, erase(house, ids[39]))
        await maintain(house.ctx)
        assert not opened.view.space.lacking
        assert len(await texts_of(house)) == 39


class TestNamespaces:
    async def _dry_run(self, house):
        return await house.call(erase_namespace, EraseNamespaceRequest())

    async def _erase(self, house, confirm):
        request = EraseNamespaceRequest(dry_run=False, confirm=confirm)
        return await house.call(erase_namespace, request)

    async def test_a_dry_run_counts_and_destroys_nothing(self, house):
        await house.put(SAID, "another")
        counted = await self._dry_run(house)
        assert (counted.memories, counted.dry_run, counted.erasure) == (2, True, None)
        assert len(await texts_of(house)) == 2

    async def test_an_erased_namespace_is_gone_and_its_name_begins_anew(self, house):
        await house.put(SAID)
        other = await house.another()
        assert await texts_of(other) == [SAID]
        confirm = (await self._dry_run(house)).confirm
        done = await self._erase(house, confirm)
        assert done.erasure.state == "destroyed"
        with pytest.raises(NamespaceClosed):
            await texts_of(other)
        for each in (house, other):
            assert held(each) == []
            assert await texts_of(each) == []
        listed = await house.call(
            list_namespaces, limit=10, cursor=None, access=house.principal("researcher")
        )
        assert listed.namespaces == ()
        assert (await self._erase(house, confirm)).erasure == done.erasure
        await other.put("a new beginning")
        assert await texts_of(house) == ["a new beginning"]
        await house.clock.advance(HOUR + 1)
        await rounds(house, 2)
        view = await view_of(house, confirm)
        assert (view.state, view.what) == ("confirmed", "namespace")
        assert await texts_of(house) == ["a new beginning"]
        rest = [row.key async for row in house.store.list(f"ns/{ulid.parse(confirm).hex()}/")]
        assert rest == []

    async def test_a_write_through_who_has_not_heard_of_it_is_refused_whole_and_lands_in_the_new_life(
        self, house
    ):
        await house.put("The bakery opens at seven.")
        other = await house.another()
        assert await texts_of(other) == ["The bakery opens at seven."]
        await self._erase(house, (await self._dry_run(house)).confirm)
        for write in (lambda: other.put(SAID), lambda: say(other, NEXT)):
            with pytest.raises(NamespaceClosed):
                await write()
            await write()
            assert len(await texts_of(house)) == 1
            await self._erase(house, (await self._dry_run(house)).confirm)

    async def test_who_cares_for_it_in_the_background_finds_it_gone_and_takes_that_for_no_failure(
        self, house
    ):
        house.embedder.down = True
        await house.put(SAID)
        other = await house.another()
        assert await texts_of(other) == [SAID]
        await self._erase(house, (await self._dry_run(house)).confirm)
        house.embedder.down = False
        await maintain(other.ctx)
        (opened,) = other.ctx.namespaces.all()
        assert opened.broken
        await maintain(other.ctx)
        await other.put("a new beginning")
        assert await texts_of(house) == ["a new beginning"]

    async def test_an_old_confirmation_does_not_reach_a_new_life_of_the_name(self, house):
        await house.put(SAID)
        old = (await self._dry_run(house)).confirm
        await self._erase(house, old)
        await house.put("a new beginning")
        assert (await self._erase(house, old)).erasure.id == old
        assert await texts_of(house) == ["a new beginning"]
        with pytest.raises(Refused) as caught:
            await self._erase(house, "0" * 26)
        assert caught.value.code == "wrong_confirmation"

    async def test_the_other_custody_may_not_erase(self, house):
        await house.put(SAID)
        confirm = (await self._dry_run(house)).confirm
        request = EraseNamespaceRequest(dry_run=False, confirm=confirm)
        with pytest.raises(WrongCustody):
            await house.call(erase_namespace, request, access=house.access(custody=Custody.RELAYER))

    async def test_a_memory_under_erasure_is_confirmed_with_its_namespace(self, house):
        (secret,) = await house.put(SAID)
        await erase(house, secret)
        await self._erase(house, (await self._dry_run(house)).confirm)
        view = await confirmed(house, secret)
        assert view.state == "confirmed"


class TestALogFromBefore:
    """A store whose logs were brought back as they were earlier, and whose reports were not."""

    @staticmethod
    async def _kept(house):
        return {row.key: (await house.store.get(row.key)).data async for row in house.store.list("ns/")}

    @staticmethod
    async def _brought_back(house, kept):
        for row in [row async for row in house.store.list("ns/")]:
            await house.store.delete(row.key)
        for key, data in kept.items():
            await house.store.create(key, data)
        await house.ctx.namespaces.close(1.0)
        return await house.another()

    async def test_what_was_confirmed_once_is_erased_when_it_is_asked_for_again(self, house):
        (secret,) = await house.put(SAID)
        kept = await self._kept(house)
        await erase(house, secret)
        before = await confirmed(house, secret)
        house = await self._brought_back(house, kept)
        assert await house.found(CANARY) == [SAID]
        assert (await erase(house, secret)).state == "erased"
        view = await confirmed(house, secret)
        assert (view.state, view.entries) == ("confirmed", 1)
        assert view.asked_at > before.confirmed_at
        await texts_of(house)
        assert await bodies(house) == []

    @pytest.mark.parametrize("is_open", [False, True])
    async def test_an_erasure_that_was_under_way_is_decided_again(self, house, is_open):
        (secret,) = await house.put(SAID)
        kept = await self._kept(house)
        await house.put("The bakery opens at seven.")
        await erase(house, secret)
        await rounds(house)
        house = await self._brought_back(house, kept)
        if is_open:
            assert await texts_of(house) == [SAID]
        await rounds(house)
        assert await texts_of(house) == []
        assert (await confirmed(house, secret)).state == "confirmed"
        await texts_of(house)
        assert await bodies(house) == []

    async def test_an_erasure_of_what_the_log_never_held_comes_to_its_end(self, house):
        await house.put("The bakery opens at seven.")
        kept = await self._kept(house)
        (secret,) = await house.put(SAID)
        await erase(house, secret)
        house = await self._brought_back(house, kept)
        assert (await confirmed(house, secret)).state == "confirmed"
        assert await texts_of(house) == ["The bakery opens at seven."]
