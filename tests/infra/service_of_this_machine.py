"""`infra/local` as a test uses it: a data directory, sixteen ports, and the three commands on them."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from infra_tools import INFRA, run, tool
from processes import CLEAN
from s3_servers import free_ports

PORTS = 16


@dataclass
class Service:
    """One data directory, and the three commands on it."""

    data: Path
    port: int

    def command(self, name: str, *arguments: str) -> tuple[int, str]:
        ended = run(
            INFRA / "local" / name,
            "--data",
            str(self.data),
            *arguments,
            env=CLEAN | {"PYTHON": sys.executable},
        )
        return ended.returncode, ended.stdout + ended.stderr

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pids(self) -> dict[str, int]:
        _, shown = self.command("status")
        return {name: int(pid) for name, pid in re.findall(r"^(\S+) +(\d+) ", shown, re.MULTILINE)}

    def recalls(self) -> dict[str, int]:
        """Return how many recalls each relayer that answers has answered."""
        counted: dict[str, int] = {}
        for number in (1, 2, 3):
            try:
                text = httpx.get(f"http://127.0.0.1:{self.port + number}/metrics", trust_env=False).text
            except httpx.TransportError:
                continue
            rows = re.findall(r'memrelay_http_requests_total\{.*route="/v1/recall".*\} (\d+)', text)
            counted[f"relayer-{number}"] = sum(map(int, rows))
        return counted


@contextmanager
def service_at(data: Path) -> Iterator[Service]:
    """Start the service for the time of the block."""
    for program in ("nginx", "weed"):
        tool(program)
    made = Service(data, _first_port())
    try:
        code, said = made.command("up", "--port", str(made.port))
        assert code == 0, said
        assert f"export MEMRELAY_URL={made.url}" in said
        yield made
    finally:
        made.command("down")


def _first_port() -> int:
    """Return the first of as many free ports in a row as the service takes."""
    while True:
        [first] = free_ports(1)
        sockets = [socket.socket() for _ in range(PORTS)]
        try:
            for number, trial in enumerate(sockets):
                trial.bind(("127.0.0.1", first + number))
        except OSError:
            continue
        else:
            return first
        finally:
            for trial in sockets:
                trial.close()
