"""Before a turn: from a prompt to the block that goes into it, under one deadline, with a reason for every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from gateway_plugin.active import ActiveRecaller, Reminder
from gateway_plugin.client import RelayerClient
from gateway_plugin.clock import Clock
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.gates import Decision, Purpose, TurnContext, explain, gate
from gateway_plugin.identity import Identity
from gateway_plugin.outbox.positions import Positions
from gateway_plugin.outbox.sender import Sender
from gateway_plugin.query import build_query
from gateway_plugin.recall.active_traces import ActiveTraces
from gateway_plugin.recall.cache import RecallCache
from gateway_plugin.recall.cold_start import fetch
from gateway_plugin.recall.selection import Selected, audible_to, select
from gateway_plugin.session_keys import Audience
from gateway_plugin.settings import PluginSettings, RecallMode, RecallSettings
from gateway_plugin.status import Injection, TurnTrace, status_of
from gateway_plugin.turn.identities import owner_of
from gateway_plugin.turn.messages import ChatMessage, history
from gateway_plugin.turn.sessions import Session
from relayer.wire.redaction import redact
from relayer.wire.schemas import RecallRequest, RecallResponse, SourcePenalty

__all__ = ["Recaller"]

# What the turn before wrote should be found, but waiting for it must leave time to search.
_SHARE_FOR_OWN_WRITES: Final = 0.75
_SPARE: Final = 4
# After these, the relayer is known to be there.
_ANSWERED: Final = frozenset({"ok", "empty"})
_LEAST_SECONDS: Final = 0.001


class Recaller:
    """Recalls for the turns of one plugin; `trace` tells about the last one."""

    def __init__(
        self,
        client: RelayerClient,
        sender: Sender,
        settings: PluginSettings,
        clock: Clock,
        positions: Positions,
        *,
        traces: ActiveTraces | None = None,
    ) -> None:
        self.cache: RecallCache[RecallRequest, RecallResponse] = RecallCache(clock)
        client.watch_writes(self.cache.drop)
        self._active = ActiveRecaller(client, settings, clock, traces=traces)
        self.recalls = 0
        self._client = client
        self._sender = sender
        self._settings = settings
        self._clock = clock
        self._positions = positions

    def drop(self, namespace: str) -> None:
        """Forget a namespace's answers: something was, or is about to be, written."""
        self.cache.drop(namespace)
        self._active.cache.drop(namespace)

    async def recall(
        self,
        prompt: str,
        earlier: Sequence[ChatMessage],
        *,
        identity: Identity,
        session: Session,
        audience: Audience | None,
        seconds: float,
        active: Decision | None = None,
        first_turn: bool = False,
        model: str = "",
    ) -> tuple[Injection, TurnTrace]:
        """Recall for a turn that the gates let through, and tell a session that begins what was said lately.

        Args:
            prompt: the latest user message as the host has it.
            earlier: the conversation before it.
            identity: whose memories.
            session: the chat session.
            audience: who reads the answer.
            seconds: the deadline for all of it.
            active: what the gates say about active mode; None in direct mode.
            first_turn: the session begins.
            model: the chat session's model, for active mode.
        """
        start = self._clock.monotonic()
        end = start + seconds
        injection, trace = await self._recalled(
            prompt,
            earlier,
            identity=identity,
            session=session,
            audience=audience,
            seconds=seconds,
            active=active,
            model=model,
        )
        if (
            not first_turn
            or not self._settings.recall.cold_start.enabled
            or injection.status not in _ANSWERED
        ):
            return injection, trace
        try:
            begun = await fetch(
                self._client,
                self._settings.recall,
                identity=identity,
                audience=audience,
                now=datetime.fromtimestamp(self._clock.now(), UTC).astimezone(),
                seconds=max(end - self._clock.monotonic(), _LEAST_SECONDS),
            )
        except GatewayError:
            # The turn has its memories; what was said lately is only a beginning.
            return injection, trace
        session.echoes.injected(begun.said)
        text = "\n\n".join(filter(None, (begun.text, injection.text)))
        milliseconds = round((self._clock.monotonic() - start) * 1000)
        begun_with = replace(injection, text=text, milliseconds=milliseconds)
        return begun_with, replace(trace, cold_start=len(begun.said), milliseconds=milliseconds)

    async def _recalled(
        self,
        prompt: str,
        earlier: Sequence[ChatMessage],
        *,
        identity: Identity,
        session: Session,
        audience: Audience | None,
        seconds: float,
        active: Decision | None,
        model: str,
    ) -> tuple[Injection, TurnTrace]:
        start = self._clock.monotonic()
        query = build_query(prompt, history(earlier), self._settings)
        # A question may hold a secret as well as an answer, and finds nothing by it.
        query = replace(query, search=redact(query.search, self._settings.capture.redaction).text)
        trace = TurnTrace(
            "", agent=identity.agent, namespace=identity.namespace, query_chars=len(query.search)
        )
        end = start + seconds
        # The hits have direct mode's time, so that the model has the rest; and the grace before it, if it is asked.
        limits = self._settings.active
        grace = limits.setup_grace_timeout_ms / 1000 if active is not None and active.allowed else 0.0
        soon = min(end, start + self._settings.recall.deadline_ms / 1000 + grace) if active else end
        try:
            answer, cached = await self._find(self._request(query.search, audience), identity, soon)
        except GatewayError as error:
            injection = self._injection(status_of(error), start, detail=str(error))
            return injection, replace(
                trace, status=injection.status, detail=injection.detail, milliseconds=injection.milliseconds
            )
        if active is not None and not active.allowed:
            trace = replace(trace, active=f"skipped:{active.gate}", detail=active.reason)
        elif active is not None:
            reminder = await self._active.remind(
                query,
                answer,
                identity=identity,
                audience=audience,
                seconds=min(end - self._clock.monotonic(), limits.timeout_ms / 1000),
                model=model,
            )
            trace = replace(trace, active=reminder.outcome, detail=reminder.detail)
            if reminder.decided:
                return self._reminded(reminder, replace(trace, cached=cached), session, start)
        now = datetime.fromtimestamp(self._clock.now(), UTC).astimezone()
        selected = select(
            answer.memories, settings=self._settings.recall, audience=audience, session=session, now=now
        )
        injection = self._injection(
            "ok" if selected.text else "empty", start, selected, answer, detail=trace.detail
        )
        return injection, replace(
            trace,
            status=injection.status,
            cached=cached,
            hits=selected.traces,
            milliseconds=injection.milliseconds,
        )

    def _reminded(
        self, reminder: Reminder, trace: TurnTrace, session: Session, start: float
    ) -> tuple[Injection, TurnTrace]:
        """Return active mode's outcome."""
        session.echoes.injected([reminder.said] if reminder.said else [])
        injection = replace(
            self._injection(reminder.outcome, start, detail=reminder.detail),
            text=reminder.text,
            summary=reminder.said,
            active=self._settings.active.query_mode.value,
        )
        return injection, replace(trace, status=injection.status, milliseconds=injection.milliseconds)

    def gated(self, context: TurnContext) -> tuple[Injection, TurnTrace] | None:
        """Return the outcome of a turn that a gate objects to, or None."""
        decision = gate(context, self._settings)
        if decision.allowed:
            return None
        status = f"skipped:{decision.gate}"
        injection = Injection("", self._settings.recall.position, status, detail=decision.reason)
        return injection, TurnTrace(status, decision.reason, gates=explain(context, self._settings))

    def active_gate(self, context: TurnContext) -> Decision | None:
        """Return whether a turn may use active mode; None where the settings do not ask for it."""
        if self._settings.recall.mode is not RecallMode.ACTIVE or self._settings.active.mode == "off":
            return None
        return gate(context, self._settings, Purpose.ACTIVE)

    async def _find(
        self, request: RecallRequest, identity: Identity, end: float
    ) -> tuple[RecallResponse, bool]:
        left = end - self._clock.monotonic()
        await self._sender.settled(identity.namespace, left * _SHARE_FOR_OWN_WRITES)
        known = self.cache.get(identity.namespace, request)
        if known is not None:
            return known, True
        self.recalls += 1
        since = self.cache.writes
        answer = await self._ask(request, identity, end)
        if not answer.degraded:
            self.cache.put(identity.namespace, request, answer, since=since)
        return answer, False

    async def _ask(self, request: RecallRequest, identity: Identity, end: float) -> RecallResponse:
        """Ask with the newest position that was seen, so that a log that was set back does not answer."""
        owner = owner_of(identity)
        seen = self._positions.of(owner)
        asked = request if seen is None else request.model_copy(update={"min_position": seen})
        try:
            answer = await self._client.recall(identity, asked, deadline=end - self._clock.monotonic())
        except RelayerRefused as error:
            if error.code != "position_unknown":
                raise
            # So much was written since that the relayer cannot compare any more: what is current is taken.
            self._positions.replace(owner, None)
            answer = await self._client.recall(identity, request, deadline=end - self._clock.monotonic())
        if answer.position is not None:
            self._positions.saw(owner, answer.position)
        elif seen is not None:
            raise RelayerRefused("rollback_detected", "the namespace does not exist any more", status=409)
        if self._positions.changed:
            self._sender.wake()
        return answer

    def _request(self, query: str, audience: Audience | None) -> RecallRequest:
        recall = self._settings.recall
        # Filters of our own may drop some: ask for a few more than are wanted.
        return RecallRequest(
            query=query,
            limit=min(recall.max_results + _SPARE, 100),
            floor=recall.min_score,
            audiences=audible_to(audience),
            trusts=("user", "imported", "assistant"),
            **({} if recall.source_penalties is None else {"penalties": _penalties(recall)}),
        )

    def _injection(
        self,
        status: str,
        start: float,
        selected: Selected | None = None,
        answer: RecallResponse | None = None,
        *,
        detail: str = "",
    ) -> Injection:
        return Injection(
            text=selected.text if selected else "",
            position=self._settings.recall.position,
            status=status,
            hits=selected.hits if selected else (),
            detail=detail,
            degraded=answer.degraded if answer else False,
            milliseconds=round((self._clock.monotonic() - start) * 1000),
        )


def _penalties(settings: RecallSettings) -> tuple[SourcePenalty, ...]:
    return tuple(
        SourcePenalty(match=one.match, penalty=one.penalty) for one in settings.source_penalties or ()
    )
