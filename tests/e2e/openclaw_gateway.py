"""A real OpenClaw gateway, headless on loopback, with its home, state and configuration in one folder of the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import openclaw_rpc
from openclaw_install import Installed
from processes import wait_until

TOKEN = "e2e-loopback-token"
PLUGIN = Path(__file__).parents[2] / "gateway_plugin" / "hosts" / "openclaw"
BRIDGE = Path(sys.executable).with_name("memrelay-gateway")
READY_SECONDS = 400.0
RELOADED = "config hot reload applied ("
RELOAD_FAILED = "config reload failed: "
# The host lets go of a turn a moment after it has answered, and refuses to replace a plugin until then; whoever edits saves again.
LET_GO_LATE = "still has active retained work; retry after the work finishes"
TOO_BUSY = "state lease heartbeat did not become ready"
_STARTS = 4
# The last one lets the bridge run the code of this checkout where another one is installed.
_KEPT = ("PATH", "LANG", "TMPDIR", "TZ", "PYTHONPATH")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Gateway:
    """A gateway that can be started, asked, stopped and started again; nothing of the developer's own is used.

    Args:
        installed: the programs.
        folder: everything it writes.
        model_url: the model server.
        plugins: the ``plugins`` part of the configuration.
        agents: the agents' names.
        environment: more variables.
    """

    def __init__(
        self,
        installed: Installed,
        folder: Path,
        model_url: str,
        *,
        plugins: dict[str, Any],
        agents: tuple[str, ...] = ("main", "research"),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config_file = folder / "openclaw.json"
        self.log = folder / "gateway.log"
        self.port = free_port()
        self.start_seconds = 0.0
        self._installed = installed
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("home", "state", "tmp", *(f"ws/{agent}" for agent in agents)):
            (folder / name).mkdir(parents=True, exist_ok=True)
        _share_compiled(installed, folder / "tmp")
        self.environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            "PATH": f"{installed.node.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "OPENCLAW_HOME": str(folder / "home"),
            "OPENCLAW_STATE_DIR": str(self.state),
            "OPENCLAW_CONFIG_PATH": str(self.config_file),
            "OPENCLAW_GATEWAY_TOKEN": TOKEN,
            "OPENCLAW_OFFLINE": "1",
            "OPENCLAW_NO_AUTO_UPDATE": "1",
            "OPENCLAW_DISABLE_BONJOUR": "1",
            "OPENCLAW_SKIP_CHANNELS": "1",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TMPDIR": str(folder / "tmp"),
            **(environment or {}),
        }
        self.write_config(self._configuration(model_url, agents, plugins))

    def write_config(self, config: dict[str, Any]) -> None:
        self.config_file.write_text(json.dumps(config, indent=1))

    def config(self) -> dict[str, Any]:
        return json.loads(self.config_file.read_text())

    @property
    def settings(self) -> dict[str, Any]:
        """The plugin's present settings."""
        return self.config()["plugins"].get("entries", {}).get("memrelay", {}).get("config", {})

    def start(self) -> None:
        """Start, and wait until requests are taken; a host that a busy machine kept from its own database is started again."""
        for _ in range(_STARTS):
            begun = len(self.log_text()) if self.log.exists() else 0
            try:
                return self._start()
            except RuntimeError:
                if TOO_BUSY not in self.log_text()[begun:]:
                    raise
        raise RuntimeError(f"the gateway did not start in {_STARTS} attempts:\n{self.log_tail()}")

    def _start(self) -> None:
        command = [str(self._installed.node), str(self._installed.openclaw), "gateway", "run"]
        command += ["--port", str(self.port), "--bind", "loopback"]
        begun = time.monotonic()
        with self.log.open("ab") as log:
            # A session of its own, as a service has: the kernel gives each a share, and the host's leases want theirs.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.environment,
                start_new_session=True,
            )  # fmt: skip
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the gateway ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() - begun > READY_SECONDS:
                self.stop()
                raise RuntimeError(f"the gateway did not get ready:\n{self.log_tail()}")
            time.sleep(0.2)
        self.start_seconds = time.monotonic() - begun

    def stop(self) -> None:
        """End it by its process id."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def chat(
        self, text: str, *, agent: str = "main", user: str = "one", headers: dict[str, str] | None = None
    ) -> str:
        """Send a turn through the HTTP endpoint and return the answer."""
        body: dict[str, Any] = {"model": f"openclaw/{agent}", "messages": [{"role": "user", "content": text}]}
        if user:
            body["user"] = user
        answer = httpx.post(
            f"{self.url}/v1/chat/completions",
            json=body,
            headers={"authorization": f"Bearer {TOKEN}", **(headers or {})},
            timeout=120,
        )
        answer.raise_for_status()
        return answer.json()["choices"][0]["message"]["content"]

    def invoke(
        self, tool: str, arguments: dict[str, Any], *, session: str = "agent:main:main"
    ) -> dict[str, Any]:
        """Run one tool without a model."""
        body = {"tool": tool, "args": arguments, "sessionKey": session}
        answer = httpx.post(
            f"{self.url}/tools/invoke", json=body, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60
        )
        return answer.json()

    def cli(self, *arguments: str, patience: float = 120) -> subprocess.CompletedProcess[str]:
        """Run an ``openclaw`` command."""
        command = [str(self._installed.node), str(self._installed.openclaw), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment, timeout=patience, check=False,
            stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip

    def command(self, text: str, *, session: str = "agent:main:main", admin: bool = True) -> str:
        """Send a slash command as a person at the gateway's own chat does, and return the answer."""
        key = uuid.uuid4().hex
        params = {"sessionKey": session, "message": text, "idempotencyKey": key}
        scopes = openclaw_rpc.ADMIN if admin else ("operator.read", "operator.write")
        self.call("chat.send", params, scopes=scopes)
        found: list[str] = []

        def answered() -> bool:
            rows = self.call("chat.history", {"sessionKey": session})["messages"]
            found[:] = [row["content"][0]["text"] for row in rows if row.get("idempotencyKey") == key]
            return bool(found)

        wait_until(answered)
        return found[-1]

    def said_in_chat(self, *messages: tuple[str, str], session: str = "agent:main:main") -> list[str]:
        """Send messages as a person at the gateway's own chat; return what the chat shows, see `openclaw_rpc`."""
        return openclaw_rpc.said_in_chat(self.port, TOKEN, messages, session=session)

    def call(
        self, method: str, params: dict[str, Any], *, scopes: Sequence[str] = openclaw_rpc.ADMIN
    ) -> dict[str, Any]:
        """Call a method of the gateway."""
        return openclaw_rpc.call(self.port, TOKEN, method, params, scopes=scopes)

    def reload(self, plugins: dict[str, Any]) -> None:
        """Change the ``plugins`` part of the configuration as an editor does, and wait until the gateway has taken it over."""
        whole = self.config()
        if whole["plugins"] == plugins:
            return
        at = len(self.log_text())
        self.write_config(whole | {"plugins": plugins})
        end = time.monotonic() + READY_SECONDS
        while RELOADED not in (said := self.log_text()[at:]):
            if RELOAD_FAILED in said and LET_GO_LATE in said:
                time.sleep(1)
                at = len(self.log_text())
                self.write_config(whole | {"plugins": plugins})
            elif RELOAD_FAILED in said or time.monotonic() > end:
                raise RuntimeError(f"the gateway did not take its configuration over:\n{self.log_tail()}")
            time.sleep(0.1)

    def bridges(self) -> list[int]:
        """Return the process ids of the bridges that this gateway runs."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"bridge" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _configuration(
        self, model_url: str, agents: tuple[str, ...], plugins: dict[str, Any]
    ) -> dict[str, Any]:
        # The first agent has the model of all; each other one has its own, which reasons.
        named = {agent: f"{agent}-model" for agent in agents[1:]}
        entries = {
            agent: {"workspace": str(self.folder / "ws" / agent)}
            | ({"model": {"primary": f"stub/{named[agent]}"}} if agent in named else {})
            for agent in agents
        }
        zero = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        models = [
            {
                "id": name, "name": name, "reasoning": name != "stub-model", "input": ["text"], "cost": zero,
                "contextWindow": 120000, "maxTokens": 4096, "compat": {"supportsReasoningEffort": name != "stub-model"},
            }
            for name in ("stub-model", *named.values())
        ]  # fmt: skip
        provider = {"baseUrl": model_url, "apiKey": "sk-stub", "api": "openai-completions", "models": models}
        return {
            "gateway": {
                "mode": "local", "port": self.port, "bind": "loopback",
                "auth": {"mode": "token", "token": "${OPENCLAW_GATEWAY_TOKEN}"},
                "controlUi": {"enabled": False},
                "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
            },
            "agents": {
                "ownership": "explicit",
                "defaults": {
                    "workspace": str(self.folder / "ws" / agents[0]), "model": {"primary": "stub/stub-model"},
                    "skipBootstrap": True, "heartbeat": {"every": "0m", "agentId": agents[0]},
                    "systemAgent": {"agentId": agents[0]},
                },
                "entries": entries,
            },
            "models": {"mode": "replace", "providers": {"stub": provider}},
            "cron": {"enabled": False}, "update": {"checkOnStart": False}, "discovery": {"mdns": {"mode": "off"}},
            "plugins": plugins,
        }  # fmt: skip


def _share_compiled(installed: Installed, temporary: Path) -> None:
    """Let the host find what it compiled in earlier tests, where it looks for that: in a person's own temporary folder it stays."""
    installed.compiled.mkdir(parents=True, exist_ok=True)
    link = temporary / installed.compiled.name
    if not link.is_symlink():
        link.symlink_to(installed.compiled)


def memrelay_plugins(url: str, *, core: bool = False, **config: Any) -> dict[str, Any]:
    """Return the ``plugins`` part that loads the plugin from this checkout, without an installation."""
    entries: dict[str, Any] = {
        "memrelay": {
            "enabled": True,
            "hooks": {"allowConversationAccess": True},
            "config": {"url": url, "command": str(BRIDGE), **config},
        }
    }
    if not core:
        entries["memory-core"] = {"enabled": False}
    return {"load": {"paths": [str(PLUGIN)]}, "slots": {"memory": "memrelay"}, "entries": entries}
