"""The plugin's Python interface: recall memories before a turn of an agent, and capture the turn afterwards.

`AsyncMemoryPlugin` puts the parts of the plugin together: recall, capture, the outbox that delivers captured turns in the
background, the memory tools and consolidation. Wrong settings or a wrong secret are raised by its constructor. After
that, `before_turn` and `after_turn` never raise: they report every failure as a status, so that a failing memory does
not end a turn. `MemoryPlugin` has the same interface for synchronous code; it runs an `AsyncMemoryPlugin` on an event
loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import html
import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from gateway_plugin.calls.calling import Outages
from gateway_plugin.calls.clock import Clock, SystemClock
from gateway_plugin.calls.local_relayer import trouble_for
from gateway_plugin.capture.capturer import Capturer
from gateway_plugin.client import LoopClosed, OnThread, on_loop, takes_arguments_of, waited
from gateway_plugin.errors import GatewayError
from gateway_plugin.files.indexed import IndexedFile, Indexes, IndexRoot
from gateway_plugin.files.living import LivingFiles, Look
from gateway_plugin.files.notes import DailyNotes, Promotions
from gateway_plugin.host_model import HostModel, ModelWork, lend
from gateway_plugin.keys.identity import Identity, KeyHolder, parse_session_key
from gateway_plugin.outbox.queue import DeadLetter, Outbox, OutboxItem, OutboxUnavailable
from gateway_plugin.outbox.sender import Positions, Sender
from gateway_plugin.recall.consolidation import Consolidator, RecallCounts, last_report
from gateway_plugin.recall.recaller import Recaller
from gateway_plugin.recall.sharing import Shares
from gateway_plugin.sessions import Intents, LastTurn, SessionBook, Watchdog
from gateway_plugin.settings.model import PluginSettings
from gateway_plugin.setup import active_traces, connect, holder_for, open_outbox, settings_from, shares_path
from gateway_plugin.tools.arguments import ToolError
from gateway_plugin.tools.intents import due_reminders, run_intent
from gateway_plugin.tools.toolbox import READING, ToolAnswer, Toolbox, failure
from gateway_plugin.turn.gates import HostTurn, Purpose
from gateway_plugin.turn.query import clean_query, parse_messages, prompt_text
from gateway_plugin.turn.status import (
    CaptureReport,
    Injection,
    NotifyOnce,
    PluginStatus,
    TurnTrace,
    notify,
    without_effect,
)
from relayer.wire.sealing import derive
from relayer.wire.service import ConsolidationRequest, ReplacedView

CLOSING_SECONDS: Final = 5.0
# A language model extracts facts some time after their turn was delivered, so daily notes are also updated when this
# many seconds have passed without a delivery.
_NOTES_SECONDS: Final = 20.0
# A turn waits for standing intents so long at most, because another process may hold the outbox.
_INTENT_SECONDS: Final = 0.5
# Lines of one file that a scan stores at once: a relayer without other work embeds them in some four seconds.
_LINES_AT_ONCE: Final = 100
NO_HOST: Final = HostTurn()
# Gates decide about a turn with a message. `AsyncMemoryPlugin.warm` asks them before there is one and passes this text.
_BEGINNING: Final = "The session begins."
Messages = Iterable[Mapping[str, Any]]
Prompt = str | Sequence[Mapping[str, Any]]


class AsyncMemoryPlugin:
    """Long-term memory for the agents of one process, for asynchronous code.

    Call `before_turn` before each turn of an agent and put the returned text into its prompt; call `after_turn` when the
    turn has ended. Captured turns are stored in an outbox first and delivered to the relayer in the background. An
    instance belongs to the event loop that uses it first. Close it with `aclose`, or use it as an asynchronous context
    manager.

    Example:
        async with AsyncMemoryPlugin(agent="assistant") as memory:
            injection = await memory.before_turn("What did Mara say about Lisbon?", session_key="chat-1")
            reply = await answer(injection.prompt)
            messages = [{"role": "user", "content": "..."}, {"role": "assistant", "content": reply}]
            await memory.after_turn(messages, session_key="chat-1")

    Args:
        url: the URL of the relayer; None takes it from the settings. The default is ``http://127.0.0.1:8787``.
        agent: the agent of sessions whose key names no agent; None takes it from the settings.
        settings: the settings, or the host's configuration object for this plugin; None reads the environment.
        secret: the gateway's secret, 64 hexadecimal digits or base64. None looks for it and creates one if there is none,
            see `gateway_plugin.keys.gateway_secret`.
        holder: the keys, if the caller has loaded them; no secret is looked for then.
        outbox: stores captured turns until they are delivered. None stores them sealed in a file that outlives the
            process, or in memory if ``capture.durable`` is false.
        environ: the environment variables; secrets are removed from it.
        clock: the source of the current time.
        http: the HTTP session to use; the caller closes it. None creates a session.
        model: the host's language model, used where the relayer has no model; the settings under ``hostModel`` limit it.
        traces: the host's state directory, for traces of active mode; None for the plugin's own.

    Raises:
        SettingsError: a setting is wrong.
        IdentityError: the secret is malformed, unreadable, or readable by other users.
    """

    def __init__(
        self,
        url: str | None = None,
        agent: str | None = None,
        *,
        settings: PluginSettings | Mapping[str, object] | None = None,
        secret: str | None = None,
        holder: KeyHolder | None = None,
        outbox: Outbox | None = None,
        environ: MutableMapping[str, str] | None = None,
        clock: Clock | None = None,
        http: aiohttp.ClientSession | None = None,
        model: HostModel | None = None,
        traces: Path | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._environ = environ
        self.settings = settings_from(settings, environ, url=url)
        self._seconds = self.settings.deadline_ms / 1000
        # While memory is switched off, no secret is created either.
        if self.settings.disabled:
            holder = None
        elif holder is None:
            holder = holder_for(self.settings, environ, secret=secret)
        self._clock = clock or SystemClock()
        self._indexes = Indexes(environ)
        # By namespace, the number of delivered turns and the time in seconds when its daily notes were last written.
        self._noted: dict[str, tuple[int, float]] = {}
        self._client = connect(self.settings, environ, clock=self._clock, http=http)
        # Files are read with a client of their own: failures while files are indexed in the background must not open the
        # circuit breaker for turns, nor be reported as an outage.
        self._files = connect(self.settings, environ, clock=self._clock, http=http)
        self._outages = Outages(self._client.endpoint.origin, notify)
        self._client.watch_ends(self._outages.heard)
        if outbox is None:
            outbox = open_outbox(self.settings, environ, holder, self._client.endpoint.origin)
        self._outbox = outbox
        captures = self.settings.capture.enabled
        self._positions = Positions(outbox, kept=captures)
        self._last = LastTurn(outbox, noted=captures)
        self._intents = Intents(outbox)
        self._watchdog = Watchdog(self._clock, notify, enabled=captures)
        self._notify_once = NotifyOnce()
        self._book = SessionBook(holder, self.settings, outbox, agent=agent, notify_once=self._notify_once)
        identity_of = self._book.identity_of_owner
        self._lent = lend(model, self.settings, self._clock, self._notify_once)
        self._model_work = (
            None if self._lent is None else ModelWork(self._client, self._lent, identity_of, self._clock)
        )
        self._sender = Sender(
            self._client,
            outbox,
            identity_of,
            notify=notify,
            heard=self._positions.saw,
            judged=self._last.captured,
            meanwhile=self._persist,
            promised=None if self._model_work is None else self._model_work.promised,
        )
        self._shares = Shares(shares_path(environ), holder, legacy=self.settings.namespace.legacy)
        self._counts = RecallCounts(outbox, self._book.gateway, self._clock)
        self._consolidator = Consolidator(
            client=self._client,
            outbox=outbox,
            counts=self._counts,
            identity_of=identity_of,
            settings=self.settings.consolidation,
            clock=self._clock,
            gateway=self._book.gateway,
        )
        self._recaller = Recaller(
            self._client,
            self._sender,
            self.settings,
            self._clock,
            self._positions,
            book=self._book,
            last=self._last,
            watchdog=self._watchdog,
            notify_once=self._notify_once,
            cited=self._cited,
            counts=self._counts if self.settings.consolidation.enabled else None,
            traces=active_traces(self.settings, environ, traces),
            lent=self._lent,
            shares=self._shares,
        )
        self._capturer = Capturer(
            outbox,
            self.settings.capture,
            self._clock,
            sender=self._sender,
            client=self._client,
            book=self._book,
            watchdog=self._watchdog,
            notify_once=self._notify_once,
        )

    async def start(self) -> None:
        """Start the background delivery of captured turns, and consolidation if it is enabled.

        Turns that an earlier process did not deliver are delivered now. Calling this is optional: the first turn starts
        the delivery, too. No other request is sent to the relayer.
        """
        self._sender.start()
        if self.settings.consolidation.enabled and not self.settings.disabled:
            self._consolidator.start()
        for sentence in without_effect(self.settings, self._book.account):
            self._notify_once(sentence)

    async def warm(self, *, session_key: str | None = None, host: HostTurn = NO_HOST) -> str:
        """Prepare the first turn of a session: start delivery, and make the relayer open the namespace (MS-06).

        No request is sent for a session that may not recall. It never raises.

        Returns:
            A status like that of an `Injection`: ``ok``, ``skipped:<gate>``, ``unavailable``, ...
        """
        self._sender.start()
        try:
            turn = self._book.turn(parse_session_key(session_key or ""), host, _BEGINNING, Purpose.RECALL)
            if not turn.decision.allowed:
                return f"skipped:{turn.decision.gate}"
            self._recaller.begin(turn)
            await self._client.list_memories(turn.identity, limit=1)
            if self._model_work is not None:
                self._model_work.look(turn.identity.ref)
        except GatewayError as error:
            return error.outcome
        except Exception:  # noqa: BLE001 - a defect of ours must not cost the user an answer
            return "failed"
        return "ok"

    async def before_turn(
        self,
        prompt: Prompt,
        *,
        session_key: str | None = None,
        messages: Messages = (),
        host: HostTurn = NO_HOST,
        deadline: float | None = None,
    ) -> Injection:
        """Recall memories for a turn and return the text to put into its prompt.

        It never raises. If memory is unavailable or too slow, the text is empty and the status says why. An argument of a
        wrong type gives status ``failed``, and ``detail`` names the argument.

        Args:
            prompt: the user's message as the host has it, including envelopes: a string, or content parts such as
                ``[{"type": "text", "text": "..."}]``, of which only the texts are used.
            session_key: the host's session key; None outside of chat sessions.
            messages: the conversation so far, oldest first: mappings with ``role`` and ``content``.
            host: what the host knows about the turn besides the session key.
            deadline: maximum duration in seconds; None takes it from the settings.

        Returns:
            The text for the prompt, its position, the recalled memories and the status.
        """
        try:
            said, earlier = prompt_text(prompt), parse_messages(messages)
        except TypeError as error:
            return Injection("", self.settings.recall.position, "failed", detail=str(error))
        self._sender.start()
        seconds = self._seconds if deadline is None else deadline
        return await self._recaller.recall(said, earlier, key=session_key, host=host, seconds=seconds)

    async def after_turn(
        self,
        messages: Messages,
        *,
        session_key: str | None = None,
        success: bool = True,
        host: HostTurn = NO_HOST,
    ) -> CaptureReport:
        """Capture a turn: put its new messages that are worth keeping into the outbox.

        It does not wait for the relayer and returns within milliseconds. If the status is ``queued`` and the outbox is
        durable, the turn is on this machine's disk and will be delivered even if this process ends. It never raises:
        if ``messages`` is not a list of mappings, the status is ``failed``.

        Args:
            messages: the whole history, a window of it, or the last turn. Messages that were captured before are
                recognised and not captured again.
            session_key: as in `before_turn`.
            success: whether the run succeeded; of a failed one only the user's messages are captured.
            host: as in `before_turn`.

        Returns:
            The status and the number of messages that were new, queued and dropped.
        """
        try:
            parsed = parse_messages(messages)
        except TypeError as error:
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=str(error))
        self._sender.start()
        return await self._capturer.capture(parsed, key=session_key, host=host, success=success)

    async def flush(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Deliver the captured turns that are waiting in the outbox. Nothing is dropped if that fails.

        Returns:
            True if everything was delivered; False if the time ran out, the relayer did not take a turn, or the outbox
            cannot be read.
        """
        delivered = await self._sender.flush(seconds)
        _, unreadable = self._dead()
        return delivered and not unreadable

    async def flush_session(
        self,
        messages: Messages = (),
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
        seconds: float = 0.0,
        ended: bool = False,
    ) -> CaptureReport:
        """Capture the messages of a session that were not captured yet, before its history changes or ends.

        Call it on a host's events ``before_compaction``, ``before_reset`` and ``session_end``, and when the host shuts down.

        Args:
            messages: the history as it is before the event.
            session_key: as in `before_turn`.
            host: as in `before_turn`.
            seconds: how long to wait for delivery; 0 leaves delivery to the background.
            ended: whether the session ends or is reset. Unless ``capture.summary`` is off, the relayer is then notified,
                and may store a summary of the session. The notification is queued like a turn, so it is not lost either.

        Returns:
            The report of `after_turn`, with ``ended`` set if the notification was queued.
        """
        report = await self.after_turn(messages, session_key=session_key, host=host)
        if ended:
            with contextlib.suppress(GatewayError):
                self._recaller.standing.forget(
                    self._book.ungated_turn(parse_session_key(session_key or ""), host)
                )
        if ended and self.settings.capture.summary:
            report = replace(report, ended=await self._capturer.end(session_key, host))
        if seconds > 0:
            await self._sender.flush(seconds)
            report = replace(report, waiting=self._outbox.waiting())
        return report

    async def tool(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
    ) -> ToolAnswer:
        """Run a memory tool that the model called. Failures are returned as a `ToolAnswer`, too.

        Args:
            name: one of `gateway_plugin.tools.arguments.ALL_TOOL_NAMES`.
            arguments: the arguments as the model passed them.
            session_key: as in `before_turn`.
            host: as in `before_turn`; the tool ``memory_transcript`` reads from ``host.transcripts``.

        Returns:
            The text for the model and the same data for programs; ``failed`` is True if the text is an error.
        """
        try:
            turn = self._book.ungated_turn(parse_session_key(session_key or ""), host)
            if turn.outbox_error and not self.settings.disabled:
                return ToolAnswer(f"Memory error: {turn.outbox_error}", failed=True, reason="outbox")
            if self.settings.disabled or not turn.session_enabled:
                return ToolAnswer("Memory is switched off here.", failed=True, reason="switched_off")
            identity = turn.identity
            cited = await self._cited(identity)
            toolbox = Toolbox(self._client, self.settings, self._clock, cited, self._shares)
            answer = await toolbox.call(name, arguments, turn)
        except GatewayError as error:
            return failure(error)
        if name in READING:
            # The model may repeat what it has read here; that must not be captured as something new.
            self._book.state(identity.namespace, turn.session.key).echoes.injected(
                (answer.text, html.unescape(answer.text))
            )
        return answer

    async def intent(
        self, arguments: object, *, session_key: str | None = None, host: HostTurn = NO_HOST
    ) -> ToolAnswer:
        """Run a call of the tool ``intent``, see `gateway_plugin.tools.intents`. Failures are returned, never raised."""
        try:
            turn = self._book.ungated_turn(parse_session_key(session_key or ""), host)
            if not turn.session_enabled or self.settings.disabled:
                return ToolAnswer("Memory is switched off here.", failed=True, reason="switched_off")
            now_ms = int(self._clock.now() * 1000)
            return await run_intent(self._intents, arguments, turn, self.settings.capture, now_ms)
        except ToolError as error:
            return ToolAnswer(f"Memory error: {error}", failed=True, reason="arguments")
        except GatewayError as error:
            return failure(error)

    async def due_intents(
        self, prompt: str, *, session_key: str | None = None, host: HostTurn = NO_HOST
    ) -> tuple[str, ...]:
        """Return the reminders of standing intents that a person's message triggers, as lines for the prompt.

        They count as given. Errors, an outbox that is busy, and turns that may not use memory give none; a message may be short.
        """
        try:
            query = clean_query(prompt)
            turn = self._book.turn(parse_session_key(session_key or ""), host, query, Purpose.RECALL)
            stops = {one.gate for one in turn.gates if not one.allowed} - {"min_length"}
            if stops:
                return ()
            async with asyncio.timeout(_INTENT_SECONDS):
                return await due_reminders(self._intents, turn, int(self._clock.now() * 1000))
        except (GatewayError, TimeoutError):
            return ()

    async def replaced_lately(
        self, session_key: str | None = None, *, host: HostTurn = NO_HOST
    ) -> tuple[ReplacedView, ...]:
        """Return the statements of a session's namespace that captures replaced lately, newest first. Raises `GatewayError`."""
        turn = self._book.ungated_turn(parse_session_key(session_key or ""), host)
        request = ConsolidationRequest(limit=1)
        return (await self._client.proposals(turn.identity, request)).replaced

    async def look_at_files(
        self,
        roots: Sequence[IndexRoot],
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
        settled: Callable[[IndexedFile], bool] = lambda _file: True,
        notes: Path | None = None,
    ) -> Look:
        """Update an agent's memories from its files. Does nothing while memory is switched off.

        Args:
            roots: the files and folders to read, in addition to those given to ``memrelay-gateway index``.
            session_key: the key of any session of the agent.
            host: as in `before_turn`.
            settled: returns whether a changed file may be read now; if not, a later call reads it.
            notes: the real path of the workspace whose daily notes are to be written; used only if
                ``capture.mirror_daily_log`` is on.

        Returns:
            What changed, and the position of the namespace afterwards.

        Raises:
            GatewayError: the relayer cannot be reached, or refuses; the next call continues where this one failed.
        """
        turn = self._book.ungated_turn(parse_session_key(session_key or ""), host)
        if self.settings.disabled or not turn.session_enabled:
            return Look()
        identity = turn.identity
        index = self._indexes.index_of(identity, self._client.endpoint.origin)
        files = LivingFiles(self._files, identity, index, self.settings.capture, most=_LINES_AT_ONCE)
        due = notes is not None and self._is_due(identity.namespace)
        if notes is not None and self.settings.capture.mirror_daily_log:
            place = datetime.now(UTC).astimezone().tzinfo or UTC
            files.notes = DailyNotes(
                self._files, identity, index, notes, self.settings.capture, place, due=due
            )
        if notes is not None and due:
            files.promotions = Promotions(index, notes)
            files.consolidation = self.settings.consolidation
            if files.consolidation.write_files or files.consolidation.skills:
                files.report = await asyncio.to_thread(last_report, self._outbox, identity.ref)
        look: Look | None = None
        try:
            look = await files.look(roots, settled=settled)
        finally:
            if look is None or look.changed:  # an update that failed may have changed something first
                self._recaller.cache.drop(identity.namespace)
        if look.position is not None:
            self._positions.saw(identity.ref, look.position)
        return look

    async def _cited(self, identity: Identity) -> Mapping[str, str]:
        return await self._indexes.cited(identity, self._client.endpoint.origin)

    def _is_due(self, namespace: str) -> bool:
        """Return whether daily notes are to be updated: a turn was delivered since, or 20 seconds have passed."""
        now, (delivered, at) = self._clock.monotonic(), self._noted.get(namespace, (-1, 0.0))
        if delivered == self._sender.delivered and now - at < _NOTES_SECONDS:
            return False
        self._noted[namespace] = (self._sender.delivered, now)
        return True

    def set_session(self, session_key: str | None, *, enabled: bool, host: HostTurn = NO_HOST) -> None:
        """Turn memory off or on for one chat session. The switch is stored and outlives the process.

        Raises:
            IdentityError: the agent or namespace of the session cannot be determined.
            OutboxUnavailable: the switch cannot be stored.
        """
        ref = parse_session_key(session_key or "")
        self._book.switches.set_session(self._book.identity(ref, host).ref, ref.key, enabled=enabled)

    @property
    def enabled_everywhere(self) -> bool:
        """Return whether the gateway's own switch is on; raises `OutboxUnavailable` if it cannot be read."""
        return self._book.switches.enabled_everywhere

    def set_everywhere(self, *, enabled: bool) -> None:
        """Turn memory off or on for all sessions of this gateway. The switch outlives the process. Raises like `set_session`."""
        self._book.switches.set_everywhere(enabled=enabled)

    def session_enabled(self, session_key: str | None, *, host: HostTurn = NO_HOST) -> bool:
        """Return whether memory is on for a session: by its own switch, its agent's and the gateway's.

        Raises:
            IdentityError: the agent or namespace of the session cannot be determined.
            OutboxUnavailable: the switches cannot be read; memory stays off until they can.
        """
        ref = parse_session_key(session_key or "")
        return self._book.switches.is_on(self._book.identity(ref, host).ref, ref.key)

    def erase_waiting(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Delete captured turns from the outbox, those that wait and those that the relayer refused, and return their number.

        Turns that were delivered are not affected: the relayer keeps them.

        Raises:
            OutboxUnavailable: the outbox's file cannot be changed.
        """
        removed = self._outbox.remove(matches)
        self._sender.abandon(matches)
        return removed

    def forget_position(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> None:
        """Accept the current log of a namespace after a person has restored an older state of it or erased it.

        Recall refuses a log that is older than what this gateway has seen before (``rollback_detected``). This deletes
        the stored position, so that the next recall starts from the log as it is, and nothing that was recalled before is
        used again. Raises like `set_session`.
        """
        self._positions.forget(self._book.identity(parse_session_key(session_key or ""), host).ref)

    @property
    def outage(self) -> str:
        """The reason why memory does not work at present, as a status of `before_turn`; "" while no outage is known."""
        return self._outages.lasting

    def own_key(self, label: str) -> bytes | None:
        """Derive a key from this gateway's secret, with which a host's adapter can seal its own data.

        Each label gives another key, which is the same after every start; None while memory is switched off.
        """
        holder = self._book.holder
        return None if holder is None else derive(holder.local_key, label)

    def status(self) -> PluginStatus:
        """Return the status of the plugin as a whole: the relayer, the outbox, the last errors and warnings."""
        dead, unreadable = self._dead()
        last = dead[-1] if dead else None
        whose = last.item.owner.agent if last is not None and last.item is not None else "unknown"
        return PluginStatus(
            url=self._client.endpoint.origin,
            account=self._book.account,
            last_recall=self._last.trace.status,
            recalls=self._recaller.recalls,
            waiting=self._outbox.waiting(),
            delivered=self._sender.delivered,
            refused=len(dead),
            paused_seconds=self._client.breaker.remaining,
            last_error=self._sender.last_error,
            last_refusal=f"{whose}: {last.reason}" if last is not None else "",
            durable=self._outbox.durable,
            relayer_trouble=trouble_for(self.settings, self._environ),
            warning=unreadable or self._watchdog.warning,
            notes=without_effect(self.settings, self._book.account),
            host_model=None if self._lent is None else self._lent.status(),
        )

    def why(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> TurnTrace:
        """Return the trace of the last turn: the decision of each gate, and the outcome of each memory that was found.

        Args:
            session_key: the session whose last turn is returned; None for the last turn of any session. A chat must only
                be shown traces of its own session.
            host: as in `before_turn`.

        Returns:
            The trace; an empty one if there was no such turn in this process.
        """
        if session_key is None:
            return self._last.trace
        return self._last.trace_of(self._book.namespace_of(session_key, host), session_key)

    def captured(self, session_key: str, *, host: HostTurn = NO_HOST) -> CaptureReport | None:
        """Return the report of the last turn of a session that this process captured; None if there was none."""
        return self._book.state(self._book.namespace_of(session_key, host), session_key).captured

    async def aclose(self) -> None:
        """Try for up to five seconds to deliver waiting turns, then stop. Undelivered turns are reported on standard error."""
        await self._sender.flush(CLOSING_SECONDS)
        await self._consolidator.aclose()
        await self._recaller.standing.aclose()
        if self._model_work is not None:
            await self._model_work.aclose()
        await self._sender.aclose()
        await self._client.aclose()
        await self._files.aclose()
        waiting, (dead, _) = self._outbox.waiting(), self._dead()
        reason = self._sender.last_error or next(
            (letter.reason for letter in dead), "it did not answer in time"
        )
        if self._outbox.durable and waiting:
            notify(f"memrelay: {waiting} captured turns wait on disk for the next start: {reason}")
        elif not self._outbox.durable and waiting + len(dead):
            notify(f"memrelay: {waiting + len(dead)} captured turns never reached the relayer: {reason}")
        self._outbox.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    def _persist(self) -> None:
        """Store what changed since the last call: positions of logs, traces of turns, and counts of recalls."""
        self._positions.persist()
        self._last.persist()
        self._counts.persist()

    def _dead(self) -> tuple[tuple[DeadLetter, ...], str]:
        """Return the dead letters, and an error message that is "" unless the outbox cannot be read."""
        try:
            return self._outbox.dead_letters(), ""
        except OutboxUnavailable as error:
            return (), str(error)


__all__ = ["AsyncMemoryPlugin", "CaptureReport", "HostTurn", "Injection", "MemoryPlugin", "PluginStatus"]


def _recall_failed(plugin: AsyncMemoryPlugin, error: LoopClosed) -> Injection:
    return Injection("", plugin.settings.recall.position, "failed", detail=str(error))


def _capture_failed(plugin: AsyncMemoryPlugin, error: LoopClosed) -> CaptureReport:
    return CaptureReport("failed", waiting=plugin.status().waiting, detail=str(error))


class MemoryPlugin(OnThread[AsyncMemoryPlugin]):
    """Long-term memory for the agents of one process, for synchronous code.

    Call `before_turn` before each turn of an agent and put the returned text into its prompt; call `after_turn` when the
    turn has ended. Captured turns are delivered to the relayer in the background. A recall first waits, within its own
    deadline, for the delivery of turns that this plugin captured in the same namespace, so that a program finds what it
    has just written. The methods may be called from any thread. Close it with `close`, or use it as a context manager.

    Example:
        with MemoryPlugin(agent="assistant") as memory:
            injection = memory.before_turn("What did Mara say about Lisbon?", session_key="chat-1")
            reply = answer(injection.prompt)
            messages = [{"role": "user", "content": "..."}, {"role": "assistant", "content": reply}]
            memory.after_turn(messages, session_key="chat-1")

    Its arguments are those of `AsyncMemoryPlugin`, and its methods are the methods of the same name, which run on an event
    loop in a thread of its own. A closed plugin returns status ``failed`` from `before_turn` and `after_turn`.

    Raises:
        SettingsError: a setting is wrong.
        IdentityError: the secret is malformed, unreadable, or readable by other users.
    """

    @takes_arguments_of(AsyncMemoryPlugin)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncMemoryPlugin(*args, **kwargs), "memrelay-plugin")
        self._closed = False
        # A program that ends without closing the plugin still delivers its last turns, or prints that it could not.
        atexit.register(self.close)
        self._loop.call(self._inner.start())

    @property
    def settings(self) -> PluginSettings:
        """The settings that this plugin uses."""
        return self._inner.settings

    @property
    def enabled_everywhere(self) -> bool:
        """Return whether the gateway's own switch is on; raises like `AsyncMemoryPlugin.enabled_everywhere`."""
        return _enabled_everywhere(self)

    before_turn = waited(AsyncMemoryPlugin.before_turn, closed=_recall_failed)
    after_turn = waited(AsyncMemoryPlugin.after_turn, closed=_capture_failed)
    warm = waited(AsyncMemoryPlugin.warm)
    flush = waited(AsyncMemoryPlugin.flush)
    flush_session = waited(AsyncMemoryPlugin.flush_session)
    tool = waited(AsyncMemoryPlugin.tool)
    replaced_lately = waited(AsyncMemoryPlugin.replaced_lately)
    set_session = on_loop(AsyncMemoryPlugin.set_session)
    set_everywhere = on_loop(AsyncMemoryPlugin.set_everywhere)
    session_enabled = on_loop(AsyncMemoryPlugin.session_enabled)
    captured = on_loop(AsyncMemoryPlugin.captured)
    erase_waiting = on_loop(AsyncMemoryPlugin.erase_waiting)
    forget_position = on_loop(AsyncMemoryPlugin.forget_position)

    def status(self) -> PluginStatus:
        """Return the status of the plugin as a whole; works after `close`, too."""
        return self._inner.status() if self._closed else _status(self)

    def why(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> TurnTrace:
        """Return the trace of the last turn of a session, or of any session if ``session_key`` is None.

        The trace is empty if there was no such turn. See `AsyncMemoryPlugin.why` for the arguments.
        """
        return self._inner.why(session_key, host=host)

    def close(self) -> None:
        """Try for up to five seconds to deliver waiting turns, then stop. A second call does nothing."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            super().close()


_status = on_loop(AsyncMemoryPlugin.status)


@on_loop
def _enabled_everywhere(plugin: AsyncMemoryPlugin) -> bool:
    return plugin.enabled_everywhere
