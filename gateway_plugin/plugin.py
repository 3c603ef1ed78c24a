"""The plugin for code that is not asynchronous: the same implementation, on an event loop of its own thread."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway_plugin.async_plugin import CLOSING_SECONDS, NO_HOST, AsyncMemoryPlugin, Messages
from gateway_plugin.outbox import OutboxItem
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import CaptureReport, Injection, PluginStatus, TurnTrace
from gateway_plugin.tools import ToolAnswer
from gateway_plugin.turn import HostTurn

__all__ = ["AsyncMemoryPlugin", "MemoryPlugin"]

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


_T = TypeVar("_T")


class MemoryPlugin:
    """The same plugin for code that is not asynchronous; takes the same arguments as `AsyncMemoryPlugin`.

    Captures are delivered in the background. A recall waits, within its own deadline, for what this plugin captured
    before in the same namespace, so that a program finds what it just wrote.
    """

    def __init__(self, url: str | None = None, agent: str | None = None, **options: Any) -> None:
        self._plugin = AsyncMemoryPlugin(url, agent, **options)
        self._loop = LoopThread("memrelay-plugin")
        self._closed = False
        # A program that ends without closing still gets its last turns delivered, or is told that it did not.
        atexit.register(self.close)
        self._loop.call(self._plugin.start())

    @property
    def settings(self) -> PluginSettings:
        """The settings in force."""
        return self._plugin.settings

    def before_turn(
        self,
        prompt: str,
        *,
        session_key: str | None = None,
        messages: Messages = (),
        host: HostTurn = NO_HOST,
        deadline: float | None = None,
    ) -> Injection:
        """Recall for a turn; see `AsyncMemoryPlugin.before_turn`. A closed plugin says so in the status."""
        try:
            return self._loop.call(
                self._plugin.before_turn(
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
                self._plugin.after_turn(messages, session_key=session_key, success=success, host=host)
            )
        except LoopClosed as error:
            return CaptureReport("failed", waiting=self._plugin.status().waiting, detail=str(error))

    def flush(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Deliver what waits; see `AsyncMemoryPlugin.flush`."""
        return self._loop.call(self._plugin.flush(seconds))

    def flush_session(
        self,
        messages: Messages = (),
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
        seconds: float = 0.0,
        ended: bool = False,
    ) -> CaptureReport:
        """Capture what is left of a session; see `AsyncMemoryPlugin.flush_session`."""
        return self._loop.call(
            self._plugin.flush_session(
                messages, session_key=session_key, host=host, seconds=seconds, ended=ended
            )
        )

    def tool(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        session_key: str | None = None,
        host: HostTurn = NO_HOST,
    ) -> ToolAnswer:
        """Do what the model asks of a memory tool; see `AsyncMemoryPlugin.tool`."""
        return self._loop.call(self._plugin.tool(name, arguments, session_key=session_key, host=host))

    def set_session(self, session_key: str | None, *, enabled: bool, host: HostTurn = NO_HOST) -> None:
        """Turn memory off or on for one chat session; see `AsyncMemoryPlugin.set_session`."""
        self._here(lambda: self._plugin.set_session(session_key, enabled=enabled, host=host))

    def set_everywhere(self, *, enabled: bool) -> None:
        """Turn memory off or on for the whole gateway; see `AsyncMemoryPlugin.set_everywhere`."""
        self._here(lambda: self._plugin.set_everywhere(enabled=enabled))

    def session_enabled(self, session_key: str | None, *, host: HostTurn = NO_HOST) -> bool:
        """Whether memory is on for a session; see `AsyncMemoryPlugin.session_enabled`."""
        return self._here(lambda: self._plugin.session_enabled(session_key, host=host))

    def erase_waiting(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy what waits and matches; see `AsyncMemoryPlugin.erase_waiting`."""
        return self._here(lambda: self._plugin.erase_waiting(matches))

    def forget_position(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> None:
        """Accept a namespace's log as it is; see `AsyncMemoryPlugin.forget_position`."""
        self._here(lambda: self._plugin.forget_position(session_key, host=host))

    def status(self) -> PluginStatus:
        """Return how things stand, also after `close`."""
        return self._plugin.status() if self._closed else self._here(self._plugin.status)

    def why(self, session_key: str | None = None, *, host: HostTurn = NO_HOST) -> TurnTrace:
        """Return why the last turn was given what it was given; see `AsyncMemoryPlugin.why`."""
        return self._plugin.why(session_key, host=host)

    def close(self) -> None:
        """Try for up to five seconds to deliver what waits, then stop; a second call does nothing."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            self._loop.call(self._plugin.aclose())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _here(self, work: Callable[[], _T]) -> _T:
        """Do something on the loop's thread, to which all state belongs."""

        async def run() -> _T:
            return work()

        return self._loop.call(run())
