"""The text of a memory as a language model may read it: on one line, with no markup that takes effect.

A memory is a way into a prompt for anyone who could write one. Escaping takes the meaning from tags, chat templates, Markdown images and
links (an image is fetched, with whatever its address carries, as soon as a client renders it). Nothing takes the meaning from words, so
texts in the best-known forms of an order are left out as well; the frame around the rest says what it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from relayer.wire.fields import one_line, remove_invisible

_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
# Brackets of wrappers and chat templates, of a Markdown image, the end of a link's text, text like a label of ours, the colon after a role.
_MARKUP: Final = re.compile(
    r"\[(?=/?(?i:auto-recall)|/?[A-Z][A-Z_]{2,40}\])|(?<=!)\[|\](?=[(\[:])"
    r"|\((?=[^()]{0,160}\b(?:said by|noted by|shared from|imported)\b)"
    # A role, and not the part of an id like agent:main:openai-user:one.
    r"|(?<=(?<![\w:-])(?i:human)):|(?<=(?<![\w:-])(?i:assistant)):|(?<=(?<![\w:-])(?i:user)):|(?<=(?<![\w:-])(?i:system)):"
)
_ORDER: Final = re.compile(
    r"\b(?:ignore|disregard|forget|discard) (?:[\w'-]{1,30} ){0,3}"
    r"(?:previous|prior|above|earlier|preceding|foregoing|original|initial|system|developer|safety),? (?:[\w'-]{1,30} ){0,2}"
    r"(?:instructions?|prompts?|directives?|guidelines?|rules)\b"
    r"|<\|(?:im_start|im_end|system|user|assistant|developer|tool|endoftext|(?:start|end)_header_id|(?:start|end)_of_turn|eot_id)\|>"
    r"|\[/?inst\]|<</?sys>>"
)
_SPACE: Final = re.compile(r"\s+")


def escape(text: str) -> str:
    """Return a text on one line, every character that begins a form of markup as an entity.

    Those are tags, frames and labels of ours, the marks of chat templates (``[INST]``, ``Human:``), and Markdown images and links.

    Example: ``escape("![x](https://a.example)")`` is ``"!&#91;x&#93;(https://a.example)"``.
    """
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", one_line(text).translate(_ENTITIES))


def reads_like_an_order(text: str) -> bool:
    """Return whether a text has one of the best-known forms of an order to a model, however its letters are written."""
    plain = remove_invisible(unicodedata.normalize("NFKC", text)).casefold()
    return _ORDER.search(_SPACE.sub(" ", plain)) is not None
