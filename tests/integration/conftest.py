"""Relayers to talk to: a real `memrelay serve` process, and the same application inside the test's own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from border import Border, border

READY_SECONDS = 60.0
# Everything that a setting of the developer's own shell could change.
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}


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


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts relayers on free ports; all are ended with the test, by their process ids."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, data: Path | None = None, environment: dict[str, str] | None = None) -> Served:
        number = len(started)
        folder = data or tmp_path / "data"
        ready_file, log = tmp_path / f"ready-{number}.json", tmp_path / f"log-{number}.txt"
        command = [sys.executable, "-m", "relayer", "serve", "--port", "0", "--data", str(folder)]
        command += ["--ready-file", str(ready_file), "--log-format", "json", *arguments]
        with log.open("w") as sink:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=sink, text=True, env=_CLEAN | (environment or {})
            )
        started.append(process)
        ready = _wait_for(ready_file, process, log)
        return Served(process, ready, folder, ready_file, log)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def _wait_for(ready_file: Path, process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    end = time.monotonic() + READY_SECONDS
    pause = 0.01
    while not ready_file.exists():
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail(f"the relayer did not get ready (exit {process.poll()}): {log.read_text()[-2000:]}")
        # Another process gets ready in its own time; there is nothing to wait on but the file.
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return json.loads(ready_file.read_text())


def run_memrelay(
    arguments: Sequence[str], environment: dict[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "relayer", *arguments],
        capture_output=True,
        text=True,
        input=given,
        env=_CLEAN | (environment or {}),
        timeout=60,
        check=False,
    )


@pytest.fixture
async def at_border() -> AsyncIterator[Border]:
    async with border() as running:
        yield running
