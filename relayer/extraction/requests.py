"""Sentences that ask for something, in fifteen languages: to be kept, to be done, or, without a question mark, to be answered.

What one asks to remember is kept (`asks_to_remember`), and so is what tells a secret that `relayer.wire.redaction` took out
(`names_removed_secret`): who tells a password wants it to be known that there is one. `is_errand` and `is_unmarked_question` decide
nothing alone: `relayer.extraction.statements` drops such a sentence unless its classifier is certain that it is worth keeping,
because a statement may have the same words. `is_one_off` keeps requests for one text out of every prompt. The words are in ``data/remember.toml`` and ``data/errands.toml``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from relayer.extraction.words import has_words, is_question, read_data, split_sentences
from relayer.lib.n_grams import UNSPACED
from relayer.wire.redaction import removed_kinds

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
    plain = _without_accents(sentence.casefold())
    return any(errand.search(plain) and not always.search(plain) for errand, always, _ in _errands())


def is_errand_with_text(line: str) -> bool:
    """Return whether a line that ends with a colon asks to translate, correct, sum up or answer the text below it.

    Example:
        >>> is_errand_with_text("Translate this:"), is_errand_with_text("Always answer in two parts:")
        (True, False)
    """
    plain = _without_accents(line.casefold())
    return any(texts.search(plain) and not always.search(plain) for _, always, texts in _errands())


# Accents on letters, and on the alif of Arabic.
_ACCENT: Final = re.compile("[\u0300-\u036f\u0653-\u0655]")


def _without_accents(text: str) -> str:
    """Return a text, or a pattern, without accents, which people leave out in a hurry."""
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text)))


def _errand_words() -> Iterator[dict[str, str]]:
    for words in read_data("errands.toml").values():
        yield {name: _without_accents(pattern) for name, pattern in words.items()}


@cache
def _errands() -> tuple[tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (
            re.compile(f"(?:{words['wants']})(?:{words['acts']})"),
            re.compile(words["always"]),
            re.compile(words["texts"]),
        )
        for words in _errand_words()
    )


# "Remember to" and "don't forget to" are followed by an errand, "remember when" and "remember me" by no statement.
_NO_STATEMENT: Final = re.compile(r"\s*(?:to|when|how|me)\b", re.IGNORECASE)
_FEWEST_WORDS: Final = 2
_FEWEST_DENSE_CHARACTERS: Final = 4


def _any_of(phrases: Iterable[str]) -> str:
    # A longer phrase is tried before a shorter one that it begins with.
    ordered = sorted(
        {phrase.strip() for part in phrases for phrase in part.split(",")}, key=len, reverse=True
    )
    return "|".join(map(re.escape, ordered))


def _polite() -> str:
    """Return a pattern of polite words at the beginning of a request."""
    please = _any_of(read_data("remember.toml")["please"].values())
    return rf"(?:(?:{please})(?![^\W\d_])[\s,，]*|(?:请|請|麻烦|拜托|帮我)+)*"  # noqa: RUF001 - a comma of Chinese


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    data = read_data("remember.toml")
    polite = _polite()
    spaced = _any_of(words for lang, words in data["begins"].items() if lang not in {"zh", "ja"})
    dense = _any_of(words for lang, words in data["begins"].items() if lang in {"zh", "ja"})
    begins = rf"\s*{polite}(?:(?:{spaced})(?![\w\u0900-\u0963])|(?:{dense}))"
    ends = rf"(?:{_any_of(data['ends'].values())})[\s.!。！]*$"  # noqa: RUF001 - marks of Chinese and Japanese
    return re.compile(begins, re.IGNORECASE), re.compile(ends, re.IGNORECASE)


def asks_to_remember(sentence: str) -> bool:
    """Return whether a sentence asks to remember something that it says.

    Example:
        >>> asks_to_remember("please remember that my sister lives in Lyon"), asks_to_remember("remember me?")
        (True, False)
    """
    if is_question(sentence):
        return False
    sentence = sentence.replace("\u2019", "'")
    begins, ends = _patterns()
    if begun := begins.match(sentence):
        rest = sentence[begun.end() :]
        return not _NO_STATEMENT.match(rest) and _says_something(rest)
    ended = ends.search(sentence[-40:])
    return ended is not None and _says_something(sentence[: -len(ended.group())])


def names_removed_secret(sentence: str) -> bool:
    """Return whether a sentence, which is no question, tells a secret that was removed from it."""
    return bool(removed_kinds(sentence)) and not is_question(sentence)


def _says_something(text: str) -> bool:
    fewest = _FEWEST_DENSE_CHARACTERS if UNSPACED.search(text) else 0
    return len(text.strip()) >= fewest and (bool(fewest) or len(text.split()) >= _FEWEST_WORDS)


# What ends the part of a request that says what is to be done.
_PART_ENDS: Final = re.compile("[:,\u3001\u060c]")


def is_one_off(text: str) -> bool:
    """Return whether a text asks for one thing to be written, changed or found, which is no rule for later responses.

    What follows a colon is the text to work on, whatever it says.

    Example:
        >>> is_one_off("Translate into Spanish: please answer in English only"), is_one_off("Answer in English only")
        (True, False)
    """
    for start, end in split_sentences(text):
        ordered = orders_text(text[start:end])
        if not ordered and not is_errand(text[start:end]):
            return False
        if ordered and ":" in unicodedata.normalize("NFKC", text[start:end]):
            return True
    return has_words(text)


@cache
def _stays(name: str) -> re.Pattern[str]:
    # Of all languages: of a few words, the language is often guessed wrong.
    return re.compile("|".join(read_data("stays.toml")[name].values()))


def is_for_today(text: str) -> bool:
    """Return whether a text says of what it asks for that it holds for this day, so that it is no rule for later ones.

    Example:
        >>> is_for_today("keep answers short today"), is_for_today("from today on, keep answers short")
        (True, False)
    """
    return _stays("today").search(text.casefold()) is not None


# More words, or letters where words are not separated, say more than that something stays as it is.
_MOST_WORDS_UNCHANGED: Final = 6
_MOST_LETTERS_UNCHANGED: Final = 12
_MARKS: Final = " \t\n.,;:!…。，、；！～"  # noqa: RUF001 - full-width marks are the point


def says_unchanged(clause: str) -> bool:
    """Return whether a short clause says that something stays as it is, and nothing else.

    Example:
        >>> [says_unchanged(text) for text in ("same time", "flute stays", "same time but on Mondays", "same at 5")]
        [True, True, False, False]
    """
    plain = clause.casefold().strip(_MARKS)
    if UNSPACED.search(plain):
        is_long = len(plain) > _MOST_LETTERS_UNCHANGED
    else:
        is_long = len(plain.split()) > _MOST_WORDS_UNCHANGED
    found = None if is_long or any(map(str.isdigit, plain)) else _stays("unchanged").search(plain)
    if found is None:
        return False
    # "Not the same", "stays with us now".
    rest = f"{plain[: found.start()]} {plain[found.end() :]}"
    return not (_stays("but").search(rest) or _stays("now").search(found[0]))


def orders_text(sentence: str) -> bool:
    """Return whether a sentence asks for one text to be written or changed.

    Example:
        >>> orders_text("ecris un conte."), orders_text("I am writing a story.")
        (True, False)
    """
    plain = _without_accents(sentence.casefold()).replace("\u2019", "'")
    for order, always in _orders():
        if found := order.match(plain):
            # "A poem, always in rhymes" is one poem, "a summary at the end of every reply" is a rule.
            rest = "" if found.group().endswith(":") else plain[found.end() :]
            if not always.search(found.group() + _PART_ENDS.split(rest, maxsplit=1)[0]):
                return True
    return False


@cache
def _orders() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    polite = _polite()
    return tuple(
        (re.compile(rf"\W*{polite}(?:{words['orders']})", re.IGNORECASE), re.compile(words["always"]))
        for words in _errand_words()
    )
