"""Requests that have no question mark: questions in Japanese and Korean, and errands in fifteen languages.

Both decide nothing alone: `relayer.extraction.statements` drops such a sentence unless its classifier is certain that it is worth
keeping, because a statement may have the same words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from relayer.extraction.words import read_data

# The ends of Japanese questions: polite verbs before the particle, what one tries to recall, and question words.
_JAPANESE: Final = re.compile(
    r"(?:です|でした|ます|ました|ません|ませんでした|でしょう|だろう|たん|るん)か(?:ね|な)?$|(?:っけ|だっけ|たっけ)$"
    r"|(?:どこ|いつ|誰|だれ|何時|いくら|どれ|どっち)(?:に|で|から|まで)?$"
)
# Korean questions are told by their words, and by the end of the verb only in polite speech.
_KOREAN: Final = re.compile(
    r"(?<!\w)(?:어디|언제|누구|누가|뭐|뭘|무엇|무슨|왜|얼마)(?:[을를에로가]|에서|서|까지|부터|랑|한테|예요|에요|야|인가요|이야|였지)?(?!\w)"
    r"|(?<!\w)몇 ?(?:시|살|월|층)|(?:[있없하되주쓰받먹았었였했됐갔왔]나요|까요|[습입합]니까)$"
)
# With these endings a question is part of a statement ("I do not know where"), or the question word means anything.
_KOREAN_EMBEDDED: Final = re.compile(
    r"[는은인한던을를될할간갈온올]지(?!\w*$)|[는은인한던을될할]지 |든지|든 |(?:누구|언제|어디서?)나|[는은인]데|다고|라고|아도 |어도 |해도 |(?<!\w)뭐[ㅋㅎ.!~ ]*$|[,、]"
)
_ENDS: Final = " \t.。!！…~ㅋㅎw"  # noqa: RUF001 - full-width marks are the point


def is_unmarked_question(sentence: str) -> bool:
    """Return whether a sentence without a question mark has the form of a question in Japanese or Korean.

    Example:
        >>> [is_unmarked_question(text) for text in ("姉はどこに住んでいますか", "내 동생은 어디 살아", "어디 사는지 몰라")]
        [True, True, False]
    """
    plain = unicodedata.normalize("NFKC", sentence).rstrip(_ENDS)
    if _JAPANESE.search(plain):
        return True
    return _KOREAN.search(plain) is not None and _KOREAN_EMBEDDED.search(sentence) is None


def is_errand(sentence: str) -> bool:
    """Return whether a sentence asks the reader to find, book, translate or do another such thing once.

    Example:
        >>> is_errand("I need you to find the cheapest flight to Oslo")
        True
        >>> is_errand("I want you to always check the units.")
        False
    """
    plain = unicodedata.normalize("NFKC", sentence).casefold()
    return any(errand.search(plain) and not always.search(plain) for errand, always in _errands())


@cache
def _errands() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (re.compile(f"(?:{words['wants']})(?:{words['acts']})"), re.compile(words["always"]))
        for words in read_data("errands.toml").values()
    )
