"""Running `memrelay` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

READY_SECONDS = 120.0
# Nothing that a setting of the developer's own shell, or a relayer's file of settings in this home, could change.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("MEMRELAY_", "AWS_"))}
CLEAN["MEMRELAY_CONFIG"] = os.devnull


@dataclass
class Served:
    """A `memrelay serve` process that answers requests."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    data: Path
    ready_file: Path
    log: Path

    @property
    def url(self) -> str:
        return self.ready["url"]

    @property
    def authority(self) -> str:
        return self.url.removeprefix("http://")

    def stop(self, number: int = signal.SIGTERM, patience: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(patience)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for what another process does in its own time; there is nothing to wait on but what it leaves behind."""
    end, pause = time.monotonic() + READY_SECONDS, 0.01
    while not true():
        if time.monotonic() > end:
            pytest.fail("the other process did not get there")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)


def wait_for(ready_file: Path, process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    wait_until(lambda: ready_file.exists() or process.poll() is not None)
    if process.poll() is not None:
        pytest.fail(f"the relayer ended with {process.poll()}: {log.read_text()[-2000:]}")
    return json.loads(ready_file.read_text())


def alive(pid: int) -> bool:
    """Return whether a process runs: one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ran(
    command: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    given: str | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a program that ends by itself; without ``env``, in this process's own environment."""
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        input=given,
        env=env,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def run_memrelay(
    arguments: Sequence[str], environment: dict[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return ran([sys.executable, "-m", "relayer", *arguments], env=CLEAN | (environment or {}), given=given)
