"""Combine what a model says about the texts of messages with what their n-grams say.

A reader with meaning (`relayer.ports.MessageReader`) reads a message and its sentences at once. A text that it did not read, for
example because there is none or it is not available, is classified by its n-grams alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from relayer.lib.marking_words import marked
from relayer.lib.n_grams import (
    ESSENTIALS,
    KINDS,
    MESSAGE_CLASSES,
    UNSPACED,
    MessageReading,
    beginning_and_end,
    classes_of,
    message_logits,
    read_kind,
    reading_of,
)
from relayer.wire.fields import Role

# The share of the model in the logits; the rest is that of the n-grams.
_OF_MODEL = 0.6
# The same of a short text, of which n-grams know little: "quit the choir" has those of an order. Its characters, and those of scripts
# without spaces.
_OF_SHORT = 0.85
_SHORT, _SHORT_UNSPACED = 24, 10
# What is added to the logit that such a text is worth storing: without a subject news look like orders, and losing news is worse.
_SHORT_BIAS = 0.2
# The same in the logit that a message is not meant in earnest: its words are those of a statement, only their meaning tells.
_UNREAL_OF_MODEL = 0.8
# Below this logit of its own the model is sure that a text only asks for something.
_ONLY_ASKS = -2.5
# The margin in logits over all other classes together from which a statement is an essential one.
_ESSENTIAL = {"harm": 0.8, "style": 0.0, "identity": 0.6}
# The same of a danger for which a word in the statement speaks as well.
_MARKED_HARM = -1.5
_HEADS = (*MESSAGE_CLASSES, "kind", "essential")
_ENDS = pairwise(accumulate(map(len, (*MESSAGE_CLASSES.values(), KINDS, ESSENTIALS)), initial=0))
_COLUMNS = {name: slice(*ends) for name, ends in zip(_HEADS, _ENDS, strict=True)}


class Readings:
    """The readings of texts.

    Args:
        texts: the texts that a model read.
        rows: its logits of each of them, see `relayer.ports.MessageReader`.
    """

    def __init__(
        self, texts: Sequence[str] = (), rows: NDArray[np.float32] | Sequence[NDArray[np.float32]] = ()
    ) -> None:
        self._rows: Mapping[str, NDArray[np.float32]] = dict(zip(texts, rows, strict=True))

    def message(self, text: str, role: Role) -> MessageReading:
        """Classify a message or a part of one."""
        logits, row = message_logits(text, role), self._rows.get(read_part(text))
        if row is None:
            return reading_of(logits, role)
        model = row[_COLUMNS[classes_of(role)]]
        short = role is Role.USER and _is_short(text)
        share = _OF_SHORT if short else _OF_MODEL
        alone, mixed = reading_of(model, role), reading_of(_mixed(model, logits, share), role)
        return replace(
            mixed,
            worth=mixed.worth + (_SHORT_BIAS if short else 0.0),
            by_model=True,
            unreal=reading_of(_mixed(model, logits, _UNREAL_OF_MODEL), role).unreal,
            only_asks=alone.worth < _ONLY_ASKS and alone.otherwise in {"one_off", "question"},
        )

    def kind(self, text: str) -> str:
        """Classify a statement as one of `relayer.lib.n_grams.KINDS`."""
        row = self._rows.get(read_part(text))
        return read_kind(text) if row is None else KINDS[int(row[_COLUMNS["kind"]].argmax())]

    def essential(self, text: str) -> str:
        """Classify a statement as one of `relayer.lib.n_grams.ESSENTIALS`; return "" for a text that no model read."""
        row = self._rows.get(read_part(text))
        if row is None:
            return ""
        logits = row[_COLUMNS["essential"]]
        place = int(logits[1:].argmax()) + 1
        margin = logits[place] - np.logaddexp.reduce(np.delete(logits, place))
        kind = ESSENTIALS[place]
        needed = _MARKED_HARM if kind == "harm" and "harm" in marked(text) else _ESSENTIAL[kind]
        return kind if margin > needed else ESSENTIALS[0]


def _mixed(model: NDArray[np.float32], n_grams: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    return np.asarray(share * model + (1 - share) * n_grams, np.float32)


def _is_short(text: str) -> bool:
    text = text.strip()
    return len(text) <= _SHORT and (len(text) <= _SHORT_UNSPACED or not UNSPACED.search(text))


def read_part(text: str) -> str:
    """Return what is read of a text."""
    return beginning_and_end(text.strip())


BY_N_GRAMS = Readings()
"""The readings without a model."""
