"""Connections that keep `memrelay-gateway mcp --http` from its clients: half heads and silence, more of them than it may open files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from mcp_messages import INITIALIZE
from processes import wait_until
from typed_commands import machine, run_gateway

PROGRAM = Path(sys.executable).with_name("memrelay-gateway")


@dataclass
class Served:
    """A server that answers MCP clients, and a token that it knows."""

    port: int
    token: str

    def connect(self) -> socket.socket:
        opened = socket.socket()
        opened.settimeout(20)
        opened.connect(("127.0.0.1", self.port))
        return opened

    def initialize(self) -> int:
        """Return how a client with a good token is answered, on a connection of its own."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
        }
        url = f"http://127.0.0.1:{self.port}/mcp"
        with httpx.Client(trust_env=False, timeout=10) as http:
            return http.post(url, json=INITIALIZE, headers=headers).status_code


@contextmanager
def serving(environment: dict[str, str], log: Path) -> Iterator[int]:
    """Run ``mcp --http`` with 256 files at most, as some systems have it by default; yields its port."""
    command = [str(PROGRAM), "mcp", "--http", "--port", "0"]
    command = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", *command]
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        wait_until(lambda: "MCP at" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield int(log.read_text().partition("http://127.0.0.1:")[2].partition("/")[0])
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture
def server(tmp_path: Path, shared_relayer: str) -> Iterator[Served]:
    environment = machine(tmp_path, shared_relayer, os.urandom(32).hex()) | {"PATH": os.environ["PATH"]}
    token = run_gateway(environment, "mcp", "token", "--agent", "coder").stdout.strip()
    with serving(environment, tmp_path / "log.txt") as port:
        yield Served(port, token)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def half_head(opened: socket.socket) -> None:
    opened.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuth")


def silence(opened: socket.socket) -> None:
    """Say nothing."""


@pytest.mark.parametrize("say", [silence, half_head], ids=["idle", "half heads"])
def test_connections_without_a_request_keep_no_client_out(
    server: Served, sockets: ExitStack, say: Callable[[socket.socket], None]
) -> None:
    assert server.initialize() == 200
    for _ in range(400):
        say(sockets.enter_context(server.connect()))
    assert [server.initialize() for _ in range(5)] == [200] * 5


def test_a_head_that_does_not_come_ends_its_connection(server: Served, sockets: ExitStack) -> None:
    opened = sockets.enter_context(server.connect())
    half_head(opened)
    opened.settimeout(30)
    with suppress(ConnectionResetError):
        assert opened.recv(1) == b"", "no answer"


def test_a_stream_with_a_token_outlasts_a_flood_without_one(server: Served, sockets: ExitStack) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    with (
        httpx.Client(trust_env=False, timeout=20) as http,
        http.stream("GET", f"http://127.0.0.1:{server.port}/sse", headers=headers) as stream,
    ):
        lines = stream.iter_lines()
        while not (line := next(lines)).startswith("data:"):
            pass
        for _ in range(400):
            half_head(sockets.enter_context(server.connect()))
        where = f"http://127.0.0.1:{server.port}{line.removeprefix('data:').strip()}"
        assert httpx.post(where, json=INITIALIZE, headers=headers, trust_env=False).status_code == 202
        while "serverInfo" not in next(lines):
            pass
