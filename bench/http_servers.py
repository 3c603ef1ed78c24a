"""Processes to measure: started on free ports, watched by their ids, ended by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.http_load import Load, drive

__all__ = ["Sample", "Server", "started"]

READY_SECONDS = 120.0
STOP_SECONDS = 30.0
_CPUCLOCK_SCHED = 2
# What a developer's own shell says must not change what is measured.
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}


@dataclass(frozen=True, slots=True)
class Sample:
    """One round against one server. Rates in requests a second, CPU time in seconds a request."""

    load: Load
    cpu: float

    @property
    def rate(self) -> float:
        return self.load.rate


@dataclass(frozen=True, slots=True)
class Server:
    """A process that answers requests."""

    url: str
    pid: int

    @property
    def authority(self) -> str:
        return self.url.partition("://")[2]

    def cpu_seconds(self) -> float:
        """User and system time of all of its threads so far.

        Read from the process's CPU clock, whose id the kernel derives from the process id (clock_getcpuclockid(3)):
        /proc/PID/stat counts in steps of 10 ms.
        """
        return time.clock_gettime(((~self.pid) << 3) | _CPUCLOCK_SCHED)

    def memory(self) -> tuple[int, int]:
        """Resident bytes now, and at their highest so far."""
        lines = Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}
        return values["VmRSS"], values["VmHWM"]

    async def answer(self, requests: Sequence[bytes], connections: int) -> Sample:
        """Send requests and account for them; raises `NotAnswered`."""
        before = self.cpu_seconds()
        load = await drive(self.authority, requests, connections)
        return Sample(load, (self.cpu_seconds() - before) / len(requests))

    def settle(self, patience: float = 60.0) -> None:
        """Wait until its background work is done: until it uses less than 3 % of a core for two seconds.

        Shorter pauses prove nothing: the relayer looks after its namespaces once a second.
        """
        end = time.monotonic() + patience
        quiet = 0
        while quiet < 4 and time.monotonic() < end:
            before = self.cpu_seconds()
            time.sleep(0.5)
            quiet = quiet + 1 if self.cpu_seconds() - before < 0.015 else 0


@contextmanager
def started(
    module: str,
    arguments: Sequence[str],
    work: Path,
    environment: Mapping[str, str] | None = None,
    *,
    tree: Path | None = None,
) -> Iterator[Server]:
    """Run ``python -m module arguments --ready-file ...`` until the block ends.

    Args:
        module: writes ``{"url": ...}`` into its ready file when it answers.
        arguments: of the command.
        work: a directory for the ready file and the log, made if need be.
        environment: of the process, beside this one's.
        tree: a checkout whose code it runs; None for this one's.

    Raises:
        RuntimeError: it ended, or did not get ready in two minutes.
    """
    work.mkdir(parents=True, exist_ok=True)
    ready, log = work / "ready.json", work / "log.txt"
    command = [sys.executable, "-m", module, *arguments, "--ready-file", str(ready)]
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env=_CLEAN | dict(environment or {}), cwd=tree
        )
    try:
        yield Server(_url(process, ready, log), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    end = time.monotonic() + READY_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args!r} did not get ready: {log.read_text()[-1000:]}")
        time.sleep(0.05)
    url: str = json.loads(ready.read_text())["url"]
    return url
