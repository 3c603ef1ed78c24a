"""Essential memories, which are always relevant: dangers to the person, how they want to be answered, who they are.

What a model took a memory for when it was stored (`relayer.extraction.readings`) decides. For one that no model read, two methods have to agree: a
linear classifier over the hashed n-grams of `relayer.lib.n_grams`, learnt from statements in fifteen languages, and a list of
words that mark each class; an essential memory is in every prompt of a session. A sentence about someone who is only a pronoun is
none: a reader of it alone would take it for the person's.
``python -m bench.standing`` learns the weights from ``bench/sets/standing`` and reports their accuracy.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Final

import numpy as np
from numpy.typing import NDArray

from relayer.lib.marking_words import KINDS as MARKED_KINDS
from relayer.lib.marking_words import Essential, folded_text, marked, words_of_classes
from relayer.lib.n_grams import ESSENTIALS, UNSPACED, read_message, vector
from relayer.wire.fields import Role

LONGEST: Final = 240
"""The maximum length of a statement in characters; a longer text is more than one statement."""
# The minimum margin in logits over all other classes together, by cross-validation: 19 of 20 chosen statements are right.
_MARGIN: Final = {"harm": -1.3, "style": -1.5, "identity": -1.1}
# The value of `MessageReading.unreal` above which a statement is not taken for the person's own: more certain than of a message.
_UNREAL: Final = 1.0

# A sentence before another one.
_SENTENCE: Final = re.compile(
    r"[^.!?\u2026\u3002\uff01\uff1f\u061f\u0964\n]*[.!?\u2026\u3002\uff01\uff1f\u061f\u0964\n]+\s*(?=\S)"
)

# A statement of several in one sentence: between pauses, also between spaces in scripts that have none between words.
_PART: Final = re.compile("[^,;:.!?\u2026\u060c\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f\n]+")
_UNSPACED_PART: Final = re.compile(r"[^\s,\u3001\u3002\uff01\uff0c\uff1b\uff1f]+")


@cache
def _weights() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the weights of the classes by bucket, stored as bytes with one scale for each class, and their biases."""
    data = (files("relayer.search") / "data" / "essentials.npz").read_bytes()
    stored = np.load(BytesIO(data), allow_pickle=False)
    return stored["weights"].astype(np.float32) * stored["scale"], stored["bias"]


def decide(marks: frozenset[Essential], logits: NDArray[np.float32]) -> Essential | None:
    """Return the class with the highest logit of those that a word marks, if its margin is large enough."""
    places = [place for place, kind in enumerate(ESSENTIALS) if kind in marks]
    if not places:
        return None
    place = max(places, key=logits.__getitem__)
    kind = MARKED_KINDS[place - 1]
    margin = logits[place] - np.logaddexp.reduce(np.delete(logits, place))
    return kind if margin > _MARGIN[kind] else None


@cache
def _pronouns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return patterns of ``data/pronouns.toml``: of beginnings with a person, with a thing, and of words for the speaker."""
    data = tomllib.loads((files("relayer.search") / "data" / "pronouns.toml").read_text("utf-8"))
    person, thing = (
        re.compile(rf"\W*{data['before']}(?:{'|'.join(data[kind].values())})") for kind in ("person", "thing")
    )
    return person, thing, re.compile(rf"\b(?:{data['self']['words']})\b")


def _is_of_nobody_named(text: str, kind: Essential) -> bool:
    """Return whether a text begins with a pronoun for whom it is about, as "she takes insulin", and not for the speaker."""
    person, thing, speaker = _pronouns()
    folded = folded_text(text)
    if person.match(folded):
        return True
    # "It is important that answers are short" is a rule, and "it makes me panic" about the speaker.
    return kind != "style" and thing.match(folded) is not None and speaker.search(folded) is None


def load() -> None:
    """Load words and weights now instead of at first use."""
    words_of_classes()
    _pronouns()
    _weights()


def _kind_of(text: str, marks: frozenset[Essential]) -> Essential | None:
    weights, bias = _weights()
    buckets, values = vector(text)
    return decide(marks, values @ weights[buckets] + bias)


def essential_of(text: str, read: str = "") -> Essential | None:
    """Return the class of an essential statement; None for most. Never fails, whatever the text is.

    Args:
        text: the statement.
        read: which of `ESSENTIALS` a model took it for; empty if none read it.
    """
    if read and len(text) <= LONGEST:
        by_form = essential_of(text)
        known = next((kind for kind in MARKED_KINDS if kind == read), None)
        # A danger that either of the two finds is one.
        if by_form == "harm" or known is None:
            return by_form if by_form == "harm" else None
        # Of what follows someone who is not named, the form decides.
        return by_form if _is_of_nobody_named(text, known) else known
    marks = marked(text) if len(text) <= LONGEST else frozenset()
    # Looking for marking words takes a twentieth of the time of the classifier, and few texts have one.
    if not marks:
        return None
    kind = _kind_of(text, marks)
    if kind is None and "harm" in marks:
        parts = (_UNSPACED_PART if UNSPACED.search(text) else _PART).findall(text)
        dangers = (
            _kind_of(part, marked(part)) == "harm" and not _is_of_nobody_named(part, "harm") for part in parts
        )
        kind = "harm" if len(parts) > 1 and any(dangers) else None
    if kind is not None and _is_of_nobody_named(text, kind):
        # What follows may be of the speaker.
        first = _SENTENCE.match(text)
        return essential_of(text[first.end() :]) if first else None
    # A hypothesis, a quotation or fiction has the form of a statement in the first person.
    return None if kind is not None and read_message(text, Role.USER).unreal > _UNREAL else kind
