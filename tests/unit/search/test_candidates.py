import numpy as np
import pytest

from relayer.search.dense import DenseIndex
from relayer.search.index import Candidates, SearchQuery
from relayer.search.lexical import LexicalIndex, asked_terms
from relayer.search.ranking import (
    ENGLISH_TERM_WEIGHT_BY_MODEL,
    JUDGED_SPEAKER_WEIGHT,
    JUDGED_TERM_WEIGHT,
    OTHER_TERM_WEIGHT_BY_MODEL,
    SPEAKER_WEIGHT,
    TERM_WEIGHT,
    TOLD_WEIGHT,
    WORTH_WEIGHT,
    WorthReader,
    term_weight,
)

EAST, NORTH = np.array([1.0, 0.0], np.float32), np.array([0.0, 1.0], np.float32)


def weighed(
    query: str | None,
    vector: np.ndarray | None,
    topic: np.ndarray | None = None,
    *,
    worth: WorthReader | None = None,
) -> Candidates:
    dense, lexical = DenseIndex(2), LexicalIndex()
    for key, row in ((1, EAST), (2, NORTH)):
        dense.add(key, row)
    for key, text, speaker in (
        (1, "The kettle leaks.", None),
        (2, "Pepper barks.", "Mara"),
        (3, "Pepper", "Jonas"),
    ):
        lexical.put(key, text, speaker=speaker)
    found = None if vector is None else dense.ask(vector)
    about = found if topic is None else dense.ask(topic)
    words = None if query is None else lexical.ask(asked_terms(query))
    known = None if worth is None else (lambda keys: worth.read(dense.ask(worth.direction).scores(keys)))
    return Candidates.from_keys([3, 1, 2], SearchQuery(found, about, words, worth=known))


def test_candidates_stand_by_rising_key_whatever_order_they_come_in():
    assert weighed("Pepper", EAST).keys == [1, 2, 3]


def test_what_has_no_vector_speaks_by_its_terms_alone():
    found = weighed("Pepper", EAST)
    assert found.by_terms.tolist() == [False, False, True]
    assert found.content[2] == found.covered[2] == found.judged[2] > 0


def test_the_order_weighs_a_term_more_than_the_judgement_does():
    found = weighed("Pepper", NORTH)
    assert found.content[1] == pytest.approx(1.0 + found.covered[1])
    assert found.judged[1] == pytest.approx(1.0 + JUDGED_TERM_WEIGHT * found.covered[1])


def test_a_named_speaker_counts_in_the_judgement_and_not_in_what_neighbours_are_lent():
    found = weighed("What did Mara say?", NORTH)
    plain = TOLD_WEIGHT * found.told
    assert (found.bonus - plain).tolist() == pytest.approx([0.0, SPEAKER_WEIGHT, 0.0])
    assert found.judged[1] - found.content[1] == pytest.approx(
        JUDGED_SPEAKER_WEIGHT - (1 - JUDGED_TERM_WEIGHT) * found.covered[1]
    )


def test_a_topic_ranks_and_does_not_judge():
    plain, about = weighed("Pepper", EAST), weighed("Pepper", EAST, NORTH)
    assert about.judged.tolist() == plain.judged.tolist()
    assert about.cosine[:2].tolist() == [1.0, 0.0]
    assert (about.content - about.covered)[:2].tolist() == [0.0, 1.0]


def test_without_a_query_text_nothing_is_covered_and_nobody_named():
    found = weighed(None, EAST)
    assert found.bm25 is None
    assert found.covered.tolist() == found.told.tolist() == [0.0, 0.0, 0.0]
    assert not found.spoken.any()


def test_the_best_come_first_and_ties_by_key():
    assert weighed("Pepper", None).best(2) == [3, 2]
    assert weighed(None, (EAST + NORTH) / np.float32(np.sqrt(2))).best(3) == [1, 2, 3]


def test_a_choice_keeps_every_number_with_its_memory():
    found = weighed("Pepper", EAST)
    chosen = found.where(np.array([False, True, True]))
    assert chosen.keys == [2, 3]
    assert chosen.content.tolist() == found.content[1:].tolist()


def test_words_of_a_language_with_endings_order_less_where_a_model_knows_it():
    (knows, weight), *_ = OTHER_TERM_WEIGHT_BY_MODEL.items()
    assert term_weight(knows, english=False) == weight < TERM_WEIGHT
    assert term_weight("another", english=True) == term_weight("another", english=False) == TERM_WEIGHT
    found = weighed("Pepper", NORTH)._replace(weight=weight)
    assert found.content[1] == pytest.approx(1.0 + weight.full * found.covered[1])
    assert found.where(np.array([False, True, True])).content[0] == pytest.approx(found.content[1])


def test_one_word_of_many_in_common_is_worth_less_than_its_share_and_all_of_them_are_worth_more():
    (knows, weight), *_ = ENGLISH_TERM_WEIGHT_BY_MODEL.items()
    assert term_weight(knows, english=True) == weight
    assert (
        weight.weight_of(0.2)
        < TERM_WEIGHT.weight_of(0.2)
        < TERM_WEIGHT.weight_of(1.0)
        < weight.weight_of(1.0)
    )


def test_what_lies_in_the_direction_of_what_lasts_ranks_higher_and_is_judged_alike():
    reader = WorthReader(NORTH, steepness=20.0, bias=-10.0)
    found = weighed("kettle Pepper", EAST, worth=reader)
    assert found.worth.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-3)
    plain = weighed("kettle Pepper", EAST)
    assert plain.worth.tolist() == [0.0, 0.0, 0.0]
    assert (found.bonus - plain.bonus)[1] == pytest.approx(WORTH_WEIGHT, abs=1e-3)
    assert found.judged.tolist() == plain.judged.tolist()
    assert found.where(np.array([False, True, True])).worth.tolist() == found.worth[1:].tolist()


def test_what_is_compared_by_vectors_alone_is_not_ranked_by_its_worth():
    assert weighed(None, EAST, worth=WorthReader(NORTH, steepness=20.0, bias=0.0)).bonus.tolist() == [0, 0, 0]
