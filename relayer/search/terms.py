"""From text to terms: words of any script, folded, without function words, English endings removed lightly."""

from __future__ import annotations

import re
import unicodedata

from relayer.wire.lines import stream_safe

__all__ = ["Stems", "terms"]

# Runs of letters and digits; an apostrophe inside a word ends it ("Maria's" is about Maria).
WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
# Scripts written without spaces: every character is a term, and so is every pair of neighbours.
UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
LONGEST = 40
# As how many terms a text is searched, and from how many characters for each of them, before and after compatibility
# forms are folded: by its first 6,144 characters. It may be ten times as long, and is indexed in one step of the loop.
MOST_TERMS = 768
CHARACTERS = 8
_PIECE = 128
_MOST_STEMS = 4_096

# Words that carry no topic: a match on them alone is no evidence.
TOPICLESS = """
a about after all also am an and any are as at be because been before being but by can could did do does
doing done for from had has have having he her hers him his how i if in into is it its just me mine more
most must my no nor not now of off on once only or other our ours out over own s shall she should so
some such t than that the their theirs them then there these they this those to too under until up us
very was we were what when where which while who whom whose why will with would you your yours
"""
FUNCTION_WORDS = frozenset(TOPICLESS.split())
# Indexed texts write a month with three letters (`relayer.search.text`), questions write it out.
MONTHS = {
    month: month[:3]
    for month in (
        *("january", "february", "march", "april", "june", "july", "august"),
        *("sept", "september", "october", "november", "december"),
    )
}


class Stems(dict[str, str | None]):
    """Terms by word, worked out once: most words of a text stood in the ones before it.

    Words are what texts are made of: this belongs to one namespace, and is cleared with what goes from it.
    """

    def __missing__(self, word: str) -> str | None:
        if len(self) >= _MOST_STEMS:
            self.clear()
        stem = self[word] = _stem(word)
        return stem


def terms(text: str, most: int = MOST_TERMS, stems: Stems | None = None) -> list[str]:
    """Terms of a text's beginning, in order, repeated as often as they occur; at most ``most``, of eight characters each."""
    folded = _folded(text, most * CHARACTERS)
    stems = Stems() if stems is None else stems
    if folded.isascii():  # most are: no word of theirs is without spaces
        return [stem for word in WORD.findall(folded) if (stem := stems[word[:LONGEST]]) is not None][:most]
    found: list[str] = []
    for match in WORD.finditer(folded):
        if len(found) >= most:
            break
        word = match.group()[:LONGEST]
        if UNSPACED.search(word):
            found += list(word)
            found += [word[at : at + 2] for at in range(len(word) - 1)]
        elif (stem := stems[word]) is not None:
            found.append(stem)
    return found[:most]


def _folded(text: str, characters: int) -> str:
    """The compatibility form of a text's beginning, without case; of one that grows by it, eighteenfold at most, half."""
    text, grown = text[:characters], 0
    if text.isascii():
        return text.casefold()
    text = stream_safe(text)
    for end in range(_PIECE, len(text), _PIECE):
        # Decomposing takes a sixth of the time that composing again does, and of what people write makes three or four of one.
        grown += len(unicodedata.normalize("NFKD", text[end - _PIECE : end]))
        if grown > 4 * characters:
            text = text[: end // 4]
            break
    return unicodedata.normalize("NFKC", text)[:characters].casefold()


def _stem(word: str) -> str | None:
    word = re.split("['\u2019]", word)[0]
    if not word or word in FUNCTION_WORDS:
        return None
    if word in MONTHS:
        return MONTHS[word]
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c)) or word
    return _without_ending(plain) if plain.isascii() and plain.isalpha() else plain


def _without_ending(word: str) -> str:
    """A light English stem: plural, past and progressive endings, and a final e or y, made alike."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2 and any(vowel in stem for vowel in "aeiouy"):
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if len(word) > 2 and word.endswith("y") else word
