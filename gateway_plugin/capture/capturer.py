"""After a turn: from the host's messages to an item in the outbox, with the session's cursor moved in the same instant."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.capture.filters import Origin, judge
from gateway_plugin.clock import Clock
from gateway_plugin.identity import Identity
from gateway_plugin.outbox import Mark, MarkMoved, Outbox, OutboxItem, Waiting
from gateway_plugin.outbox.sender import off_loop
from gateway_plugin.query import Role
from gateway_plugin.session_keys import Audience, SessionRef, audience_name
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.status import CaptureReport
from gateway_plugin.turn.host_turn import HostTurn, owner_of
from gateway_plugin.turn.sessions import EchoFilter, Session
from gateway_plugin.turn.transcript import ChatMessage
from relayer.wire import codec as base64url
from relayer.wire.codec import Reader, lp
from relayer.wire.errors import Malformed
from relayer.wire.keys import derive
from relayer.wire.redaction import redact
from relayer.wire.schemas import AnalyzeRequest, TurnItem

MAX_REMEMBERED: Final = 256
_SIZE: Final = 16
# Two messages in a row that agree are taken for the same place of a history; one alone ("yes") happens by chance.
_ENOUGH: Final = 2


def fingerprint(key: bytes, message: ChatMessage) -> bytes:
    """Return 16 bytes that stand for a message: of its id where the host gives one, else of what it says."""
    what = lp("id", message.id) if message.id is not None else lp("said", message.role.value, message.text)
    return hmac.new(key, what, hashlib.sha256).digest()[:_SIZE]


@dataclass(frozen=True, slots=True)
class TurnCursor:
    """Where a session's capture stands: how many turns were captured, and the last messages seen, oldest first."""

    turns: int = 0
    seen: tuple[bytes, ...] = ()

    def new(self, prints: Sequence[bytes]) -> int:
        """Return the index of the first message that is new."""
        for end in range(len(prints), 0, -1):
            overlap = self._overlap(prints, end)
            if overlap >= min(end, len(self.seen), _ENOUGH) and overlap:
                return end
        return 0

    def _overlap(self, prints: Sequence[bytes], end: int) -> int:
        """Count the messages before ``end`` that agree with the last ones seen."""
        count = 0
        for given, known in zip(reversed(prints[:end]), reversed(self.seen), strict=False):
            if given != known:
                break
            count += 1
        return count

    def advanced(self, prints: Sequence[bytes]) -> TurnCursor:
        """Return the cursor after a turn of these new messages."""
        return TurnCursor(self.turns + 1, (*self.seen, *prints)[-MAX_REMEMBERED:])

    def encode(self) -> str:
        """Encode for storage; holds no text, but is sealed all the same."""
        return base64url.encode(lp(self.turns, b"".join(self.seen)))

    @classmethod
    def decode(cls, text: str) -> TurnCursor:
        """Decode.

        Raises:
            Malformed: not an encoded cursor.
        """
        reader = Reader(base64url.decode(text))
        turns, joined = reader.integer(), reader.bytes()
        reader.end()
        if len(joined) % _SIZE or len(joined) > MAX_REMEMBERED * _SIZE:
            raise Malformed("not a turn cursor")
        return cls(turns, tuple(joined[at : at + _SIZE] for at in range(0, len(joined), _SIZE)))


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


_ATTEMPTS: Final = 5


class Capturer:
    """Captures the turns of one plugin, one at a time: two captures of one session must not both call a message new."""

    def __init__(self, outbox: Outbox, settings: CaptureSettings, clock: Clock) -> None:
        self._outbox = outbox
        self._settings = settings
        self._clock = clock
        self._turn = asyncio.Lock()

    async def capture(
        self,
        messages: Sequence[ChatMessage],
        *,
        identity: Identity,
        session: Session,
        ref: SessionRef,
        host: HostTurn,
    ) -> CaptureReport:
        """Capture what is new; done, or not done at all, also when the caller is cancelled meanwhile.

        Raises:
            OutboxFull: no room; the cursor stays, so that the next turn tries again.
            OutboxUnavailable: the file cannot be written; likewise.
        """
        work = self._capture(messages, identity=identity, session=session, ref=ref, host=host)
        return await asyncio.shield(asyncio.ensure_future(work))

    async def end(self, *, identity: Identity, ref: SessionRef, host: HostTurn) -> bool:
        """Queue that a session ended, so that the relayer can say in short what it was about.

        Once for what was captured of it; False when there is nothing, or nothing new, to say that about. Raises as
        `capture`.
        """
        return await asyncio.shield(asyncio.ensure_future(self._end(identity, ref, host)))

    async def _end(self, identity: Identity, ref: SessionRef, host: HostTurn) -> bool:
        owner, name = owner_of(identity), f"ended:{ref.key}"
        async with self._turn:
            turns = _decoded(self._outbox.kept(owner, f"cursor:{ref.key}").value).turns
            ended = self._outbox.kept(owner, name)
            place = str(turns).encode()
            if not ref.key or not turns or ended.value == place:
                return False
            request = AnalyzeRequest(
                turns=(),
                session=ref.key[:MAX_SESSION],
                session_end=True,
                audience=audience_name(host.said_to(ref)),
                host=host.host[:MAX_SESSION],
                idempotency_key=_ending_key(identity, ref.key, turns),
            )
            item = OutboxItem(owner, request, int(self._clock.now() * 1000))
            try:
                await off_loop(self._outbox, self._outbox.put, item, Mark(owner, name, place, ended.revision))
            except MarkMoved:
                return False  # another process said so
            return True

    async def _capture(
        self,
        messages: Sequence[ChatMessage],
        *,
        identity: Identity,
        session: Session,
        ref: SessionRef,
        host: HostTurn,
    ) -> CaptureReport:
        owner, name = owner_of(identity), f"cursor:{ref.key}"
        async with self._turn:
            for _ in range(_ATTEMPTS):
                kept = self._outbox.kept(owner, name)
                cursor = _decoded(kept.value)
                now_ms = int(self._clock.now() * 1000)
                captured = capture_turn(
                    messages,
                    identity=identity,
                    session=ref.key,
                    cursor=cursor,
                    echoes=session.echoes,
                    settings=self._settings,
                    audience=host.said_to(ref),
                    now_ms=now_ms,
                    host=host.host,
                )
                if captured.cursor == cursor:
                    return self._report(captured, queued=0)
                mark = Mark(owner, name, captured.cursor.encode().encode(), kept.revision)
                try:
                    return await self._queue(captured, owner, mark, now_ms)
                except MarkMoved:
                    # Another process captured this session just now: what is new is another question now.
                    continue
            detail = "another process keeps capturing the same session"
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=detail)

    async def _queue(self, captured: Captured, owner: Waiting, mark: Mark, now_ms: int) -> CaptureReport:
        if captured.request is None:
            await off_loop(self._outbox, self._outbox.keep, mark)
            return self._report(captured, queued=0)
        await off_loop(self._outbox, self._outbox.put, OutboxItem(owner, captured.request, now_ms), mark)
        return self._report(captured, queued=len(captured.request.turns))

    def _report(self, captured: Captured, *, queued: int) -> CaptureReport:
        return CaptureReport(
            "queued" if queued else "empty",
            new=captured.new,
            queued=queued,
            dropped=captured.dropped,
            waiting=self._outbox.waiting(),
            redacted=captured.redacted,
        )


def _ending_key(identity: Identity, session: str, turns: int) -> str:
    key = derive(identity.namespace_secret, "capture")
    return hmac.new(key, lp("session_end", session, turns), hashlib.sha256).hexdigest()


def _decoded(value: bytes) -> TurnCursor:
    try:
        return TurnCursor.decode(value.decode()) if value else TurnCursor()
    except (Malformed, UnicodeDecodeError):
        return TurnCursor()
