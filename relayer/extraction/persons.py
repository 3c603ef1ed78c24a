"""Sentences without a subject that are about a person named in the sentence before, in fifteen languages.

"My mum lives with us. Is allergic to nuts." By itself the second sentence would be taken for the speaker's. In most languages such
a sentence begins with its verb. In Turkish, Hindi, Japanese and Korean the verb comes last, so a sentence is one if it has neither
a word for the speaker nor a subject. The words are in ``data/persons.toml``.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from relayer.extraction.words import read_data

# The beginning of a sentence, and of the statement before it, says whom they are about.
_BEGINNING: Final = 200
_LETTER: Final = r"[\w\u0900-\u0963]"
# Words of these are not separated, or have particles at their ends.
_JOINED: Final = frozenset({"zh", "ja", "ko"})


def is_of_person_before(statement: str, sentence: str, lang: str) -> bool:
    """Return whether a sentence without a subject is about another person whom the statement before it names.

    Args:
        statement: what was said right before.
        sentence: the sentence.
        lang: the language of the message; of a language that is not known, the words of all are tried.

    Example:
        >>> is_of_person_before("My mum lives with us.", "Is allergic to nuts.", "en")
        True
        >>> is_of_person_before("My mum lives with us.", "I am allergic to nuts.", "en")
        False
    """
    before, folded = _folded(statement), _folded(sentence)
    patterns = _patterns()
    tried = (patterns[lang],) if lang in patterns else patterns.values()
    return any(named.search(before) is not None and subjectless.match(folded) for named, subjectless in tried)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text[:_BEGINNING]).casefold()


@cache
def _patterns() -> dict[str, tuple[re.Pattern[str], re.Pattern[str]]]:
    """Return for each language a pattern of words for persons, and one that matches sentences without a subject."""
    data = read_data("persons.toml")
    patterns = {}
    for lang, words in data["named"].items():
        apart = data["apart"].get(lang)
        after = "" if lang in _JOINED else rf"(?!{_LETTER})"
        before = "" if lang in {"zh", "ja"} else rf"(?<!{_LETTER})"
        named = rf"{before}(?:{words}){after}"
        begins = rf"(?!\W*{named})(?!{apart})" if apart else rf"\W*(?:{data['begins'][lang]}){after}"
        patterns[lang] = re.compile(named), re.compile(begins, re.DOTALL)
    return patterns
