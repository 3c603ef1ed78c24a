"""A guess at a text's language, good enough to know when English rules must not judge it.

By script where the script decides, by function words among the languages in Latin script. A wrong guess costs little
by design: whatever is not clearly English is kept rather than judged.
"""

from __future__ import annotations

from collections import Counter

from relayer.extraction.words import Word, read_data, word_set, words_of

UNDETERMINED = "und"

# In this order: of two languages with as many words of a text, the first is taken.
_FUNCTION_WORDS = {name: word_set(listing) for name, listing in read_data("function_words.toml").items()}

_SCRIPTS: tuple[tuple[int, int, str], ...] = (
    (0x0370, 0x03FF, "el"),
    (0x0400, 0x052F, "ru"),
    (0x0590, 0x05FF, "he"),
    (0x0600, 0x06FF, "ar"),
    (0x0900, 0x097F, "hi"),
    (0x0E00, 0x0E7F, "th"),
    (0x3040, 0x30FF, "ja"),
    (0x3400, 0x9FFF, "zh"),
    (0xAC00, 0xD7AF, "ko"),
)
_DENSE_SCRIPTS = frozenset({"zh", "ja", "ko"})
_LETTERS_READ = 2000
_WORDS_READ = 400


def guess_language(text: str, words: list[Word] | None = None) -> str:
    """Return an ISO 639-1 code, or `UNDETERMINED`; reads the first two thousand characters at most.

    A script stands for its most spoken language: Cyrillic is ``ru``, Arabic ``ar``. ``words`` are the words of
    ``text`` when the caller has them already.
    """
    by_script = _script_language(text[:_LETTERS_READ])
    if by_script is not None:
        return by_script
    read = words_of(text[: _LETTERS_READ * 2]) if words is None else words
    sample = [word.lower for word in read[:_WORDS_READ]]
    scores = Counter({name: sum(map(known.__contains__, sample)) for name, known in _FUNCTION_WORDS.items()})
    (best, hits), (_, runner_up) = scores.most_common(2)
    if not hits or (hits == runner_up and best == "en") or (hits == 1 and best != "en"):
        return UNDETERMINED
    return best


def function_words(lang: str) -> frozenset[str]:
    """Return the words that hold sentences of a language together; of most languages, nothing."""
    return _FUNCTION_WORDS.get(lang, frozenset())


def _script_language(text: str) -> str | None:
    """Return the language of the script that most letters belong to; None for Latin or no letters."""
    if text.isascii():
        return None
    counts: Counter[str] = Counter()
    latin = 0
    for char in text:
        code = ord(char)
        if code < 0x0370:
            latin += char.isalpha()
            continue
        name = next((name for low, high, name in _SCRIPTS if low <= code <= high), None)
        if name is not None:
            # A Han character or a syllable block says about as much as three Latin letters.
            counts[name] += 3 if name in _DENSE_SCRIPTS else 1
    # Japanese is written with Han characters too; kana decide.
    if counts["ja"]:
        counts["ja"] += counts.pop("zh", 0)
    if not counts or max(counts.values()) <= latin:
        return None
    return counts.most_common(1)[0][0]
