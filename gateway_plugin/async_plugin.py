"""The plugin as code uses it: `before_turn` recalls, `after_turn` captures, and neither ever breaks a turn.

What is wrong with the settings or the secret is raised when the plugin is made. After that everything that can go wrong
becomes a status; only a mistake in the call itself (a prompt that is no string) is raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import httpx

from gateway_plugin.capture import Captured, capture_turn
from gateway_plugin.clock import Clock, SystemClock
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.gates import Purpose, explain, gate
from gateway_plugin.host_turn import HostTurn
from gateway_plugin.identity import Identity, KeyHolder, identify
from gateway_plugin.messages import ChatMessage, parse_messages
from gateway_plugin.outbox import MemoryOutbox, Outbox, OutboxFull, OutboxItem, Waiting
from gateway_plugin.query import Role, clean_query
from gateway_plugin.recaller import Recaller
from gateway_plugin.sender import Sender
from gateway_plugin.session_keys import SessionRef, parse_session_key
from gateway_plugin.sessions import Session, Sessions
from gateway_plugin.settings import PluginSettings
from gateway_plugin.setup import connect, holder_for, settings_from, tell_person
from gateway_plugin.status import CaptureReport, Injection, PluginStatus, TurnTrace, status_of

__all__ = ["AsyncMemoryPlugin"]

CLOSING_SECONDS: Final = 5.0
NO_HOST: Final = HostTurn()
Messages = Iterable[Mapping[str, Any]]


class AsyncMemoryPlugin:
    """Memory for one gateway process; belongs to the event loop that uses it first.

    Args:
        url: the relayer; None takes the settings', by default ``http://127.0.0.1:8787``.
        agent: who speaks when a session key names nobody; None takes the settings'.
        settings: settings, or the host's configuration object for this plugin; None reads the environment.
        secret: the gateway's secret, 64 hex digits or base64; None finds or makes one, see `secret_store`.
        outbox: where captured turns wait; None keeps them in memory.
        environ: the environment; secrets are taken out of it.
        clock: the time.
        http: an HTTP client to use instead of an own one; the caller closes it.

    Raises:
        SettingsError: a setting is wrong.
        IdentityError: the secret is malformed, unreadable, or readable by others.
    """

    def __init__(
        self,
        url: str | None = None,
        agent: str | None = None,
        *,
        settings: PluginSettings | Mapping[str, object] | None = None,
        secret: str | None = None,
        outbox: Outbox | None = None,
        environ: MutableMapping[str, str] | None = None,
        clock: Clock | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.settings = settings_from(settings, environ, url=url)
        # While memory is switched off, no secret is made either.
        self._holder: KeyHolder | None = None
        if not self.settings.disabled:
            self._holder = holder_for(self.settings, environ, secret=secret)
        self._agent = agent
        self._clock = clock or SystemClock()
        self._outbox: Outbox = outbox if outbox is not None else MemoryOutbox()
        self._client = connect(self.settings, environ, clock=self._clock, http=http)
        self._sender = Sender(self._client, self._outbox, self._owner_identity, notify=tell_person)
        self._recaller = Recaller(self._client, self._sender, self.settings, self._clock)
        self._sessions = Sessions()
        self._last = TurnTrace("")

    async def before_turn(
        self,
        prompt: str,
        *,
        session_key: str | None = None,
        messages: Messages = (),
        host: HostTurn = NO_HOST,
        deadline: float | None = None,
    ) -> Injection:
        """Recall for a turn.

        Args:
            prompt: the user's message as the host has it, envelopes and all.
            session_key: the host's session key; None outside any chat session.
            messages: the conversation so far, with ``role`` and ``content``.
            host: what else the host knows.
            deadline: seconds for all of it; None takes the settings'.

        Raises:
            TypeError: the prompt is no string, or a message no mapping.
        """
        _require_text(prompt)
        earlier = _before(prompt, parse_messages(messages))
        seconds = self.settings.deadline_ms / 1000 if deadline is None else deadline
        try:
            injection, self._last = await self._recall(_readable(prompt), earlier, session_key, host, seconds)
        except GatewayError as error:
            injection = self._silent(status_of(error), str(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            injection = self._silent("failed", f"memory failed inside the plugin ({type(error).__name__})")
        return injection

    async def after_turn(
        self,
        messages: Messages,
        *,
        session_key: str | None = None,
        success: bool = True,
        host: HostTurn = NO_HOST,
    ) -> CaptureReport:
        """Capture a turn: choose what is new and worth keeping, put it in the outbox, return at once.

        Args:
            messages: the whole history, a window of it, or the last turn; what was captured before is recognised.
            session_key: as in `before_turn`.
            success: whether the run ended well; failed ones are not captured.
            host: what else the host knows.

        Raises:
            TypeError: a message is no mapping.
        """
        parsed = parse_messages(messages)
        try:
            return self._capture(parsed, session_key, host, success=success)
        except OutboxFull as error:
            return CaptureReport("full", waiting=self._outbox.waiting(), detail=str(error))
        except GatewayError as error:
            return CaptureReport(status_of(error), waiting=self._outbox.waiting(), detail=str(error))
        except Exception as error:  # noqa: BLE001 - as in before_turn
            detail = f"memory failed inside the plugin ({type(error).__name__})"
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=detail)

    async def flush(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Deliver what waits; False when time is up or the relayer does not take it. Nothing is dropped."""
        return await self._sender.flush(seconds)

    def set_session(self, session_key: str | None, *, enabled: bool, host: HostTurn = NO_HOST) -> None:
        """Turn memory off or on for one chat session.

        Raises:
            IdentityError: whose session it is cannot be told.
        """
        ref = parse_session_key(session_key or "")
        self._session(self._identity(ref, host), ref).enabled = enabled

    def status(self) -> PluginStatus:
        """Return how things stand."""
        dead = self._outbox.dead()
        return PluginStatus(
            url=self._client.endpoint.origin,
            account=self._holder.account if self._holder is not None else "",
            last_recall=self._last.status,
            recalls=self._recaller.recalls,
            waiting=self._outbox.waiting(),
            delivered=self._sender.delivered,
            refused=len(dead),
            paused_seconds=self._client.breaker.remaining,
            last_error=self._sender.last_error,
            last_refusal=f"{dead[-1][0].owner.agent}: {dead[-1][1]}" if dead else "",
        )

    def why(self) -> TurnTrace:
        """Return why the last turn was given what it was given."""
        return self._last

    async def aclose(self) -> None:
        """Try for up to five seconds to deliver what waits, then stop; says so when turns are lost with the process."""
        await self._sender.flush(CLOSING_SECONDS)
        await self._sender.aclose()
        await self._client.aclose()
        lost = self._outbox.waiting() + len(self._outbox.dead())
        if lost and isinstance(self._outbox, MemoryOutbox):
            refusals = [reason for _, reason in self._outbox.dead()]
            reason = self._sender.last_error or next(iter(refusals), "it did not answer in time")
            tell_person(f"memrelay: {lost} captured turns never reached the relayer: {reason}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _recall(
        self, prompt: str, earlier: tuple[ChatMessage, ...], key: str | None, host: HostTurn, seconds: float
    ) -> tuple[Injection, TurnTrace]:
        ref = parse_session_key(key or "")
        session = self._session_if_known(ref, host)
        context = host.context(
            ref,
            clean_query(prompt),
            agent=host.agent or self.settings.agent,
            session_enabled=session is None or session.enabled,
        )
        objection = self._recaller.gated(context)
        if objection is not None:
            return objection
        identity = self._identity(ref, host)
        injection, trace = await self._recaller.recall(
            prompt,
            earlier,
            identity=identity,
            session=self._session(identity, ref),
            audience=host.heard_by(ref),
            seconds=seconds,
        )
        return injection, replace(trace, gates=explain(context, self.settings))

    def _capture(
        self,
        messages: tuple[ChatMessage, ...],
        key: str | None,
        host: HostTurn,
        *,
        success: bool,
    ) -> CaptureReport:
        ref = parse_session_key(key or "")
        session = self._session_if_known(ref, host)
        said = next((message.text for message in reversed(messages) if message.role is Role.USER), "")
        context = host.context(
            ref,
            clean_query(said),
            agent=host.agent or self.settings.agent,
            session_enabled=session is None or session.enabled,
            success=success,
        )
        decision = gate(context, self.settings, Purpose.CAPTURE)
        if not decision.allowed:
            waiting = self._outbox.waiting()
            return CaptureReport(f"skipped:{decision.gate}", waiting=waiting, detail=decision.reason)
        identity = self._identity(ref, host)
        session = self._session(identity, ref)
        captured = capture_turn(
            messages,
            identity=identity,
            session=ref.key,
            cursor=session.cursor,
            echoes=session.echoes,
            settings=self.settings.capture,
            audience=host.said_to(ref),
            now_ms=int(self._clock.now() * 1000),
            host=host.host,
        )
        return self._queue(captured, identity, session)

    def _queue(self, captured: Captured, identity: Identity, session: Session) -> CaptureReport:
        queued = 0
        if captured.request is not None:
            owner = Waiting(identity.agent, identity.namespace, identity.generation)
            # The cursor moves only once the outbox has the item: a full one loses nothing.
            self._outbox.put(OutboxItem(owner, captured.request, int(self._clock.now() * 1000)))
            self._recaller.cache.drop(identity.namespace)
            self._sender.wake()
            queued = len(captured.request.turns)
        session.cursor = captured.cursor
        return CaptureReport(
            "queued" if queued else "empty",
            new=captured.new,
            queued=queued,
            dropped=captured.dropped,
            waiting=self._outbox.waiting(),
        )

    def _identity(self, ref: SessionRef, host: HostTurn) -> Identity:
        if self._holder is None:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        fixed = host.agent or (self.settings.agent if self._agent is None else None)
        fallback = self._agent or (None if self._holder.only_agent else self.settings.namespace.default)
        return identify(
            self._holder,
            replace(ref, agent=fixed) if fixed is not None else ref,
            default_agent=fallback,
            scope=self.settings.namespace.scope,
            sender=host.sender,
            workspace=host.workspace,
        )

    def _owner_identity(self, owner: Waiting) -> Identity:
        if self._holder is None:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        return Identity(
            agent=owner.agent,
            account=self._holder.account,
            namespace=owner.namespace,
            generation=owner.generation,
            keys=self._holder.agent(owner.agent),
            credential=self._holder.credential(owner.agent),
        )

    def _session(self, identity: Identity, ref: SessionRef) -> Session:
        return self._sessions.of(identity.namespace, ref.key)

    def _session_if_known(self, ref: SessionRef, host: HostTurn) -> Session | None:
        # The gates come before the identity: a turn that they stop needs no keys and shows no error about them.
        try:
            return self._session(self._identity(ref, host), ref)
        except IdentityError:
            return None

    def _silent(self, status: str, detail: str) -> Injection:
        self._last = TurnTrace(status, detail)
        return Injection("", self.settings.recall.position, status, detail=detail)


def _require_text(prompt: object) -> None:
    if not isinstance(prompt, str):
        raise TypeError("the prompt is a string")


def _readable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _before(prompt: str, messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Drop the latest message from the history where the host put it there too."""
    if messages and messages[-1].role is Role.USER and messages[-1].text == prompt:
        return messages[:-1]
    return messages
