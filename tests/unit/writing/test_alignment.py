# ruff: noqa: RUF001 - letters and digits of several scripts are the point
from __future__ import annotations

import time

import pytest

from relayer.writing.merging import are_about_two_things

TWO_THINGS = [
    ("Berth 8 of the harbour belongs to ship 63352", "Berth 9 of the harbour belongs to ship 71271"),
    ("Remember that berth 8 is empty", "Remember that berth 9 is empty"),
    ("The key for room 12 is the blue one", "The key for room 14 is the blue one"),
    ("Item 1: milk", "Item 2: bread and butter"),
    ("Order A-17 is paid", "order A-18 is paid."),
    ("Kind 2 heißt Ben", "Kind 3 heißt Ida"),
    ("The pond pump is 40 watts", "the pond light is 12 watts"),
    ("3号机在修理", "4号机在修理"),
    ("رصيف ٨ للسفينة ٦٣", "رصيف ٩ للسفينة ٧١"),
    ("The meeting on May 3 is at 10:00", "The meeting on May 5 is at 11:00"),
]
ONE_THING = [
    ("We meet in room 12", "We meet in room 14 now"),
    ("My phone number is 555-0134", "My phone number is 555-0199"),
    ("My number is +49 151 2345", "My number is +49 172 2399"),
    ("The stall costs 25 per day", "The council raised the stall fee, it costs 32 per day"),
    ("My dentist is Dr. Okafor", "My dentist is Dr. Lim now"),
    ("My dentist is Dr. Okafor", "I switched dentists, it's Dr. Lim now"),
    ("我养了80只羊", "卖了30只，剩50只羊"),
    ("We meet at 10:30", "We meet at 11:45"),
    ("", "12"),
    ("Room 12", "Room 12"),
]


@pytest.mark.parametrize(("old", "new"), TWO_THINGS)
def test_statements_of_one_form_with_another_subject_are_about_two_things(old, new):
    assert are_about_two_things(old, new)
    assert are_about_two_things(new, old)


@pytest.mark.parametrize(("old", "new"), ONE_THING)
def test_a_change_of_one_value_is_about_one_thing(old, new):
    assert not are_about_two_things(old, new)


def test_no_text_takes_long_to_align():
    begun = time.process_time()
    are_about_two_things("a b " * 150, "a a b b " * 75)
    assert time.process_time() - begun < 0.5
