"""Align the words of two statements, to see whether they tell of two things rather than of a change of one.

"Berth 8 belongs to ship 63352" and "Berth 9 belongs to ship 71271" look like an update and are both true: a change leaves its
subject as it is, and these differ in the subject as well as in the value. No list of words is needed for that, only where two
statements of the same form differ.
"""

from __future__ import annotations

import re
import unicodedata
from difflib import SequenceMatcher
from itertools import takewhile

# A number with its inner punctuation, a Han character or kana, or a run of other letters.
_TOKEN = re.compile(r"\d+(?:[-:./,]\d+)*|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+")
# The number of tokens of a statement that are aligned; the time to align them may grow with its third power.
_MOST_TOKENS = 120
# The number of shared tokens after a number from which it is part of a name rather than an amount: an amount has a unit at most.
_AFTER_A_NAME = 2


def are_about_two_things(old: str, new: str) -> bool:
    """Return whether two statements have the same form and differ in their subject, or in a subject and a value.

    This is so if they begin alike up to numbers in the first half, which number their subjects; if they differ in two numbers,
    and share half of their words; and if one is the other with two or more places filled in differently. A statement that
    changes two values of one subject is taken for another subject as well.

    Example:
        >>> are_about_two_things("Room 12 is Anna's", "Room 14 is Ben's")
        True
        >>> are_about_two_things("We meet in room 12", "We meet in room 14")
        False
    """
    before, after = _tokens(old), _tokens(new)
    shorter = min(len(before), len(after))
    alike = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    if alike < shorter and _is_number(before[alike]) and _is_number(after[alike]):
        following = shorter - alike - 1
        same_end = following >= _AFTER_A_NAME and before[alike + 1 :] == after[alike + 1 :]
        if following >= alike or same_end:
            return True
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    steps = matcher.get_opcodes()
    shared = sum(block.size for block in matcher.get_matching_blocks())
    if 2 * shared < max(len(before), len(after)):
        return False
    places = [step for step in steps if step[0] == "replace"]
    numbers = [
        place
        for place in places
        if any(map(_is_number, before[place[1] : place[2]]))
        and any(map(_is_number, after[place[3] : place[4]]))
    ]
    # A word in the place of another one: a change is often told by other words, such as "was moved to" in the place of "is in".
    has_one_form = all(step[0] == "equal" or _swaps_one_word(step) for step in steps)
    return len(numbers) > 1 or (has_one_form and len(places) > 1)


def _swaps_one_word(step: tuple[str, int, int, int, int]) -> bool:
    return step[0] == "replace" and step[2] - step[1] == step[4] - step[3] == 1


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())[:_MOST_TOKENS]


def _is_number(token: str) -> bool:
    return token.isnumeric() or token[0].isdigit()
