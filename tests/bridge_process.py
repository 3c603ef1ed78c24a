"""Talking to a real bridge process the way a host's plugin does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from processes import CLEAN


class BridgeProcess:
    """A ``memrelay-gateway bridge``; use as a context manager.

    Args:
        folder: where it keeps secrets and captured turns.
        config: the plugin's configuration.
        environment: more variables.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = CLEAN | {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
        self._environment |= environment or {}
        self._config = config
        self._last = 0
        self._log = (folder / "bridge.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway_plugin", "bridge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
        )

    def initialize(self, protocol: object = (1,)) -> dict[str, Any]:
        return self.call("initialize", protocol=protocol, host="openclaw", config=self._config)

    def send(self, method: str, **params: Any) -> int:
        """Ask, and return the request's id without waiting."""
        self._last += 1
        self.write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, **params: Any) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message: object) -> None:
        self.write_bytes(json.dumps(message).encode() + b"\n")

    def write_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next answer, whichever request it belongs to."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask and wait; an error is raised as `RuntimeError`."""
        asked = self.send(method, **params)
        answer = self.receive()
        assert answer["id"] == asked
        if "error" in answer:
            raise RuntimeError(f"{answer['error']['code']} {answer['error']['message']}")
        return answer["result"]

    def close(self) -> int:
        """Close its input, as a host that ends does, and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)

    @property
    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
