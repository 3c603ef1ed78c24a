"""The index with the real model: what is relevant is found, and silence is an answer."""

import asyncio
from hashlib import sha256
from math import log1p

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import (
    LEXICAL_PRIOR,
    PRIORS,
    STATEMENTS,
    UNRELATED_PROMPTS,
    Calibration,
    Probe,
    calibrate,
    fit_prior,
    statement_texts,
)
from relayer.search.index import MemoryIndex
from relayer.search.ranking import TOLD_WEIGHT, Baseline, Prior, without_name
from relayer.search.rows import KeyMask
from relayer.search.terms import TOLD_TERMS, terms

COFFEE = "what do I drink in the morning?"
DIMENSION = 384


class World:
    """The statements with their vectors, and vectors for what the tests ask."""

    def __init__(self) -> None:
        self.embedder = LocalEmbedder()
        self.texts = statement_texts()
        self.calibration = asyncio.run(self._load())

    async def _load(self) -> Calibration:
        calibration = await calibrate(self.embedder)
        self.rows = await self.embedder.embed(self.texts)
        self.unrelated = {probe.text: probe.vector for probe in calibration.probes}
        self.coffee = (await self.embedder.embed([COFFEE]))[0]
        return calibration

    def index(self, size: int, *, vectors: bool = True) -> MemoryIndex:
        index = MemoryIndex(DIMENSION, self.calibration)
        for key in range(size):
            index.put(key, self.rows[key] if vectors else None, self.texts[key])
        return index


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def of_size(world: World, size: int) -> MemoryIndex:
    """The first statements, and beyond those we have, as many strangers to every prompt as it takes."""
    index = world.index(min(size, len(world.texts)))
    strangers = np.random.default_rng(3).standard_normal((max(0, size - len(world.texts)), DIMENSION))
    for number, row in enumerate(strangers):
        index.put(10_000 + number, row / np.linalg.norm(row), f"zzyzx{number}")
    return index


@pytest.mark.parametrize("size", [1, 3, 10, 100, 1000])
def test_a_related_prompt_finds_its_memory_at_the_floor(world, size):
    hits = of_size(world, size).search(world.coffee, COFFEE, 5, floor=0.3).hits
    assert 0 in [hit.key for hit in hits]


@pytest.mark.parametrize("size", [1, 3, 10, 100])
@pytest.mark.parametrize("floor", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("only", [None, KeyMask.from_keys(range(0, 100, 3)), KeyMask.from_keys(())])
def test_a_vector_alone_finds_what_it_finds_as_the_topic_of_a_search_with_all_evidence(
    world, size, floor, only
):
    index = world.index(size)
    index.put(size, -world.rows[0], "what is as far away as can be")
    index.put(size + 1, None, "what has no vector")
    for vector in (world.coffee, -world.coffee, world.rows[1]):
        quick = index.search(vector, None, 7, floor=floor, allowed=only)
        assert quick == index.search(vector, None, 7, floor=floor, allowed=only, topic=vector)


@pytest.mark.parametrize("size", [1, 3, 10, 100, 1000])
def test_unrelated_prompts_meet_silence_in_a_namespace_of_any_size(world, size):
    index = of_size(world, size)
    loud = [
        prompt
        for prompt, vector in world.unrelated.items()
        if index.search(vector, prompt, 5, floor=0.3).hits
    ]
    # 1 % is the definition; a single small namespace varies around it.
    assert len(loud) <= 0.03 * len(world.unrelated)


def test_what_is_not_relevant_stays_behind_what_is(world):
    result = world.index(10).search(world.coffee, COFFEE, 10, floor=0.3)
    assert [hit.key for hit in result.hits] == [0]
    assert result.considered == 10
    assert not result.degraded


def test_a_hit_shows_its_raw_cosine_and_bm25(world):
    hit = world.index(3).search(world.coffee, COFFEE, 1).hits[0]
    assert hit.cosine == pytest.approx(float(world.rows[0] @ world.coffee), abs=1e-5)
    assert hit.bm25 > 0


def test_without_a_query_vector_terms_answer_and_the_result_says_so(world):
    result = world.index(len(world.texts)).search(None, "When does the Northwind contract renew?", 3)
    assert "Northwind" in world.texts[result.hits[0].key]
    assert result.degraded
    assert result.hits[0].cosine is None


@pytest.mark.parametrize("size", [1, 3, 10, 158])
def test_unrelated_prompts_meet_silence_without_vectors_too(world, size):
    index = world.index(size, vectors=False)
    loud = sum(bool(index.search(None, prompt, 5, floor=0.3).hits) for prompt in UNRELATED_PROMPTS)
    assert loud <= 0.03 * len(UNRELATED_PROMPTS)


def test_a_memory_without_a_vector_is_found_by_its_terms_beside_the_others(world):
    index = world.index(20)
    index.put(500, None, "Mara (8 May 2023): The password hint is a purple walrus.")
    query = "what was the purple walrus about?"
    result = index.search(asyncio.run(world.embedder.embed([query]))[0], query, 5)
    assert result.hits[0].key == 500
    assert result.degraded


def test_relevance_falls_along_the_hits(world):
    hits = world.index(100).search(world.coffee, COFFEE, 50, floor=0.0).hits
    relevance = [hit.relevance for hit in hits]
    assert len(hits) == 50
    assert relevance == sorted(relevance, reverse=True)


def test_a_filter_hides_the_best_memory(world):
    result = world.index(10).search(
        world.coffee, COFFEE, 5, allowed=KeyMask.from_keys([*range(1, 10), 77]), floor=0.0
    )
    assert 0 not in [hit.key for hit in result.hits]
    assert result.considered == 9


def test_a_removed_memory_is_found_by_neither_half(world):
    index = world.index(10)
    assert index.remove(0)
    assert not index.remove(0)
    for vector in (world.coffee, None):
        assert 0 not in [hit.key for hit in index.search(vector, COFFEE, 10, floor=0.0).hits]
    assert len(index) == 9


def test_putting_a_memory_again_replaces_it(world):
    index = world.index(10)
    index.put(0, world.rows[12], world.texts[12])
    assert index.search(world.coffee, COFFEE, 5, floor=0.3).hits == ()
    assert len(index) == 10


def test_a_refused_row_changes_nothing(world):
    index = world.index(1)
    with pytest.raises(ValueError, match="vector"):
        index.put(0, np.zeros(DIMENSION), "something else")
    assert index.search(world.coffee, COFFEE, 1).hits[0].key == 0


def test_an_empty_namespace_is_silent(world):
    result = MemoryIndex(DIMENSION, world.calibration).search(world.coffee, COFFEE, 5, floor=0.0)
    assert result.hits == ()
    assert result.considered == 0


@pytest.mark.parametrize("query", ["", "\u200b", "word " * 20_000])
def test_any_query_text_is_answered(world, query):
    assert world.index(10).search(None, query, 5, floor=0.3).hits == ()


async def test_a_large_namespace_is_judged_by_its_own_null():
    """Probes that score alike everywhere: the prior says 0.5, the namespace itself says otherwise."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((450, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    probe = rows[0] * np.float32(0.45) + rows[1] * np.float32(0.3)
    calibration = await _tiny_calibration(rng)
    index = MemoryIndex(64, calibration)
    for key, row in enumerate(rows):
        index.put(key, row, f"text{key}")
    query = probe / np.linalg.norm(probe)
    before = index.search(query, None, 1, floor=0.0).hits[0].relevance
    assert index.null_is_due
    await index.measure_null()
    assert not index.null_is_due
    after = index.search(query, None, 1, floor=0.0).hits[0].relevance
    assert after > before


async def test_relevance_does_not_depend_on_when_the_null_was_measured():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((700, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    calibration = await _tiny_calibration(rng)
    along_the_way, at_the_end = MemoryIndex(64, calibration), MemoryIndex(64, calibration)
    for key, row in enumerate(rows):
        for index in (along_the_way, at_the_end):
            index.put(key, row, f"text{key} of a common kind")
        if key in {255, 320, 401, 550}:
            await along_the_way.measure_null()
    for gone in (3, 390, 600):
        along_the_way.remove(gone)
    await along_the_way.measure_null()
    for gone in (3, 390, 600):
        at_the_end.remove(gone)
    await at_the_end.measure_null()
    for query in rows[:20]:
        found = [index.search(query, "a common kind", 5, floor=0.0) for index in (along_the_way, at_the_end)]
        assert found[0] == found[1]


async def test_the_null_is_measured_anew_only_when_its_sample_changes():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((420, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = MemoryIndex(64, await _tiny_calibration(rng))
    for key in range(249):
        index.put(key, rows[key], f"text{key}")
    assert not index.null_is_due
    for key in range(249, 410):
        index.put(key, rows[key], f"text{key}")
    assert index.null_is_due
    await index.measure_null()
    index.put(410, rows[410], "text410")
    index.remove(405)
    assert not index.null_is_due
    index.remove(5)
    assert index.null_is_due


async def _tiny_calibration(rng) -> Calibration:
    probes = rng.standard_normal((40, 64)).astype(np.float32)
    probes /= np.linalg.norm(probes, axis=1, keepdims=True)
    prior = Prior(((1, Baseline(0.4, 0.7)), (100, Baseline(0.5, 0.8))))
    return Calibration(prior, tuple(Probe(f"probe{number}", vector) for number, vector in enumerate(probes)))


async def test_the_shipped_prior_is_what_the_recipe_gives(world):
    prompts = np.array(list(world.unrelated.values()))
    measured = fit_prior(world.rows, prompts)
    shipped = PRIORS[world.embedder.model.sha256]
    for (size, one), (other_size, other) in zip(measured.points, shipped.points, strict=True):
        assert size == other_size
        assert (one.median, one.high) == pytest.approx((other.median, other.high), abs=5e-3)


def test_the_shipped_lexical_prior_is_what_the_recipe_gives():
    for (size, one), (other_size, other) in zip(
        fit_prior(None, None).points, LEXICAL_PRIOR.points, strict=True
    ):
        assert size == other_size
        assert (one.median, one.high) == pytest.approx((other.median, other.high), abs=1e-3)


def test_there_are_enough_calibration_texts_and_none_twice():
    assert len(STATEMENTS) == len({text for _, text in STATEMENTS}) >= 150
    assert len(UNRELATED_PROMPTS) == len(set(UNRELATED_PROMPTS)) >= 150


@pytest.mark.row("MS-09")
def test_what_one_half_proposes_the_other_half_scores_too(world):
    index = world.index(len(world.texts))
    hits = index.search(world.coffee, "Northwind contract", 5, floor=0.0).hits
    northwind = next(hit for hit in hits if "Northwind" in world.texts[hit.key])
    coffee = next(hit for hit in hits if hit.key == 0)
    assert northwind.cosine == pytest.approx(float(world.rows[northwind.key] @ world.coffee), abs=1e-5)
    assert coffee.bm25 == 0.0


TOLD_IN_TWO_WORDS = TOLD_WEIGHT * log1p(2) / log1p(TOLD_TERMS)


class Conversation:
    """Four turns with vectors that only the first of them shares with the query."""

    def __init__(self, *, linked: bool) -> None:
        self.index = MemoryIndex(4, Calibration(Prior(((1, Baseline(0.0, 0.2)),))))
        turns = ["Shall we meet at the harbour?", "Sure, at nine.", "I'll bring the tent.", "Good night."]
        for key, text in enumerate(turns):
            row = np.eye(4, dtype=np.float32)[0 if key == 0 else 2]
            before = key - 1 if linked and key else None
            speaker = "Mara" if key == 2 else "Jonas"
            self.index.put(key, row, f"{speaker}: {text}", speaker=speaker, before=before)

    def ask(self, text: str = "harbour", **options):
        return self.index.search(np.eye(4, dtype=np.float32)[0], text, 10, floor=0.0, **options)


def test_the_turn_after_a_good_hit_is_found_with_it():
    linked, alone = Conversation(linked=True).ask().hits, Conversation(linked=False).ask().hits
    assert [hit.key for hit in linked[:2]] == [0, 1]
    evidence = {hit.key: hit.evidence for hit in linked}
    assert evidence[1] > evidence[2] > evidence[3] > {hit.key: hit.evidence for hit in alone}[3]


def test_neighbours_change_the_order_and_not_the_judgement():
    linked, alone = Conversation(linked=True).ask(), Conversation(linked=False).ask()
    assert linked.judgement == alone.judgement
    assert linked.hits[0].relevance == alone.hits[0].relevance


def test_a_neighbour_that_a_filter_forbids_lends_nothing_and_is_not_found():
    hits = Conversation(linked=True).ask(allowed=KeyMask.from_keys([0, 2, 3])).hits
    assert {hit.key: hit.evidence for hit in hits}[2] == pytest.approx(TOLD_IN_TWO_WORDS, abs=1e-6)
    assert 1 not in [hit.key for hit in hits]


def test_a_forgotten_turn_no_longer_links_its_neighbours():
    forgetful = Conversation(linked=True)
    forgetful.index.remove(1)
    assert {hit.key: hit.evidence for hit in forgetful.ask().hits}[2] == pytest.approx(
        TOLD_IN_TWO_WORDS, abs=1e-6
    )


def test_who_is_named_by_the_query_comes_first():
    hits = Conversation(linked=False).ask("what did Mara say of the sea").hits
    named = next(hit for hit in hits if hit.key == 2)
    assert named.spoken
    assert named.evidence > max(hit.evidence for hit in hits if hit.key in {1, 3})


def test_a_topic_finds_and_orders_and_changes_nothing_of_the_judgement():
    conversation = Conversation(linked=False)
    plain = conversation.ask()
    about = conversation.ask(topic=np.eye(4, dtype=np.float32)[2])
    assert about.judgement == plain.judgement
    assert plain.hits[0].key == 0
    assert about.hits[0].key == 1


def test_what_only_asks_stands_behind_what_tells():
    index = MemoryIndex(4, Calibration(Prior(((1, Baseline(0.0, 0.2)),))))
    row = np.eye(4, dtype=np.float32)[0]
    for key, text in enumerate(("Is the harbour open?", "The harbour is open.")):
        index.put(key, row, f"Mara (8 May 2023): {text}")
    assert [hit.key for hit in index.search(row, "harbour", 2, floor=0.0).hits] == [1, 0]


def test_a_name_is_taken_out_of_a_query_and_the_rest_is_a_unit_vector():
    query, name, oneself = np.array([0.6, 0.8], np.float32), *np.eye(2, dtype=np.float32)
    rest = without_name(query, [name], oneself)
    assert float(np.linalg.norm(rest)) == pytest.approx(1.0)
    assert rest[0] < query[0]
    # Nothing is left of a query that is a name alone.
    alone = np.array([0.5, 0.0], np.float32)
    assert without_name(alone, [np.array([1.0, 0.0], np.float32)], np.zeros(2, np.float32)) is alone


def test_a_name_that_no_memory_knows_is_held_against_the_prompt():
    conversation = Conversation(linked=False)
    known, strange = conversation.ask("when does Mara come"), conversation.ask("when does Caroline come")
    assert known.judgement.doubt == 0.0
    assert strange.judgement.doubt > 0.0
    assert strange.hits[0].relevance < known.hits[0].relevance


def test_how_many_are_asked_for_does_not_change_the_order(world):
    index = world.index(len(world.texts))
    for vector, query in ((world.coffee, None), (None, "Where did my sister move last winter?")):
        few = [hit.key for hit in index.search(vector, query, 2, floor=0.0).hits]
        many = [hit.key for hit in index.search(vector, query, 12, floor=0.0).hits]
        assert many[:2] == few


def hashed(texts) -> np.ndarray:
    """Vectors of a model that knows no meaning: signed counts of hashed terms."""
    rows = np.zeros((len(texts), 256), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for term in terms(text) or [text]:
            digest = sha256(term.encode()).digest()
            row[digest[0]] += 1 if digest[1] % 2 else -1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_a_floor_means_the_same_for_a_model_without_a_shipped_prior(size):
    texts, prompts = statement_texts(), hashed(UNRELATED_PROMPTS)
    rows = hashed(texts)
    index = MemoryIndex(256, Calibration(fit_prior(rows, prompts)))
    for key in range(size):
        index.put(key, rows[key], texts[key])
    loud = sum(
        bool(index.search(vector, prompt, 5).hits)
        for prompt, vector in zip(UNRELATED_PROMPTS, prompts, strict=True)
    )
    assert loud <= 0.03 * len(UNRELATED_PROMPTS)
    question = "Mara: what coffee with oat milk do I drink before nine?"
    assert [hit.key for hit in index.search(hashed([question])[0], question, 1).hits] == [0]
