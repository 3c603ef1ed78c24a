"""What the OpenClaw plugin costs a turn: time without the relayer's own, memory of the bridge, and the prompt cache.

    python -m bench.openclaw_overhead [--turns 500]

The bridge is the real process, asked as the plugin asks it; the relayer is a real one behind a line that notes how long
each of its answers took. The prompt cache is arithmetic: how much of a prompt is a prefix of the one before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from demo.relayer_process import RelayerProcess
from gateway_plugin.recall.formatting import RecalledMemory, format_memories
from gateway_plugin.settings.model import RecallSettings

SYSTEM_CHARS = 27_000
TURNS_OF_A_SESSION = 20


@dataclass(frozen=True)
class Overhead:
    """Milliseconds that a turn's recall took beyond the relayer's answer, and the bridge's memory in MiB."""

    p50: float
    p99: float
    with_relayer_p50: float
    resident_mib: float


class TimedLine:
    """Forwards requests to a relayer and notes how long it took to answer each."""

    def __init__(self) -> None:
        self.port = 0
        self.seconds: list[float] = []
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer in two packets would wait for an acknowledgement in between, and be taken for the plugin's time.
            wbufsize = -1
            disable_nagle_algorithm = True

            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                begun = time.perf_counter()
                onward = HTTPConnection("127.0.0.1", line.port)
                onward.request(self.command, self.path, body, dict(self.headers))
                answer = onward.getresponse()
                content = answer.read()
                if self.path == "/v1/recall":
                    line.seconds.append(time.perf_counter() - begun)
                onward.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"content-length", "connection", "date", "server"}:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.forward()

            def do_POST(self) -> None:
                self.forward()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class BridgeLine:
    """The bridge process, one request at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._last = 0

    def ask(self, method: str, **params: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._last += 1
        request = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["result"]

    @property
    def resident_mib(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@contextmanager
def bridge(folder: Path, url: str) -> Iterator[BridgeLine]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMRELAY_")}
    environment |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    command = [sys.executable, "-m", "gateway_plugin", "bridge"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        line = BridgeLine(process)
        line.ask("initialize", protocol=[1], config={"url": url, "recall": {"deadlineMs": 20_000}})
        yield line
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def measure(turns: int) -> Overhead:
    """Ask for memories ``turns`` times, each time something else, so that no answer is at hand."""
    line = TimedLine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ("--public-url", line.url, "--accounts", "open", "--port", str(_free_port()))
        line.port = int(options[-1])
        with RelayerProcess(folder / "relayer", arguments=options), bridge(folder, line.url) as process:
            overheads, totals = [], []
            for number in range(turns + 20):
                context = {"sessionKey": f"agent:main:s{number % 10}", "runId": f"r{number}"}
                question = f"Where did I put the parts of machine number {number}?"
                done = len(line.seconds)
                begun = time.perf_counter()
                process.ask("turn.before", prompt=question, messages=[], historyLength=0, context=context)
                total = time.perf_counter() - begun
                if number >= 20:  # the first ones make keys and connections
                    totals.append(total)
                    overheads.append(total - sum(line.seconds[done:]))
            resident = process.resident_mib
    line.close()
    return Overhead(
        p50=median(overheads) * 1000,
        p99=quantiles(overheads, n=100)[98] * 1000,
        with_relayer_p50=median(totals) * 1000,
        resident_mib=resident,
    )


def cacheable(position: str, turns: int = TURNS_OF_A_SESSION) -> float:
    """Return which share of a session's prompts is a prefix of the prompt before: 0 for none of it, 1 for all.

    Args:
        position: ``append``, ``prepend`` and ``system-append`` as the plugin's setting; ``system-prepend`` stands for
            plugins that put memories before everything else.
        turns: how many turns the session has; each is given other memories.
    """
    now = datetime(2026, 1, 1, tzinfo=UTC)
    before, shared, whole, history = "", 0, 0, ""
    for number in range(turns):
        items = [RecalledMemory(text=f"note {number}.{item}: " + "x" * 90, at=now) for item in range(5)]
        block, _ = format_memories(items, RecallSettings(), now)
        said = f"\nuser: question {number} " + "q" * 120
        system = "s" * SYSTEM_CHARS
        prompt = {
            "append": f"{system}{history}{said}\n{block}",
            "prepend": f"{system}{history}\nuser: {block}\n{said[7:]}",
            "system-append": f"{system}{block}{history}{said}",
            "system-prepend": f"{block}{system}{history}{said}",
        }[position]
        if before:
            shared += _shared(before, prompt)
            whole += len(prompt)
        before = prompt
        history += f"{said}\nassistant: answer {number} " + "a" * 400
    return shared / whole


def _shared(before: str, prompt: str) -> int:
    pairs = enumerate(zip(before, prompt, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(before), len(prompt)))


def _free_port() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return int(server.server_address[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=500)
    result = measure(parser.parse_args().turns)
    print(f"before_prompt_build beyond the relayer: p50 {result.p50:.1f} ms, p99 {result.p99:.1f} ms")
    print(f"with the relayer: p50 {result.with_relayer_p50:.1f} ms")
    print(f"memory of the bridge: {result.resident_mib:.0f} MiB")
    for position in ("append", "prepend", "system-append", "system-prepend"):
        print(f"prompt that is a prefix of the one before, {position}: {cacheable(position):.1%}")


if __name__ == "__main__":
    main()
