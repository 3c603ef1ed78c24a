"""The operator changes the embedding model: the former one serves until every memory has a vector of the new one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from index_world import SMALL, opened_of

from relayer.domain.operations import Erase, Forget, Origin, Restore
from relayer.maintenance.logs import IndexMaintenance
from relayer.maintenance.open_namespaces import maintain
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.projection import CalibratedModel, EmbeddingSpace
from relayer.search.baseline import Calibration, calibrate
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases.capture import analyze
from relayer.use_cases.recall import recall
from relayer.wire.schemas import AnalyzeRequest, RecallRequest

TEXTS = tuple(f"{word} stands in the harbour number {number}" for number, word in enumerate(
    ("tea", "coffee", "oslo", "lisbon", "bicycle", "garden", "piano", "winter", "tokyo", "tram") * 4
))  # fmt: skip


@pytest.fixture(scope="session")
def new_calibration() -> Calibration:
    return asyncio.run(calibrate(HashingEmbedder(48, "newer")))


@pytest.fixture
def changed(house, new_calibration):
    """Make a relayer over the same store whose model is another one, with or without the former one beside it."""

    def make(*, former: bool = True):
        embedder = HashingEmbedder(48, "newer")
        old = HashingEmbedder() if former else None
        namespaces = OpenNamespaces(
            house.ctx.ports,
            embedder.model,
            new_calibration,
            former=CalibratedModel(old.model, house.calibration) if old else None,
        )
        ctx = replace(house.ctx, embedder=embedder, former=old, namespaces=namespaces)
        return replace(house, embedder=embedder, ctx=ctx)

    return make


async def _found(house, query: str, **more: object) -> tuple[list[str], bool]:
    request = RecallRequest(query=query, floor=0, limit=3, explain=True, **more)
    answer = await house.call(recall, request)
    return [hit.text for hit in answer.memories if hit.evidence.cosine is not None], answer.degraded


async def _convert(house, rounds: int = 10) -> None:
    for _ in range(rounds):
        await maintain(house.ctx)


def _embedded(embedder: HashingEmbedder) -> int:
    """How many memories were embedded: their texts end in a number, those of prompts and statements do not."""
    return sum(text.split(": ")[-1] in TEXTS for call in embedder.calls for text in call)


async def test_the_former_model_serves_until_every_memory_has_a_vector_of_the_new_one(house, changed):
    await house.put(*TEXTS)
    new = changed()
    assert (await _found(new, "lisbon"))[0][0] == TEXTS[3]
    opened = await opened_of(new)
    assert (opened.model.name, len(opened.lacking)) == ("hashing", len(TEXTS))
    await _convert(new, 1)
    found, degraded = await _found(new, "lisbon")
    assert (found[0], degraded) == (TEXTS[3], False)
    assert (opened.model.name, len(opened.lacking)) == ("hashing", len(TEXTS) - 32)
    await _convert(new, 1)
    assert (opened.model.name, opened.converting) == ("newer", False)
    found, degraded = await _found(new, "lisbon")
    assert (found[0], degraded) == (TEXTS[3], False)
    assert new.embedder.calls[-1] == ["lisbon"]


async def test_nobody_embeds_again_what_the_log_has_vectors_for(house, changed):
    await house.put(*TEXTS)
    first = changed()
    await opened_of(first)
    await _convert(first)
    assert _embedded(first.embedder) == len(TEXTS)
    for later in (changed(), changed(former=False)):
        opened = await opened_of(later)
        assert (opened.model.name, len(opened.lacking)) == ("newer", 0)
        await _convert(later)
        assert _embedded(later.embedder) == 0
        assert (await _found(later, "lisbon"))[0][0] == TEXTS[3]


async def test_a_relayer_that_ends_in_the_middle_leaves_what_it_did_to_the_next(house, changed):
    await house.put(*TEXTS)
    first = changed()
    await opened_of(first)
    await _convert(first, 1)
    await first.ctx.namespaces.close(1.0)
    second = changed()
    await opened_of(second)
    await _convert(second)
    assert (_embedded(first.embedder), _embedded(second.embedder)) == (32, len(TEXTS) - 32)


async def test_two_relayers_share_the_work(house, changed):
    texts = [f"the {number}th note of the {TEXTS[number % 40]}" for number in range(320)]
    for start in range(0, len(texts), 80):
        await house.put(*texts[start : start + 80])
    both = (changed(), changed())
    for each in both:
        await opened_of(each)
    for _ in range(12):
        for each in both:
            await maintain(each.ctx)
    done = [each.ctx.namespaces.embedded for each in both]
    assert min(done) > 100
    assert sum(done) < 320 * 1.3
    assert [(await opened_of(each)).converting for each in both] == [False, False]


async def test_without_the_former_model_memories_are_found_by_words_until_they_are_embedded(house, changed):
    await house.put(*TEXTS)
    new = changed(former=False)
    request = RecallRequest(query="lisbon harbour", floor=0)
    answer = await new.call(recall, request)
    assert answer.degraded
    assert answer.memories[0].text == TEXTS[3]
    await _convert(new)
    assert not (await new.call(recall, request)).degraded


async def test_what_is_written_meanwhile_is_found_by_meaning_at_once_and_after(house, changed):
    await house.put(*TEXTS)
    new = changed()
    await opened_of(new)
    await new.put("the lighthouse keeper reads novels")
    found, degraded = await _found(new, "lighthouse keeper")
    assert (found[0], degraded) == ("the lighthouse keeper reads novels", False)
    await _convert(new)
    found, degraded = await _found(new, "lighthouse keeper")
    assert (found[0], degraded) == ("the lighthouse keeper reads novels", False)
    assert (await opened_of(new)).model.name == "newer"


async def test_captures_are_compared_with_what_is_known_before_and_after(house, changed):
    def capture(text: str) -> AnalyzeRequest:
        return AnalyzeRequest(turns=[{"role": "user", "text": text}])

    said = "My favourite restaurant in Lisbon is the small one by the harbour."
    again = "my favourite restaurant in Lisbon is the small one by the harbour!"
    await house.call(analyze, capture(said))
    new = changed()
    during = await new.call(analyze, capture(again))
    await _convert(new)
    after = await new.call(analyze, capture(again + " "))
    assert [item.status for item in (*during.memories, *after.memories)] == ["duplicate", "duplicate"]


async def test_while_the_new_model_is_away_the_former_one_serves_as_ever(house, changed):
    await house.put(*TEXTS)
    new = changed()
    new.embedder.down = True
    await _convert(new)
    found, degraded = await _found(new, "lisbon")
    assert (found[0], degraded) == (TEXTS[3], False)
    await new.put("the lighthouse keeper reads novels")
    new.embedder.down = False
    await _convert(new)
    assert (await _found(new, "lighthouse keeper"))[0][0] == "the lighthouse keeper reads novels"
    assert (await opened_of(new)).model.name == "newer"


async def test_while_the_former_model_is_away_memories_are_found_by_words(house, changed):
    await house.put(*TEXTS)
    new = changed()
    new.ctx.former.down = True
    request = RecallRequest(query="lisbon harbour", floor=0)
    answer = await new.call(recall, request)
    assert (answer.memories[0].text, answer.degraded) == (TEXTS[3], True)
    await new.put("the lighthouse keeper reads novels")
    await _convert(new)
    assert not (await new.call(recall, request)).degraded


async def test_what_is_erased_in_the_middle_gets_no_vector_and_keeps_nothing_from_ending(house, changed):
    await house.put(*TEXTS)
    new = changed()
    opened = await opened_of(new)
    [gone] = [one.id for one in opened.memories() if one.record.text == TEXTS[3]]
    await _convert(new, 1)
    await opened.log.append([Erase(Origin(b"a", b"nonce"), (gone,))])
    await _convert(new)
    assert (opened.model.name, gone in opened.lacking) == ("newer", False)
    assert TEXTS[3] not in (await _found(new, "lisbon"))[0]


async def test_what_is_hidden_and_brought_back_meanwhile_is_found_by_the_new_model(house, changed):
    await house.put(*TEXTS)
    new = changed()
    opened = await opened_of(new)
    records = {one.record.text: one.id for one in opened.memories()}
    await opened.log.append([Forget(Origin(b"a", b"1"), records[TEXTS[3]])])
    await opened.log.append([Forget(Origin(b"a", b"2"), records[TEXTS[4]])])
    await _convert(new, 1)
    await opened.log.append([Restore(Origin(b"a", b"3"), records[TEXTS[3]])])
    await _convert(new)
    await opened.log.append([Restore(Origin(b"a", b"4"), records[TEXTS[4]])])
    assert opened.model.name == "newer"
    for number, query in ((3, "lisbon"), (4, "bicycle")):
        found, degraded = await _found(new, query)
        assert (TEXTS[number] in found, degraded) == (True, False)


async def test_a_vector_of_the_new_model_is_no_help_until_the_namespace_turned_to_it(house, changed):
    await house.put(*TEXTS)
    new = changed()
    vector = (await new.embedder.embed(["lisbon"]))[0].astype("<f4").tobytes()
    request = RecallRequest(vector=vector, floor=0)
    answer = await new.call(recall, request)
    assert (answer.memories, answer.degraded) == ((), True)
    await _convert(new)
    answer = await new.call(recall, request)
    assert (answer.memories[0].text, answer.degraded) == (TEXTS[3], False)


async def test_an_opening_begins_with_the_index_of_the_former_model_and_ends_with_one_of_the_new(
    house, changed
):
    await house.put(*TEXTS)
    assert await IndexMaintenance(house.ctx, SMALL).keep(await opened_of(house))
    new = changed()
    opened = await opened_of(new)
    assert (opened.from_index > 0, opened.converting) == (True, True)
    assert (await _found(new, "lisbon"))[0][0] == TEXTS[3]
    assert not await IndexMaintenance(new.ctx, SMALL).keep(opened)
    await _convert(new)
    assert await IndexMaintenance(new.ctx, SMALL).keep(opened)
    later = changed(former=False)
    assert (await opened_of(later)).from_index > 0
    assert (await _found(later, "lisbon"))[0][0] == TEXTS[3]
    await maintain(later.ctx)
    assert _embedded(later.embedder) == 0


async def test_relayers_of_both_models_serve_one_namespace(house, changed):
    """A fleet changes its model one relayer after the other."""
    await house.put(*TEXTS)
    new = changed()
    await opened_of(new)
    await _convert(new)
    await house.put("the lighthouse keeper reads novels")
    await new.put("the baker bakes rye bread")
    for each in (house, new):
        await _found(each, "what was written by the other one")
        await _convert(each)
        for query, text in (
            ("lighthouse keeper", "the lighthouse keeper reads novels"),
            ("rye baker", "the baker bakes rye bread"),
        ):
            found, degraded = await _found(each, query)
            assert (found[0], degraded) == (text, False)


async def test_a_relayer_judges_by_the_new_models_own_null_after_the_change(house, changed, new_calibration):
    texts = [f"the {number}th note of the {TEXTS[number % 40]}" for number in range(260)]
    for start in range(0, len(texts), 65):
        await house.put(*texts[start : start + 65])
    await _found(house, "lisbon")
    new, later = changed(), changed(former=False)
    await opened_of(new)
    await _convert(new)
    request = RecallRequest(query="lisbon", floor=0, explain=True)
    answers = [await each.call(recall, request) for each in (new, later)]
    assert answers[0].judgement == answers[1].judgement
    assert [hit.relevance for hit in answers[0].memories] == [hit.relevance for hit in answers[1].memories]


def test_a_namespace_cuts_over_when_at_most_one_in_a_hundred_lacks_a_vector(house):
    def may_serve(lacking: int, memories: int) -> bool:
        ids = dict.fromkeys(bytes([one]) for one in range(lacking))
        return EmbeddingSpace(CalibratedModel(house.embedder.model, house.calibration), ids).may_serve(
            memories
        )

    assert may_serve(0, 0)
    assert not may_serve(1, 99)
    assert may_serve(1, 100)
    assert may_serve(32, 10_000)
    assert not may_serve(33, 10_000)
