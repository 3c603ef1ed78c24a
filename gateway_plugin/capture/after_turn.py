"""The second half of a turn: gates, whose turn it was, then into the outbox; and the end of a session likewise."""

from __future__ import annotations

from typing import Final

from gateway_plugin.capture.capturer import Capturer
from gateway_plugin.errors import GatewayError
from gateway_plugin.gates import Purpose, gate
from gateway_plugin.outbox import Outbox, OutboxFull, OutboxUnavailable
from gateway_plugin.outbox.sender import Sender
from gateway_plugin.query import Role, clean_query
from gateway_plugin.recall.recaller import Recaller
from gateway_plugin.session_keys import parse_session_key
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import CaptureReport, ToldOnce, defect, status_of
from gateway_plugin.turn.host_turn import HostTurn, Identities
from gateway_plugin.turn.sessions import Sessions, Watchdog
from gateway_plugin.turn.switches import Switches
from gateway_plugin.turn.transcript import ChatMessage

# Stands for a message where the gates are asked about a session and not about one.
_ENDING: Final = "The session ends."


class TurnCapture:
    """Captures the turns of one plugin.

    Args:
        capturer: puts what is new into the outbox.
        outbox: counts what waits.
        sender: woken when something does.
        recaller: forgets its answers about a namespace that is written to.
        identities: whose turns they are.
        switches: what a person switched off.
        sessions: what was injected, and is no news when it comes back.
        settings: all of them.
        watchdog: counts the turns that were handed over.
        told: told what a person must put right.
    """

    def __init__(
        self,
        capturer: Capturer,
        outbox: Outbox,
        sender: Sender,
        recaller: Recaller,
        *,
        identities: Identities,
        switches: Switches,
        sessions: Sessions,
        settings: PluginSettings,
        watchdog: Watchdog,
        told: ToldOnce,
    ) -> None:
        self._capturer = capturer
        self._outbox = outbox
        self._sender = sender
        self._recaller = recaller
        self._identities = identities
        self._switches = switches
        self._sessions = sessions
        self._settings = settings
        self._watchdog = watchdog
        self._told = told

    async def capture(
        self, messages: tuple[ChatMessage, ...], *, key: str | None, host: HostTurn, success: bool
    ) -> CaptureReport:
        """Capture what is new of a turn; whatever goes wrong is a status.

        Args:
            messages: as the host handed them over.
            key: the host's session key; None outside any chat session.
            host: what else the host knows.
            success: whether the run ended well.
        """
        try:
            return await self._capture(messages, key, host, success=success)
        except OutboxUnavailable as error:
            self._told.tell(str(error))
            return CaptureReport("unwritable", detail=str(error))
        except OutboxFull as error:
            return CaptureReport("full", waiting=self._outbox.waiting(), detail=str(error))
        except GatewayError as error:
            return CaptureReport(status_of(error), waiting=self._outbox.waiting(), detail=str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=defect(error))

    async def end(self, key: str | None, host: HostTurn) -> bool:
        """Queue that a session ended; False where memory is off for it, nothing was captured, or there is no room."""
        ref = parse_session_key(key or "")
        try:
            context = self._switches.context(ref, _ENDING, host)
            if not gate(context, self._settings, Purpose.CAPTURE).allowed:
                return False
            told = await self._capturer.end(identity=self._identities.of_turn(ref, host), ref=ref, host=host)
        except (GatewayError, OutboxFull):
            return False
        if told:
            self._sender.wake()
        return told

    async def _capture(
        self, messages: tuple[ChatMessage, ...], key: str | None, host: HostTurn, *, success: bool
    ) -> CaptureReport:
        if messages:
            self._watchdog.handed_over()
        ref = parse_session_key(key or "")
        said = next((message.text for message in reversed(messages) if message.role is Role.USER), "")
        context = self._switches.context(ref, clean_query(said), host, success=success)
        decision = gate(context, self._settings, Purpose.CAPTURE)
        if not decision.allowed:
            waiting = self._outbox.waiting()
            return CaptureReport(f"skipped:{decision.gate}", waiting=waiting, detail=decision.reason)
        identity = self._identities.of_turn(ref, host)
        session = self._sessions.of(identity.namespace, ref.key)
        report = await self._capturer.capture(
            messages, identity=identity, session=session, ref=ref, host=host
        )
        if report.queued:
            self._recaller.drop(identity.namespace)
            self._sender.wake()
        return report
