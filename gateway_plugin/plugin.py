"""The plugin as code uses it: `before_turn` recalls, `after_turn` captures, and neither ever breaks a turn.

What is wrong with the settings or the secret is raised when the plugin is made. After that everything that can go wrong
becomes a status; only a mistake in the call itself (a prompt that is no string) is raised. `MemoryPlugin` is the same
implementation for code that is not asynchronous, on an event loop of its own thread.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import html
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

import aiohttp

from gateway_plugin.calls.calling import Outages
from gateway_plugin.capture import Capturer, TurnCapture
from gateway_plugin.clock import Clock, SystemClock
from gateway_plugin.consolidation import Consolidator, RecallCounts
from gateway_plugin.errors import GatewayError
from gateway_plugin.host_model import HostModel, ModelWork, lend
from gateway_plugin.identity import (
    KeyHolder,
    parse_session_key,
)
from gateway_plugin.outbox.queue import DeadLetter, Outbox, OutboxItem, OutboxUnavailable
from gateway_plugin.outbox.sender import Positions, Sender
from gateway_plugin.query import parse_messages, prompt_text
from gateway_plugin.recall import Recaller, TurnRecall
from gateway_plugin.sessions import Identities, LastTurn, Sessions, Toggles, Turns, Watchdog
from gateway_plugin.settings import PluginSettings
from gateway_plugin.setup import (
    active_traces,
    connect,
    holder_for,
    open_outbox,
    settings_from,
    shares_path,
)
from gateway_plugin.sharing import Shares
from gateway_plugin.status import (
    CaptureReport,
    Injection,
    NotifyOnce,
    PluginStatus,
    TurnTrace,
    notify,
    without_effect,
)
from gateway_plugin.tools import READING, ToolAnswer, Toolbox, failure
from gateway_plugin.transfer.daily import DailyNotes
from gateway_plugin.transfer.indexed import IndexedFile, Indexes, IndexRoot
from gateway_plugin.transfer.living import LivingFiles, Look
from gateway_plugin.turn import HostTurn, Purpose
from relayer.wire.sealing import derive

CLOSING_SECONDS: Final = 5.0
# Facts that a model extracts come some time after their turn.
_NOTES_SECONDS: Final = 20.0
NO_HOST: Final = HostTurn()
# Stands for a message where the gates are asked about a session and not about one.
_BEGINNING: Final = "The session begins."
Messages = Iterable[Mapping[str, Any]]
Prompt = str | Sequence[Mapping[str, Any]]


class AsyncMemoryPlugin:
    """Memory for one gateway process; belongs to the event loop that uses it first.

    Args:
        url: the relayer; None takes the settings', by default ``http://127.0.0.1:8787``.
        agent: who speaks when a session key names nobody; None takes the settings'.
        settings: settings, or the host's configuration object for this plugin; None reads the environment.
        secret: the gateway's secret, 64 hex digits or base64; None finds or makes one, see `gateway_plugin.keys`.
        holder: the keys to use, found already; nothing is looked for then.
        outbox: where captured turns wait; None keeps them sealed in a file that outlives the process, unless
            ``capture.durable`` is false.
        environ: the environment; secrets are taken out of it.
        clock: the time.
        http: an HTTP session to use instead of an own one; the caller closes it.
        model: the host's own language model, for what the relayer has none for; ``hostModel`` bounds its use.

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
        holder: KeyHolder | None = None,
        outbox: Outbox | None = None,
        environ: MutableMapping[str, str] | None = None,
        clock: Clock | None = None,
        http: aiohttp.ClientSession | None = None,
        model: HostModel | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self.settings = settings_from(settings, environ, url=url)
        self._seconds = self.settings.deadline_ms / 1000
        # While memory is switched off, no secret is made either.
        if self.settings.disabled:
            holder = None
        elif holder is None:
            holder = holder_for(self.settings, environ, secret=secret)
        self._identities = Identities(holder, self.settings, agent)
        self._clock = clock or SystemClock()
        self._indexes = Indexes(environ)
        # By namespace, how many turns were delivered, and when, the last time that daily notes were written.
        self._noted: dict[str, tuple[int, float]] = {}
        self._client = connect(self.settings, environ, clock=self._clock, http=http)
        # Of its own for files: a relayer that is away while nobody speaks must not be thought away when somebody does.
        self._files = connect(self.settings, environ, clock=self._clock, http=http)
        self._outages = Outages(self._client.endpoint.origin, notify)
        self._client.watch_ends(self._outages.heard)
        if outbox is None:
            outbox = open_outbox(self.settings, environ, holder, self._client.endpoint.origin)
        self._outbox = outbox
        self._positions = Positions(self._outbox, kept=self.settings.capture.enabled)
        self._last = LastTurn(self._outbox, noted=self.settings.capture.enabled)
        notify_once = NotifyOnce()
        self._lent = lend(model, self.settings, self._clock, notify_once)
        self._model_work = (
            None
            if self._lent is None
            else ModelWork(self._client, self._lent, self._identities.of_owner, self._clock)
        )
        self._sender = Sender(
            self._client,
            self._outbox,
            self._identities.of_owner,
            notify=notify,
            heard=self._positions.saw,
            judged=self._last.captured,
            meanwhile=self._persist,
            promised=None if self._model_work is None else self._model_work.promised,
        )
        self._shares = Shares(shares_path(environ), holder, legacy=self.settings.namespace.legacy)
        traces = active_traces(self.settings, environ)
        self._recaller = Recaller(
            self._client,
            self._sender,
            self.settings,
            self._clock,
            self._positions,
            traces=traces,
            lent=self._lent,
            shares=self._shares,
        )
        self._counts = RecallCounts(
            self._outbox,
            self._identities.gateway,
            self._clock,
            min_score=self.settings.consolidation.min_score,
        )
        self._consolidator = Consolidator(
            client=self._client,
            outbox=self._outbox,
            counts=self._counts,
            identity_of=self._identities.of_owner,
            settings=self.settings.consolidation,
            clock=self._clock,
            gateway=self._identities.gateway,
        )
        self._watchdog = Watchdog(self._clock, notify, enabled=self.settings.capture.enabled)
        self._sessions = Sessions()
        notify_once = self._notify_once = NotifyOnce()
        self._toggles = Toggles(self._outbox, self._identities.gateway)
        self._turns = Turns(self._toggles, self._identities, self.settings, notify_once)
        self._recall = TurnRecall(
            recaller=self._recaller,
            turns=self._turns,
            sessions=self._sessions,
            settings=self.settings,
            logged=self.settings.logs_recalls and not self.settings.disabled,
            last=self._last,
            counts=self._counts if self.settings.consolidation.enabled else None,
            watchdog=self._watchdog,
            notify_once=notify_once,
        )
        self._capture = TurnCapture(
            capturer=Capturer(self._outbox, self.settings.capture, self._clock),
            outbox=self._outbox,
            sender=self._sender,
            client=self._client,
            turns=self._turns,
            sessions=self._sessions,
            watchdog=self._watchdog,
            notify_once=notify_once,
        )

    async def start(self) -> None:
        """Deliver what an earlier process left behind; the first turn does so too. Nothing is asked of a relayer else."""
        self._sender.start()
        if self.settings.consolidation.enabled and not self.settings.disabled:
            self._consolidator.start()
        for sentence in without_effect(self.settings, self._identities.account):
            self._notify_once(sentence)

    async def warm(self, *, session_key: str | None = None, host: HostTurn = NO_HOST) -> str:
        """Deliver what waits and have the relayer open a session's namespace, because its first turn is near (MS-06).

        Nothing is asked for a session that may not recall. Returns a status, as recall has them; raises nothing.
        """
        self._sender.start()
        try:
            turn = self._turns.of(parse_session_key(session_key or ""), host, _BEGINNING, Purpose.RECALL)
            if not turn.decision.allowed:
                return f"skipped:{turn.decision.gate}"
            self._recaller.standing.begin(turn)
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
        """Recall for a turn.

        Args:
            prompt: the user's message as the host has it, envelopes and all: a string, or content parts such as
                ``[{"type": "text", "text": "..."}]``, of which the texts count.
            session_key: the host's session key; None outside any chat session.
            messages: the conversation so far, with ``role`` and ``content``.
            host: what else the host knows.
            deadline: seconds for all of it; None takes the settings'.

        Returns:
            What to put into the prompt. It never raises: an argument of a wrong type is status ``failed``, and
            ``detail`` names it.
        """
        try:
            said, earlier = prompt_text(prompt), parse_messages(messages)
        except TypeError as error:
            return Injection("", self.settings.recall.position, "failed", detail=str(error))
        self._sender.start()
        seconds = self._seconds if deadline is None else deadline
        return await self._recall.recall(said, earlier, key=session_key, host=host, seconds=seconds)

    async def after_turn(
        self,
        messages: Messages,
        *,
        session_key: str | None = None,
        success: bool = True,
        host: HostTurn = NO_HOST,
    ) -> CaptureReport:
        """Capture a turn: choose what is new and worth keeping, put it in the outbox, return in milliseconds.

        When it returns ``queued``, the turn is on this machine's disk and reaches the relayer sooner or later,
        whatever happens to this process.

        Args:
            messages: the whole history, a window of it, or the last turn; what was captured before is recognised.
            session_key: as in `before_turn`.
            success: whether the run ended well; failed ones are not captured.
            host: what else the host knows.

        Returns:
            What became of it. It never raises: messages that are no list of mappings are status ``failed``.
        """
        try:
            parsed = parse_messages(messages)
        except TypeError as error:
            return CaptureReport("failed", waiting=self._outbox.waiting(), detail=str(error))
        self._sender.start()
        return await self._capture.capture(parsed, key=session_key, host=host, success=success)

    async def flush(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Deliver what waits; False when time is up, the relayer does not take it, or what waits cannot be read.

        Nothing is dropped.
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
        """Capture what a session has said and was not captured yet, because its history is about to change or end.

        For a host's events ``before_compaction``, ``before_reset`` and ``session_end``, and its shutdown.

        Args:
            messages: the history as it is before the event.
            session_key: as in `before_turn`.
            host: as in `before_turn`.
            seconds: how long to try to deliver as well; 0 leaves that to the background.
            ended: the session is over, or begins anew: unless ``capture.summary`` is off, the relayer is told so, and
                may keep a summary of it. Queued like a turn, so that it is not lost either.
        """
        report = await self.after_turn(messages, session_key=session_key, host=host)
        if ended:
            with contextlib.suppress(GatewayError):
                self._recaller.standing.forget(self._turns.known(session_key, host))
        if ended and self.settings.capture.summary:
            report = replace(report, ended=await self._capture.end(session_key, host))
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
        """Do what the model asks of a memory tool; every failure is an answer, too.

        Args:
            name: one of `gateway_plugin.tool_arguments.ALL_TOOL_NAMES`.
            arguments: as the model gave them.
            session_key: as in `before_turn`.
            host: as in `before_turn`; ``host.transcripts`` is where ``memory_transcript`` may read.
        """
        try:
            turn = self._turns.known(session_key, host)
            if turn.outbox_error and not self.settings.disabled:
                return ToolAnswer(f"Memory error: {turn.outbox_error}", failed=True, reason="outbox")
            if self.settings.disabled or not turn.session_enabled:
                return ToolAnswer("Memory is switched off here.", failed=True, reason="switched_off")
            identity = turn.identity
            cited = await self._indexes.cited(identity, self._client.endpoint.origin)
            toolbox = Toolbox(self._client, self.settings, self._clock, cited, self._shares)
            answer = await toolbox.call(name, arguments, turn)
        except GatewayError as error:
            return failure(error)
        if name in READING:
            # What a model repeats of what it read is no news either.
            self._sessions.of(identity.namespace, turn.session.key).echoes.injected(
                (answer.text, html.unescape(answer.text))
            )
        return answer

    async def look_at_files(
        self,
        roots: Sequence[IndexRoot],
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
        settled: Callable[[IndexedFile], bool] = lambda _file: True,
        notes: Path | None = None,
    ) -> Look:
        """Bring an agent's memory up to what its files say now; nothing where memory is switched off.

        Args:
            roots: where to look, besides what ``memrelay-gateway index`` was told of.
            session_key: of any session of the agent.
            host: as in `before_turn`.
            settled: whether a changed file is to be read now.
            notes: the real path of the workspace whose daily notes are written, where ``capture.mirror_daily_log`` asks
                for them.

        Raises:
            GatewayError: the relayer cannot be reached, or refuses; the next look goes on.
        """
        turn = self._turns.known(session_key, host)
        if self.settings.disabled or not turn.session_enabled:
            return Look()
        identity = turn.identity
        index = self._indexes.of(identity, self._client.endpoint.origin)
        files = LivingFiles(self._files, identity, index, self.settings.capture)
        if notes is not None and self.settings.capture.mirror_daily_log:
            place = datetime.now(UTC).astimezone().tzinfo or UTC
            due = self._is_due(identity.namespace)
            files.notes = DailyNotes(
                self._files, identity, index, notes, self.settings.capture, place, due=due
            )
        look: Look | None = None
        try:
            look = await files.look(roots, settled=settled)
        finally:
            if look is None or look.changed:  # one that failed may have changed something before
                self._recaller.cache.drop(identity.namespace)
        if look.position is not None:
            self._positions.saw(identity.ref, look.position)
        return look

    def _is_due(self, namespace: str) -> bool:
        """Whether daily notes are to be brought up to date: a turn was delivered, or a while has passed."""
        now, (delivered, at) = self._clock.monotonic(), self._noted.get(namespace, (-1, 0.0))
        if delivered == self._sender.delivered and now - at < _NOTES_SECONDS:
            return False
        self._noted[namespace] = (self._sender.delivered, now)
        return True

    def set_session(self, session_key: str | None, *, enabled: bool, host: HostTurn = NO_HOST) -> None:
        """Turn memory off or on for one chat session; outlives the process.

        Raises:
            IdentityError: whose session it is cannot be told.
            OutboxUnavailable: the choice cannot be kept.
        """
        ref = parse_session_key(session_key or "")
        self._toggles.set_session(self._identities.of_turn(ref, host).ref, ref.key, enabled=enabled)

    @property
    def enabled_everywhere(self) -> bool:
        """Whether the gateway's own switch is on; raises `OutboxUnavailable` where it cannot be read."""
        return self._toggles.enabled_everywhere

    def set_everywhere(self, *, enabled: bool) -> None:
        """Turn memory off or on for every session of this gateway; outlives the process; raises as `set_session`."""
        self._toggles.set_everywhere(enabled=enabled)

    def session_enabled(self, session_key: str | None, *, host: HostTurn = NO_HOST) -> bool:
        """Whether memory is on for a session, by its own switch and the gateway's.

        Raises:
            IdentityError: whose session it is cannot be told.
            OutboxUnavailable: the switches cannot be read; until they can, memory is silent.
        """
        ref = parse_session_key(session_key or "")
        return self._toggles.is_on(self._identities.of_turn(ref, host).ref, ref.key)

    def erase_waiting(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy what waits or was refused and matches; return how many there were. What the relayer has stays there.

        Raises:
            OutboxUnavailable: the file cannot be changed.
        """
        removed = self._outbox.remove(matches)
        self._sender.abandon(matches)
        return removed

    def forget_position(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> None:
        """Accept the log of a namespace as it is: a person restored or erased it; raises as `set_session`."""
        owner = self._identities.of_turn(parse_session_key(session_key or ""), host).ref
        self._positions.replace(owner, None)
        self._positions.persist()

    @property
    def outage(self) -> str:
        """Why memory does not work now, as a status of `before_turn`; "" while it does, as far as is known."""
        return self._outages.lasting

    def own_key(self, label: str) -> bytes | None:
        """Return a key of this gateway, the same at each start, for what a host's adapter keeps; None while memory is switched off."""
        holder = self._identities.holder
        return None if holder is None else derive(holder.local_key, label)

    def status(self) -> PluginStatus:
        """Return how things stand."""
        dead, unreadable = self._dead()
        last = dead[-1] if dead else None
        whose = last.item.owner.agent if last is not None and last.item is not None else "unknown"
        return PluginStatus(
            url=self._client.endpoint.origin,
            account=self._identities.account,
            last_recall=self._last.trace.status,
            recalls=self._recaller.recalls,
            waiting=self._outbox.waiting(),
            delivered=self._sender.delivered,
            refused=len(dead),
            paused_seconds=self._client.breaker.remaining,
            last_error=self._sender.last_error,
            last_refusal=f"{whose}: {last.reason}" if last is not None else "",
            durable=self._outbox.durable,
            warning=unreadable or self._watchdog.warning,
            notes=without_effect(self.settings, self._identities.account),
            host_model=None if self._lent is None else self._lent.status(),
        )

    def why(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> TurnTrace:
        """Return why the last turn was given what it was given.

        Args:
            session_key: of this session alone, which is all that a chat may be told; None is the last turn of all.
            host: as in `before_turn`.
        """
        if session_key is None:
            return self._last.trace
        return self._last.of(self._turns.namespace_of(session_key, host), session_key)

    def captured(self, session_key: str, *, host: HostTurn = NO_HOST) -> CaptureReport | None:
        """Return what became of the turn of a session that was captured last, in this process's life; None without one."""
        return self._sessions.of(self._turns.namespace_of(session_key, host), session_key).captured

    async def aclose(self) -> None:
        """Try for up to five seconds to deliver what waits, then stop; says so when turns did not arrive."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _persist(self) -> None:
        """Write what was learnt since: positions, and why the last turn went as it did."""
        self._positions.persist()
        self._last.persist()
        self._counts.persist()

    def _dead(self) -> tuple[tuple[DeadLetter, ...], str]:
        """Return what was refused for good; where the outbox cannot be read, why."""
        try:
            return self._outbox.dead_letters(), ""
        except OutboxUnavailable as error:
            return (), str(error)


__all__ = [
    "AsyncMemoryPlugin",
    "CaptureReport",
    "HostTurn",
    "Injection",
    "MemoryPlugin",
    "PluginStatus",
]

_R = TypeVar("_R")


class LoopClosed(RuntimeError):
    """Raised when the loop is closed, was closed during the call, or belongs to the process this one was forked from."""

    def __init__(self) -> None:
        super().__init__("this object is closed, or was made before a fork: make a new one")


class LoopThread:
    """A started loop; `close` ends it. The thread is a daemon: a forgotten `close` never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        # Held while work is handed over, so that nothing is handed to a loop that has ended.
        self._gate = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine on the loop and return what it returns; an interrupt here cancels it there.

        Raises:
            LoopClosed: it will not be finished.
        """
        future = self._handed_over(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise LoopClosed from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and wait for its thread; calls under way end with `LoopClosed`. A second call does nothing."""
        if os.getpid() != self._process:
            return
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _handed_over(self, work: Coroutine[Any, Any, _R]) -> concurrent.futures.Future[_R]:
        # The process first: a fork copies the lock in whatever state it was.
        if os.getpid() == self._process:
            with self._gate:
                if self._open:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise LoopClosed

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._end_tasks()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(_turns())
            self._loop.close()

    def _end_tasks(self) -> None:
        """Cancel what still runs: whoever waits for it in another thread would wait for ever."""
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks))


async def _turns() -> None:
    """Let connections that were told to close do so: asyncio closes a socket in the turn after the one it was told in."""
    for _ in range(3):
        await asyncio.sleep(0)


class _Closing(Protocol):
    async def aclose(self) -> None: ...


_T = TypeVar("_T", bound=_Closing)
_P = ParamSpec("_P")


class OnThread(Generic[_T]):
    """An asynchronous object on a loop of its own, for code that is not asynchronous; see `waited`."""

    def __init__(self, inner: _T, name: str) -> None:
        self._inner = inner
        self._loop = LoopThread(name)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.call(self._inner.aclose())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def waited(
    method: Callable[Concatenate[_T, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a method that waits for an asynchronous one: same arguments, same errors, same documentation."""

    @functools.wraps(method)
    def call(self: OnThread[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._loop.call(method(self._inner, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a method that does on the loop's thread, to which all state belongs, what another does at once."""

    @functools.wraps(method)
    async def run(inner: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(inner, *args, **kwargs)

    return waited(run)


class MemoryPlugin(OnThread[AsyncMemoryPlugin]):
    """The same plugin for code that is not asynchronous; takes the same arguments as `AsyncMemoryPlugin`.

    Captures are delivered in the background. A recall waits, within its own deadline, for what this plugin captured
    before in the same namespace, so that a program finds what it just wrote.
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
    ) -> None:
        made = AsyncMemoryPlugin(
            url,
            agent,
            settings=settings,
            secret=secret,
            holder=holder,
            outbox=outbox,
            environ=environ,
            clock=clock,
            http=http,
            model=model,
        )
        super().__init__(made, "memrelay-plugin")
        self._closed = False
        # A program that ends without closing still gets its last turns delivered, or is told that it did not.
        atexit.register(self.close)
        self._loop.call(self._inner.start())

    @property
    def settings(self) -> PluginSettings:
        """The settings in force."""
        return self._inner.settings

    @property
    def enabled_everywhere(self) -> bool:
        """Whether the gateway's own switch is on; raises as `AsyncMemoryPlugin.enabled_everywhere`."""
        return _enabled_everywhere(self)

    def before_turn(
        self,
        prompt: Prompt,
        *,
        session_key: str | None = None,
        messages: Messages = (),
        host: HostTurn = NO_HOST,
        deadline: float | None = None,
    ) -> Injection:
        """Recall for a turn; see `AsyncMemoryPlugin.before_turn`. A closed plugin says so in the status."""
        try:
            return self._loop.call(
                self._inner.before_turn(
                    prompt, session_key=session_key, messages=messages, host=host, deadline=deadline
                )
            )
        except LoopClosed as error:
            return Injection("", self.settings.recall.position, "failed", detail=str(error))

    def after_turn(
        self,
        messages: Messages,
        *,
        session_key: str | None = None,
        success: bool = True,
        host: HostTurn = NO_HOST,
    ) -> CaptureReport:
        """Capture a turn; see `AsyncMemoryPlugin.after_turn`. A closed plugin says so in the status."""
        try:
            return self._loop.call(
                self._inner.after_turn(messages, session_key=session_key, success=success, host=host)
            )
        except LoopClosed as error:
            return CaptureReport("failed", waiting=self._inner.status().waiting, detail=str(error))

    warm = waited(AsyncMemoryPlugin.warm)
    flush = waited(AsyncMemoryPlugin.flush)
    flush_session = waited(AsyncMemoryPlugin.flush_session)
    tool = waited(AsyncMemoryPlugin.tool)
    set_session = on_loop(AsyncMemoryPlugin.set_session)
    set_everywhere = on_loop(AsyncMemoryPlugin.set_everywhere)
    session_enabled = on_loop(AsyncMemoryPlugin.session_enabled)
    captured = on_loop(AsyncMemoryPlugin.captured)
    erase_waiting = on_loop(AsyncMemoryPlugin.erase_waiting)
    forget_position = on_loop(AsyncMemoryPlugin.forget_position)

    def status(self) -> PluginStatus:
        """Return how things stand, also after `close`."""
        return self._inner.status() if self._closed else _status(self)

    def why(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> TurnTrace:
        """Return why the last turn was given what it was given; see `AsyncMemoryPlugin.why`."""
        return self._inner.why(session_key, host=host)

    def close(self) -> None:
        """Try for up to five seconds to deliver what waits, then stop; a second call does nothing."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            super().close()


_status = on_loop(AsyncMemoryPlugin.status)


@on_loop
def _enabled_everywhere(plugin: AsyncMemoryPlugin) -> bool:
    return plugin.enabled_everywhere
