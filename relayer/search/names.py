"""Names in a query: a prompt about somebody the namespace has never heard of is best answered with silence.

Only spelling tells, so this looks at queries in English alone: there a capital letter inside a sentence marks a name
or an acronym, while in German it marks every noun, and most scripts have no capitals.
"""

from __future__ import annotations

import re

from relayer.search.terms import FUNCTION_WORDS

__all__ = ["names"]

WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
APOSTROPHE = re.compile("['\u2019]")
# Ends of sentences, and what may open one: the first word after it is capitalised for that alone.
STARTS = re.compile(r"(?:^|[.?!:;\n])[\s\"'\u201c\u2018(\[*-]*$")
# English function words that are German, too, do not show that a query is English.
ENGLISH = FUNCTION_WORDS - frozenset(
    ["am", "also", "an", "do", "has", "her", "in", "me", "no", "on", "s", "so", "t", "was", "will"]
)
# A title, or a headline, capitalises nearly everything.
MOST_CAPITALISED = 0.5
# Times are matched as terms; that a day occurs in no memory says nothing about who is asked for.
CALENDAR = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "christmas",
        "easter",
    ]
)
LONGEST_QUERY = 2_000


def names(query: str) -> tuple[str, ...]:
    """Words of an English query that are spelt like names, as they stand there; none for any other query."""
    found: list[str] = []
    words = 0
    english = False
    text = query[:LONGEST_QUERY]
    for match in WORD.finditer(text):
        # "Maria's" is about Maria, and "I'm" names nobody.
        word = APOSTROPHE.split(match.group())[0]
        words += 1
        english = english or word.casefold() in ENGLISH
        if (
            word[0].isupper()
            and len(word) > 1
            and not STARTS.search(text[max(0, match.start() - 8) : match.start()])
        ):
            found.append(word)
    if not english or len(found) > MOST_CAPITALISED * words:
        return ()
    return tuple(
        name for name in found if name.casefold() not in CALENDAR and name.casefold() not in FUNCTION_WORDS
    )
