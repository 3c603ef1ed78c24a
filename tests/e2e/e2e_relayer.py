"""A relayer behind a line that tests can cut, and what it holds for a gateway."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fault_proxy import FaultProxy
from openclaw_gateway import BRIDGE, Gateway, free_port

from demo.relayer_process import RelayerProcess


class Relayer:
    """A relayer process that is known by the address of its line; use as a context manager."""

    def __init__(self, folder: Path, line: FaultProxy) -> None:
        self.port = free_port()
        self.url = line.url
        self._line = line
        arguments = ("--port", str(self.port), "--public-url", line.url, "--accounts", "open")
        self._process = RelayerProcess(folder, arguments=arguments)

    def reachable(self) -> None:
        """Let the line lead here."""
        self._line.lead(self.port)

    def memories(self, gateway: Gateway, agent: str | None = None) -> list[str]:
        """Return the texts of an agent's memories, newest first, read with the gateway's own keys."""
        command = [str(BRIDGE), "list", "--json", "--limit", "100", *(["--agent", agent] if agent else [])]
        environment = gateway.environment | {"MEMRELAY_URL": self.url}
        if gateway.settings.get("key"):
            environment["MEMRELAY_SECRET"] = environment["MY_MEMORY_SECRET"]
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if answer.returncode:
            raise RuntimeError(answer.stderr)
        listed: list[dict[str, Any]] = json.loads(answer.stdout)["memories"]
        return [memory["text"] for memory in listed]

    def __enter__(self) -> Self:
        self._process.start()
        self.reachable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()
