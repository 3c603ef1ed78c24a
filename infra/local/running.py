"""Which processes of the service are alive: remembered by process id and start, so that no stranger is ever ended.

A process id alone is not enough: after a reboot it may be anybody's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from topology import Part

_ZOMBIE = "Z"
_STEP_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Known:
    pid: int
    started: str


class Processes:
    """The processes that were started for one data directory, kept in its ``state.json``."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._file = data / "state.json"
        self.port: int | None = None
        self._known: dict[str, _Known] = {}
        if self._file.exists():
            state = json.loads(self._file.read_text("utf-8"))
            self.port = state["port"]
            self._known = {name: _Known(**known) for name, known in state["processes"].items()}

    def alive(self) -> dict[str, int]:
        """Return the ids of those that live, by name."""
        return {
            name: known.pid for name, known in self._known.items() if _started(known.pid) == known.started
        }

    def log(self, name: str) -> Path:
        """Return where a process writes."""
        return self._data / "logs" / f"{name}.log"

    def start(self, part: Part, port: int) -> int:
        """Start a process that outlives this one, and remember it; returns its id."""
        with self.log(part.name).open("ab") as sink:
            process = subprocess.Popen(  # noqa: S603 - a fixed program of the topology
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=part.environment,
                cwd=self._data,
                start_new_session=True,
            )
        self._known[part.name] = _Known(process.pid, _started(process.pid) or "")
        self.port = port
        self._save()
        return process.pid

    def stop(self, name: str, patience: float) -> bool:
        """End a process: politely, and after ``patience`` seconds for good; returns whether it lived."""
        known = self._known.pop(name, None)
        lived = known is not None and _started(known.pid) == known.started
        if known is not None and lived:
            os.kill(known.pid, signal.SIGTERM)
            if not ended(known.pid, known.started, patience):
                # A server may have workers of its own; they share its session.
                with suppress(ProcessLookupError):
                    os.killpg(known.pid, signal.SIGKILL)
                ended(known.pid, known.started, patience)
        self._save()
        return lived

    def _save(self) -> None:
        draft = self._file.with_suffix(".draft")
        known = {name: {"pid": entry.pid, "started": entry.started} for name, entry in self._known.items()}
        draft.write_text(json.dumps({"port": self.port, "processes": known}), "utf-8")
        draft.replace(self._file)


def ended(pid: int, started: str, patience: float) -> bool:
    """Wait at most ``patience`` seconds for a process to end; returns whether it did."""
    end = time.monotonic() + patience
    while _started(pid) == started:
        if time.monotonic() > end:
            return False
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(_STEP_SECONDS)
    return True


def _started(pid: int) -> str | None:
    """Return when a process started, in the system's own form; None when it is none, or a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == _ZOMBIE else fields[19]
    ps = shutil.which("ps") or "/bin/ps"
    shown = subprocess.run(  # noqa: S603 - a number and a fixed program
        [ps, "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not shown or shown.startswith(_ZOMBIE) else shown.partition(" ")[2].strip()
