"""Capture: after a turn, select and clean its new messages and queue them in the outbox.

`capture_turn` compares the host's messages with the session's `TurnCursor` to find the new ones, filters, cleans and redacts
them, and builds the request for the relayer. `Capturer` puts that request into the outbox and moves the cursor in the same
transaction, so that no message is captured twice or lost; it also asks the gates whether the turn may be captured, and turns
every error into a `CaptureReport`. `SenderLimits` bounds what one sender of a group can add.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from gateway_plugin.calls.clock import Clock
from gateway_plugin.capture.filters import judge, judge_cleaned, looked_at
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import audience_name, parse_session_key
from gateway_plugin.outbox.queue import (
    Outbox,
    OutboxFull,
    OutboxItem,
    OutboxUnavailable,
    RevisionConflict,
    ValueUpdate,
)
from gateway_plugin.outbox.sender import Sender, off_loop
from gateway_plugin.sessions import EchoFilter, SessionBook, Watchdog
from gateway_plugin.settings.model import CaptureSettings
from gateway_plugin.text.wrappers import strip
from gateway_plugin.turn.gates import HostTurn, Purpose, Turn
from gateway_plugin.turn.query import ChatMessage, spoken_in_group
from gateway_plugin.turn.status import CaptureReport, NotifyOnce, defect
from relayer.wire import codec as base64url
from relayer.wire.codec import Malformed, Reader, lp
from relayer.wire.fields import Role
from relayer.wire.redaction import redact
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import derive

MAX_REMEMBERED: Final = 256
_SIZE: Final = 16
# Two equal messages in a row are taken for the same position in the history; a single one ("yes") may be equal by chance.
_ENOUGH: Final = 2
# How many turn ids of a session are kept. If a host delivers a turn twice, it does so within minutes.
_MAX_HANDED: Final = 64
_HANDED_SIZE: Final = 8


def fingerprint(key: bytes, message: ChatMessage) -> bytes:
    """Return 16 bytes that identify a message: an HMAC of its id if the host gives one, else of its role and text."""
    what = lp("id", message.id) if message.id is not None else lp("said", message.role, message.text)
    return hmac.new(key, what, hashlib.sha256).digest()[:_SIZE]


@dataclass(frozen=True, slots=True)
class TurnCursor:
    """The position of capture in a session's history.

    Attributes:
        turns: the number of turns that were captured.
        seen: the fingerprints of the last messages, oldest first, at most `MAX_REMEMBERED`.
        handed: the fingerprints of the host's ids of the last turns, oldest first, at most 64.
    """

    turns: int = 0
    seen: tuple[bytes, ...] = ()
    handed: tuple[bytes, ...] = ()

    def new(self, prints: Sequence[bytes]) -> int:
        """Return the index of the first new message in a history of these fingerprints."""
        for end in range(len(prints), 0, -1):
            # How many messages before `end` are equal to the last ones of the cursor, counted backwards.
            backwards = zip(reversed(prints[:end]), reversed(self.seen), strict=False)
            overlap = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], backwards))
            if overlap >= min(end, len(self.seen), _ENOUGH) and overlap:
                return end
        return 0

    def advanced(self, prints: Sequence[bytes], turn: bytes | None = None) -> TurnCursor:
        """Return the cursor after a turn."""
        handed = self.handed if turn is None else (*self.handed, turn)[-_MAX_HANDED:]
        return TurnCursor(self.turns + 1, (*self.seen, *prints)[-MAX_REMEMBERED:], handed)

    def encode(self) -> str:
        """Return the cursor as text for storage. It contains no text of messages, but is stored sealed nevertheless."""
        handed = (b"".join(self.handed),) if self.handed else ()
        return base64url.encode(lp(self.turns, b"".join(self.seen), *handed))

    @classmethod
    def decode(cls, text: str) -> TurnCursor:
        """Return the cursor that `encode` encoded. Raises `Malformed`: the text is not an encoded cursor."""
        reader = Reader(base64url.decode(text))
        turns, seen = reader.integer(), reader.bytes()
        handed = b"" if reader.done else reader.bytes()
        reader.end()
        return cls(turns, _pieces(seen, _SIZE, MAX_REMEMBERED), _pieces(handed, _HANDED_SIZE, _MAX_HANDED))


def _pieces(joined: bytes, size: int, most: int) -> tuple[bytes, ...]:
    if len(joined) % size or len(joined) > most * size:
        raise Malformed("not a turn cursor")
    return tuple(joined[at : at + size] for at in range(0, len(joined), size))


_ECHO: Final = "echo"
_HELD_BACK: Final = "secret"
_OVER_LIMIT: Final = "over_max_messages"
_SHORT_TURN: Final = "turn_too_short"
OVER_SENDER_LIMIT: Final = "over_sender_limit"
MAX_SESSION: Final = 512


@dataclass(frozen=True, slots=True)
class Captured:
    """The result of `capture_turn`.

    Attributes:
        request: the request to send, or None if no message is worth sending.
        cursor: the session's cursor afterwards. It moves even if nothing is sent, so that no message is classified twice.
        new: the number of new messages.
        dropped: the number of new messages that were left out, by reason.
        redacted: the classes of secrets that were removed from the others.
    """

    request: AnalyzeRequest | None = field(repr=False)
    cursor: TurnCursor
    new: int
    dropped: dict[str, int]
    redacted: tuple[str, ...] = ()


def capture_turn(
    messages: Sequence[ChatMessage],
    turn: Turn,
    *,
    cursor: TurnCursor,
    echoes: EchoFilter,
    settings: CaptureSettings,
    now_ms: int,
    room: Callable[[str], int] | None = None,
) -> Captured:
    """Select and clean the new messages of a turn; of a turn that failed, only the user's.

    ``now_ms`` is the time of messages without one. ``room`` returns how many more messages of a speaker may be captured; it
    is None if only one person writes.
    """
    session = turn.session.key
    key = derive(turn.identity.namespace_secret, "capture")
    turn_id = turn.host.turn_id
    named = hmac.new(key, lp("turn id", turn_id), hashlib.sha256).digest()[:_HANDED_SIZE] if turn_id else None
    if named in cursor.handed:
        return Captured(None, cursor, 0, {})
    prints = [fingerprint(key, message) for message in messages]
    start = cursor.new(prints)
    fresh = messages[start:]
    if not fresh:
        return Captured(None, cursor, 0, {})
    after = cursor.advanced(prints[start:], named)
    if turn.failed:
        # The host may try again, and the answer is then captured together with the question. So the messages count as new
        # once more; the relayer recognises what it has.
        fresh = [message for message in fresh if message.role is Role.USER]
        after = cursor.advanced((), named)
    dropped: Counter[str] = Counter()
    judged = (_cleaned(message, echoes, settings, dropped) for message in fresh)
    kept = [item for item in judged if item is not None]
    if room is not None:
        kept = _within(room, kept, dropped)
    if len(kept) > settings.max_messages:
        dropped[_OVER_LIMIT] += len(kept) - settings.max_messages
        kept = _most_wanted(kept, settings.max_messages)
    length = sum(len(item.text) for item in kept)
    if kept and (len(kept) < settings.min_messages or length < settings.min_turn_length):
        dropped[_SHORT_TURN] += len(kept)
        return Captured(None, after, len(fresh), dict(dropped))
    # A turn in which only the assistant wrote is not captured: no user asked to remember it.
    if not any(item.message.role is Role.USER for item in kept):
        return Captured(None, after, len(fresh), dict(dropped))
    stored = settings.store_transcript and bool(session)
    request = AnalyzeRequest(
        turns=tuple(_item(item, now_ms, settings, stored=stored) for item in kept),
        idempotency_key=_idempotency_key(key, session, cursor.turns, kept),
        audience=audience_name(turn.said_to),
        host=turn.host.host[:MAX_SESSION],
        session=session[:MAX_SESSION],
        place=turn.place,
        store_transcript=stored,
    )
    redacted = tuple(sorted({kind for item in kept for kind in item.redacted}))
    return Captured(request, after, len(fresh), dict(dropped), redacted)


@dataclass(frozen=True, slots=True)
class _KeptMessage:
    """A message that is sent to the relayer, with its cleaned text."""

    message: ChatMessage
    text: str
    suspect: bool
    redacted: tuple[str, ...]
    priority: bool = False


def _within(
    room: Callable[[str], int], kept: Sequence[_KeptMessage], dropped: Counter[str]
) -> list[_KeptMessage]:
    """Return the messages that are within the limits of their senders; of each sender, the earliest ones are taken."""
    taken: Counter[str] = Counter()
    chosen: list[_KeptMessage] = []
    for item in kept:
        speaker = item.message.speaker or ""
        if item.message.role is Role.USER:
            if taken[speaker] >= room(speaker):
                dropped[OVER_SENDER_LIMIT] += 1
                continue
            taken[speaker] += 1
        chosen.append(item)
    return chosen


def _most_wanted(kept: Sequence[_KeptMessage], most: int) -> list[_KeptMessage]:
    """Return at most ``most`` messages, in their original order.

    Messages that a user asked to remember are preferred, then the user's last message, then the newest ones (MW-16). The
    user's last message has to be preferred because an assistant at work may write more messages than fit.
    """
    asked = max((at for at, item in enumerate(kept) if item.message.role is Role.USER), default=-1)
    ranked = sorted(range(len(kept)), key=lambda place: (kept[place].priority, place == asked, place))
    return [kept[place] for place in sorted(ranked[-most:])]


def _cleaned(
    message: ChatMessage, echoes: EchoFilter, settings: CaptureSettings, dropped: Counter[str]
) -> _KeptMessage | None:
    looked = message.text[: looked_at(settings)]
    cleaned = message.cleaned if looked == message.text else strip(looked)
    judgement = judge_cleaned(cleaned, origin=message.role, settings=settings)
    if judgement.dropped is not None:
        dropped[judgement.dropped.value] += 1
        return None
    text = echoes.without_echoes(judgement.text, origin=message.role)
    # The text around a removed echo, such as "Here is what I found:", must be worth capturing by itself.
    if not text or (text != judgement.text and judge(text, origin=message.role, settings=settings).dropped):
        dropped[_ECHO] += 1
        return None
    # Redaction is the last step, so that no later step can bring back a secret.
    clean = redact(text, settings.redaction)
    if clean.blocked:
        dropped[_HELD_BACK] += 1
        return None
    return _KeptMessage(message, clean.text, bool(judgement.suspect), clean.kinds, judgement.priority)


def _item(item: _KeptMessage, now_ms: int, settings: CaptureSettings, *, stored: bool) -> TurnItem:
    message = item.message
    calls = tuple(redact(name, settings.redaction).text for name in message.calls) if stored else ()
    return TurnItem(
        role=message.role,
        text=item.text,
        occurred_at=message.at if message.at is not None else now_ms,
        id=message.id,
        speaker=message.speaker,
        suspect=item.suspect,
        **({"calls": calls} if calls else {}),
        **({"sender": message.sender} if message.sender else {}),
    )


def _idempotency_key(key: bytes, session: str, ordinal: int, kept: Sequence[_KeptMessage]) -> str:
    """Return the idempotency key of the kept messages.

    It is derived from their roles and texts, and from their ids if all have one, else from the turn's number in the session.
    """
    identified = all(item.message.id is not None for item in kept)
    place: list[str] = [item.message.id or "" for item in kept] if identified else [str(ordinal)]
    said = [lp(item.message.role, item.text) for item in kept]
    return hmac.new(key, lp("turn", session, place, said), hashlib.sha256).hexdigest()


_ATTEMPTS: Final = 5
_HOUR: Final = 3600.0
MAX_PER_SENDER: Final = 40
"""Messages that one sender of a group can add to memory in an hour: one every minute and a half."""
_MAX_SENDERS: Final = 1024


class SenderLimits:
    """Counts of the messages that each sender of a group added in the last hour, in this process.

    At most 1,024 senders are counted; beyond that, the one that was counted least recently is forgotten.

    Example:
        limits.room("acme/main", "Kim", now=0.0)        # 40
        limits.add("acme/main", ["Kim"], now=0.0)
        limits.room("acme/main", "Kim", now=1.0)        # 39
    """

    def __init__(self) -> None:
        self._added: OrderedDict[tuple[str, str], list[float]] = OrderedDict()

    def room(self, namespace: str, sender: str, *, now: float) -> int:
        """Return how many more messages of a sender may be captured; ``now`` is the monotonic time in seconds."""
        recent = [at for at in self._added.get((namespace, sender), ()) if now - at < _HOUR]
        return max(0, MAX_PER_SENDER - len(recent))

    def add(self, namespace: str, senders: Iterable[str], *, now: float) -> None:
        """Count one message for each element of ``senders``; ``now`` is the monotonic time in seconds."""
        for sender in senders:
            name = (namespace, sender)
            self._added[name] = [at for at in self._added.pop(name, []) if now - at < _HOUR] + [now]
        while len(self._added) > _MAX_SENDERS:
            self._added.popitem(last=False)


# The gates decide about a message, and the end of a session has none, so this text is used.
_ENDING: Final = "The session ends."


class Capturer:
    """Captures turns for all sessions of one plugin: gates, filters and the outbox, with every error as a status.

    Captures run one at a time: two captures of one session must not both take the same message for new.
    """

    def __init__(
        self,
        outbox: Outbox,
        settings: CaptureSettings,
        clock: Clock,
        *,
        sender: Sender,
        client: RelayerClient,
        book: SessionBook,
        watchdog: Watchdog,
        notify_once: NotifyOnce,
    ) -> None:
        self._outbox = outbox
        self._settings = settings
        self._clock = clock
        self._sender = sender
        self._client = client
        self._book = book
        self._watchdog = watchdog
        self._notify_once = notify_once
        self._lock = asyncio.Lock()
        self._senders = SenderLimits()

    async def capture(
        self, messages: tuple[ChatMessage, ...], *, key: str | None, host: HostTurn, success: bool
    ) -> CaptureReport:
        """Capture the new messages of a turn. Errors are returned as a status and never raised.

        If the outbox is full or cannot be written, the cursor does not move, so the next turn tries again.
        """
        try:
            return await self._gated(messages, key, host, success=success)
        except OutboxUnavailable as error:
            self._notify_once(str(error))
            return CaptureReport("unwritable", detail=str(error))
        except OutboxFull as error:
            return CaptureReport("full", waiting=self._outbox.waiting(), detail=str(error))
        except GatewayError as error:
            return CaptureReport(error.outcome, waiting=self._outbox.waiting(), detail=str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not break the user's turn
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=defect(error))

    async def end(self, key: str | None, host: HostTurn) -> bool:
        """Queue the end of a session, so that the relayer can summarise it, and return whether it was queued.

        It is not if memory is off for the session, no turn of it was captured since its last queued end, or the outbox is
        full or unavailable.
        """
        try:
            turn = self._book.turn(parse_session_key(key or ""), host, _ENDING, Purpose.CAPTURE)
            # An end that is being queued is completed even if the caller is cancelled.
            queued = turn.decision.allowed and await asyncio.shield(
                asyncio.ensure_future(self._queue_end(turn))
            )
        except (GatewayError, OutboxFull):
            return False
        if queued:
            self._sender.wake()
        return queued

    async def _gated(
        self, messages: tuple[ChatMessage, ...], key: str | None, host: HostTurn, *, success: bool
    ) -> CaptureReport:
        chat = parse_session_key(key or "")
        if host.among_several(chat):
            person = self._book.ungated_turn(chat, host).person
            messages = spoken_in_group(messages, person=person, sender=host.sender or "")
        if messages:
            self._watchdog.handed_over()
        said = next((message.query for message in reversed(messages) if message.role is Role.USER), "")
        turn = self._book.turn(chat, host, said, Purpose.CAPTURE, success=success)
        decision = turn.decision
        if not decision.allowed:
            waiting = self._outbox.waiting()
            return CaptureReport(f"skipped:{decision.gate}", waiting=waiting, detail=decision.reason)
        namespace = turn.identity.namespace
        session = self._book.state(namespace, turn.session.key)
        # If an error is raised below, this report remains.
        session.captured = CaptureReport("failed") if messages else session.captured
        # A capture that has started is completed even if the caller is cancelled.
        report = await asyncio.shield(asyncio.ensure_future(self._capture(messages, turn, session.echoes)))
        session.captured = report if messages else session.captured
        if report.dropped.get(OVER_SENDER_LIMIT):
            self._notify_once(
                f"a sender in a group wrote more than {MAX_PER_SENDER} messages in an hour: the further ones are not stored"
            )
        if report.queued:
            self._client.note_write(namespace)
            self._sender.wake()
        return report

    async def _queue_end(self, turn: Turn) -> bool:
        session = turn.session.key
        owner, name = turn.identity.ref, f"ended:{session}"
        async with self._lock:
            turns = _decoded(self._outbox.get(owner, f"cursor:{session}").value).turns
            ended = self._outbox.get(owner, name)
            place = str(turns).encode()
            if not session or not turns or ended.value == place:
                return False
            key = derive(turn.identity.namespace_secret, "capture")
            request = AnalyzeRequest(
                turns=(),
                session=session[:MAX_SESSION],
                session_end=True,
                audience=audience_name(turn.said_to),
                host=turn.host.host[:MAX_SESSION],
                **({"place": turn.place} if turn.place else {}),
                idempotency_key=hmac.new(key, lp("session_end", session, turns), hashlib.sha256).hexdigest(),
            )
            item = OutboxItem(owner, request, int(self._clock.now() * 1000))
            try:
                await off_loop(
                    self._outbox, self._outbox.put, item, ValueUpdate(owner, name, place, ended.revision)
                )
            except RevisionConflict:
                return False  # another process queued the end
            return True

    async def _capture(
        self, messages: Sequence[ChatMessage], turn: Turn, echoes: EchoFilter
    ) -> CaptureReport:
        owner, name = turn.identity.ref, f"cursor:{turn.session.key}"
        grouped = turn.host.among_several(turn.session) and not turn.host.earlier
        space, now = turn.identity.namespace, self._clock.monotonic()

        def room(speaker: str) -> int:
            return self._senders.room(space, speaker or turn.host.sender or "", now=now)

        async with self._lock:
            for _ in range(_ATTEMPTS):
                kept = self._outbox.get(owner, name)
                cursor = _decoded(kept.value)
                now_ms = int(self._clock.now() * 1000)
                captured = capture_turn(
                    messages,
                    turn,
                    cursor=cursor,
                    echoes=echoes,
                    settings=self._settings,
                    now_ms=now_ms,
                    room=room if grouped else None,
                )
                if captured.cursor == cursor:
                    # A request always moves the cursor, see `TurnCursor.advanced`: here there is none.
                    return self._report(captured)
                request = captured.request
                update = ValueUpdate(owner, name, captured.cursor.encode().encode(), kept.revision)
                try:
                    if request is None:
                        await off_loop(self._outbox, self._outbox.compare_and_set, update)
                    else:
                        item = OutboxItem(owner, request, now_ms)
                        await off_loop(self._outbox, self._outbox.put, item, update)
                except RevisionConflict:
                    # Another process has just captured turns of this session, so find out again which messages are new.
                    continue
                report = self._report(captured)
                if grouped and request is not None:
                    said = [one for one in request.turns if one.role is Role.USER]
                    speakers = [one.speaker or turn.host.sender or "" for one in said]
                    self._senders.add(space, speakers, now=now)
                return report
            detail = "another process is capturing the same session"
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=detail)

    def _report(self, captured: Captured) -> CaptureReport:
        queued = 0 if captured.request is None else len(captured.request.turns)
        return CaptureReport(
            "queued" if queued else "empty",
            new=captured.new,
            queued=queued,
            dropped=captured.dropped,
            waiting=self._outbox.waiting(),
            redacted=captured.redacted,
        )


def _decoded(value: bytes) -> TurnCursor:
    try:
        return TurnCursor.decode(value.decode()) if value else TurnCursor()
    except (Malformed, UnicodeDecodeError):
        return TurnCursor()
