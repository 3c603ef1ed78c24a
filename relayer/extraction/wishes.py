"""Wishes not to be reminded: "please don't mention her", "never bring up the accident again".

`is_wish` recognises one in fifteen languages, by words in ``data/wishes.toml``: a verb of speaking or reminding, in a form in which
people ask for something, together with a negation, and without words of other sentences ("he never mentions his father"). "Forget
what I said about it" is one, too. Accents may be missing, as in "nunca mas". A wish
that others are not told ("don't mention the party to Alice", "not in the newsletter") is none: who says it wants to be told.
One that says when to speak of it ("unless I bring it up") is a wish without that clause, and one that says why ("because it
hurts") is a wish without the reason.
`subject_of` returns the words of the person, the thing or the event that it is about. ``python -m bench.wishes`` counts how
many wishes are recognised, and how many other sentences are taken for one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, pairwise

from relayer.extraction.words import function_words, read_data, split_sentences, without
from relayer.lib.n_grams import UNSPACED
from relayer.lib.times import time_names
from relayer.wire.accents import without_accents
from relayer.wire.fields import stream_safe

LONGEST = 200
"""The maximum length of a wish in characters; a longer sentence says other things as well."""
MOST_WORDS = 4
"""The maximum number of words by which a wish says what it is about."""
# A text of more lines is a document and says no wish. Of one line the first sentences are read, because an event loop waits.
_MOST_SENTENCES = 12
# The number of words on either side of a verb of talking among which "about" is looked for; of words after "to", people.
_NEAR_TALK, _NEAR = 5, 3
# Vowel signs of Devanagari belong to a word, but are no letters.
_LETTER = r"[\w\u0900-\u0963]"
_WORD = re.compile(rf"(?=[^\W\d_]){_LETTER}+")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_CLAUSE_END = re.compile("[,;:!?()\uff0c\uff1b\u060c]")
# Quoted words are those of another person or of a text.
_QUOTED = re.compile('["\u201c\u201e\u00ab\u300c]')
_PARTS_OF_TEXTS = frozenset({"zh", "ja"})
# The verb ends a wish in these languages.
_VERB_LAST = frozenset({"tr", "hi", "ko", "ja"})
# Words of ``data/continuations.toml`` that also join nouns.
_AND = frozenset({"and", "or", "und", "et", "e", "en", "i", "и", "а", "و"})  # noqa: RUF001
# The fewest characters of a phrase that ends with a star.
_SHORTEST_BEGINNING = 4
# One character of Chinese or Japanese is a word of its own; kana is a part of one.
_ONE_CHARACTER = re.compile(r"(?![\u3040-\u30ff])" + UNSPACED.pattern)
_NUMBERED_MONTH = r"(?:1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])[月월](?:\d{1,2}[日号일])?(?:份|에)?"
# What Korean and Arabic write together with a noun: particles after it, and the article and prepositions before it.
_JOINED = re.compile(
    "(?<=[\uac00-\ud7a3]{2})(?:\uc774\ub791|\ub791|\ud558\uace0|\uacfc|\uc640|\uc740|\ub294|\uc774|\uac00|\uc744|\ub97c|\uc758|\uc5d0|\ub3c4|\ud55c)$"
    "|^(?:[\u0648\u0641]?[\u0628\u0643]?\u0627\u0644|\u0644\u0644)(?=[\u0621-\u064a]{3})"
)


@cache
def _lists() -> dict[str, dict[str, list[str]]]:
    """Return the phrases of ``data/wishes.toml`` by list and language, casefolded."""
    return {
        name: {
            lang: [" ".join(phrase.casefold().split()) for phrase in listing.split(",") if phrase.strip()]
            for lang, listing in by_language.items()
        }
        for name, by_language in read_data("wishes.toml").items()
    }


@cache
def _first_words() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the languages by the first word of a phrase of speaking or reminding; in the second mapping, by its beginning."""
    words: defaultdict[str, set[str]] = defaultdict(set)
    beginnings: defaultdict[str, set[str]] = defaultdict(set)
    listed = _lists()
    for lang, phrases in listed["about"].items():
        verbs = (*phrases, *listed["talk"].get(lang, ()), *listed["forget"][lang])
        for phrase in verbs if lang not in _PARTS_OF_TEXTS else ():
            first = _bare(phrase.split()[0])
            (beginnings if first.endswith("*") else words)[first.rstrip("*")].add(lang)
    return words, beginnings


@cache
def _pattern(name: str, lang: str) -> re.Pattern[str]:
    """Return a pattern that matches any phrase of a list; a list need not have every language."""
    if lang not in _lists()[name]:
        return re.compile("(?!)")
    # A longer phrase is found before a shorter one that it begins with.
    phrases = set(map(_bare, _lists()[name][lang]))
    ordered = map(re.escape, sorted(phrases, key=lambda phrase: (-len(phrase), phrase)))
    any_of = "|".join(one.replace(r"\ ", r",?\s+").replace(r"\*", f"{_LETTER}*") for one in ordered)
    if lang in _PARTS_OF_TEXTS:
        return re.compile(any_of, re.IGNORECASE)
    return re.compile(rf"(?<!{_LETTER})(?:{any_of})(?:(?<=')|(?!{_LETTER}))", re.IGNORECASE)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", stream_safe(text)).replace("\u2019", "'")


# Arabic letters that many write instead of others, as the plain alef for all of them.
_PLAIN = str.maketrans("\u0622\u0623\u0625\u0649\u0629", "\u0627\u0627\u0627\u064a\u0647")


def _bare(text: str) -> str:
    """Return a folded text without the accents of Latin letters, which people leave out; each character stays one.

    A letter that is a word keeps its accent: in Portuguese "\u00e0" is "to", and "a" is "the".
    """
    return (
        text
        if text.isascii()
        else _LETTERS.sub(lambda word: without_accents(word[0]).translate(_PLAIN), text)
    )


def is_wish(sentence: str) -> bool:
    """Return whether a sentence is a wish not to be reminded of a person, a thing or an event.

    Example:
        >>> is_wish("please dont mention her"), is_wish("he never mentions his father")
        (True, False)
    """
    return bool(_languages(sentence))


def is_forgetting(sentence: str) -> bool:
    """Return whether a wish is to forget what was said about something."""
    folded = _bare(_folded(sentence))
    return any(_forgets(folded, lang) for lang in _languages(sentence))


def _languages(sentence: str) -> list[str]:
    """Return the languages in which a sentence is such a wish."""
    if len(sentence) > LONGEST or _QUOTED.search(sentence):
        return []
    whole = _bare(_folded(sentence))
    candidates = sorted(_candidates(whole))
    folded = _without_exceptions(whole, candidates)
    if folded == whole and _is_courtesy(whole):
        return []
    unwanted = [lang for lang in candidates if _is_unwanted(folded, lang)]
    # Similar languages share words: the listener may be found in one of them only.
    if any(_to_others(folded, lang) for lang in unwanted):
        unwanted = []
    return [lang for lang in candidates if lang in unwanted or _forgets(folded, lang)]


def _without_exceptions(folded: str, languages: Iterable[str]) -> str:
    """Return a sentence with blanks for what says when the speaker may be reminded, such as "unless I bring it up"."""
    bare = _bare(folded)
    for lang in languages:
        for match in _pattern("except", lang).finditer(bare):
            end = match.end()
            if lang in _lists()["asks"]:
                after = _CLAUSE_END.split(bare[end:])[0]
                end += len(after)
                if not _found("asks", lang, after):
                    continue
            folded = without(folded, [(match.start(), end)])
    return folded


def _is_courtesy(folded: str) -> bool:
    """Return whether a sentence is an answer to thanks: "don't mention it, happy to help", but not "don't mention it again"."""
    said = _pattern("courtesy", "en").match(folded)
    return said is not None and not _CLAUSE_END.split(folded[said.end() :])[0].strip(" .\n")


def _forgets(folded: str, lang: str) -> bool:
    """Return whether a sentence says to forget what was said, which is no such thing after "don't"."""
    found = _pattern("forget", lang).search(folded)
    if found is None or _found("forgot", lang, folded):
        return False
    return not _found("not", lang, _CLAUSE_END.split(folded[: found.start()])[-1])


def _is_unwanted(folded: str, lang: str) -> bool:
    """Return whether a sentence says that something is not to be mentioned."""
    # Where the verb ends a wish, what comes after its "not" tells a statement from it.
    said = folded if lang in _VERB_LAST else _without_reasons(folded, [lang])
    return bool(
        (_pattern("about", lang).search(folded) or _talks_of(folded, lang))
        and _pattern("not", lang).search(folded)
        and not _pattern("unless", lang).search(said)
        and not _has_subject(folded, lang)
    )


def _has_subject(folded: str, lang: str) -> bool:
    """Return whether a subject is before a verb in a form that asks only without one: "ele n\u00e3o fala do pai"."""
    before = (
        _CLAUSE_END.split(folded[: match.start()])[-1]
        for match in _pattern("third_person", lang).finditer(folded)
    )
    return any(_continuations(lang).search(part) or _content(part, [lang]) for part in before)


def _to_others(folded: str, lang: str) -> bool:
    """Return whether something is not to be said to other people, or in a place: the speaker wants to be told of it as before."""
    # Of "don't mention Rex, it is hard for her" only the part with the verb tells who listens.
    return any(
        _has_listener(clause, lang)
        for clause in _CLAUSE_END.split(folded)
        if _found("about", lang, clause) or _found("talk", lang, clause)
    )


def _has_listener(clause: str, lang: str) -> bool:
    """Return whether a part of a sentence says to which other people, or where, something is said, and not to the speaker."""
    if _found("speaker", lang, clause):
        return False
    if _has_place(clause, lang):
        return True
    clause = _pattern("no_listener", lang).sub(" ", clause)
    if _found("listener", lang, clause):
        return True
    for name in ("before_listener", "before_people"):
        for match in _pattern(name, lang).finditer(clause):
            after = clause[match.end() :].lstrip()
            if name == "before_listener" and after[:1].isupper():
                return True
            # "To my kids" belongs together; "to" and what is after "of" do not.
            near = _pattern("of", lang).split(after)[0].split()[:_NEAR]
            if _found("people", lang, " ".join(near)):
                return True
    return False


def _has_place(clause: str, lang: str) -> bool:
    """Return whether a part of a sentence says where something is said or written, such as "in the newsletter"."""
    if lang not in _lists()["before_place"]:
        return _found("place", lang, clause)
    starts = (match.end() for match in _pattern("before_place", lang).finditer(clause))
    return any(_found("place", lang, " ".join(clause[start:].split()[:_NEAR])) for start in starts)


def _found(name: str, lang: str, folded: str) -> bool:
    """Return whether a text has any phrase of a list."""
    return _pattern(name, lang).search(folded) is not None


def _talks_of(folded: str, lang: str) -> bool:
    """Return whether a sentence has a verb of talking and next to it "about" or "of": people also talk to each other, or plainly."""
    for talk in _pattern("talk", lang).finditer(folded):
        before, after = folded[: talk.start()].split()[-_NEAR:], folded[talk.end() :].split()[:_NEAR_TALK]
        if any(_pattern("of", lang).search(" ".join(part)) for part in (before, after)):
            return True
    return False


def _candidates(folded: str) -> set[str]:
    """Return the languages in which a sentence may be a wish: looking words up takes a tenth of the time of the patterns."""
    words, beginnings = _first_words()
    found = set(_PARTS_OF_TEXTS) if UNSPACED.search(folded) else set()
    for word in _WORD.findall(folded.casefold()):
        found |= words.get(word, set())
        for end in range(_SHORTEST_BEGINNING, len(word) + 1):
            found |= beginnings.get(word[:end], set())
    return found


def subject_of(wish: str, before: str = "") -> tuple[str, ...]:
    """Return the words, casefolded, of what a wish is about; of the sentence before it if the wish names nothing itself.

    Names stand for themselves, unless the wish is about something of theirs ("Emil's accident"): then name and noun are one
    phrase, see `relayer.search.terms.names_any`. So are other words, which are too common alone ("the father of the baby").

    Args:
        wish: the sentence, see `is_wish`.
        before: what the same person said just before; names in it go before other words.

    Example:
        >>> subject_of("please dont mention her", "Leyla and me broke up.")
        ('leyla',)
        >>> subject_of("please never mention Emil's accident again")
        ('emil accident',)
    """
    languages = _languages(wish)
    wish = _without_reasons(_without_exceptions(_folded(wish), languages), languages)
    words = _named(_without_times(wish, languages), languages) or _named(wish, languages)
    names = [word for word in words if word[0] != word[0].lower()]
    if not words:
        words, names = _named_before((wish, _folded(before[-LONGEST:])), languages)
    if "de" in languages and len(names) > 1:
        # In German every noun is written like a name.
        names, words = [], names
    apposed = [(word,) for word in _apposed(wish, languages)]
    if not names and not any(map(UNSPACED.match, words)):
        # "The story of matteo" means all that is known of him.
        words = [word for word in words if not _is_all_of(word, languages)] or words
        whole = [words[:MOST_WORDS]] if words else []
        return tuple(map(_phrase, (*whole, *apposed)))
    owned = _owned(wish, names, words, languages)
    of_owners = frozenset(chain.from_iterable(owned))
    alone = [(word,) for word in names or words if word not in of_owners]
    return tuple(dict.fromkeys(map(_phrase, (*owned, *alone, *apposed))))[:MOST_WORDS]


def _named_before(texts: Sequence[str], languages: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of what "it" in a wish is, and the names among them; a person is a name, too.

    The first text that names someone goes before one that does not, and other words before months and weekdays.
    """
    for candidates in ([_without_times(text, languages) for text in texts], texts):
        found = []
        for words in (_content(text, languages) for text in candidates):
            names = [word for word in words if word[0] != word[0].lower()]
            if "de" in languages or not names:
                names = [word for word in words if _is_person(word, languages)] or names
            found.append((words, names))
        if named := [one for one in found if one[1]] or [one for one in found if one[0]]:
            return named[0]
    return [], []


def _is_all_of(word: str, languages: Iterable[str]) -> bool:
    """Return whether a word next to another means all that is known of it: "story", "memories"."""
    return any(_is_listed("all_of_name", lang, word) for lang in languages) and not _is_person(
        word, languages
    )


def _is_listed(name: str, lang: str, word: str) -> bool:
    return _pattern(name, lang).fullmatch(_bare(word)) is not None


def _is_person(word: str, languages: Iterable[str]) -> bool:
    """Return whether a word is one for a person: "mum", "ex"."""
    folded = word.casefold()
    return any(
        _persons(lang).fullmatch(folded) is not None or _is_listed("before_name", lang, folded)
        for lang in languages
    )


@cache
def _persons(lang: str) -> re.Pattern[str]:
    # Where words are not separated, or end with particles, a person is a part of one.
    around = r"\w*" if lang in {*_PARTS_OF_TEXTS, "ko"} else ""
    return re.compile(rf"{around}(?:{read_data('persons.toml')['named'][lang]}){around}")


def _apposed(wish: str, languages: Sequence[str]) -> list[str]:
    """Return words that stand alone between commas after a word for a person: the name in "my ex, Nadia, ever again"."""
    parts = [part.strip(" .\n") for part in _CLAUSE_END.split(wish)]
    return [
        after.casefold()
        for part, after in pairwise(parts)
        if _content(after, languages) == [after]
        and any(_is_person(word, languages) for word in _content(part, languages)[-1:])
    ]


def _without_reasons(folded: str, languages: Iterable[str]) -> str:
    """Return a wish with blanks for what its part with the verb goes on with, such as "because it hurts"."""
    for lang in languages:
        for start, end in _parts(folded, [lang]):
            cut = start + _reason_start(folded[start:end], lang)
            folded = without(folded, [(cut, end)])
    return folded


def _reason_start(part: str, lang: str) -> int:
    """Return where the part of a wish with the verb has said what it is about; its length if nothing comes after that."""
    bare = _bare(part)
    verbs = _verbs(bare, [lang])
    if lang in _VERB_LAST:
        ends = (match.end() for match in _pattern("not", lang).finditer(bare, verbs[0][0]))
        starts: Iterable[int] = [next(ends, max(end for _, end in verbs))]
    elif lang in _PARTS_OF_TEXTS:
        starts = (match.start() for match in re.compile(r"\s").finditer(bare, verbs[0][1]))
    else:
        # After "of", "that" is an article or whose something is.
        starts = (
            match.start()
            for match in _continuations(lang).finditer(bare, verbs[0][1])
            if not (before := bare[: match.start()].split())
            or not (before[-1] in _AND or _pattern("of", lang).fullmatch(before[-1]))
        )
    return next((start for start in starts if _content(part[:start], [lang])), len(part))


@cache
def _continuations(lang: str) -> re.Pattern[str]:
    """Return a pattern of words with which another clause begins, such as "because" and "she"."""
    listed = read_data("continuations.toml")[lang].split(", ")
    any_of = "|".join(re.escape(_bare(phrase)) for phrase in listed if phrase not in _AND)
    return re.compile(rf"(?<!{_LETTER})(?:{any_of})(?!{_LETTER})", re.IGNORECASE)


def _without_times(folded: str, languages: Iterable[str]) -> str:
    """Return a text without names of months and weekdays, which say when something was: "we lost the baby in March"."""
    for lang in languages:
        folded = _times(lang).sub(" ", folded)
    return folded


@cache
def _times(lang: str) -> re.Pattern[str]:
    """Return a pattern of months and weekdays, from the names that the search reads."""
    names = time_names()[lang]
    past = (
        names[time]
        for time in ("yesterday", "day_before", "last_week", "last_month", "last_year")
        if time in names
    )
    weekdays = "|".join(chain(names["weekdays"], map(re.escape, chain.from_iterable(past))))
    if "months" not in names:
        return re.compile(rf"(?:{weekdays})[日날]?에?|{_NUMBERED_MONTH}")
    months = "|".join(map(re.escape, " ".join(names["months"]).split()))
    if lang in _lists()["before_month"]:
        before = "|".join(map(re.escape, _lists()["before_month"][lang]))
        months = rf"(?:{before}|\d{{1,2}}(?:\.|st|nd|rd|th)?(?:\s+of)?)\s+(?:{months})|(?:{months})\s+\d+"
    # Where months and weekdays are written small, one with a capital letter is a person: Polish "Maja".
    small = lang not in {*_lists()["before_month"], "tr"}
    return re.compile(rf"(?<!{_LETTER})(?:{weekdays}|{months})(?!{_LETTER})", 0 if small else re.IGNORECASE)


def _phrase(words: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(word.casefold() for word in words))


def _owned(
    wish: str, names: Sequence[str], words: Sequence[str], languages: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the words of each noun in a wish together with those of the name that it belongs to."""
    nouns = [word for word in words if word not in names]
    found: list[tuple[str, ...]] = []
    for lang in languages:
        # Names have no form of their own in Chinese and Japanese.
        name, noun = (_run_of(words if lang in _PARTS_OF_TEXTS else kind) for kind in (names, nouns))
        for pattern in (
            *(rf"({noun})\s+{link}\s*({name})" for link in _links("of_name", lang)),
            *(rf"({name}){link}\s*({noun})" for link in _links("name_of", lang)),
        ):
            for match in re.finditer(pattern, _folded(wish)):
                parts = tuple(" ".join(match.groups()).split())
                if not any(_is_listed("all_of_name", lang, word) for word in parts):
                    found.append(parts)
    return found


def _run_of(words: Iterable[str]) -> str:
    """Return a pattern of one or more of these words; without words, of nothing that a text has."""
    alone = "|".join(map(re.escape, sorted(set(words), key=len, reverse=True))) or r"(?!)"
    # Scripts without spaces have no ends of words.
    start, end = ("", "") if UNSPACED.search(alone) else (rf"(?<!{_LETTER})", rf"(?!{_LETTER})")
    return rf"{start}(?:{alone}){end}(?:\s+(?:{alone}){end})*"


def _links(name: str, lang: str) -> list[str]:
    """Return patterns of what joins a noun and a name; a dash in the list is nothing."""
    return [re.escape(link).removeprefix(r"\-") for link in _lists()[name].get(lang, ())]


def wish_in(text: str, before: str = "") -> tuple[str, ...]:
    """Return the words of what the wishes in a text are about, see `subject_of`; empty if there are none.

    ``before`` is what the same person said before the text.
    """
    text = text[: 3 * LONGEST]
    if text.count("\n") > _MOST_SENTENCES:
        return ()
    sentences = [text[slice(*span)] for span in split_sentences(text)[:_MOST_SENTENCES]]
    found = (
        subject_of(sentence, before)
        for before, sentence in pairwise([before, *sentences])
        if is_wish(sentence)
    )
    return tuple(dict.fromkeys(chain.from_iterable(found)))[:MOST_WORDS]


def _named(wish: str, languages: list[str]) -> list[str]:
    """Return the words of the parts of a wish with its verbs."""
    parts = _parts(wish, languages)
    words = [word for part in parts for word in _content(wish[slice(*part)], languages)]
    if any(word[0] != word[0].lower() for word in words) and "de" not in languages:
        # Of several names the others are behind commas.
        rest = wish[max(end for _, end in parts) :]
        words += [word for word in _content(rest, languages) if word[0] != word[0].lower()]
    return list(dict.fromkeys(words))


def _parts(folded: str, languages: Iterable[str]) -> list[tuple[int, int]]:
    """Return the starts and ends of the parts of a sentence, between commas, that have a verb of speaking or reminding."""
    ends = [(0, 0), *(match.span() for match in _CLAUSE_END.finditer(folded)), (len(folded), len(folded))]
    parts = [
        (max(last for _, last in ends if last <= start), min(first for first, _ in ends if first >= end))
        for start, end in _verbs(_bare(folded), languages)
    ]
    return list(dict.fromkeys(parts))


def _verbs(bare: str, languages: Iterable[str]) -> list[tuple[int, int]]:
    """Return the starts and ends of the verbs of speaking or reminding, in order."""
    return sorted(
        match.span()
        for lang in languages
        for name in ("forget", "about", "talk")
        for match in _pattern(name, lang).finditer(bare)
    )


def _content(text: str, languages: Sequence[str]) -> list[str]:
    """Return the words of a text that are in no list of these languages, as they are written."""
    text = _folded(text)
    small = frozenset(map(_bare, chain.from_iterable(map(function_words, languages))))
    whole: list[str] = []
    left = text
    for lang in languages:
        whole += _pattern("whole", lang).findall(left)
        for name in ("whole", "forget", "about", "talk", "not", "of", "speaker", "other"):
            if lang in _lists()[name]:  # `_bare` takes longer than all else here
                left = without(left, (match.span() for match in _pattern(name, lang).finditer(_bare(left))))
    words = [_JOINED.sub("", word) for word in _WORD.findall(left)]
    words = [
        word
        for word in words
        if _bare(word.casefold()) not in small
        and (len(word) > 1 or _ONE_CHARACTER.match(word))
        and not any(_continuations(lang).fullmatch(_bare(word)) for lang in languages)
    ]
    # A word that says who a person is, right before the name, as in "my ex tom", is left out.
    return whole + [
        word
        for word, after in pairwise([*words, ""])
        if not after
        or not any(_found("before_name", lang, _bare(word)) for lang in languages)
        or not re.search(rf"(?<!{_LETTER}){re.escape(word)}[\s-]+{re.escape(after)}", text)
    ]
