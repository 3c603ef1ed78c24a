"""A relayer as a child process: started with a clean environment, ended by its process id, its log in a file.

The child is started with nothing of the caller's ``MEMRELAY_`` variables: a relayer must never see a gateway's secret,
and a demonstration must not depend on whose shell it runs in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from gateway_plugin.errors import GatewayError

_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_TAIL_LINES: Final = 15


class RelayerFailed(GatewayError):
    """Raised when the relayer does not start, or ends on its own; carries the end of its log."""


class RelayerProcess:
    """One relayer over one folder, which may be started and ended any number of times.

    Args:
        folder: holds the data directory, the ready file and the log; made when missing.
        arguments: further options of ``memrelay serve``.
        data: the data directory, if it is not to be ``relayer`` in the folder; several relayers may share one.
    """

    def __init__(self, folder: Path, *, arguments: Sequence[str] = (), data: Path | None = None) -> None:
        self.data = data or folder / "relayer"
        self.log = folder / "relayer.log"
        self.url = ""
        self._ready = folder / "ready.json"
        self._arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port of the last start; 0 before the first."""
        return int(self.url.rpartition(":")[2]) if self.url else 0

    @property
    def pid(self) -> int:
        """The process id. Raises `RelayerFailed`: it does not run."""
        if self._process is None:
            raise RelayerFailed("the relayer does not run")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended on its own; None while it runs, and after `kill` and `stop`."""
        return None if self._process is None else self._process.poll()

    def start(self) -> float:
        """Start, on the port of the last time if there was one, and wait until requests are answered.

        Returns:
            How many seconds that took.

        Raises:
            RelayerFailed: it ended, or was not ready within a minute.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # A killed relayer leaves its ready file behind.
        self._ready.unlink(missing_ok=True)
        begun = time.monotonic()
        command = [sys.executable, "-m", "relayer", "serve", "--port", str(self.port)]
        command += ["--data", str(self.data), "--ready-file", str(self._ready), *self._arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        try:
            self.url = self._wait_until_ready(self._process, begun + _READY_SECONDS)
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - begun

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in an orderly way, or by force after twenty seconds.

        Returns:
            The exit code, negative when a signal ended it; 0 when it did not run.
        """
        return self._end(signal.SIGTERM)

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_TAIL_LINES:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(_STOP_SECONDS)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], end: float) -> str:
        pause = _FIRST_PAUSE
        while not self._ready.exists():
            code = process.poll()
            if code is not None:
                raise RelayerFailed(f"the relayer ended with exit code {code}. Its log:\n{self.log_tail()}")
            if time.monotonic() > end:
                raise RelayerFailed(f"the relayer did not get ready. Its log:\n{self.log_tail()}")
            # Nothing can be waited on but the file that another process will write.
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        return str(json.loads(self._ready.read_text("utf-8"))["url"])
