"""A text that names one of several things that were said together leaves what was said of the others true."""

from __future__ import annotations

import pytest

from relayer.writing.merging import names_one_of_several


@pytest.mark.parametrize(
    ("old", "new"),
    [
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
