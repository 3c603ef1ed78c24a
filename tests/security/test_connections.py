"""Peers that cost a relayer something by doing nothing: answers that nobody reads, connections that say nothing.

A real `memrelay serve` process and raw sockets; meanwhile somebody well-behaved is served.
"""

from __future__ import annotations

import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes import CLEAN, wait_for, wait_until
from signed_calls import Gateway, encode

from relayer.wire import codec as base64url
from relayer.wire.sealing import RootKeys

ANSWER_SECONDS = 2
DIMENSION = 384
LARGE = "x" * 60_000


@dataclass
class Client:
    """One account, and whom it talks to; each call is a connection of its own."""

    url: str
    fleet_key: bytes
    gateway: Gateway

    @classmethod
    def of(cls, url: str) -> Client:
        keys = httpx.get(f"{url}/v1/keys", trust_env=False, timeout=30).json()["keys"]
        return cls(
            url, base64url.decode(keys[0]["public_key"]), Gateway(root=RootKeys(secrets.token_bytes(32)))
        )

    @property
    def authority(self) -> str:
        return self.url.removeprefix("http://")

    def headers(self, method: str, target: str, raw: bytes = b"") -> dict[str, str]:
        key = self.gateway.memory_key(self.fleet_key)
        return self.gateway.headers(method, self.authority, target, raw, memory_key=key)

    def call(self, method: str, target: str, body: dict[str, Any] | None = None) -> httpx.Response:
        raw = encode(body)
        headers = self.headers(method, target, raw)
        with httpx.Client(trust_env=False, timeout=20) as http:
            return http.request(method, self.url + target, content=raw, headers=headers)

    def connect(self, *, window: int | None = None, source: str = "127.0.0.1") -> socket.socket:
        host, _, port = self.authority.rpartition(":")
        opened = socket.socket()
        if window is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        opened.bind((source, 0))
        opened.settimeout(20)
        opened.connect((host, int(port)))
        return opened

    def ask_and_never_read(
        self, method: str, target: str, body: dict[str, Any] | None = None, *, window: int = 4096
    ) -> socket.socket:
        raw = encode(body)
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.authority}", f"Content-Length: {len(raw)}"]
        lines += [f"{name}: {value}" for name, value in self.headers(method, target, raw).items()]
        opened = self.connect(window=window)
        opened.sendall("\r\n".join([*lines, "", ""]).encode() + raw)
        return opened

    def remember_and_recall(self) -> None:
        text = f"The ferry to Heringsdorf leaves from pier {secrets.token_hex(4)}."
        stored = self.call("POST", "/v1/memories", {"items": [{"text": text}]})
        assert stored.status_code == 200, stored.text
        found = self.call("POST", "/v1/recall", {"query": text, "floor": 0})
        assert text in found.text

    def figure(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=20).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


@contextmanager
def served(folder: Path, *arguments: str, files: int | None = None) -> Iterator[str]:
    """A relayer process that may have so many files open; its URL."""
    ready, log = folder / "ready.json", folder / "log.txt"
    command = [sys.executable, "-m", "relayer", "serve", "--port", "0", "--data", str(folder / "data")]
    command += ["--ready-file", str(ready), "--log-format", "json", "--rate-limits", "off", *arguments]

    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
    with log.open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=CLEAN, text=True)
    try:
        yield wait_for(ready, process, log)["url"]
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served"), "--answer-timeout", str(ANSWER_SECONDS)) as url:
        yield url


@pytest.fixture
def hoarder(url: str) -> Client:
    """An account with six megabytes of memories."""
    client = Client.of(url)
    for start in range(0, 100, 5):
        items = [{"text": f"{number} {LARGE}"} for number in range(start, start + 5)]
        stored = client.call("POST", "/v1/memories", {"items": items})
        assert stored.status_code == 200, stored.text
    return client


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ended(opened: socket.socket) -> bool:
    """Whether the other side broke the connection off; nothing is read."""
    look = select.poll()
    look.register(opened, 0)
    return bool(look.poll(0))


UNREAD: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "list": ("GET", "/v1/memories?limit=100", None),
    "recall": ("POST", "/v1/recall", {"query": "1 x", "vector": [1.0] * DIMENSION, "limit": 100, "floor": 0}),
    "changes": ("GET", "/v1/changes?limit=100", None),
    "context": ("GET", "/v1/context?items=200", None),
    "export": ("POST", "/v1/export", {}),
}


@pytest.mark.parametrize("asked", UNREAD.values(), ids=UNREAD)
def test_an_answer_that_nobody_reads_is_let_go_of_and_others_are_served_meanwhile(
    url: str, hoarder: Client, sockets: ExitStack, asked: tuple[str, str, dict[str, Any] | None]
) -> None:
    opened = [sockets.enter_context(hoarder.ask_and_never_read(*asked)) for _ in range(8)]
    wait_until(lambda: hoarder.figure("memrelay_answers_waiting_bytes") > 0)
    Client.of(url).remember_and_recall()
    # A relayer without a limit never gets there; how long it takes with one depends on what else the machine does.
    wait_until(lambda: all(map(ended, opened)))
    assert hoarder.figure("memrelay_answers_waiting_bytes") == 0
    hoarder.remember_and_recall()


def test_an_account_that_reads_none_of_its_answers_gets_no_more_of_them(
    url: str, hoarder: Client, sockets: ExitStack
) -> None:
    for _ in range(40):
        sockets.enter_context(hoarder.ask_and_never_read("GET", "/v1/memories?limit=100"))
    wait_until(lambda: hoarder.call("GET", "/v1/memories?limit=100").status_code == 503)
    refused = hoarder.call("GET", "/v1/memories?limit=100")
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("queue_full", "1")
    assert hoarder.figure("memrelay_answers_waiting_bytes") < 20 * 1024 * 1024
    Client.of(url).remember_and_recall()
    wait_until(lambda: hoarder.call("GET", "/v1/memories?limit=100").status_code == 200)


def test_a_reader_that_is_slow_but_reads_gets_the_whole_answer(hoarder: Client, sockets: ExitStack) -> None:
    opened = sockets.enter_context(hoarder.ask_and_never_read("POST", "/v1/export", {}, window=65_536))
    began, got = time.monotonic(), b""
    while not got.endswith(b"0\r\n\r\n"):
        got += opened.recv(65_536)
        # A slow reader is one that takes its time: there is nothing to wait for.
        time.sleep(0.03)
    assert got.count(LARGE.encode()) == 100
    assert time.monotonic() - began > ANSWER_SECONDS


def slow_head(opened: socket.socket) -> None:
    opened.sendall(b"POST /v1/memories HTTP/1.1\r\nHost: ")


def silence(opened: socket.socket) -> None:
    """Say nothing."""


@pytest.mark.parametrize("say", [silence, slow_head], ids=["idle", "slow heads"])
def test_more_connections_than_there_are_descriptors_keep_nobody_out(
    tmp_path: Path, sockets: ExitStack, say: Callable[[socket.socket], None]
) -> None:
    with served(tmp_path, files=256) as url:
        client = Client.of(url)
        client.remember_and_recall()
        for _ in range(400):
            opened = sockets.enter_context(client.connect())
            say(opened)
        for _ in range(3):
            client.remember_and_recall()
        assert client.figure("process_open_fds") < 256 - 32


def test_a_signed_connection_outlasts_a_flood_of_unsigned_ones(tmp_path: Path, sockets: ExitStack) -> None:
    with served(tmp_path, files=256) as url, httpx.Client(trust_env=False, timeout=20) as http:
        client = Client.of(url)
        kept = http.get(f"{url}/v1/memories", headers=client.headers("GET", "/v1/memories"))
        stream = kept.extensions["network_stream"].get_extra_info("socket").getsockname()
        for _ in range(400):
            sockets.enter_context(client.connect())
        again = http.get(f"{url}/v1/memories", headers=client.headers("GET", "/v1/memories"))
        assert again.status_code == 200
        assert again.extensions["network_stream"].get_extra_info("socket").getsockname() == stream


def test_one_address_has_its_share_of_the_connections(tmp_path: Path, sockets: ExitStack) -> None:
    with served(tmp_path, "--connections-per-address", "5") as url:
        client = Client.of(url)
        for _ in range(60):
            sockets.enter_context(client.connect(source="127.0.0.9"))
        assert client.figure("memrelay_connections") <= 7
        client.remember_and_recall()
