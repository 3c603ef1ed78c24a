"""Messages and queries: parse a host's messages, and build the query of a turn from its prompt.

A host's prompt contains envelopes, injected memories and pasted pages. Searching for all of that finds noise, and
measuring its length lets a prompt such as "ok" pass the gates. `clean_query` therefore removes what the user did not
write, and `build_query` cuts the result to a maximum length. In active mode it also adds as much of the conversation as
the query mode asks for. `spoken_in_group` decides, in a chat of several people, which of them said what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from gateway_plugin.settings.model import PluginSettings, QueryMode, RecallMode
from gateway_plugin.text.wrappers import is_same_id, sender_name, split_senders, strip, strip_wrappers
from relayer.wire.fields import NOBODY_KNOWN, Role, clip, one_line
from relayer.wire.schemas import MAX_CALLS

# Nearly every query is shorter. Of a longer one, such as a pasted page, the beginning and the end are searched for.
MAX_QUERY_CHARS: Final = 2000
MAX_ACTIVE_QUERY_CHARS: Final = 480
"""Maximum length, in characters, of the text that active mode searches for (AM-26)."""

MAX_CONTEXT_CHARS: Final = 25_000
"""Maximum length, in characters, of the conversation that active mode's model reads (AM-26)."""

_ELLIPSIS: Final = " … "
_NOBODYS_WORDS: Final = ("[Inter-session message]", "OpenClaw runtime context (internal):")


_TEXT_BLOCKS: Final = frozenset({"text", "input_text", "output_text"})
_ROLES: Final = {"user": Role.USER, "human": Role.USER, "assistant": Role.ASSISTANT, "ai": Role.ASSISTANT}
CALLS: Final = frozenset({"tool_use", "toolcall", "function_call"})
"""The types of content blocks that call a tool, in lower case."""

_MAX_LABEL: Final = 512
_LARGEST_ID: Final = 2**128
_MAX_TEXT: Final = 1_000_000
# Numbers from here on are timestamps in ms, smaller ones in seconds: timestamps in seconds reach it in the year 5138,
# those in ms did so in 1973.
_MS_FROM: Final = 10**11
# The relayer accepts the years 1900 to 2199.
_FIRST_MS: Final = -2_208_988_800_000
_LAST_MS: Final = 7_258_118_400_000


@dataclass(frozen=True)
class ChatMessage:
    """A message of a person or the assistant.

    Attributes:
        role: its author's role, the user or the assistant.
        text: the text as the host has it.
        id: the host's id of the message; None if it has none.
        at: when it was said, in ms since the epoch; None if the host does not know.
        speaker: the display name of its author; None if it is not known.
        calls: the names of the tools that the assistant called in this message, or after it and before the next one.
        sender: in a group, the id of the person who said it or, for the assistant's messages, to whom it was said.
    """

    role: Role
    text: str = field(repr=False)
    id: str | None = None
    at: int | None = None
    speaker: str | None = None
    calls: tuple[str, ...] = ()
    sender: str = ""

    @cached_property
    def cleaned(self) -> str:
        """The text without envelopes and wrappers, computed once at the first access."""
        return strip(self.text)

    @cached_property
    def query(self) -> str:
        """The query that the text contains; see `clean_query`."""
        return self.cleaned or _unwrapped(self.text)


def prompt_text(prompt: object) -> str:
    """Return the text of a prompt.

    Content parts are those that messages have.

    Raises:
        TypeError: the prompt is neither.

    Example:
        >>> prompt_text([{"type": "text", "text": "How do I take my coffee?"}])
        'How do I take my coffee?'
    """
    if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Sequence):
        raise TypeError("prompt: must be a string or a list of content parts")
    return readable(_text(prompt))


def parse_messages(messages: object) -> tuple[ChatMessage, ...]:
    """Parse messages: mappings with ``role`` and ``content``.

    Messages of roles other than the user's and the assistant's, and messages without text, are left out.

    Raises:
        TypeError: ``messages`` is not an iterable of mappings, which is a mistake in the caller's code.

    Example:
        >>> [message.text for message in parse_messages([{"role": "user", "content": "I moved to Ulm."}])]
        ['I moved to Ulm.']
    """
    parsed: list[ChatMessage] = []
    for message in (
        messages if isinstance(messages, Iterable) and not isinstance(messages, Mapping) else (None,)
    ):
        if not isinstance(message, Mapping):
            raise TypeError("messages: must be a list of mappings with the keys role and content")
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


def spoken_in_group(
    messages: Sequence[ChatMessage], *, person: str = "", sender: str = ""
) -> tuple[ChatMessage, ...]:
    """Split the messages of a group by author, and set the speaker and the sender of each.

    Some hosts write the author's name in front of a message, and may put what others wrote meanwhile in front of the message
    that they answer. All of that is text, which any member can imitate; only the sender of the turn comes from the host itself.
    Therefore a name counts only with the id of ``sender``, if the host says who that is, and all other names stay in the text.
    Of the last message, the part that follows the last such name is attributed to that person. The sender of everything else
    counts as unknown. ``person`` is the id of the author of the last message, see `gateway_plugin.turn.gates.platform_id`; ""
    if it is unknown.
    """
    last = max((at for at, message in enumerate(messages) if message.role is Role.USER), default=-1)
    told: list[ChatMessage] = []
    asked: set[str] = set()
    for at, message in enumerate(messages):
        if message.role is not Role.USER:
            to = asked.pop() if len(asked) == 1 else NOBODY_KNOWN
            told.append(replace(message, sender=to))
            asked = {to}
            continue
        if at and messages[at - 1].role is not Role.USER:
            asked = set()
        parts = split_senders(message.cleaned, sender)
        named = sender_name(message.text, sender)
        for place, (name, written, said) in enumerate(parts, 1):
            is_theirs = at == last and place == len(parts) and (not written or is_same_id(written, sender))
            who = (person if is_theirs else "") or NOBODY_KNOWN
            asked.add(who)
            plain = message if len(parts) == 1 and not name else replace(message, text=said)
            # A name that the host gives apart was not written into the text by a member.
            by = (message.speaker or name or named) if place == len(parts) else name
            told.append(replace(plain, speaker=by or None, sender=who))
    return tuple(told)


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
    r"""Return a text that can be encoded as UTF-8: halves of surrogate pairs are replaced by question marks.

    Example:
        >>> readable("a\ud800b")
        'a?b'
    """
    return text.encode("utf-8", "replace").decode()


def moment_of(value: object) -> int | None:
    """Parse a timestamp as hosts write it: ISO 8601 with an offset, or seconds or ms since the epoch.

    Returns:
        Milliseconds since the epoch; None if the value is invalid or out of range.

    Example:
        >>> moment_of("2026-11-24T12:00:00Z"), moment_of("tomorrow")
        (1795521600000, None)
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query of a turn.

    Attributes:
        search: the text that is embedded and searched for, cut to a maximum length.
        context: the conversation for active mode's model, cut to a maximum length; in direct mode the latest message.
    """

    search: str
    context: str


def clean_query(prompt: str) -> str:
    """Return what the user wrote, without envelopes and memory wrappers (CP-23).

    If nothing is left without envelopes, only the memory wrappers are removed. A prompt that consists of injected memories,
    or is a message between the host's own sessions, gives "", because it contains no query. Text after the first million
    characters is ignored.

    Example:
        >>> clean_query("How do I take my coffee?")
        'How do I take my coffee?'
    """
    prompt = prompt[:_MAX_TEXT]
    return strip(prompt) or _unwrapped(prompt)


def _unwrapped(prompt: str) -> str:
    rest = strip_wrappers(prompt)
    return "" if rest.startswith(_NOBODYS_WORDS) else rest


def build_query(latest: str, history: Sequence[ChatMessage], settings: PluginSettings) -> Query:
    """Build the query of a turn."""
    if settings.recall.mode is RecallMode.DIRECT:
        return Query(search=clip_middle(latest, MAX_QUERY_CHARS), context=latest)
    return Query(
        search=clip_middle(one_line(latest), MAX_ACTIVE_QUERY_CHARS),
        context=_context(latest, history, settings),
    )


def clip_middle(text: str, limit: int) -> str:
    """Cut a text to at most ``limit`` characters by removing its middle.

    If a long text was pasted, the question is at its beginning or its end.

    Example:
        >>> len(clip_middle("word " * 100, 40)) <= 40
        True
    """
    if len(text) <= limit:
        return text
    if limit < 40:
        return clip(text, limit)
    room = limit - len(_ELLIPSIS)
    tail_room = room // 3
    tail = text[-tail_room:]
    space = tail.find(" ")
    if 0 <= space < tail_room // 3:
        tail = tail[space:]
    return clip(text, room - tail_room) + _ELLIPSIS + tail.strip()


def _context(latest: str, history: Sequence[ChatMessage], settings: PluginSettings) -> str:
    latest = clip_middle(latest, MAX_CONTEXT_CHARS - 1000)
    mode = settings.active.query_mode
    if mode is QueryMode.MESSAGE:
        return latest
    if mode is QueryMode.RECENT:
        heading, lines = "Recent conversation tail:", _recent(history, settings)
    else:
        room = MAX_CONTEXT_CHARS - 1000 - len(latest)
        heading, lines = "Full conversation context:", _all_that_fit(history, room)
    if not lines:
        return latest
    return "\n".join([heading, *lines, "", "Latest user message:", latest])


def _recent(history: Sequence[ChatMessage], settings: PluginSettings) -> list[str]:
    active = settings.active
    left = {Role.USER: active.recent_user_turns, Role.ASSISTANT: active.recent_assistant_turns}
    caps = {Role.USER: active.recent_user_chars, Role.ASSISTANT: active.recent_assistant_chars}
    lines: list[str] = []
    for message, text in _cleaned_backwards(history):
        if left[message.role] > 0:
            left[message.role] -= 1
            lines.append(f"{message.role}: {clip(text, caps[message.role])}")
        if not any(left.values()):
            break
    return lines[::-1]


def _all_that_fit(history: Sequence[ChatMessage], room: int) -> list[str]:
    lines: list[str] = []
    for message, text in _cleaned_backwards(history):
        line = f"{message.role}: {text}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _cleaned_backwards(history: Sequence[ChatMessage]) -> Iterable[tuple[ChatMessage, str]]:
    for message in reversed(history):
        text = one_line(message.query)
        if text:
            yield message, text
