"""Which texts say the same."""

from __future__ import annotations

import time

import pytest

from relayer.extraction.gist import gist_of
from relayer.extraction.similarity import says_the_same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The lift is out of order.", "Our lift is out of order, by the way."),
        ("On Sundays I bake bread.", "I bake bread on Sundays."),
        ("I don't drink milk.", "I do not drink milk."),
        ("Mira leads the lab.", "Mira is leading the lab."),
        ("The kids nap at two.", "The children nap at 2."),
        ("The talk is on 7 June.", "The talk is on June 7th."),
        ("The neighbour's ladder is in the shed.", "The ladder of the neighbour is in the shed."),
        ("I collect antique barometers.", "I collect antique baromaters."),
    ],
)
def test_wording_makes_no_difference(first, second):
    assert says_the_same(gist_of(first), gist_of(second))
    assert says_the_same(gist_of(second), gist_of(first))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I bake bread on Sundays.", "I bake bread on Saturdays."),
        ("The rent is 900 euros.", "The rent is 950 euros."),
        ("Mira leads the lab.", "Nora leads the lab."),
        ("Mira trusts Nora.", "Nora trusts Mira."),
        ("I drink milk.", "I don't drink milk."),
        ("I worked in Bremen.", "I work in Bremen."),
        ("Lunch before the meeting.", "Lunch after the meeting."),
        ("The lift works.", "Does the lift work?"),
        ("That is a typical week.", "That is an atypical week."),
        ("Ich trinke keine Milch.", "Ich trinke keinen Kaffee."),
        ("Ich mag den Tee und nicht den Saft.", "Ich mag den Saft und nicht den Tee."),
    ],
)
def test_names_numbers_order_polarity_and_tense_make_a_difference(first, second):
    assert not says_the_same(gist_of(first), gist_of(second))


def test_comparing_long_texts_stays_quick():
    texts = [
        "from to " * 4000,
        "no longer " * 4000,
        "moved " * 4000 + "from",
        "a" * 50_000,
        "not " * 9000 + "any more",
    ]
    begun = time.thread_time()
    for text in texts:
        says_the_same(gist_of(text), gist_of(text))
    assert time.thread_time() - begun < 2
