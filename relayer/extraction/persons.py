"""Recognise whom a statement is about, if it is another person than the speaker, in fifteen languages.

"My aunt lives in Bergen" and "Ben is a nurse" are about others, "I live with my aunt" and "My wife and I are allergic to nuts" about the
speaker (`other_person`); names are found in scripts with capital letters alone. Some sentences are about a person whom the one before names
(`is_of_person_before`): "My mum lives with us. Is allergic to nuts." By itself the second sentence would be taken for the speaker's. In most languages such
a sentence begins with its verb. In Turkish, Hindi, Japanese and Korean the verb comes last, so a sentence is one if it has neither
a word for the speaker nor a subject. The words are in ``data/persons.toml``.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from relayer.extraction.words import read_data
from relayer.lib.n_grams import read_prompt

# The beginning of a sentence, and of the statement before it, says whom they are about.
_BEGINNING: Final = 200
# The beginning of a statement that says whom it is about.
_SUBJECT: Final = 120
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


def other_person(text: str) -> str:
    """Return the casefolded beginning of a statement up to the other person whom it is about; "" if it is about the speaker.

    Example:
        >>> other_person("My aunt Ingrid lives in Bergen."), other_person("Ben isn't allergic to nuts.")
        ('my aunt', 'ben')
        >>> other_person("My wife and I are allergic to nuts."), other_person("I live with my aunt.")
        ('', '')
    """
    beginning = unicodedata.normalize("NFC", text[:_SUBJECT]).strip()
    folded = beginning.casefold()
    person, name, speaker_too = _subject_patterns(read_prompt(text).language)
    found = person.match(folded)
    if found is None and beginning[:1].isupper():
        found = name.match(folded)
    return "" if found is None or speaker_too.match(folded, found.end()) else found[0].strip()


@cache
def _subject_patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a language: of a word for a person at the beginning, of a name there, and of what says "and I" later."""
    words = read_data("persons.toml")
    data, named = words["subject"], words["named"][language]
    # What comes before a comma, as in "by the way, my aunt ...".
    before = rf"(?!{data['apart']})(?:{_LETTER}[^,\uff0c\u3001]{{1,20}}[,\uff0c\u3001]\s*)?"
    if language in data["joined"]:
        person = rf"{before}{data['joined'][language]}(?:{named})"
    else:
        person = rf"{before}(?:{data['lead']}\W+){{0,2}}(?:{named})(?!{_LETTER})"
    verbs = data["verbs"].get(language, "(?!)")
    before = rf"(?:\W+(?:{data['before_verbs']})){{0,2}}"
    name = rf"(?!{data['apart']}){_LETTER}+(?={before}\W+(?:{verbs})(?:n?['\u2019]t)?(?!{_LETTER}))"
    return re.compile(person), re.compile(name), re.compile(data["speaker_too"])
