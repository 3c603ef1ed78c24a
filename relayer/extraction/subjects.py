"""Recognise statements that begin with another person than the speaker, in fifteen languages.

"My aunt lives in Bergen" and "Ben is a nurse" are about others, "I live with my aunt" and "My wife and I are allergic to nuts" about the
speaker. The words are in ``data/subjects.toml`` and ``data/persons.toml``. Names are found in scripts with capital letters alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from relayer.extraction.words import read_data
from relayer.lib.n_grams import read_prompt

# The beginning of a statement says whom it is about.
_BEGINNING: Final = 120
_LETTER: Final = r"[\w\u0900-\u0963]"


def other_person(text: str) -> str:
    """Return the casefolded beginning of a statement up to the other person whom it is about; "" if it is about the speaker.

    Example:
        >>> other_person("My aunt Ingrid lives in Bergen."), other_person("Ben lives in Glasgow.")
        ('my aunt', 'ben')
        >>> other_person("My wife and I are allergic to nuts."), other_person("I live with my aunt.")
        ('', '')
    """
    beginning = unicodedata.normalize("NFC", text[:_BEGINNING]).strip()
    folded = beginning.casefold()
    person, name, speaker_too = _patterns(read_prompt(text).language)
    found = person.match(folded)
    if found is None and beginning[:1].isupper():
        found = name.match(folded)
    return "" if found is None or speaker_too.match(folded, found.end()) else found[0].strip()


@cache
def _patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns of a language: of a word for a person at the beginning, of a name there, and of what says "and I" later."""
    data = read_data("subjects.toml")
    named = read_data("persons.toml")["named"][language]
    # What comes before a comma, as in "by the way, my aunt ...".
    before = rf"(?!{data['apart']})(?:{_LETTER}[^,\uff0c\u3001]{{1,20}}[,\uff0c\u3001]\s*)?"
    if language in data["joined"]:
        person = rf"{before}{data['joined'][language]}(?:{named})"
    else:
        person = rf"{before}(?:{data['lead']}\W+){{0,2}}(?:{named})(?!{_LETTER})"
    verbs = data["verbs"].get(language, "(?!)")
    name = rf"(?!{data['apart']}){_LETTER}+(?=\W+(?:{verbs})(?!{_LETTER}))"
    return re.compile(person), re.compile(name), re.compile(data["speaker_too"])
