"""Several processes on one port: a supervisor that answers nobody, and forks the workers that do.

The supervisor takes the port and loads the models once; its workers share both. It has one thread and no event loop, so that what it
forks is whole, and it outlives whatever happens to a worker: one that ends is started again. One that it leaves behind, because it was
killed itself, the kernel ends.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from relayer import models, stores
from relayer.bootstrap import load_readers
from relayer.errors import ConfigurationError
from relayer.http.metrics import SummedMetrics
from relayer.lib.shared import Seat, Shared
from relayer.process import bind, product_version, raise_descriptor_limit, ready_file, tls_context, url_of
from relayer.serving import Start
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import require_relayer_key
from relayer.telemetry import describe, log, name_instance, name_worker
from relayer.wire.retries import doubled
from relayer.worker_line import WorkerLine

Say = Callable[[str], None]

# What a worker takes at most for its end: requests under way, namespaces, store; some more for a machine that is busy.
_STOP_SECONDS = 40.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A worker that lived so long did not end because of how it was started.
_LIVED_SECONDS = 60.0
_COLLECT_SECONDS = 2.0
_CHUNK = 1024 * 1024
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


Work = Callable[[Start], int]
"""Runs a worker to its end, and says itself why it cannot start; returns its exit code."""


def supervise(settings: RelayerSettings, workers: int, say: Say, work: Work) -> int:
    """Run a relayer of several workers until SIGTERM or SIGINT; a second signal ends all of it at once.

    Args:
        settings: checked.
        workers: how many, at least two.
        say: prints one line for people.
        work: run in each worker.

    Returns:
        The exit code: 0 after a stop in order, that of the first worker when it could not start, 1 else.

    Raises:
        ConfigurationError: the port is taken, a file is missing, or this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigurationError("--workers: more than one needs Linux; give 1")
    raise_descriptor_limit()
    tls_context(settings)
    with ExitStack() as stack:
        listening = stack.enter_context(bind(settings))
        name_instance(listening.getsockname()[1])
        key = require_relayer_key(settings, say)
        stores.preload(settings)
        embedder = models.loaded_embedder(settings)
        load_readers()
        shared = Shared(workers)
        # Reference counts apart, what is there now is not written to any more, and stays the workers' common memory.
        gc.collect()
        gc.freeze()

        def start(seat: Seat, end: socket.socket) -> int:
            return work(Start(settings, WorkerLine(seat, end), listening, key, embedder))

        url, began = url_of(settings, listening.getsockname()[1]), time.monotonic()

        def announce(facts: dict[str, str]) -> None:
            log.info("started", version=product_version(), url=url, workers=workers, pid=os.getpid(), **facts)
            say(
                f"memrelay {product_version()} serves {url}, store {facts['store']}, model {facts['model']}, "
                f"{workers} workers"
            )
            if settings.ready_file is not None:
                stack.enter_context(ready_file(settings.ready_file, url))

        code = _Supervisor(shared, start, announce, stack.close).run()
        log.info("stopped", version=product_version(), served_seconds=round(time.monotonic() - began, 1))
        return code


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    line: socket.socket
    since: float
    is_ready: bool = False
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)


class _Supervisor:
    """Starts workers, starts those again that end, and gathers what they count.

    Args:
        shared: by the workers.
        start: what a forked process does; returns its exit code.
        announce: told once that every worker answers, with what the first one serves.
        let_go: takes back what was announced, and gives back the port.
    """

    def __init__(
        self,
        shared: Shared,
        start: Callable[[Seat, socket.socket], int],
        announce: Callable[[dict[str, str]], None],
        let_go: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._start = start
        self._announce = announce
        self._let_go = let_go
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._facts: dict[str, str] | None = None
        self._announced = False
        self._failures = [0] * shared.workers
        self._due: dict[int, float] = {}
        self._restarts = 0
        self._signals = 0
        self._cause = ""
        self._kill_at = float("inf")
        self._first_code = 0
        self._askers: set[int] = set()
        self._missing: set[int] = set()
        self._collect_until = float("inf")
        self._metrics = SummedMetrics(
            {
                "memrelay_workers": ("Workers that the relayer was started with.", lambda: shared.workers),
                "memrelay_workers_up": (
                    "Workers that answer requests.",
                    lambda: sum(worker.is_ready for worker in self._workers.values()),
                ),
                "memrelay_worker_restarts_total": (
                    "Workers that ended and were started again.",
                    lambda: self._restarts,
                ),
            }
        )

    def run(self) -> int:
        """Run until all workers are gone; returns the exit code."""
        with self._wakened():
            self._fork(0)
            while self._workers or (self._due and not self._signals):
                self._wait()
                self._reap()
                self._catch_up()
        self._selector.close()
        if self._signals:
            return 0 if self._kill_at else 1
        return self._first_code

    @contextmanager
    def _wakened(self) -> Iterator[None]:
        """Have signals end a wait."""
        here, there = socket.socketpair()
        for end in (here, there):
            end.setblocking(False)
        self._selector.register(here, selectors.EVENT_READ)
        signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        before = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGTERM, self._told_to_stop),
                (signal.SIGINT, self._told_to_stop),
                (signal.SIGCHLD, lambda *_: None),
            )
        }
        self._wake = here, there
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(-1)
            here.close()
            there.close()

    def _told_to_stop(self, number: int, _: object) -> None:
        self._signals += 1
        self._cause = signal.Signals(number).name

    def _wait(self) -> None:
        now = time.monotonic()
        dues = [*self._due.values(), self._kill_at, self._collect_until]
        soonest = min(dues)
        patience = None if soonest == float("inf") else max(0.0, soonest - now)
        for key, events in self._selector.select(patience):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._wake[0].recv(_CHUNK)
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                self._hear(key.data)

    def _catch_up(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._signals and self._kill_at == float("inf"):
            self._stop(now)
        if self._signals > 1 or now >= self._kill_at:
            self._kill_at = 0.0
            for worker in self._workers.values():
                os.kill(worker.pid, signal.SIGKILL)
        if not self._signals:
            for number in [number for number, at in self._due.items() if at <= now]:
                del self._due[number]
                self._fork(number)
        if self._askers and (now >= self._collect_until or not self._missing):
            self._answer_askers()

    def _stop(self, now: float) -> None:
        log.info("told_to_stop", cause=self._cause)
        log.info("stopping", workers=len(self._workers), within_seconds=_STOP_SECONDS)
        self._kill_at = now + _STOP_SECONDS
        self._due.clear()
        self._let_go()
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGTERM)

    def _fork(self, number: int) -> None:
        here, there = socket.socketpair()
        here.setblocking(False)
        parent = os.getpid()
        # A signal must not find a worker that still has its supervisor's handlers: it would be forgotten.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            pid = os.fork()
            if not pid:
                here.close()
                self._become(number, there, parent)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        there.close()
        worker = _Worker(number, pid, here, time.monotonic())
        self._workers[number] = worker
        self._selector.register(here, selectors.EVENT_READ, worker)
        log.info("worker_started", worker=number, process=pid)

    def _become(self, number: int, end: socket.socket, parent: int) -> None:
        """Be a worker, in the forked process; never returns."""
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                return
            signal.set_wakeup_fd(-1)
            # The terminal tells the whole group to stop; workers are told by their supervisor.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
            self._selector.close()
            for other in (*self._wake, *(worker.line for worker in self._workers.values())):
                other.close()
            name_worker(number)
            code = self._start(Seat(number, self._shared, anew=self._facts is None), end)
        except BaseException as error:  # noqa: BLE001 - the fork has the supervisor's frames above, which are not its to go on with
            log.error("worker_failed", **describe(error))
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for worker in list(self._workers.values()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        self._hang_up(worker)
        del self._workers[worker.number]
        self._shared.connections.away(worker.number)
        self._metrics.ended(worker.number)
        self._missing.discard(worker.number)
        self._askers.discard(worker.number)
        if self._signals:
            return
        how = {"killed_by": signal.Signals(-code).name} if code < 0 else {"exit_code": code}
        if self._facts is None:
            # It said itself why it cannot start.
            log.error("worker_did_not_start", worker=worker.number, **how)
            self._first_code = code if code > 0 else 1
            return
        now = time.monotonic()
        if now - worker.since >= _LIVED_SECONDS:
            self._failures[worker.number] = 0
        pause = doubled(_FIRST_PAUSE, self._failures[worker.number], _LONGEST_PAUSE)
        self._failures[worker.number] += 1
        self._restarts += 1
        self._due[worker.number] = now + pause
        log.error("worker_ended", worker=worker.number, process=worker.pid, again_in_seconds=pause, **how)

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.line.recv(_CHUNK)
        except OSError:
            return
        if not data:
            # It is ending, which a signal tells as well; until then the line would be readable for ever.
            self._hang_up(worker)
            return
        worker.received += data
        while (end := worker.received.find(b"\n")) >= 0:
            message = json.loads(worker.received[:end])
            del worker.received[: end + 1]
            self._understand(worker, message)

    def _hang_up(self, worker: _Worker) -> None:
        if worker.line.fileno() >= 0:
            self._selector.unregister(worker.line)
            worker.line.close()

    def _understand(self, worker: _Worker, message: dict[str, Any]) -> None:
        if "ready" in message:
            worker.is_ready = True
            if self._facts is None:
                self._facts = message["ready"]
                for number in range(1, self._shared.workers):
                    self._due[number] = 0.0
            if not self._announced and len(self._ready()) == self._shared.workers:
                self._announced = True
                self._announce(self._facts)
        elif "page" in message:
            self._ask_all(worker.number)
        else:
            self._metrics.take(worker.number, message["collected"])
            self._missing.discard(worker.number)

    def _ready(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if worker.is_ready]

    def _ask_all(self, asker: int) -> None:
        under_way = bool(self._askers)
        self._askers.add(asker)
        if under_way:
            return
        self._collect_until = time.monotonic() + _COLLECT_SECONDS
        self._missing = {worker.number for worker in self._ready()}
        for worker in self._ready():
            self._send(worker, collect=True)

    def _answer_askers(self) -> None:
        if self._missing:
            log.warning("metrics_of_workers_missing", workers=sorted(self._missing))
        page = self._metrics.render().decode()
        for number in self._askers:
            if number in self._workers:
                self._send(self._workers[number], page=page)
        self._askers, self._missing, self._collect_until = set(), set(), float("inf")

    def _send(self, worker: _Worker, **message: Any) -> None:
        worker.unsent += json.dumps(message).encode() + b"\n"
        self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        """Send what the worker takes now; the rest when it takes more, and nothing to one that is gone."""
        if worker.line.fileno() < 0:
            return
        try:
            del worker.unsent[: worker.line.send(worker.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            worker.unsent.clear()
        more = selectors.EVENT_WRITE if worker.unsent else 0
        self._selector.modify(worker.line, selectors.EVENT_READ | more, worker)
