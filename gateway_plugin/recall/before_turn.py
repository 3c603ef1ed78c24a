"""The first half of a turn: gates, whose turn it is, then the recall, with a trace of all of it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from gateway_plugin.errors import GatewayError
from gateway_plugin.formatting import namespace_instruction
from gateway_plugin.gates import explain
from gateway_plugin.query import Role, clean_query
from gateway_plugin.recall.recaller import Recaller
from gateway_plugin.session_keys import SessionRef, parse_session_key
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import Injection, TurnTrace, defect, status_of
from gateway_plugin.telling import ToldOnce
from gateway_plugin.turn.host_turn import HostTurn
from gateway_plugin.turn.identities import Identities, owner_of
from gateway_plugin.turn.last_turn import LastTurn
from gateway_plugin.turn.messages import ChatMessage
from gateway_plugin.turn.sessions import Sessions
from gateway_plugin.turn.switches import Switches
from gateway_plugin.turn.watchdog import Watchdog

__all__ = ["TurnRecall"]

# Not what a person switched off, said to the host, or had nothing to do with.
_WONDERED_ABOUT: Final = frozenset({"agents", "session_pattern", "chat_type", "min_length", "skip_pattern"})
_ROLLED_BACK: Final = (
    "memories that this gateway has seen are gone from the store. Nothing is recalled until the store is put right, or a "
    "person accepts it as it is: memrelay-gateway acknowledge"
)


class TurnRecall:
    """Recalls for the turns of one plugin; `last` tells of the latest.

    Args:
        recaller: searches.
        identities: whose turns they are.
        switches: what a person switched off.
        sessions: what was injected before.
        settings: all of them.
        last: keeps the trace.
        watchdog: counts the turns that recalled.
        told: told what a person must put right.
    """

    def __init__(
        self,
        recaller: Recaller,
        *,
        identities: Identities,
        switches: Switches,
        sessions: Sessions,
        settings: PluginSettings,
        last: LastTurn,
        watchdog: Watchdog,
        told: ToldOnce,
    ) -> None:
        self._recaller = recaller
        self._identities = identities
        self._switches = switches
        self._sessions = sessions
        self._settings = settings
        self._last = last
        self._watchdog = watchdog
        self._told = told

    async def recall(
        self,
        prompt: str,
        earlier: tuple[ChatMessage, ...],
        *,
        key: str | None,
        host: HostTurn,
        seconds: float,
    ) -> Injection:
        """Recall for a turn; whatever goes wrong is a status.

        Args:
            prompt: the user's message as the host has it, as text that can be sent.
            earlier: the conversation so far, with the message or without.
            key: the host's session key; None outside any chat session.
            host: what else the host knows.
            seconds: the deadline for all of it.
        """
        try:
            injection, trace = await self._recall(prompt, _before(prompt, earlier), key, host, seconds)
        except GatewayError as error:
            injection, trace = self._silent(status_of(error), str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            injection, trace = self._silent("failed", defect(error))
        self._last.saw(self._identities.namespace_of(key, host), key or "", trace)
        return injection

    async def _recall(
        self, prompt: str, earlier: tuple[ChatMessage, ...], key: str | None, host: HostTurn, seconds: float
    ) -> tuple[Injection, TurnTrace]:
        ref = parse_session_key(key or "")
        context = self._switches.context(ref, clean_query(prompt), host)
        objection = self._recaller.gated(context)
        if objection is not None:
            self._note_stopped(ref, host, objection[1])
            return objection
        identity = self._identities.of_turn(ref, host)
        self._watchdog.recalled()
        try:
            injection, trace = await self._recaller.recall(
                prompt,
                earlier,
                identity=identity,
                session=self._sessions.of(identity.namespace, ref.key),
                audience=host.heard_by(ref),
                seconds=seconds,
                active=self._recaller.active_gate(context),
                first_turn=host.first_turn,
                model=host.model,
            )
        except Exception as error:  # noqa: BLE001 - as in `recall`; whose turn it is stays known
            injection, trace = self._silent("failed", defect(error))
        if self._settings.recall.namespace_instruction:
            injection = replace(injection, instruction=namespace_instruction(identity.namespace))
        if injection.status == "refused:rollback_detected":
            self._told.tell(f"agent {identity.agent}: {injection.detail}; {_ROLLED_BACK}")
        trace = replace(trace, gates=explain(context, self._settings))
        self._last.note(owner_of(identity), trace)
        return injection, trace

    def _note_stopped(self, ref: SessionRef, host: HostTurn, trace: TurnTrace) -> None:
        """Note a turn in which a person asked something and a setting kept memory out: that is what they will wonder about."""
        if trace.status.removeprefix("skipped:") in _WONDERED_ABOUT:
            with contextlib.suppress(GatewayError):
                self._last.note(owner_of(self._identities.of_turn(ref, host)), trace)

    def _silent(self, status: str, detail: str) -> tuple[Injection, TurnTrace]:
        injection = Injection("", self._settings.recall.position, status, detail=detail)
        return injection, TurnTrace(status, detail)


def _before(prompt: str, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Drop the latest message from the history where the host put it there too."""
    if messages and messages[-1].role is Role.USER and messages[-1].text == prompt:
        return messages[:-1]
    return messages
