"""The capture filters: they decide which messages of a turn are worth remembering.

`judge` removes wrappers and envelopes from a message and classifies it; `judge_cleaned` does so for a message that is clean
already. The result is a `MessageJudgement`: the cleaned text, or a `DropReason`. Each message is classified alone, so one good
message does not carry bad ones along (CP-37). The order of the checks matters: messages that must never be stored are
dropped before a trigger (`TRIGGERS`) can speak for them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Final

from gateway_plugin.sessions import folded
from gateway_plugin.settings.model import CaptureRules, CaptureSettings
from gateway_plugin.text.wrappers import InjectionClass, normalise, scan, strip
from gateway_plugin.turn.gates import effective_length, is_control_text, is_slash_command
from gateway_plugin.turn.query import clip_middle
from relayer.wire.fields import MAX_TEXT_BYTES, Role, one_line

_FILLER_FILE: Final = files("gateway_plugin.text") / "data" / "filler.txt"
FILLER: Final = frozenset(re.split(r"[|\n]", _FILLER_FILE.read_text("utf-8").strip()))
"""Case-folded phrases without information; a message that consists of them only is dropped (MW-15)."""

TRIGGERS: Final = re.compile(
    r"\b(?:remember|don'?t forget|keep in mind|note that|for the record|memorize|zapamatuj|radši|zapamiętaj|pamiętaj)\b"
    r"|\b(?:i|we)(?: really| always| usually)? (?:prefer|like|hate|love|want|need|use|am|work|live|moved|decided)\b|\bi'm\b"
    r"|\b(?:prefer|always|never|important)\b"
    r"|\b(?:my|our) [\w' -]{1,40}? (?:is|are|was)\b"
    r"|\b(?:decided|will use|we'll use|switched to|going with|settled on)\b"
    r"|\b(?:merk dir|vergiss nicht|ich (?:mag|bevorzuge|hasse|liebe|heiße|wohne|arbeite|brauche|bin)|mein name ist|immer|niemals)\b"
    r"|\b(?:souviens-toi|retiens|n'oublie pas|je (?:préfère|déteste|m'appelle|travaille|suis)|j'(?:aime|habite)|toujours|jamais)\b"
    r"|\b(?:recuerda|no olvides|prefiero|me (?:gusta|encanta|llamo)|odio|vivo en|trabajo|siempre|nunca)\b"
    r"|\b(?:ricorda|preferisco|mi (?:piace|chiamo)|lembre-se|lembra|prefiro|eu gosto|me chamo)\b"
    r"|(?:запомни|я (?:люблю|предпочитаю|работаю|живу)|меня зовут|всегда|никогда)"
    r"|记住|记得|我(?:喜欢|讨厌|叫|住在|需要|偏好)|我的[^\n]{1,12}是|總是|总是|从不|覚えて|忘れないで|私(?:は|の)|が好き|기억해|좋아해|제 이름"
    r"|(?<!\w)\+\d{10,15}(?!\d)"
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,4}\.[A-Za-z]{2,24}\b",
    re.IGNORECASE,
)
"""Matches requests to remember, and statements that tend to stay true (MW-16)."""


class DropReason(StrEnum):
    """The reason why a message is not captured."""

    EMPTY = "empty"
    COMMAND = "command"
    CONTROL = "control_word"
    FILLER = "filler"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"
    MARKUP = "markup"
    EMOJI = "emoji"
    TRANSCRIPT = "transcript"
    INJECTION = "injection"


@dataclass(frozen=True, slots=True)
class MessageJudgement:
    """The decision about a message.

    Attributes:
        text: the cleaned text, which may be sent if ``dropped`` is None.
        dropped: the reason to leave the message out, or None.
        priority: whether a trigger was found: a user asked to remember something, or stated something lasting.
        suspect: weak signs of a prompt injection. The text is stored, but not injected automatically.
    """

    text: str
    dropped: DropReason | None = None
    priority: bool = False
    suspect: frozenset[InjectionClass] = frozenset()

    @property
    def keep(self) -> bool:
        """Return whether the message is captured."""
        return self.dropped is None


_TRIGGER_FLOOR: Final = 5
"""The minimum number of visible characters of a message with a trigger (MS-18)."""

_MAX_EMOJI: Final = 3

# Minimum length of an assistant's message, unless the settings give one. People state facts in three words, but an equally
# short message of an assistant ("Noted.") is an echo or a courtesy.
_SHORTEST_ANSWER: Final = 30

# MemWal ignores messages of up to this many characters, even with a trigger (MW-13).
_ITS_TINY: Final = 10

_MOST_BYTES: Final = MAX_TEXT_BYTES - 64

_MAX_FILLER_WORDS: Final = 4
_FILLER_CHARS: Final = 80

_QUESTION: Final = re.compile(r"[?\uff1f\u061f]\W*\Z")

_FENCE: Final = re.compile(r"^[ \t]*```.*?(?:```|\Z)", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^[ \t]*#{1,6}(?:[ \t].*)?$", re.MULTILINE)
_EMOJI: Final = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}"
    "|[\U0001f300-\U0001faff\u2600-\u27bf\u2b50\u2b55\u231a\u231b\u23e9-\u23f3\u203c\u2049]"
    "(?:[\ufe0f\U0001f3fb-\U0001f3ff]|\u200d[\U0001f300-\U0001faff\u2600-\u27bf])*)"
)
# The phrases that memory-core-plus takes for an attack. They are frequent in conversations about software, so by default
# they only make a text suspect. With that plugin's rules they drop it; they are searched in the text after `normalise`.
_ITS_PHRASES: Final = re.compile(
    r"\bignore (?:all )?previous instructions\b|\byou are now\b|\bsystem:|\bforget (?:everything|all)\b"
    r"|\b(?:act|behave) as\b|\bdo not follow\b|\bnew instructions\b|\boverride\b|\bjailbreak\b"
)
_TURN_LABEL: Final = re.compile(r"^\s*\[(?:Human|User|Assistant)\]:", re.IGNORECASE)

_LOGGED_AT: Final = r"^\s*(?:\d{4}-\d{2}-\d{2}[T ][\d:.]{5,15}(?:Z|[+-]\d{2}:?\d{2})?\s+)?"
# Lines that only a host's log has, and warnings about the host's own components.
_HOST_LINE: Final = re.compile(
    _LOGGED_AT + r"(?:"
    r"\[(?:plugins|tools|memsearch|memrelay|gateway|reload|secrets|config)\](?:\s|$)|\[agents?/"
    r"|config (?:warnings|invalid|overwrite)\b|plugins\.allow is empty|plugin loaded\."
    r"|auto-?(?:capture|recall): |(?-i:# Recent Memory\s*$)"
    r"|(?-i:WARNING): .{0,80}\b(?:plugins?|openclaw|config|gateway|deprecat\w+|npm|node|token|hook|provider)\b"
    r")",
    re.IGNORECASE,
)
# Lines that logs, configuration dumps and message frames have, but that people may write too. They are only dropped if the
# text also has a line that matches `_HOST_LINE`.
_BESIDE_HOST_LINES: Final = re.compile(
    _LOGGED_AT + r"(?:"
    r"(?-i:WARNING): |sender \(untrusted|```|[{}\[\]],?\s*$|\"(?:label|id|name|username)\":"
    r"|## \d{4}-\d{2}-\d{2}\.md|## session \d+|### \d{2}:\d{2}|\[\[reply_to_)",
    re.IGNORECASE,
)


def judge(text: str, *, origin: Role, settings: CaptureSettings) -> MessageJudgement:
    """Clean one message and decide whether it is captured.

    A user's message with a trigger may be shorter than others, unless it is a question.
    """
    return judge_cleaned(strip(text[: looked_at(settings)]), origin=origin, settings=settings)


def looked_at(settings: CaptureSettings) -> int:
    """Return how many characters of a message are read.

    Wrappers may be long, but the text that remains without them is bounded. So a much longer message need not be read to its
    end.
    """
    return settings.max_length * 8 + 200_000


def judge_cleaned(cleaned: str, *, origin: Role, settings: CaptureSettings) -> MessageJudgement:
    """Decide, as `judge` does, about a message whose wrappers and envelopes have been removed."""
    cleaned = strip_host_log(cleaned)
    if origin is Role.ASSISTANT and settings.assistant_tail:
        cleaned = _tail(cleaned, settings.assistant_tail)
    its_own = _as_memory_core_plus(cleaned, settings)
    cleaned = fitting(cleaned, settings.max_length)
    line = one_line(cleaned)
    dropped = _shape(cleaned, line) or its_own
    if dropped is not None:
        return MessageJudgement(cleaned, dropped)
    verdict = scan(cleaned)
    if verdict.blocked:
        return MessageJudgement(cleaned, DropReason.INJECTION)
    triggered = origin is Role.USER and TRIGGERS.search(line) is not None and not _QUESTION.search(line)
    floor = min(_TRIGGER_FLOOR, settings.min_length) if triggered else settings.min_length
    if origin is not Role.USER and "min_length" not in settings.model_fields_set:
        floor = max(floor, _SHORTEST_ANSWER)
    if settings.rules is CaptureRules.MEMWAL:
        floor = max(floor, _ITS_TINY + 1)
    if effective_length(line) < floor:
        return MessageJudgement(cleaned, DropReason.TOO_SHORT)
    return MessageJudgement(cleaned, priority=triggered, suspect=verdict.suspicious)


def _as_memory_core_plus(cleaned: str, settings: CaptureSettings) -> DropReason | None:
    """Return why memory-core-plus would drop a message; None if it would not, or its rules are not switched on (CP-36)."""
    if settings.rules is not CaptureRules.MEMORY_CORE_PLUS:
        return None
    if len(cleaned) > settings.max_length:
        return DropReason.TOO_LONG
    if effective_length(one_line(cleaned)) < settings.min_length:
        return DropReason.TOO_SHORT
    if cleaned.startswith(("#", "```")):
        return DropReason.MARKUP
    if len(_EMOJI.findall(cleaned)) > _MAX_EMOJI:
        return DropReason.EMOJI
    return DropReason.INJECTION if _ITS_PHRASES.search(normalise(cleaned)) else None


def fitting(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return a text without its middle if it is longer than ``limit`` characters or has more bytes than the protocol allows."""
    clipped = clip_middle(text, limit)
    # Characters outside ASCII take up to four bytes.
    if len(text) * 4 > _MOST_BYTES and (size := len(clipped.encode(errors="replace"))) > _MOST_BYTES:
        return fitting(text, len(clipped) * _MOST_BYTES // size - 16)
    return clipped


def _tail(text: str, limit: int) -> str:
    """Return the last ``limit`` characters of a text, from the start of a word: the end of a response states its result."""
    if len(text) <= limit:
        return text
    end = text[-limit:]
    return end if text[-limit - 1].isspace() else end.partition(" ")[2] or end


def strip_host_log(text: str) -> str:
    """Remove the lines of a host's log from a text, and lines that usually accompany them (MS-16).

    A line ``Error: ...`` stays, because people want it remembered. So does ``WARNING: ...`` in a text without log lines.
    """
    lines = text.split("\n")
    if not any(_HOST_LINE.match(line) for line in lines):
        return text
    return "\n".join(
        line for line in lines if not (_HOST_LINE.match(line) or _BESIDE_HOST_LINES.match(line))
    ).strip()


def _shape(cleaned: str, line: str) -> DropReason | None:
    if not line:
        return DropReason.EMPTY
    emoji = len(_EMOJI.findall(cleaned))
    shapes = (
        (DropReason.COMMAND, is_slash_command(line)),
        (DropReason.CONTROL, is_control_text(line)),
        (DropReason.FILLER, _is_filler(line)),
        (DropReason.MARKUP, _is_markup(cleaned)),
        (DropReason.EMOJI, emoji > _MAX_EMOJI and sum(map(str.isalnum, line)) < 4 * emoji),
        (DropReason.TRANSCRIPT, _is_transcript(cleaned)),
    )
    return next((reason for reason, found in shapes if found), None)


def _is_filler(line: str) -> bool:
    if len(line) > _FILLER_CHARS:
        return False
    # Vowel signs (category M) are part of a word, although `str.isalnum` is false for them.
    words = "".join(
        c if c.isalnum() or c == "'" or unicodedata.category(c)[0] == "M" else " " for c in folded(line)
    ).split()
    # The numbers of first words that are a sequence of filler phrases.
    reachable = {0}
    for start in range(len(words)):
        if start in reachable:
            reachable |= {
                start + size
                for size in range(1, _MAX_FILLER_WORDS + 1)
                if " ".join(words[start : start + size]) in FILLER and start + size <= len(words)
            }
    return len(words) in reachable


def _is_markup(cleaned: str) -> bool:
    """Return whether a text begins with a tag and has an end tag, or consists of code blocks and headings only."""
    if cleaned.lstrip().startswith("<"):
        return "</" in cleaned
    rest = _HEADING.sub("", _FENCE.sub("", cleaned))
    return rest != cleaned and not any(map(str.isalnum, rest))


def _is_transcript(cleaned: str) -> bool:
    lines = [line for line in cleaned.split("\n") if line.strip()]
    labelled = sum(1 for line in lines if _TURN_LABEL.match(line))
    return labelled * 2 > len(lines)
