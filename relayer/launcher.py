"""The launcher of ``--workers``: runs several ``memrelay serve --reuse-port`` processes on one port.

`launch` reserves the port and starts the processes, the first one alone. A process that ends is started again after a pause
that doubles each time. SIGTERM and SIGINT are passed on to all of them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from relayer.errors import ConfigurationError
from relayer.process import bind, ready_file, url_of
from relayer.settings.config import PREFIX, RelayerSettings
from relayer.telemetry import log, name_instance
from relayer.wire.calls import doubled

_COMMAND = (sys.executable, "-P", "-m", "relayer", "serve")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


async def launch(
    settings: RelayerSettings, flags: Mapping[str, object], count: int, say: Callable[[str], None]
) -> int:
    """Run processes on one port until SIGTERM or SIGINT; a second signal kills them.

    The first one starts alone, so that the keys and the store are created only once.

    Returns:
        The exit code: 0 after an orderly stop, 1 after processes were killed, or that of a first process that cannot start.

    Raises:
        ConfigurationError: the port is taken, or this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigurationError("--workers: several processes on one port need Linux; give 1")
    with ExitStack() as stack:
        # This fails if another relayer uses the port, even one that shares it.
        with bind(settings) as free:
            port = free.getsockname()[1]
        # The socket is bound but does not listen. It reserves the port while no process uses it.
        stack.enter_context(bind(settings.model_copy(update={"port": port, "reuse_port": True})))
        name_instance(port)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="memrelay-")))
        given = {f"{PREFIX}{name.upper()}": str(value) for name, value in flags.items() if value is not None}
        own = {"WORKERS": "1", "REUSE_PORT": "true", "PORT": str(port), "READY_FILE": str(folder / "ready")}
        given |= {f"{PREFIX}{name}": value for name, value in own.items()}
        return await _Launcher(settings, given, url_of(settings, port), count, say).run()


class _Launcher:
    def __init__(
        self,
        settings: RelayerSettings,
        environment: Mapping[str, str],
        url: str,
        count: int,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._environment, self._url = settings, environment, url
        self._count, self._say = count, say
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._answering: set[int] = set()
        self._announced = ExitStack()
        # `_begun` is set when the first process serves requests, or has ended before that.
        self._begun, self._stop = asyncio.Event(), asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        for stopping in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(stopping, self._told, stopping)
        with self._announced:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(0))
                await self._begun.wait()
                for number in range(1, self._count):
                    group.create_task(self._keep(number))
        return self._code

    def _told(self, number: signal.Signals) -> None:
        log.info("told_to_stop", cause=number.name)
        self._code = int(self._stop.is_set())
        self._announced.close()
        for process in self._running.values():
            process.send_signal(signal.SIGKILL if self._stop.is_set() else signal.SIGTERM)
        self._stop.set()

    async def _keep(self, number: int) -> None:
        """Run one of the processes, and restart it whenever it ends, until the launcher is told to stop."""
        failures = 0
        while not self._stop.is_set():
            code = await self._run(number)
            if not self._begun.is_set():
                # The process wrote to standard error why it cannot start.
                self._code = self._code if self._stop.is_set() else max(code, 1)
                self._stop.set()
                self._begun.set()
            elif not self._stop.is_set():
                pause = doubled(_FIRST_PAUSE, failures, _LONGEST_PAUSE)
                failures += 1
                log.error("process_ended", number=number, exit_code=code, again_in_seconds=pause)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause)

    async def _run(self, number: int) -> int:
        environment = {**os.environ, **self._environment}
        if self._settings.monitoring_port:
            environment[f"{PREFIX}MONITORING_PORT"] = str(self._settings.monitoring_port + number)
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal must signal only the launcher, which passes it on to the processes.
            process_group=0,
            preexec_fn=partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        self._running[number] = process
        log.info("process_started", number=number, process=process.pid)
        if self._stop.is_set():
            process.terminate()
        assert process.stdout is not None  # it is a pipe
        async for line in process.stdout:
            text = line.decode(errors="replace").rstrip()
            if f" serves {self._url}," in text:
                self._answers(number, text)
            else:
                self._say(text)
        code = await process.wait()
        del self._running[number]
        return code

    def _answers(self, number: int, line: str) -> None:
        self._begun.set()
        if number in self._answering or self._stop.is_set():
            return
        self._answering.add(number)
        if len(self._answering) == self._count:
            self._say(f"{line}, {self._count} processes")
            if self._settings.ready_file is not None:
                self._announced.enter_context(ready_file(self._settings.ready_file, self._url))
