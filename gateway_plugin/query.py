"""From what a host calls the prompt to what memory is asked.

A host's prompt carries envelopes, injected memories and pasted pages. Searching for all of that finds noise (the
query is the first half of every relevance problem) and measuring its length lets "ok" through every gate. So the
prompt is cleaned first, then cut to a bound; how much conversation goes along depends on the query mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway_plugin.settings import PluginSettings, QueryMode, RecallMode
from gateway_plugin.text.measures import clip, clip_middle, one_line
from gateway_plugin.text.wrappers import strip, strip_wrappers

MAX_ACTIVE_QUERY_CHARS: Final = 480
"""What active mode searches for at most (AM-26)."""

MAX_CONTEXT_CHARS: Final = 25_000
"""What the model of active mode reads at most (AM-26)."""

_MAX_RAW_CHARS: Final = 1_000_000
_NOBODYS_WORDS: Final = ("[Inter-session message]", "OpenClaw runtime context (internal):")


class Role(StrEnum):
    """Who said a message of the conversation."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation so far, as the host has it."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a turn asks memory.

    Attributes:
        latest: the cleaned latest message, whole; gates measure this.
        search: what is embedded and searched for, bounded.
        context: the conversation as active mode's model reads it, bounded; only the latest message in direct mode.
    """

    latest: str
    search: str
    context: str


def clean_query(prompt: str) -> str:
    """Return what the user wrote, without envelopes and wrappers (CP-23).

    A prompt of which envelopes leave nothing is returned without its memory wrappers only; one that is nothing but
    injected memories, or a message between the host's own sessions, gives "": nobody asked anything. What lies beyond the first
    million characters is not looked at.
    """
    prompt = prompt[:_MAX_RAW_CHARS]
    cleaned = strip(prompt)
    if cleaned:
        return cleaned
    rest = strip_wrappers(prompt)
    return "" if rest.startswith(_NOBODYS_WORDS) else rest


def build_query(prompt: str, history: Sequence[Message], settings: PluginSettings) -> Query:
    """Build the query of a turn.

    Args:
        prompt: the latest user message as the host has it.
        history: earlier messages, oldest first, without the latest one.
        settings: mode, query mode and the caps per turn (AM-12, AM-20).
    """
    latest = clean_query(prompt)
    if settings.recall.mode is RecallMode.DIRECT:
        search = _with_tail(latest, _last_users(history, settings.recall.context_turns, settings))
        return Query(
            latest=latest, search=clip_middle(search, settings.recall.max_query_chars), context=latest
        )
    return Query(
        latest=latest,
        search=clip_middle(one_line(latest), MAX_ACTIVE_QUERY_CHARS),
        context=_context(latest, history, settings),
    )


def _context(latest: str, history: Sequence[Message], settings: PluginSettings) -> str:
    latest = clip_middle(latest, MAX_CONTEXT_CHARS - 1000)
    mode = settings.active.query_mode
    if mode is QueryMode.MESSAGE:
        return latest
    if mode is QueryMode.RECENT:
        heading, lines = "Recent conversation tail:", _recent(history, settings)
    else:
        heading, lines = (
            "Full conversation context:",
            _all_that_fit(history, MAX_CONTEXT_CHARS - 1000 - len(latest)),
        )
    if not lines:
        return latest
    return "\n".join([heading, *lines, "", "Latest user message:", latest])


def _recent(history: Sequence[Message], settings: PluginSettings) -> list[str]:
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


def _all_that_fit(history: Sequence[Message], room: int) -> list[str]:
    lines: list[str] = []
    for message, text in _cleaned_backwards(history):
        line = f"{message.role}: {text}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _last_users(history: Sequence[Message], count: int, settings: PluginSettings) -> list[str]:
    texts: list[str] = []
    if count:
        for message, text in _cleaned_backwards(history):
            if message.role is Role.USER:
                texts.append(clip(text, settings.active.recent_user_chars))
            if len(texts) == count:
                break
    return texts[::-1]


def _with_tail(latest: str, earlier: list[str]) -> str:
    return "\n".join([*earlier, latest])


def _cleaned_backwards(history: Sequence[Message]) -> Iterable[tuple[Message, str]]:
    for message in reversed(history):
        text = one_line(clean_query(message.text))
        if text:
            yield message, text
