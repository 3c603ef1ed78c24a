from math import log
from typing import Any

import pytest

from relayer.search.lexical import BACKGROUND, IMAGINED_TERMS, LexicalIndex, asked_terms
from relayer.search.rows import KeyMask
from relayer.search.terms import TOLD_TERMS, terms, told

TEXTS = {
    1: "Mara (8 May 2023): I only drink oat milk coffee before 9.",
    2: "Jonas (9 May 2023): Our dog Pepper is afraid of thunderstorms.",
    3: "Mara (10 May 2023): My sister is getting married in Porto.",
    4: "The staging database was migrated to the new cluster.",
}


def filled() -> LexicalIndex:
    index = LexicalIndex()
    for key, text in TEXTS.items():
        index.put(key, text)
    return index


def found(index: LexicalIndex, query: str, k: int = 10, allowed=None) -> list[int]:
    return [key for key, _ in index.search(query, k, allowed)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("thunderstorm", "Thunderstorms"),
        ("marry", "married"),
        ("migrating", "migrated"),
        ("dance", "dancing"),
        ("city", "cities"),
        ("box", "boxes"),
        ("stopped", "stop"),
        ("Mara's", "mara"),
        ("café", "cafe"),
        ("STRASSE", "straße"),
        ("\uff11\uff12", "12"),
        ("Zoë", "Zoe\u0308"),
        ("September", "Sep"),
        ("January", "jan"),
    ],
)
def test_forms_of_a_word_are_one_term(one, other):
    assert terms(one) == terms(other) != []


@pytest.mark.parametrize(
    ("one", "other"), [("bus", "bu"), ("glass", "glas"), ("sing", "s"), ("bed", "b"), ("news", "nova")]
)
def test_different_words_stay_different(one, other):
    assert terms(one) != terms(other)


@pytest.mark.parametrize("text", [*TEXTS.values(), "Maria's can't rock'n'roll", "x" * 50 + " 17-23", ""])
def test_a_text_in_ascii_has_the_terms_that_it_has_beside_other_letters(text):
    assert [*terms(text), "ы"] == terms(f"{text} ы")


def test_function_words_are_no_terms():
    assert terms("what is the and of to") == []


def test_scripts_without_spaces_are_matched_by_characters_and_pairs():
    assert set(terms("咖啡")) == {"咖", "啡", "咖啡"}
    index = LexicalIndex()
    index.put(1, "我早上喝咖啡")
    index.put(2, "昨天下雨了")
    assert found(index, "咖啡") == [1]


def test_the_best_text_comes_first_and_texts_without_a_shared_term_not_at_all():
    assert found(filled(), "What coffee does Mara drink?") == [1, 3]


def test_a_score_is_the_published_formula():
    index = LexicalIndex()
    index.put(1, "apple apple banana")
    index.put(2, "cherry")
    idf = log(1 + (2 + BACKGROUND - 1 + 0.5) / (1 + 0.5))
    norm = 1.2 * (1 - 0.4 + 0.4 * 3 / 2)
    assert index.search("apple", 1) == [(1, pytest.approx(idf * 2 * 2.2 / (2 + norm), rel=1e-5))]


def test_a_full_match_of_average_length_scores_the_ceiling_but_for_what_is_imagined():
    index = LexicalIndex()
    index.put(1, "apple banana")
    index.put(2, "cherry damson")
    unseen = (
        index.ask(asked_terms("apple zeppelin")).ceiling - index.ask(asked_terms("apple")).ceiling
    ) * IMAGINED_TERMS
    asked = index.ask(asked_terms("banana apple"))
    assert asked.scores([1]) == pytest.approx([asked.ceiling - unseen], rel=1e-5)


def test_a_word_alone_is_no_perfect_match_and_more_words_are_better():
    index = filled()
    one, three = (
        index.ask(asked_terms("thunderstorms")),
        index.ask(asked_terms("dog afraid of thunderstorms")),
    )
    assert one.scores([2])[0] < 0.6 * one.ceiling
    assert three.scores([2])[0] / three.ceiling > one.scores([2])[0] / one.ceiling


def test_a_query_is_about_whoever_it_names():
    index = LexicalIndex()
    index.put(1, "I went hiking.", speaker="Mara Lindt")
    index.put(2, "Mara went hiking.", speaker="Jonas")
    index.put(3, "So did I.", speaker=None)
    assert index.ask(asked_terms("Where did Mara go?")).spoken([1, 2, 3]).tolist() == [True, False, False]
    assert index.ask(asked_terms("And Ms Lindt's hike?")).spoken([3, 2, 1]).tolist() == [False, False, True]
    assert not index.ask(asked_terms("Where did they go?")).spoken([1, 2, 3]).any()
    assert index.remove(1)
    assert not index.ask(asked_terms("Where did Mara go?")).spoken([2, 3]).any()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("What does Mara's dog eat?", ["Mara"]),
        ("Did Fahim Khan or mara call?", ["Fahim Khan", "mara"]),
        ("Mara and Mara", ["Mara"]),
        ("Who called?", []),
        ("", []),
    ],
)
def test_the_speakers_that_a_query_names_stand_as_in_the_query(query, named):
    index = LexicalIndex()
    index.put(1, "Hello", speaker="Mara")
    index.put(2, "Hello", speaker="Fahim Khan")
    assert index.speakers(query) == named


@pytest.mark.parametrize(
    ("text", "terms_told"),
    [
        ("Mara (8 May 2023): What do you eat?", 0),
        ("Mara (8 May 2023): I eat plums. And you?", 2),
        ("(8 May 2023) \u6885\u3092\u98df\u3079\u308b\u3002", 9),
        ("\u6885\u3092\u98df\u3079\u308b\uff1f", 0),
        ("\U0001f389", 0),
        ("?" * 5_000, 0),
        ("plums " * 5_000, TOLD_TERMS),
        ("", 0),
    ],
)
def test_what_a_text_tells_is_counted_without_its_header_and_its_questions(text, terms_told):
    assert told(text) == min(terms_told, TOLD_TERMS)


def test_a_role_is_nobodys_name():
    index = LexicalIndex()
    index.put(1, "I went hiking.", speaker="user")
    assert not index.ask(asked_terms("Which user went hiking?")).spoken([1]).any()


def test_a_speaker_changes_no_score():
    with_speaker, without = LexicalIndex(), LexicalIndex()
    with_speaker.put(1, "Mara: I went hiking.", speaker="Mara")
    without.put(1, "Mara: I went hiking.")
    assert with_speaker.search("Mara hiking", 5) == without.search("Mara hiking", 5)


def test_a_name_is_lacking_when_no_text_has_it():
    index = filled()
    assert not index.lacks(("Mara", "Pepper"))
    assert index.lacks(("Mara", "Caroline"))
    assert not index.lacks(())


def test_an_unknown_term_raises_the_ceiling():
    index = filled()
    assert index.ask(asked_terms("coffee zeppelin")).ceiling > 1.3 * index.ask(asked_terms("coffee")).ceiling


def test_context_counts_for_less_than_the_text():
    index = LexicalIndex()
    index.put(1, "the harbour", "a lighthouse")
    index.put(2, "the lighthouse", "a harbour")
    assert found(index, "lighthouse") == [2, 1]


def test_ties_are_ordered_by_key_whatever_the_slots():
    index = LexicalIndex()
    for key in (9, 3, 7, 1, 8, 2, 6, 4, 5):
        index.put(key, "apple pie")
    index.remove(3)
    index.put(0, "apple pie")
    assert found(index, "apple", k=2) == [0, 1]


def test_a_filter_keeps_the_allowed():
    assert found(filled(), "Mara May", allowed=KeyMask.from_keys([2, 3], 100)) == [3, 2]


def test_removing_restores_every_score_and_forgets_every_term():
    index = filled()
    before = index.search("dog cluster coffee", 10)
    index.put(5, "A zeppelin over the dog cluster, and coffee.", "context with a xylophone")
    assert index.search("dog cluster coffee", 10) != before
    assert index.remove(5)
    assert not index.remove(5)
    assert index.search("dog cluster coffee", 10) == before
    assert not {"zeppelin", "xylophon"} & index._postings.keys()


def test_putting_a_key_again_replaces_its_text():
    index = filled()
    index.put(2, "My cat sleeps.")
    assert found(index, "dog") == []
    assert found(index, "cat") == [2]
    assert len(index) == 4


@pytest.mark.parametrize("query", ["", "   ", "the of", "👍", "\u200b"])
def test_a_query_without_terms_finds_nothing(query):
    index = filled()
    assert index.search(query, 5) == []
    assert index.ask(asked_terms(query)).ceiling == 0.0


def test_an_empty_index_finds_nothing():
    assert LexicalIndex().search("coffee", 5) == []


def test_the_same_query_sees_what_changed_in_between():
    index = LexicalIndex()
    index.put(1, "the ferry to Palma")
    before = index.search("ferry", 5)
    index.put(2, "a ferry leaves at nine")
    assert {key for key, _ in index.search("ferry", 5)} == {1, 2}
    index.remove(2)
    assert index.search("ferry", 5) == before


def test_a_filter_does_not_narrow_what_the_next_search_finds():
    index = filled()
    everything = index.search("Mara Jonas", 10)
    index.search("Mara Jonas", 10, KeyMask.from_keys([2], 100))
    assert index.search("Mara Jonas", 10) == everything


class Interrupted(LexicalIndex):
    """An index of which a search is interrupted in the middle."""

    def _found(self, term: str) -> Any:
        if term == "interrupt":
            raise InterruptedError(term)
        return super()._found(term)


def test_an_error_of_a_search_that_is_kept_keeps_nothing_from_being_indexed():
    index = Interrupted()
    index.put(0, "the harbour office")
    with pytest.raises(InterruptedError) as kept:
        index.ask(asked_terms("harbour interrupt"))
    index.put(1, "the harbour boats")
    index.put(2, "a brass key")
    assert kept.traceback
    assert [key for key, _ in index.search("harbour", 5)] == [0, 1]
    assert [key for key, _ in index.search("brass", 5)] == [2]
    assert index.remove(1)
    assert [key for key, _ in index.search("harbour boats", 5)] == [0]
