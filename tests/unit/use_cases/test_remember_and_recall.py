from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from relayer.errors import DeadlineExceeded, Refused, WrongGeneration, WrongNamespaceKey
from relayer.maintenance.open_namespaces import maintain
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import RecordingStore
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest

COFFEE = "I only drink oat milk coffee before noon"
QUERY = "which oat milk coffee do I drink before noon"


def items(*texts: str, **fields: object) -> RememberRequest:
    return RememberRequest(items=[{"text": text, **fields} for text in texts])


async def ask(house, access=None, **fields):
    request = RecallRequest(**{"query": QUERY, **fields})
    return await house.call(recall, request, access=access)


async def test_what_was_remembered_is_recalled_by_the_next_request(house):
    answer = await house.call(remember, items(COFFEE))
    found = await ask(house)
    assert [hit.text for hit in found.memories] == [COFFEE]
    assert found.memories[0].id == answer.memories[0].id
    assert found.position == answer.position


@pytest.mark.row("MS-21")
async def test_done_means_recallable_through_another_replica(house):
    other = await house.another()
    await ask(other)  # the other replica has an older view
    await house.call(remember, items(COFFEE))
    assert [hit.text for hit in (await ask(other)).memories] == [COFFEE]


@pytest.mark.row("MW-06")
async def test_the_nearest_memories_of_the_one_namespace_come_first_by_distance(house):
    texts = (COFFEE, "Oat milk is in the fridge", "I drink tea in the evening", "The tram leaves at nine")
    await house.call(remember, items(*texts))
    await house.call(remember, items(QUERY), agent="coder")
    found = (await ask(house, floor=0, limit=3)).memories
    assert len(found) == 3
    assert found[0].text == COFFEE
    distances = [hit.distance for hit in found]
    assert distances == sorted(distances)
    assert distances == [round(1 - hit.relevance, 4) for hit in found]


@pytest.mark.row("CP-25")
async def test_what_is_less_relevant_than_the_floor_is_left_out_and_the_rest_is_not(house):
    texts = (COFFEE, "Oat milk is in the fridge", "I drink tea in the evening", "The tram leaves at nine")
    await house.call(remember, items(*texts))
    everything = {hit.text: hit.relevance for hit in (await ask(house, floor=0)).memories}
    # Answers have four digits.
    floor = everything[COFFEE] - 0.0001
    assert [hit.text for hit in (await ask(house, floor=floor)).memories] == [
        text for text, relevance in everything.items() if relevance >= floor
    ]
    assert min(everything.values()) < floor
    assert (await ask(house, floor=1)).memories == ()


async def test_another_secret_does_not_open_a_namespace_open_or_closed(house):
    await house.call(remember, items(COFFEE))
    wrong = bytes(32)
    with pytest.raises(WrongNamespaceKey):
        await ask(house, house.access(secret=wrong))
    fresh = await house.another()
    with pytest.raises(WrongNamespaceKey):
        await ask(fresh, house.access(secret=wrong))
    with pytest.raises(WrongNamespaceKey):
        await remember(fresh.ctx, house.access(secret=wrong), items("x y z"), house.deadline())
    with pytest.raises(WrongGeneration):
        await ask(fresh, house.access(generation=1))


async def test_an_idempotency_key_stores_once_under_different_signatures(house):
    request = RememberRequest(items=[{"text": COFFEE}], idempotency_key="k1")
    first = await house.call(remember, request, access=house.access(body=b"same"))
    second = await house.call(remember, request, access=house.access(body=b"same"))
    assert first.memories == second.memories
    assert first.memories[0].status == "stored"


@pytest.mark.row("MS-25")
async def test_an_equal_text_reinforces_instead_of_repeating(house):
    first = await house.call(remember, items(COFFEE))
    second = await house.call(remember, items(COFFEE.upper() + "."))
    assert second.memories[0].status == "duplicate"
    assert second.memories[0].id == first.memories[0].id
    assert (await ask(house)).memories[0].reinforced == 1


async def test_a_given_vector_finds_and_is_found(house):
    vector = np.zeros(64, "<f4")
    vector[7] = 3.0
    request = RememberRequest(items=[{"text": "pinned to an axis", "vector": vector.tolist()}])
    await house.call(remember, request)
    found = await ask(house, query=None, vector=(vector * 2).tolist(), floor=0)
    assert [hit.text for hit in found.memories] == ["pinned to an axis"]


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        ([1.0] * 63, "64 numbers"),
        ([0.0] * 64, "zero"),
        ([1e-30] * 64, "zero"),
        (np.full(64, np.nan, "<f4").tobytes(), "finite"),
    ],
    ids=["dimension", "zero", "tiny", "no number"],
)
async def test_a_vector_that_cannot_be_ranked_is_refused_before_anything_is_written(house, vector, why):
    request = RememberRequest(items=[{"text": COFFEE, "vector": vector}])
    with pytest.raises(Refused, match=why) as caught:
        await house.call(remember, request)
    assert caught.value.code == "bad_vector"
    assert (await ask(house)).memories == ()


async def test_a_huge_but_finite_vector_is_a_direction_like_any_other(house):
    request = RememberRequest(items=[{"text": COFFEE, "vector": [3e38] * 64}])
    answer = await house.call(remember, request)
    assert answer.memories[0].status == "stored"
    assert (await ask(house, query=None, vector=[1.0] * 64, floor=0)).memories[0].text == COFFEE


@dataclass
class _Watched:
    """An embedder that notes how many reads the store had answered when it was given a text."""

    inner: HashingEmbedder
    store: RecordingStore
    reads: list[int] = field(default_factory=list)

    @property
    def model(self):
        return self.inner.model

    async def embed(self, texts, *, query=False, prompt=False):
        self.reads.append(self.store.count("get"))
        return await self.inner.embed(texts, query=query, prompt=prompt)


async def test_the_model_has_a_query_before_the_log_is_looked_at(house):
    await house.call(remember, items(COFFEE))
    watched = _Watched(house.embedder, house.store)
    house.store.clear()
    found = await ask(replace(house, ctx=replace(house.ctx, embedder=watched)))
    assert [hit.text for hit in found.memories] == [COFFEE]
    assert (watched.reads, house.store.count("get")) == ([0], 1)


@pytest.mark.row("CP-22")
async def test_without_an_embedder_writes_are_kept_and_recall_says_degraded(house):
    house.embedder.down = True
    answer = await house.call(remember, items(COFFEE))
    assert answer.degraded
    assert answer.job_id
    found = await ask(house)
    assert found.degraded
    assert [hit.text for hit in found.memories] == [COFFEE]
    assert not found.memories[0].searchable


async def test_what_was_written_without_an_embedder_becomes_searchable_when_it_is_back(house):
    house.embedder.down = True
    await house.call(remember, items(COFFEE))
    await maintain(house.ctx)
    house.embedder.down = False
    await maintain(house.ctx)
    found = await ask(house)
    assert not found.degraded
    assert found.memories[0].searchable
    fresh = await house.another()
    again = await ask(fresh)  # the vectors are in the log, not only in this process
    assert not again.degraded


@pytest.mark.row("AM-05")
async def test_audience_filters_keep_direct_memories_out_of_groups(house):
    await house.call(remember, items(COFFEE, audience="direct"))
    assert (await ask(house, audiences=["group", "agent"])).memories == ()
    assert (await ask(house, audiences=["direct"])).memories


async def test_suspect_memories_come_only_when_asked_for(house):
    await house.call(remember, items(COFFEE, suspect=True))
    assert (await ask(house)).memories == ()
    assert (await ask(house, include_suspect=True)).memories


async def test_filters_by_kind_and_time_narrow_the_answer(house):
    await house.call(remember, items(COFFEE, kind="preference", occurred_at="2026-05-08T10:00:00Z"))
    assert (await ask(house, kinds=["fact"])).memories == ()
    assert (await ask(house, kinds=["fact", "preference"])).memories
    assert (await ask(house, occurred_after="2026-05-09T00:00:00Z")).memories == ()
    assert (await ask(house, occurred_before="2026-05-09T00:00:00Z")).memories


async def test_a_token_budget_keeps_whole_memories_best_first(house):
    texts = [f"{COFFEE} {word}" for word in ("alpha", "beta", "gamma")]
    await house.call(remember, items(*texts))
    everything = (await ask(house, floor=0)).memories
    budget = (len(everything[0].text) + 3) // 4
    assert (await ask(house, floor=0, max_tokens=budget)).memories == everything[:1]


async def test_a_deadline_that_passes_names_the_step(house):
    with pytest.raises(DeadlineExceeded) as caught:
        await remember(house.ctx, house.access(), items(COFFEE), house.deadline(0))
    assert caught.value.step == "open"


async def test_a_write_whose_client_left_is_committed(house):
    await house.call(remember, items("warm the namespace"))
    task = asyncio.create_task(house.call(remember, items(COFFEE)))
    for _ in range(200):
        await asyncio.sleep(0)
        if house.store.calls[-1].operation == "create" and "wal" in house.store.calls[-1].key:
            break
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = await ask(house)
    assert [hit.text for hit in found.memories] in ([COFFEE], [])


async def test_keys_that_ended_take_the_open_namespace_with_them(house):
    await house.call(remember, items(COFFEE))
    assert len(house.ctx.namespaces) == 1
    await house.clock.advance(11 * 60)
    await maintain(house.ctx)
    assert len(house.ctx.namespaces) == 0
    assert [hit.text for hit in (await ask(house)).memories] == [COFFEE]


async def test_many_requests_open_a_namespace_once(house):
    await house.call(remember, items(COFFEE))
    fresh = await house.another()
    fresh.store.calls.clear()
    await asyncio.gather(*(ask(fresh) for _ in range(20)))
    manifests = [
        call for call in fresh.store.calls if call.key.endswith("manifest") and call.operation == "get"
    ]
    assert len(manifests) <= 2


async def test_what_a_tool_said_in_private_does_not_swallow_what_the_user_says_in_a_group(house):
    await house.call(remember, items(COFFEE, audience="direct", trust="tool", suspect=True))
    answer = await house.call(remember, items(COFFEE, audience="group"))
    assert answer.memories[0].status == "stored"
    assert [hit.trust for hit in (await ask(house, audiences=["group"])).memories] == ["user"]


async def test_the_same_text_said_to_two_audiences_is_answered_once(house):
    for audience in ("direct", "agent"):
        await house.call(remember, items(COFFEE, audience=audience))
    assert [hit.text for hit in (await ask(house)).memories] == [COFFEE]
