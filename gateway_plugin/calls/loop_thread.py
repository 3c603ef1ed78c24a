"""Synchronous use of asynchronous objects: an event loop in a thread of its own, and methods that wait for it.

Example:
    class SyncClient(OnThread[Client]):
        @takes_arguments_of(Client)
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(Client(*args, **kwargs), "client")

        recall = waited(Client.recall)
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from gateway_plugin.errors import GatewayError

_END: Final = object()

_R = TypeVar("_R")


class LoopClosed(GatewayError, RuntimeError):
    """Raised when the event loop is closed, was closed during the call, or belongs to the process before a fork."""

    def __init__(self) -> None:
        super().__init__("this object is closed, or was created before a fork: create a new one")


class LoopThread:
    """An event loop that runs in a thread of its own until `close`.

    The thread is a daemon, so a missing call of `close` does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        # Held while a coroutine is submitted, so that none is submitted to a loop that has stopped.
        self._gate = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop

    def call(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine on the loop, wait for it and return its result.

        If waiting is interrupted, for example by Ctrl-C, the coroutine is cancelled.

        Raises:
            LoopClosed: the loop is closed, or was closed before the coroutine finished.
        """
        future = None
        # Check the process before taking the lock: after a fork, the copied lock may be held forever.
        if os.getpid() == self._process:
            with self._gate:
                if self._open:
                    future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if future is None:
            work.close()
            raise LoopClosed
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise LoopClosed from error
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait for its thread. Running calls raise `LoopClosed`. A second call does nothing."""
        if os.getpid() != self._process:
            return
        with self._gate:
            was_open, self._open = self._open, False
        if was_open:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # A thread that waits for a task that still runs would otherwise wait forever.
            while tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # asyncio closes a socket only in the iteration after its `close`.
            for _ in range(3):
                self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()


class _Closing(Protocol):
    async def aclose(self) -> None: ...


_T = TypeVar("_T", bound=_Closing)
_P = ParamSpec("_P")


class OnThread(Generic[_T]):
    """Base of synchronous wrappers: an asynchronous object whose methods run on a `LoopThread`.

    Subclasses define their methods with `waited` and `on_loop`.
    """

    def __init__(self, inner: _T, loop: str | LoopThread) -> None:
        self._inner = inner
        self._loop = LoopThread(loop) if isinstance(loop, str) else loop
        _ALIVE[self] = (inner, self._loop)

    def close(self) -> None:
        """Close the asynchronous object, then stop the loop and its thread."""
        self._loop.call(self._inner.aclose())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_ALIVE: Final[WeakKeyDictionary[OnThread[Any], tuple[object, LoopThread]]] = WeakKeyDictionary()


def _keep_what_the_parent_uses() -> None:
    """Prevent a child process from ever finalizing the loops and connections of its parent.

    The child shares their sockets and the loop's epoll object with the parent. Closing them, which a finalizer would do when the
    child ends, would stop the parent's loop from receiving any events.
    """
    for inner, loop in list(_ALIVE.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((inner, loop.event_loop)))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_what_the_parent_uses)


def waited(
    method: Callable[Concatenate[_T, _P], Coroutine[Any, Any, _R]],
    *,
    closed: Callable[[_T, LoopClosed], _R] | None = None,
) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a synchronous version of an asynchronous method, with the same arguments, errors and docstring.

    If the object is closed, ``closed`` returns the result; without it, `LoopClosed` is raised.
    """

    @functools.wraps(method)
    def call(self: OnThread[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return self._loop.call(method(self._inner, *args, **kwargs))
        except LoopClosed as error:
            if closed is None:
                raise
            return closed(self._inner, error)

    return call


def iterated(
    method: Callable[Concatenate[_T, _P], AsyncGenerator[_R, None]],
) -> Callable[Concatenate[OnThread[_T], _P], Generator[_R, None, None]]:
    """Return a synchronous version of an asynchronous generator method; each element is computed when it is requested."""

    @functools.wraps(method)
    def call(self: OnThread[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_R, None, None]:
        elements = method(self._inner, *args, **kwargs)

        async def following() -> Any:
            return await anext(elements, _END)

        try:
            while (element := self._loop.call(following())) is not _END:
                yield element
        finally:
            with contextlib.suppress(LoopClosed):
                self._loop.call(elements.aclose())

    return call


def on_loop(method: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[OnThread[_T], _P], _R]:
    """Return a version of a synchronous method that runs on the loop's thread, which owns all state."""

    @functools.wraps(method)
    async def run(inner: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return method(inner, *args, **kwargs)

    return waited(run)


def takes_arguments_of(
    inner: Callable[_P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Return a decorator that declares the arguments of a constructor to be those of another class, also for `inspect`."""

    def declare(init: Callable[..., None]) -> Callable[Concatenate[Any, _P], None]:
        vars(init)["__wrapped__"] = getattr(inner, init.__name__)
        return init

    return declare
