"""The ``statements`` extractor: keeps the statements of a turn that last, without a language model.

Each statement is a memory of its own, with its place in the turn; questions, requests and courtesies next to it are left out.
A sentence that refers to the one before it ("She is a nurse.") belongs to that one's statement, and so does one without a subject
after one about another person ("Is a nurse."). The extractor favours recall:
ranking can lower a trivial memory, but nothing restores a dropped one.

Fifteen languages are judged by `relayer.extraction.readings`, which also says what is not meant in earnest: hypotheses,
quotations, fiction. Turns in other languages are kept unless they only ask or only exchange courtesies. Messages of tools and the
system are never kept, nor an assistant's repetitions. A user's sentence that asks to remember something, or that told a secret, is
always kept.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from relayer.extraction import english as en
from relayer.extraction.normal_text import normal_text
from relayer.extraction.persons import is_of_person_before
from relayer.extraction.readings import BY_N_GRAMS, Readings, read_part
from relayer.extraction.requests import (
    asks_to_remember,
    is_errand,
    is_errand_with_text,
    is_unmarked_question,
    names_removed_secret,
    orders_text,
)
from relayer.extraction.wishes import is_forgetting, is_wish
from relayer.extraction.words import (
    LIST_MARK,
    UNDETERMINED,
    Phrases,
    Word,
    blank,
    clean,
    guess_language,
    has_words,
    is_question,
    mask_non_prose,
    read_data,
    read_text,
    split_sentences,
    without,
    words_of,
)
from relayer.lib.n_grams import LANGUAGES, UNREAL, UNSPACED, MessageReading
from relayer.wire.fields import Kind, Role, Trust

READ_LANGUAGES = frozenset({*LANGUAGES, UNDETERMINED})
_COURTESIES = Phrases(read_text("courtesies.txt"))
_CONTINUATIONS = {
    lang: (Phrases(words), tuple(words.split(", ")))
    for lang, words in read_data("continuations.toml").items()
}
_NO_CONTINUATIONS = (Phrases(""), ())

_DENSE_FROM = 0x2E80
_FEWEST_DENSE_CHARACTERS = 4
_FEWEST_WORDS = 2
# A sentence of fewer words is a part of what was said before: "codename pelican".
_FEWEST_ALONE = 3
# The same in scripts without spaces, in characters.
_LONGEST_DENSE_ANSWER = 5
# The beginning of a sentence tells whether it depends on the one before it.
_BEGINNING = 200
# Several of them after one another.
_LONGEST_COURTESY = 200


def is_courtesy(sentence: str) -> bool:
    """Return whether the sentence consists of known courtesies alone, in any of the listed languages."""
    if len(sentence) > _LONGEST_COURTESY:
        return False
    words = words_of(normal_text(sentence))
    return bool(words) and _COURTESIES.covers(words) == len(words)


def says_something(sentence: str) -> bool:
    """Return whether a sentence of a language without a classifier is neither a question nor next to nothing."""
    if is_question(sentence):
        return False
    # Scripts without spaces between words are counted by character; a Thai sentence is one long "word", too.
    dense = sum(ord(char) >= _DENSE_FROM and char.isalpha() for char in sentence)
    words = words_of(sentence)
    long_word = any(len(word.shape) >= 12 for word in words)
    return dense >= _FEWEST_DENSE_CHARACTERS or len(words) >= _FEWEST_WORDS or long_word


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One message of a conversation.

    Attributes:
        role: which side said it.
        text: what was said, without the host's envelopes and without injected memories.
        occurred_at_ms: when, in ms since the epoch; None when the host does not say.
        turn_id: the host's id of the message, if it has one.
        speaker: the name of who said it, if known; it is not evidence of anything but of who is addressed.
    """

    role: Role
    text: str
    occurred_at_ms: int | None = None
    turn_id: str | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that an extractor proposes.

    Attributes:
        text: a statement, verbatim but for `relayer.extraction.words.clean`; a further part of a list begins with the line that
            introduces it.
        kind: the kind of the statement.
        importance: 0..1; orders memories of one namespace, means nothing across extractors.
        lang: ISO 639 code of the text, ``und`` when the guess would be worthless.
        speaker: as given with the turn.
        role: as given with the turn.
        occurred_at_ms: as given with the turn.
        turn_ids: ids of the turns it came from; empty when the host gave none.
        evidence: start and end of the statement, without a line that was added, in characters of its turn's cleaned text.
        trust: how far the text may be believed, by who said it.
        wish: whether it has a wish of the user's not to be reminded of something.
        essential: which of `relayer.lib.n_grams.ESSENTIALS` a model took it for; empty if none read it as one text.
    """

    text: str
    kind: Kind
    importance: float
    lang: str
    speaker: str | None
    role: Role
    occurred_at_ms: int | None
    turn_ids: tuple[str, ...]
    evidence: tuple[int, int]
    trust: Trust
    wish: bool = False
    essential: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A turn that is not worth remembering, and the reason.

    Attributes:
        turn: its index in the sequence given to the extractor.
        reason: one word: ``role`` (a tool or the system said it), ``empty`` (it has no words), ``code``, ``echo``,
            ``question``, ``courtesy``, ``hedge``, ``unreal`` (a hypothesis, a quotation, fiction), ``one_off`` (a request or its
            answer that is of use once) or ``reply`` (an assistant's, which brings no result).
    """

    turn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unread:
    """The texts that an extractor would have a model read, see `Extractor.steps`."""

    texts: tuple[str, ...]


Step = Candidate | Left | Unread | None
"""A step of an extractor, see `Extractor.steps`."""


class Extractor(Protocol):
    """The interface of extractors, which choose what of a conversation is worth remembering."""

    @property
    def name(self) -> str:
        """Return the stable name, recorded with every memory that the extractor proposes."""
        ...

    @property
    def version(self) -> str:
        """Return the version, which changes whenever the same turns may give other candidates."""
        ...

    def steps(self, turns: Sequence[ConversationTurn]) -> Generator[Step, Readings | None]:
        """Process ``turns`` one after the other, in their order; yield None where nothing is decided yet.

        At most one step is `Unread`: it gets the readings of these texts if they are sent, and does without them otherwise.
        """
        ...


_BASE_IMPORTANCE: dict[Kind, float] = {
    Kind.DECISION: 0.7,
    Kind.PREFERENCE: 0.7,
    Kind.TASK: 0.55,
    Kind.FACT: 0.55,
    Kind.EVENT: 0.5,
    Kind.STATEMENT: 0.35,
}
# The logit from which a sentence is worth keeping, alone and together with its message; `bench.message_reader` measures it.
_WORTH = {Role.USER: -1.4, Role.ASSISTANT: 0.0}
# The logit that a message is not meant in earnest from which it is taken for such, if a model read it: of any, and of a request for
# a text, which is sought in the first sentences.
_UNREAL, _UNREAL_TEXT = 0.5, -1.0
_FIRST_SENTENCES = 3
# The logit from which rules may lift an English sentence of an assistant that a model read: without this they lift suggestions, too.
_LIFTED = -1.0
# The same for what is rather a courtesy, or said without meaning it much.
_LIGHT = 0.8
# The same for what looks like a user's request: short facts do so, and losing a fact is worse than keeping a request. The second
# one is for what a model read, too, which is right more often.
_REQUEST, _READ_REQUEST = -0.8, -1.3
# The same for an assistant's list that only a word or two introduce: plans and templates are such.
_BARE_LIST = 1.3
# Added to it if a model is sure that the text only asks: its words may be those of a statement.
_ONLY_ASKED = 2.0
# The same for a user's question that is marked as one: "the server is called heron, right?" is far above it.
_MARKED_QUESTION = 0.5
# A sentence is dropped below these logits, however much its message is worth.
_WORTHLESS = {Role.USER: -2.0, Role.ASSISTANT: -3.5}
# Added to the logits of an answer to a question: "Two, Max and Daisy" says much there.
_ANSWERING = 2.0
# A sentence of a long text needs more: much of such a text is no news.
_SURE = 0.7
# Longer turns give at most this many memories: a user's as many as a request may have, because a list of what is to be known may
# be long, and nothing of it may be lost.
_LONG = 2_000
_MOST_PIECES = {Role.USER: 100, Role.ASSISTANT: 20}
# The maximum length in characters of a statement of several sentences.
_LONGEST_STATEMENT = 400
# The limits of what is judged of a turn, in characters of a sentence and in sentences: all that the protocol lets through.
_LONGEST_SENTENCE = 1_000
_MOST_SENTENCES = 2_000
# The limits of what a model reads, in sentences of a turn and in texts of a call: the beginning of what most people write.
_MOST_READ_OF_TURN = 32
_MOST_READ = 400
# The number of sentences between two steps, after each of which the caller checks its time.
_SENTENCES_A_STEP = 2
# An assistant's sentence that repeats this share of what was said shortly before is an echo.
_ECHOED = 0.6
_REMEMBERED_TURNS = 4
_STEM = 5
_COLONS = (":", "\uff1a")
_PAUSE = re.compile(r"\s*+[,，、،:;!–—-]\s*+(?=\w)")  # noqa: RUF001 - pauses of other scripts
# The lines of a list, a table or a quotation, also after an empty line.
_LIST = re.compile(
    rf"(?:(?:[ \t]*+\n[ \t]*+){{1,2}}+{LIST_MARK}[^\n]*+)++"
    r"|(?:[ \t]*+\n[ \t]*+){1,2}+\|[^\n]*+(?:\n[ \t]*+\|[^\n]*+)*+"
    r"|(?:[ \t]*+\n[ \t]*+){1,2}+>[^\n]*+(?:\n[ \t]*+>[^\n]*+)*+"
)
# Two items below a line, which introduces them without a colon if it is short.
_TWO_ITEMS = re.compile(rf"(?:(?:[ \t]*+\n[ \t]*+){{1,2}}+{LIST_MARK}[^\n]*+){{2}}")
_LONGEST_HEADING = 60
_MARKED = re.compile(rf"[ \t]*+{LIST_MARK}")
# The rows of a table, from its first one on, and the names of its columns if a line of dashes follows them.
_TABLE = re.compile(r"\|[^\n]*+(?:\n[ \t]*+\|[^\n]*+)*+")
_COLUMNS = re.compile(r"\s*+\|[^\n]*+(?=\n[ \t]*+\|[ \t|:]*+-[ \t|:-]*+(?:\n|$))")
_COLON_LINE = re.compile(r"^[^\n]*[:\uff1a][ \t]*+$", re.MULTILINE)
# A text between quotation marks, or with a mark on each line.
_GIVEN = re.compile(
    r"\s*+(?:[\"“”„«「『][^\n]*(?:\n[^\n]*)*?[\"“”»」』][.。]?+[ \t]*+(?=\n|\Z)|>[^\n]*+(?:\n[ \t]*+>[^\n]*+)*+)"
)
_QUOTED = re.compile(r"(?:^[ \t]*+>[^\n]*+\n?+)++", re.MULTILINE)
# The beginning of a line, and a text in quotation marks behind it that it may ask to work on: "can you summarise this: '...'".
_GIVEN_BEHIND = re.compile(
    rf"^(?P<asked>[^\n:\uff1a]{{2,{_BEGINNING}}}[:\uff1a])[ \t]*"
    r"(?P<text>[\"'\u2018\u201c\u201e\u00ab\u300c\u300e][^\n]+?[\"'\u2019\u201c\u201d\u00bb\u300d\u300f](?!\w))",
    re.MULTILINE,
)
# What a line that is no item of a list ends with: a sentence's end, or a colon.
_ENDED = (".", "!", "?", "…", "。", "！", "？", "؟", "۔", "।", *_COLONS)  # noqa: RUF001 - marks of other scripts
# The logit from which it is certain that a sentence is worth keeping.
_CERTAIN = 6.0
_PARAGRAPH_END = re.compile(r"\n[ \t]*+\n")
# The classes of sentences that are not kept with a statement that they are next to.
_APART = frozenset({"question", "courtesy", "one_off"})


@dataclass(frozen=True, slots=True)
class _Hit:
    """A sentence with its logit: it is a statement by itself, or (``joins``) may be kept with one that it is next to.

    ``says`` is whether a user says something with it and asks nothing: it may be about a person who was named before. ``leans`` is
    whether it is a few words that mean nothing without the statement before them: "done the first account, one to go". ``head``
    is the place of the line that introduces it, if it is a line or a part of a list below one.
    """

    span: tuple[int, int]
    worth: float
    passes: bool
    joins: bool = False
    says: bool = False
    leans: bool = False
    head: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Split:
    """The sentences of a turn.

    Attributes:
        text: the text of the turn.
        prose: the same without code and markup, of the same length.
        lang: its language.
        spans: where the sentences are.
        heads: the lines that introduce them, of those that are lines or parts of a list below one.
        asked: those of them that the user asks to remember.
        courteous: those of them that are courtesies.
    """

    text: str
    prose: str
    lang: str
    spans: tuple[tuple[int, int], ...]
    heads: Mapping[tuple[int, int], tuple[int, int]]
    asked: tuple[tuple[int, int], ...]
    courteous: frozenset[tuple[int, int]]

    def sentence(self, span: tuple[int, int]) -> str:
        """Return the prose of a sentence, with the line that introduces it."""
        return _with_head(self.prose, span, self.heads.get(span))

    @property
    def earnest(self) -> str:
        """The text that says whether the turn is meant in earnest: all but courtesies and what the user asks to remember."""
        return without(self.prose, (*self.asked, *self.courteous))


@dataclass(frozen=True, slots=True)
class _Before:
    """The context in which a turn is judged: whether it answers a question, pieces of earlier words, and readings."""

    answering: bool
    said: frozenset[str]
    readings: Readings


class StatementExtractor:
    """The extractor that keeps statements worth remembering; see the module for the intent."""

    @property
    def name(self) -> str:
        """Return ``statements``."""
        return "statements"

    @property
    def version(self) -> str:
        """Return the version of the rules and weights."""
        return "13"

    def extract(self, turns: Sequence[ConversationTurn]) -> list[Candidate]:
        """Return candidates, in order: one for each statement worth keeping."""
        return [found for found in self.steps(turns) if isinstance(found, Candidate)]

    def steps(self, turns: Sequence[ConversationTurn]) -> Generator[Step, Readings | None]:
        """Process one turn after the other; linear in the length of the texts, and bounded for each."""
        split: list[_Split | str] = []
        for turn in turns:
            parts = yield from _split(turn)
            split.append(parts)
        unread = islice(dict.fromkeys(_unread(split)), _MOST_READ)
        readings = (yield Unread(tuple(unread))) or BY_N_GRAMS
        fiction = False
        for index, (turn, parts) in enumerate(zip(turns, split, strict=True)):
            if turn.role is Role.USER:
                # N-grams alone take some questions for a story, and what is said in reply to these counts.
                fiction = (
                    not isinstance(parts, str)
                    and readings.message(parts.earnest, turn.role).by_model
                    and _is_unreal(parts, readings, turn.role)
                )
            if isinstance(parts, str) or (fiction and turn.role is Role.ASSISTANT):
                # A reply to what is not meant in earnest is the story that was asked for, or another one.
                yield Left(index, parts if isinstance(parts, str) else "unreal")
                continue
            answering = index > 0 and turns[index - 1].role != Role.TOOL and _asks(turns[index - 1].text)
            earlier = turns[max(0, index - _REMEMBERED_TURNS) : index] if turn.role is Role.ASSISTANT else ()
            said = frozenset[str]().union(*(_pieces(other.text[:_LONG]) for other in earlier))
            yield from _judged(turn, index, parts, _Before(answering, said, readings))


def _split(turn: ConversationTurn) -> Generator[None, object, _Split | str]:
    """Return the sentences of a turn, or the reason why there are none, in steps."""
    if turn.role in {Role.TOOL, Role.SYSTEM}:
        return "role"
    text = clean(turn.text)
    yield None
    prose = mask_non_prose(text)
    yield None
    if not has_words(prose):
        return "code" if has_words(text) else "empty"
    lang = guess_language(prose)
    yield None
    if turn.role is Role.USER:
        prose = _without_other_people(prose)
        if not has_words(prose):
            return "unreal"
    yield None
    heads: dict[tuple[int, int], tuple[int, int]] = {}
    spans: list[tuple[int, int]] = []
    for span, head in islice(_sentences(text, prose), _MOST_SENTENCES):
        spans.append(span)
        if head is not None:
            heads[span] = head
    yield None
    asked = tuple(
        span for span in spans if turn.role is Role.USER and _asks_to_remember(prose, span, heads.get(span))
    )
    yield None
    courteous = frozenset(span for span in spans if is_courtesy(prose[slice(*span)]))
    yield None
    return _Split(text, prose, lang, tuple(spans), heads, asked, courteous)


def _without_other_people(prose: str) -> str:
    """Blank what other people wrote: quoted lines, if no line says whose they are, and a text that is to be translated or answered."""
    kept: list[str] = []
    done = 0
    for quoted in _QUOTED.finditer(prose):
        kept.append(prose[done : quoted.start()])
        owned = prose[max(0, quoted.start() - _BEGINNING) : quoted.start()].rstrip().endswith(_COLONS)
        kept.append(quoted[0] if owned else blank(quoted[0]))
        done = quoted.end()
    prose = "".join([*kept, prose[done:]])
    for line in islice(_COLON_LINE.finditer(prose), _MOST_READ_OF_TURN):
        if is_errand_with_text(line[0][-_BEGINNING:]):
            below = _GIVEN.match(prose, line.end())
            end = below.end() if below else len(prose)
            text = prose[line.end() : end]
            others = (span for span in split_sentences(text) if not asks_to_remember(text[slice(*span)]))
            return prose[: line.end()] + without(text, others) + prose[end:]
    for given in islice(_GIVEN_BEHIND.finditer(prose), _MOST_READ_OF_TURN):
        if is_errand_with_text(given["asked"]):
            start, end = given.span("text")
            prose = prose[:start] + blank(prose[start:end]) + prose[end:]
    return prose


def _asks_to_remember(prose: str, span: tuple[int, int], head: tuple[int, int] | None) -> bool:
    """Return whether a sentence, or the line that introduces it, asks to remember it."""
    sentence = prose[slice(*span)]
    if asks_to_remember(sentence):
        return True
    return (
        head is not None
        and not is_question(sentence)
        and asks_to_remember(prose[slice(*head)].rstrip().rstrip("".join(_COLONS)))
    )


def _with_head(text: str, span: tuple[int, int], head: tuple[int, int] | None) -> str:
    """Return a sentence after the line that introduces it, if this is not a part of it."""
    said = text[slice(*span)]
    return said if head is None or span[0] <= head[0] else f"{text[slice(*head)]}\n{said}"


def _unread(split: Sequence[_Split | str]) -> Iterator[str]:
    """Yield what a model is to read: messages, and their first sentences."""
    for parts in split:
        if not isinstance(parts, str):
            yield read_part(parts.earnest)
            yield read_part(parts.prose)
            if parts.lang in READ_LANGUAGES:
                yield from (read_part(parts.sentence(span)) for span in parts.spans[:_MOST_READ_OF_TURN])


def _judged(
    turn: ConversationTurn, index: int, parts: _Split, before: _Before
) -> Iterator[Candidate | Left | None]:
    text, prose, lang, spans = parts.text, parts.prose, parts.lang, parts.spans
    # Of a long text the beginning and the end are read, which say nothing about the sentences between them.
    whole = before.readings.message(prose, turn.role)
    unreal = _is_unreal(parts, before.readings, turn.role)
    if unreal:
        # To forget what was said is an order about earlier chats, which reads like one in a game.
        spans = tuple(span for span in spans if span in parts.asked or is_forgetting(prose[slice(*span)]))
    hits: list[_Hit] = []
    for number, span in enumerate(spans):
        if span in parts.courteous:
            hits.append(_Hit(span, 0.0, passes=False))
        else:
            long = len(text) > _LONG
            hit = _judge(turn, parts, span, before, whole=None if long else whole.worth)
            hits.append(replace(hit, head=parts.heads.get(span)))
        if number % _SENTENCES_A_STEP == _SENTENCES_A_STEP - 1:
            yield None
    if turn.role is Role.USER:
        # All parts of a list pass if one of them does.
        lists = {hit.head for hit in hits if hit.head is not None and hit.head[0] == hit.span[0]}
        kept = lists & {hit.head for hit in hits if hit.passes}
        hits = [replace(hit, passes=hit.passes or hit.head in kept) for hit in hits]
    statements = yield from _distinct(text, _statements(text, lang, hits))
    if not statements:
        yield Left(index, "unreal" if unreal else _reason(turn, prose, spans, whole, before))
        return
    if len(text) > _LONG:
        best = sorted(statements, key=lambda hit: hit.worth, reverse=True)[: _MOST_PIECES[turn.role]]
        statements = sorted(best, key=lambda hit: hit.span)
    for number, hit in enumerate(statements):
        yield _candidate(turn, text, lang, hit, before.readings)
        if number % _SENTENCES_A_STEP == _SENTENCES_A_STEP - 1:
            yield None


def _is_unreal(parts: _Split, readings: Readings, role: Role) -> bool:
    """Return whether a message is not meant in earnest; what the user asks to remember says nothing about the rest of it."""
    reading = readings.message(parts.earnest, role)
    if not reading.by_model:
        return reading.unreal > UNREAL
    # After a request for a text, a sentence that reads like a statement belongs to that text.
    ordered = any(orders_text(parts.prose[slice(*span)]) for span in parts.spans[:_FIRST_SENTENCES])
    return reading.unreal > (_UNREAL_TEXT if ordered else _UNREAL)


def _distinct(text: str, hits: Iterable[_Hit]) -> Generator[None, None, list[_Hit]]:
    """Return the first of equal statements, in steps."""
    firsts: dict[str, _Hit] = {}
    for hit in hits:
        firsts.setdefault(normal_text(_with_head(text, hit.span, hit.head)), hit)
        yield None
    return list(firsts.values())


def _candidate(turn: ConversationTurn, text: str, lang: str, hit: _Hit, readings: Readings) -> Candidate:
    said = _with_head(text, hit.span, hit.head)
    sentences = [said[slice(*span)] for span in split_sentences(said)]
    wish = turn.role is Role.USER and any(map(is_wish, sentences))
    kind = Kind(readings.kind(said)) if lang in READ_LANGUAGES else Kind.STATEMENT
    if wish:
        # Forgetting is done once, so it is no preference; nor is it a task for later.
        kind = Kind.STATEMENT if any(map(is_forgetting, sentences)) else Kind.PREFERENCE
    return Candidate(
        text=said,
        kind=kind,
        # By how certain it is that the statement is worth keeping, between the kind's base and 0.3 above it.
        importance=round(_BASE_IMPORTANCE[kind] + 0.3 * min(max(hit.worth, 0.0), _CERTAIN) / _CERTAIN, 3),
        lang=lang,
        speaker=turn.speaker,
        role=turn.role,
        occurred_at_ms=turn.occurred_at_ms,
        turn_ids=() if turn.turn_id is None else (turn.turn_id,),
        evidence=hit.span,
        trust=Trust.USER if turn.role == Role.USER else Trust.ASSISTANT,
        wish=wish,
        essential=readings.essential(said) if turn.role is Role.USER else "",
    )


def _statements(text: str, lang: str, hits: Sequence[_Hit]) -> Iterator[_Hit]:
    """Yield the sentences that pass, each with those next to it that belong to it.

    These are a question before an answer that means nothing without it, sentences after it that refer to it ("She is a nurse.", "Is
    a nurse.") or have one word, lines below the line that introduces them, and those that do not pass, but may join.
    """
    heads = {hit.head for hit in hits}
    last: _Hit | None = None
    before: tuple[int, int] | None = None
    # The end of the sentence before, and the beginning of those before it that may join the next statement; -1 if there are none.
    end = waiting = -1
    for hit in hits:
        (start, stop), head = hit.span, hit.head
        follows = last is not None and last.span[1] == end
        if head is not None and head[0] < start:
            # The statement before may have the line that introduces this sentence.
            below = last is not None and (last.head == head or last.span[0] <= head[0] < last.span[1])
            belongs = below and (hit.passes or hit.joins)
            waiting = head[0] if head[1] == end else -1
        elif hit.span in heads:
            belongs = False
        else:
            refers = text[end - 1 : end] in _COLONS or _depends(text[start:stop], lang)
            belongs = hit.joins or hit.leans or (hit.passes and refers)
            if hit.says and not belongs and last is not None and follows:
                one_paragraph = _PARAGRAPH_END.search(text, end, start) is None
                belongs = one_paragraph and is_of_person_before(
                    text[slice(*last.span)], text[start:stop], lang
                )
        if last is not None and follows and belongs and _length(last, stop) <= _LONGEST_STATEMENT:
            worth = max(last.worth, hit.worth) if hit.passes else last.worth
            last = replace(last, span=(last.span[0], stop), worth=worth)
        elif hit.passes:
            if last is not None:
                yield last
            begun = waiting if 0 <= stop - waiting <= _LONGEST_STATEMENT and waiting >= 0 else start
            asked = before is not None and not follows and is_question(text[slice(*before)])
            if before is not None and asked and hit.says and _answers(text, before, hit.span, lang):
                begun = min(begun, before[0])
            last = _Hit((begun, stop), hit.worth, passes=True, head=head)
        waiting = (waiting if waiting >= 0 else start) if hit.joins and not follows else -1
        end = stop
        before = hit.span
    if last is not None:
        yield last


def _answers(text: str, question: tuple[int, int], span: tuple[int, int], lang: str) -> bool:
    """Return whether a sentence means nothing without the question right before it: "Which airport? Heathrow."."""
    if _PARAGRAPH_END.search(text, question[1], span[0]) or span[1] - question[0] > _LONGEST_STATEMENT:
        return False
    said = text[slice(*span)]
    if UNSPACED.match(said):
        return sum(map(str.isalnum, said)) <= _LONGEST_DENSE_ANSWER
    return _depends(said, lang)


def _length(last: _Hit, stop: int) -> int:
    """Return the length of a statement if it goes on to ``stop``, with the line that introduces it."""
    head = 0 if last.head is None or last.head[0] >= last.span[0] else last.head[1] - last.head[0] + 1
    return head + stop - last.span[0]


def _depends(sentence: str, lang: str) -> bool:
    words = words_of(sentence[:_BEGINNING])
    phrases, beginnings = _CONTINUATIONS.get(lang, _NO_CONTINUATIONS)
    if UNSPACED.match(sentence):
        return len(sentence) < _FEWEST_DENSE_CHARACTERS or sentence.startswith(beginnings)
    # "90 euros an hour, fifteen hours a week" is about what was said before.
    begins_with_amount = bool(words) and words[0].shape[0].isdigit()
    return len(words) < _FEWEST_ALONE or begins_with_amount or phrases.length_at(words, 0) > 0


def _after_courtesies(prose: str, start: int, end: int) -> int:
    """Return where a sentence goes on after its courtesies: "Hi, I'm Ida" is one, and what it says."""
    words = words_of(prose[start : min(end, start + _BEGINNING)])
    position = start
    for word in words[: _COURTESIES.covers(words)]:
        position = prose.index(word.shape, position) + len(word.shape)
    pause = _PAUSE.match(prose, position, end)
    return pause.end() if pause and position > start else start


def _sentences(text: str, prose: str) -> Iterator[tuple[tuple[int, int], tuple[int, int] | None]]:
    """Yield the sentences, each with the line that introduces it, if there is one.

    A line that ends with a colon is one with the list, the table or the quotation under it, and so is a short line above two items
    of a list; a long one has several parts. Other lines under it that are no whole sentences are introduced by it. A very long sentence is split. The courtesies that a sentence
    begins with are one of their own.
    """
    done = 0
    head: tuple[int, int] | None = None
    for first, last in split_sentences(prose):
        if first < done:
            continue
        begun = _after_courtesies(prose, first, last)
        if begun > first:
            yield (first, begun), None
        # The line that introduces also introduces the next line, unless that is a whole sentence.
        is_line = text[done:first] == "\n" and prose[last : last + 1] in {"\n", ""}
        if not is_line or prose[begun:last].endswith(_ENDED):
            head = None
        done = last
        if table := _table(text, prose, begun):
            done = table.end()
            yield from _parts(text, table.start(), table.start(), done)
            continue
        introduces = prose[last - 1] in _COLONS
        listed = _LIST.match(text, last) if introduces or _is_heading(text, prose, begun, last) else None
        if listed is not None and has_words(prose[last : listed.end()]):
            done = listed.end()
            yield from _parts(text, begun, last, done)
            continue
        for span in _split_long(prose, begun, last):
            yield span, head
        if (
            introduces
            and begun == first
            and not is_courtesy(prose[begun:last])
            and not is_errand(prose[begun:last])
        ):
            head = begun, last


def _is_heading(text: str, prose: str, start: int, end: int) -> bool:
    """Return whether a sentence is a short line, no item of a list itself, with two items right below it."""
    line = text.rfind("\n", max(0, start - _BEGINNING), start) + 1
    said = prose[start:end]
    if len(said) > _LONGEST_HEADING or said.endswith(_ENDED) or _MARKED.match(text, line, end):
        return False
    asks = is_errand(said) or is_errand_with_text(said) or is_courtesy(said)
    return not asks and _TWO_ITEMS.match(text, end) is not None


def _table(text: str, prose: str, start: int) -> re.Match[str] | None:
    """Return the table whose first cell begins at ``start``."""
    line = text.rfind("\n", 0, start) + 1
    bar = text.find("|", line, start)
    masked = bar >= 0 and prose[bar] == " " and not text[line:bar].strip()
    return _TABLE.match(text, bar) if masked else None


def _parts(
    text: str, start: int, introduced: int, end: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int] | None]]:
    """Yield the parts of a list, a table or a quotation, which end with a line, each with what introduces all of them.

    Args:
        text: the text of the turn.
        start: where the line begins that introduces the list, or the table if none does.
        introduced: where that line ends; ``start`` if there is none.
        end: where the list ends.
    """
    columns = _COLUMNS.match(text, introduced)
    introduced = columns.end() if columns else introduced
    head = (start, introduced) if introduced > start else None
    longest = max(_LONGEST_STATEMENT, introduced - start + _LONGEST_STATEMENT // 2)
    begun, last, room = start, introduced, longest
    while last < end:
        line = text.find("\n", last + 1, end)
        line = end if line < 0 else line
        if line - begun > room and last > max(begun, introduced):
            yield from ((span, head) for span in _split_long(text, begun, last))
            begun = last + 1
            room = longest - (introduced - start + 1)
        last = line
    yield from ((span, head) for span in _split_long(text, begun, end))


def _split_long(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a sentence, or the parts of a very long one."""
    while end - start > _LONGEST_SENTENCE:
        cut = text.rfind(" ", start + _LONGEST_SENTENCE // 2, start + _LONGEST_SENTENCE)
        cut = start + _LONGEST_SENTENCE if cut < 0 else cut
        yield start, cut
        start = cut
    yield start, end


def _judge(
    turn: ConversationTurn, parts: _Split, span: tuple[int, int], before: _Before, *, whole: float | None
) -> _Hit:
    """Judge a sentence by the classifier, alone and together with its message; an assistant's English by rules as well.

    Args:
        turn: the message.
        parts: its sentences.
        span: where in the message the sentence is.
        before: what was said before it.
        whole: the logit that the message is worth storing; None if it is too long for one.
    """
    sentence, lang = parts.sentence(span), parts.lang
    if turn.role is Role.ASSISTANT and (is_question(sentence) or _echoes(sentence, before.said)):
        return _Hit(span, 0.0, passes=False)
    if turn.role is Role.USER and (
        span in parts.asked
        or is_wish(sentence)
        or asks_to_remember(sentence)
        or names_removed_secret(sentence)
    ):
        return _Hit(span, _CERTAIN, passes=True)
    asks = is_question(sentence)
    asked = turn.role is Role.USER and not asks and _is_request(sentence)
    if lang not in READ_LANGUAGES:
        return _Hit(span, 0.0, passes=says_something(sentence) and not asked)
    reading = before.readings.message(sentence, turn.role)
    worth = reading.worth
    light = reading.otherwise in {"hedge", "courtesy"}
    together = worth - (_SURE if whole is None else 0.0)
    if whole is not None and not light:
        together = max(worth, (worth + whole) / 2)
    is_list = _begins_list(parts, span)
    # A word or two that introduce a list do not say what it is: "Plan:".
    is_bare = (
        turn.role is Role.ASSISTANT
        and reading.by_model
        and is_list
        and _is_fragment(parts.prose[slice(*parts.heads[span])])
    )
    if (
        turn.role is Role.ASSISTANT
        and not is_bare
        and (not reading.by_model or together > _LIFTED)
        and lang in {"en", UNDETERMINED}
        and judge_assistant_sentence(sentence) >= PASSES
    ):
        together = max(together, 0.0)
    if before.answering and turn.role is Role.USER and not (asks or asked):
        worth, together = worth + _ANSWERING, together + _ANSWERING
    needed = _BARE_LIST if is_bare else _needed(turn.role, reading, asks=asks, is_list=is_list)
    if asked:
        # A message that is worth keeping says nothing about the request in it.
        together, needed = worth, _CERTAIN
    passes = worth > _WORTHLESS[turn.role] and together >= needed
    says = turn.role is Role.USER and not (asks or asked)
    # What is neither asked for nor a courtesy stays with the statement next to it: a part of a fact often does not pass alone.
    joins = says and reading.otherwise not in _APART
    # N-grams alone do not tell a few words that ask from others.
    tells = reading.by_model and reading.otherwise != "question" and not reading.only_asks
    leans = says and (worth < needed or not passes) and tells and _is_fragment(sentence)
    return _Hit(span, worth, passes=passes, joins=joins and not passes, says=says, leans=leans)


def _is_fragment(sentence: str) -> bool:
    """Return whether a sentence has so few words that it is a part of what was said before."""
    if UNSPACED.search(sentence):
        return sum(map(str.isalnum, sentence)) <= _LONGEST_DENSE_ANSWER
    return len(words_of(sentence)) <= _FEWEST_ALONE


def _needed(role: Role, reading: MessageReading, *, asks: bool, is_list: bool) -> float:
    """Return the logit from which a sentence of such a reading is worth keeping."""
    needed = _LIGHT if reading.otherwise in {"hedge", "courtesy"} else _WORTH[role]
    if role is not Role.USER:
        return needed
    if is_list:
        # Short items look like a request, and a list that the user wrote down is none.
        needed = _WORTHLESS[role]
    elif reading.otherwise == "one_off":
        needed = _READ_REQUEST if reading.by_model else _REQUEST
    if reading.only_asks and not is_list:
        needed += _ONLY_ASKED
    return max(needed, _MARKED_QUESTION) if asks else needed


def _begins_list(parts: _Split, span: tuple[int, int]) -> bool:
    """Return whether a sentence is a list of two items or more, or its first part, with the line that introduces it."""
    head = parts.heads.get(span)
    return head is not None and head[0] == span[0] and _TWO_ITEMS.match(parts.text, head[1]) is not None


def _is_request(sentence: str) -> bool:
    """Return whether a sentence without a question mark asks a question, or for something to be done once."""
    errand = sentence.endswith(_COLONS) and is_errand_with_text(sentence[-_BEGINNING:])
    return errand or is_unmarked_question(sentence) or is_errand(sentence)


def _reason(
    turn: ConversationTurn,
    prose: str,
    spans: Sequence[tuple[int, int]],
    whole: MessageReading,
    before: _Before,
) -> str:
    """Return the reason, in one word, why nothing of a turn is kept."""
    said = [prose[slice(*span)] for span in spans[:_SENTENCES_A_STEP]]
    if all(map(is_courtesy, said)):
        return "courtesy"
    if turn.role is Role.ASSISTANT and any(_echoes(sentence, before.said) for sentence in said):
        return "echo"
    if all(map(is_question, said)):
        return "question"
    return whole.otherwise


def _pieces(text: str) -> frozenset[str]:
    """Return the pieces that are compared to find an echo: beginnings of words, or pairs of characters without spaces."""
    found: set[str] = set()
    for word in words_of(text):
        if UNSPACED.search(word.lower):
            found.update(word.lower[at : at + 2] for at in range(len(word.lower) - 1))
        elif len(word.lower) > 2 or word.lower.isdecimal():
            found.add(word.lower[:_STEM])
    return frozenset(found)


def _echoes(sentence: str, said: frozenset[str]) -> bool:
    pieces = _pieces(sentence)
    return bool(pieces) and len(pieces & said) >= _ECHOED * len(pieces)


def _asks(text: str) -> bool:
    """Return whether the end of a turn is a question; only the last characters are read."""
    tail = text[-400:]
    spans = split_sentences(tail)
    return bool(spans) and is_question(tail[slice(*spans[-1])])


PASSES = 0.4


def judge_assistant_sentence(sentence: str) -> float:
    """Score what an assistant said: decisions, results and commitments count; courtesy, advice and echoes do not.

    Args:
        sentence: the sentence, without markup.

    Returns:
        The score; the sentence is worth keeping from `PASSES` on.
    """
    words = words_of(sentence)
    # "Great, I moved it" is "I moved it".
    words = words[en.INTERJECTIONS.covers(words) :]
    openers = (en.OFFERS, en.RESTATEMENTS, en.GREETINGS, en.PARTINGS, en.AGREEMENT)
    if len(words) < 3 or is_question(sentence) or any(known.length_at(words, 0) for known in openers):
        return 0.0
    score = _definiteness(words)
    lowered = {word.lower for word in words}
    first_person = not lowered.isdisjoint(en.FIRST_PERSON)
    work = not lowered.isdisjoint(en.WORK_DONE)
    if work and (first_person or words[0].lower in en.WORK_DONE):
        score += 0.45
    elif work:
        score += 0.15
    if en.FINDINGS.found_in(words):
        score += 0.4
    if en.COMMITMENTS.found_in(words):
        score += 0.35
    if not lowered.isdisjoint(en.MEASURES):
        score += 0.15
    if en.ADVICE_OPENERS.length_at(words, 0):
        score -= 0.5
    return round(score, 3)


def _definiteness(words: Sequence[Word]) -> float:
    """Return the score of dates, numbers and names, which make a sentence checkable."""
    score = 0.0
    if en.DATES.found_in(words):
        score += 0.2
    if any(word.lower in en.NUMBER_WORDS or any(map(str.isdigit, word.shape)) for word in words):
        score += 0.2
    if any(_is_name(word) for word in words[1:]):
        score += 0.2
    return score


def _is_name(word: Word) -> bool:
    return len(word.shape) > 1 and any(map(str.isupper, word.shape)) and word.lower not in en.FIRST_PERSON
