"""A text that names one of several things that were said together leaves what was said of the others true."""

from __future__ import annotations

import pytest
from doubles.stated_relations import StatedRelations

from relayer.domain.operations import Record
from relayer.writing.merging import (
    Relation,
    can_end,
    hides_harm,
    leaves_some,
    names_one_of_several,
    thing_spans,
    without_kept,
)

SEVERAL = "i tutor maths and do saturdays at the bakery"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The words that both begin with name neither.
        ("Ich nehme Ramipril 5 und Metformin 1000", "Metformin vertrage ich nicht mehr"),
        ("on lithium 600 and lamotrigine 100", "lithium's 900 now"),
        ("nehm 5mg ramipril und 20 atorvastatin", "ramipril jetzt 10"),
        ("concor 5 ve glifor kullan\u0131yorum", "concoru b\u0131rakt\u0131m"),
        ("пью лозап 50 и метформин", "лозап теперь 100"),
        ("اخذ كونكور وجلوكوفاج", "وقفت الكونكور"),
        ("吃氨氯地平5mg和二甲双胍", "氨氯地平停了"),
        ("we've two dogs, rex and luna, and a parrot", "rex died on monday"),
    ],
)
def test_one_of_several_is_named(old, new):
    assert names_one_of_several(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i live with tom", "tom moved out"),
        ("Ana and Ben live in Porto", "Ana and Ben moved to Faro"),
        ("on lithium 600 and lamotrigine 100", "off all pills since june"),
        ("My phone number is 555-0171", "I changed my phone number, it is 555-0188 now"),
        ("我住在南京", "我搬到苏州了"),
        ("", "and"),
    ],
)
def test_all_or_none_are_named(old, new):
    assert not names_one_of_several(new, old)


@pytest.mark.parametrize(
    ("old", "count"),
    [
        (SEVERAL, 2),
        ("tomo escitalopram e clonazepam", 2),
        ("we've two dogs, rex and luna", 3),
        ("我在吃优甲乐50和二甲双胍", 2),
        ("i live with tom", 1),
        ("", 0),
    ],
)
def test_things_that_are_said_together(old, count):
    spans = thing_spans(old)
    assert len(spans) == count
    assert "".join(old[slice(*span)] for span in spans) == old


async def leaves(new, *over, text=SEVERAL, part=(0, 200)):
    relations = StatedRelations()
    for thing in over:
        relations.state(thing, new, "replaces")
    return await leaves_some(relations, text, [part], new)


async def test_what_is_said_with_the_thing_that_is_over_stays():
    maths, bakery = (SEVERAL[slice(*span)] for span in thing_spans(SEVERAL))
    assert await leaves("no more bread for me", bakery)
    assert not await leaves("quit both", maths, bakery)


async def test_only_the_part_that_goes_is_looked_at():
    brother = "my brother drives a cab"
    text = f"{SEVERAL}, {brother}"
    part = (text.index(brother), len(text))
    assert not await leaves("he sold the cab", brother, text=text, part=part)
    assert await leaves("he sold the cab", brother, text=text)


@pytest.mark.parametrize(
    ("old", "read", "new", "of_new", "hidden"),
    [
        ("my lad comes up in hives near cashews", "harm", "my lad plays chess", "", True),
        ("my lad comes up in hives near cashews", "harm", "he eats cashews again", "harm", False),
        ("allergic to cashews", "", "my lad plays chess", "", True),
        ("allergic to cashews", "", "the allergy is gone", "", False),
        ("my lad plays chess", "", "my lad plays go", "", False),
    ],
)
def test_a_danger_is_over_only_by_what_speaks_of_one(old, read, new, of_new, hidden):
    assert hides_harm(Record(b"r" * 16, "a", new, essential=of_new), old, read) is hidden


@pytest.mark.parametrize(
    ("new", "replaces", "clauses"),
    [
        ("280 a day now, callout stays as it is", 0.9, (0.8, 0.0)),
        ("280 a day now, same van", 0.9, (0.8, 0.7)),
        ("rate stays as it is, callout stays as it is", 0.0, (0.0, 0.0)),
    ],
)
def test_what_is_said_to_stay_is_not_over(new, replaces, clauses):
    said = ["my day rate is 240, ", "callout is 65"]
    assert without_kept(Relation(0.1, 0.9, (0.8, 0.7)), said, new) == Relation(0.1, replaces, clauses)


@pytest.mark.parametrize(
    ("new", "ends"),
    [
        ("Never release without running the smoke tests.", False),
        ("nie ohne Helm", False),
        ("nunca sem capacete", False),
        ("jamais sans casque", False),
        ("we release without smoke tests now", True),
        ("no smoke tests any more", True),
    ],
)
def test_what_is_never_to_be_left_out_ends_nothing(new, ends):
    assert can_end(new, "run the smoke tests") is ends
