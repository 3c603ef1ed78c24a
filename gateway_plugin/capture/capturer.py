"""After a turn: from the host's messages to an item in the outbox, with the session's cursor moved in the same instant."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from gateway_plugin.capture.cursor import TurnCursor
from gateway_plugin.capture.request import MAX_SESSION, Captured, capture_turn
from gateway_plugin.clock import Clock
from gateway_plugin.identity import Identity
from gateway_plugin.outbox import Mark, MarkMoved, Outbox, OutboxItem, Waiting
from gateway_plugin.outbox.sender import off_loop
from gateway_plugin.session_keys import SessionRef, audience_name
from gateway_plugin.settings import CaptureSettings
from gateway_plugin.status import CaptureReport
from gateway_plugin.turn.host_turn import HostTurn
from gateway_plugin.turn.identities import owner_of
from gateway_plugin.turn.messages import ChatMessage
from gateway_plugin.turn.sessions import Session
from relayer.wire.errors import Malformed
from relayer.wire.keys import derive
from relayer.wire.lp import lp
from relayer.wire.schemas import AnalyzeRequest

__all__ = ["Capturer"]

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
