from math import log

import numpy as np
import pytest

from relayer.search.baseline import Calibration
from relayer.search.dense import DenseQuery
from relayer.search.index import MemoryIndex
from relayer.search.passages import (
    CHANCE,
    MOST_VECTORS,
    PASSAGE_BYTES,
    PassageWords,
    VectorIndex,
    is_long,
    passage_at,
    passages,
)
from relayer.search.ranking import Baseline, Prior
from relayer.search.rows import KeyMask

EAST, NORTH, UP = (np.eye(4, dtype=np.float32)[at] for at in range(3))
NOTE = "The ferry leaves at noon and comes back at six. " * 30
CALIBRATION = Calibration(prior=Prior(((1, Baseline(0.0, 0.2)), (100, Baseline(0.0, 0.3)))), probes=())


@pytest.fixture
def index():
    return MemoryIndex(4, CALIBRATION)


def found(index, vector, text, **more):
    return {hit.key: hit for hit in index.search(vector, text, 5, floor=0.1, **more).hits}


def put_note(index, key=0):
    index.put(key, EAST, NOTE, passages=[(400, NORTH), (800, UP)])


def test_a_long_text_is_what_a_model_does_not_read_whole():
    assert not is_long("ab " * 300)
    assert is_long("ab " * 301)
    assert is_long("船" * 301)


def test_the_largest_text_has_a_bounded_number_of_vectors():
    assert len(list(passages(NOTE * 45, MOST_VECTORS))) <= MOST_VECTORS
    assert len(list(passages("船中午。" * 5400, MOST_VECTORS))) <= MOST_VECTORS


def test_a_memory_is_found_by_the_vector_of_a_passage_and_says_where_that_begins(index):
    put_note(index)
    hit = found(index, UP, None)[0]
    assert (hit.cosine, hit.passage) == (pytest.approx(1 - CHANCE * log(3)), 800)
    assert found(index, EAST, None)[0].passage == 0


def test_a_passage_among_many_is_near_by_chance_more_often_than_a_short_text(index):
    put_note(index)
    index.put(1, UP, "the tide is out")
    assert [hit.key for hit in index.search(UP, None, 5, floor=0.1).hits] == [1, 0]


def test_a_memory_is_found_by_the_words_of_a_passage(index):
    index.put(0, None, NOTE)
    assert not found(index, None, "violin trunk")
    index.put_passage(0, 800, "the violin is in the trunk")
    assert found(index, None, "violin trunk")[0].passage == 800


def test_a_short_memory_says_no_passage(index):
    put_note(index)
    index.put(1, UP, "the tide is out")
    assert found(index, UP, "tide")[1].passage is None


def test_a_filter_keeps_passages_out_as_well(index):
    put_note(index)
    index.put(1, EAST, "the tide is out")
    index.put_passage(0, 800, "the violin is in the trunk")
    assert 0 not in found(index, UP, "violin trunk", allowed=KeyMask.from_keys([1]))
    assert 0 in found(index, UP, "violin trunk", allowed=KeyMask.from_keys([0]))


def test_many_passages_ask_for_as_much_evidence_as_many_memories(index):
    index.put(0, EAST, NOTE, passages=[(400 + at, NORTH) for at in range(99)])
    assert index.search(EAST, None, 1).judgement.null == CALIBRATION.prior.baseline_at(100)


async def test_what_is_removed_is_not_found_by_a_passage_and_leaves_no_word(index):
    put_note(index)
    index.put_passage(0, 800, "the violin is in the trunk")
    index.remove(0)
    assert not found(index, UP, "violin trunk")
    await index.maintain(purge=True)
    assert b"violin" not in (await index.pin().parts()).passage_words.terms


async def test_what_was_removed_and_put_again_keeps_its_new_words(index):
    put_note(index)
    index.put_passage(0, 800, "the violin is in the trunk")
    index.remove(0)
    put_note(index)
    index.put_passage(0, 800, "the cello is in the trunk")
    await index.maintain()
    assert found(index, None, "cello trunk")[0].passage == 800
    assert b"violin" not in (await index.pin().parts()).passage_words.terms


async def test_a_stored_index_finds_by_passages_as_before(index):
    put_note(index)
    index.put_passage(0, 800, "the violin is in the trunk")
    again = MemoryIndex.of_parts(4, CALIBRATION, await index.pin().parts())
    for query in ((UP, None), (None, "violin trunk"), (NORTH, "violin")):
        assert found(again, *query) == found(index, *query)


async def test_a_stored_passage_of_no_memory_is_refused(index):
    put_note(index)
    index.put(1, UP, "the tide is out")
    parts = await index.pin().parts()
    index.remove(0)
    others = await index.pin().parts()
    with pytest.raises(ValueError, match="of no memory"):
        MemoryIndex.of_parts(4, CALIBRATION, others._replace(passages=parts.passages))


def test_a_passage_is_shown_as_it_stands_in_the_text():
    text = NOTE + "The violin is in the trunk. " + NOTE
    for start, end in passages(text):
        assert passage_at(text, start) == text[start:end].strip()
        assert len(text[start:end].encode()) <= PASSAGE_BYTES


def test_a_namespace_without_long_texts_is_asked_as_if_there_were_no_passages():
    vectors = VectorIndex(4)
    vectors.add(0, EAST)
    assert type(vectors.ask(EAST)) is DenseQuery
    assert PassageWords().ask(["violin"]) is None
