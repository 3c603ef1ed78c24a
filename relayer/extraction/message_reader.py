"""What a message tells by its form alone: whether it says something that lasts, or why it does not.

Two linear classifiers over hashed n-grams, one for what people say and one for what assistants answer, learnt from labelled
messages in fifteen languages: ``python -m bench.message_reader`` makes the weights anew from ``bench/sets/messages``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from relayer.domain.operations import Role
from relayer.lib.n_grams import Head, stored_heads, vector

CLASSES = {
    "user": ("keep", "one_off", "hedge", "courtesy"),
    "assistant": ("result", "reply"),
}
"""What a message is, by who said it; the first is worth keeping."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a message.

    Attributes:
        worth: how much likelier than not it is, in logits, that the message is worth keeping.
        otherwise: the likeliest reason not to keep it.
    """

    worth: float
    otherwise: str


@cache
def _heads() -> dict[str, Head]:
    return stored_heads((files("relayer.extraction") / "data" / "message_reader.npz").read_bytes())


def read_message(text: str, role: Role) -> Reading:
    """Read a message or a part of one; never fails, whatever the text is."""
    name = "user" if role is Role.USER else "assistant"
    keep, *others = _heads()[name].logits(vector(text)).tolist()
    return Reading(
        worth=keep - float(np.logaddexp.reduce(others)),
        otherwise=CLASSES[name][1 + int(np.argmax(others))],
    )
