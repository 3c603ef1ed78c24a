"""A host's messages, whatever their shape, as one frozen type.

Understood are strings, lists of blocks as the large model APIs use them (``{"type": "text", "text": ...}``, also
``input_text`` and ``output_text``), and the usual names for ids, times and speakers. Tool results, images and reasoning
carry nothing that somebody said: they are left out. Of a tool's call its name is noted, for a transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from gateway_plugin.query import Message, Role
from relayer.wire.capture import MAX_CALLS

__all__ = ["CALLS", "ChatMessage", "history", "moment_of", "parse_messages", "readable"]

_TEXT_BLOCKS: Final = frozenset({"text", "input_text", "output_text"})
_ROLES: Final = {"user": Role.USER, "human": Role.USER, "assistant": Role.ASSISTANT, "ai": Role.ASSISTANT}
CALLS: Final = frozenset({"tool_use", "toolcall", "function_call"})
"""The types of what calls a tool, in lower case."""

_MAX_LABEL: Final = 512
_LARGEST_ID: Final = 2**128
_MAX_TEXT: Final = 1_000_000
# Seconds pass this in the year 5138, ms passed it in 1973.
_MS_FROM: Final = 10**11
# What a relayer takes: the years 1900 to 2199.
_FIRST_MS: Final = -2_208_988_800_000
_LAST_MS: Final = 7_258_118_400_000


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message that a person or the assistant said. ``at`` is in ms since the epoch, where the host knows it.

    ``calls`` are the names of the tools that the assistant called with it, or after it before anything else was said.
    """

    role: Role
    text: str = field(repr=False)
    id: str | None = None
    at: int | None = None
    speaker: str | None = None
    calls: tuple[str, ...] = ()


def parse_messages(messages: Iterable[Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
    """Parse messages with ``role`` and ``content``; those of other roles and those without text are left out.

    Raises:
        TypeError: a message is no mapping: a mistake of the caller, not of a conversation.
    """
    parsed: list[ChatMessage] = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise TypeError("messages are mappings with the keys role and content")
        role = _ROLES.get(str(message.get("role", "")).lower())
        text = readable(_text(message.get("content"))[:_MAX_TEXT])
        calls = _calls(message.get("content")) if role is Role.ASSISTANT else ()
        if role is not None and text:
            parsed.append(
                ChatMessage(
                    role,
                    text,
                    _label(message.get("id") or message.get("message_id")),
                    moment_of(message.get("timestamp", message.get("created_at"))),
                    _label(message.get("name") or message.get("speaker")),
                    calls,
                )
            )
        elif calls and parsed:
            parsed[-1] = replace(parsed[-1], calls=(*parsed[-1].calls, *calls)[:MAX_CALLS])
    return tuple(parsed)


def history(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Return messages in the form that queries are built from."""
    return tuple(Message(message.role, message.text) for message in messages)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        return ""
    texts = []
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif (
            isinstance(block, Mapping)
            and isinstance(kind := block.get("type"), str)
            and kind in _TEXT_BLOCKS
            and isinstance(block.get("text"), str)
        ):
            texts.append(block["text"])
    return "\n".join(texts)


def _calls(content: object) -> tuple[str, ...]:
    if not isinstance(content, Sequence) or isinstance(content, str | bytes):
        return ()
    blocks = [block for block in content if isinstance(block, Mapping)]
    called = [block for block in blocks if str(block.get("type", "")).lower() in CALLS]
    return tuple(_label(block.get("name")) or "a tool" for block in called[:MAX_CALLS])


def _label(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_ID:
        value = str(value)
    return readable(value[:_MAX_LABEL]) or None if isinstance(value, str) else None


def readable(text: str) -> str:
    """Return a text that can be sent: half a surrogate pair cannot be, and nobody meant it."""
    return text.encode("utf-8", "replace").decode()


def moment_of(value: object) -> int | None:
    """Read a time as hosts write it, ISO 8601 with an offset, seconds or ms since 1970; None when it is none."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        at = int(moment.timestamp() * 1000) if moment.tzinfo else None
        return at if at is not None and _FIRST_MS <= at < _LAST_MS else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LAST_MS:
        return None
    return int(value if value >= _MS_FROM else value * 1000)
