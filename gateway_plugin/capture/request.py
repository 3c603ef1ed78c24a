"""From the messages of a session to one request for analysis, or to the reason why there is none.

Pure: who speaks, what was captured before and what was injected arrive as values; nothing is sent here.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.capture.cursor import TurnCursor, fingerprint
from gateway_plugin.capture.filters import Origin, judge
from gateway_plugin.identity import Identity
from gateway_plugin.query import Role
from gateway_plugin.session_keys import Audience, audience_name
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.turn.echoes import EchoFilter
from gateway_plugin.turn.messages import ChatMessage
from relayer.wire.keys import derive
from relayer.wire.lp import lp
from relayer.wire.redaction import redact
from relayer.wire.schemas import AnalyzeRequest, TurnItem

__all__ = ["MAX_SESSION", "Captured", "capture_turn"]

_ECHO: Final = "echo"
_HELD_BACK: Final = "secret"
_OVER_LIMIT: Final = "over_max_messages"
_SHORT_TURN: Final = "turn_too_short"
MAX_SESSION: Final = 512


@dataclass(frozen=True, slots=True)
class Captured:
    """What capture made of a turn.

    Attributes:
        request: what to send, or None when nothing is worth sending.
        cursor: the session's cursor afterwards; moved also when nothing is sent, so that nothing is judged twice.
        new: how many messages were new.
        dropped: how many of them were left out, by reason.
        redacted: the classes of secrets that were taken out of the rest.
    """

    request: AnalyzeRequest | None = field(repr=False)
    cursor: TurnCursor
    new: int
    dropped: dict[str, int]
    redacted: tuple[str, ...] = ()


def capture_turn(
    messages: Sequence[ChatMessage],
    *,
    identity: Identity,
    session: str,
    cursor: TurnCursor,
    echoes: EchoFilter,
    settings: CaptureSettings,
    audience: Audience | None,
    now_ms: int,
    host: str = "",
) -> Captured:
    """Choose and clean what is new.

    Args:
        messages: the host's history, a window of it, or the last turn.
        identity: whose memories they become.
        session: the session key.
        cursor: the session's cursor so far.
        echoes: what was injected into the session.
        settings: the filters' bounds.
        audience: who could read the conversation.
        now_ms: the time of messages to which the host gives none, in ms since the epoch.
        host: the host's name.
    """
    key = derive(identity.namespace_secret, "capture")
    prints = [fingerprint(key, message) for message in messages]
    start = cursor.new(prints)
    fresh = messages[start:]
    if not fresh:
        return Captured(None, cursor, 0, {})
    after = cursor.advanced(prints[start:])
    dropped: Counter[str] = Counter()
    judged = (_cleaned(message, echoes, settings, dropped) for message in fresh)
    kept = [item for item in judged if item is not None]
    if len(kept) > settings.max_messages:
        dropped[_OVER_LIMIT] += len(kept) - settings.max_messages
        kept = kept[-settings.max_messages :]
    length = sum(len(item.text) for item in kept)
    if kept and (len(kept) < settings.min_messages or length < settings.min_turn_length):
        dropped[_SHORT_TURN] += len(kept)
        return Captured(None, after, len(fresh), dict(dropped))
    # What only the assistant said, nobody asked to remember.
    if not any(item.message.role is Role.USER for item in kept):
        return Captured(None, after, len(fresh), dict(dropped))
    stored = settings.store_transcript and bool(session)
    request = AnalyzeRequest(
        turns=tuple(_turn(item, now_ms, settings, stored=stored) for item in kept),
        idempotency_key=_idempotency_key(key, session, cursor.turns, kept),
        audience=audience_name(audience),
        host=host[:MAX_SESSION],
        session=session[:MAX_SESSION],
        # Said only where it is asked for: a relayer of before it would take it for a mistake.
        **({"store_transcript": True} if stored else {}),
    )
    redacted = tuple(sorted({kind for item in kept for kind in item.redacted}))
    return Captured(request, after, len(fresh), dict(dropped), redacted)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message that goes to the relayer, as it goes there."""

    message: ChatMessage
    text: str
    suspect: bool
    redacted: tuple[str, ...]


def _cleaned(
    message: ChatMessage, echoes: EchoFilter, settings: CaptureSettings, dropped: Counter[str]
) -> _Kept | None:
    origin = Origin.USER if message.role is Role.USER else Origin.ASSISTANT
    judgement = judge(message.text, origin=origin, settings=settings)
    if judgement.dropped is not None:
        dropped[judgement.dropped.value] += 1
        return None
    text = echoes.without_echoes(judgement.text)
    # What is left around an echo ("Here is what I found:") must say something by itself.
    if not text or (text != judgement.text and judge(text, origin=origin, settings=settings).dropped):
        dropped[_ECHO] += 1
        return None
    # Last, so that nothing that is added later can bring back what was taken out.
    clean = redact(text, settings.redaction)
    if clean.blocked:
        dropped[_HELD_BACK] += 1
        return None
    return _Kept(message, clean.text, bool(judgement.suspect), clean.kinds)


def _turn(item: _Kept, now_ms: int, settings: CaptureSettings, *, stored: bool) -> TurnItem:
    message = item.message
    calls = tuple(redact(name, settings.redaction).text for name in message.calls) if stored else ()
    return TurnItem(
        role=message.role.value,
        text=item.text,
        occurred_at=message.at if message.at is not None else now_ms,
        id=message.id,
        speaker=message.speaker,
        suspect=item.suspect,
        **({"calls": calls} if calls else {}),
    )


def _idempotency_key(key: bytes, session: str, ordinal: int, kept: Sequence[_Kept]) -> str:
    """Derive the key from what is sent: by message ids where all have one, else by the turn's ordinal."""
    identified = all(item.message.id is not None for item in kept)
    place: list[str] = [item.message.id or "" for item in kept] if identified else [str(ordinal)]
    said = [lp(item.message.role.value, item.text) for item in kept]
    return hmac.new(key, lp("turn", session, place, said), hashlib.sha256).hexdigest()
