"""The plugin's JavaScript in Node.js, registered as a host registers it, with hooks that a test's statements call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processes import CLEAN

from gateway_plugin.hosts.openclaw.manifest import FOLDER

NODE = os.environ.get("MEMRELAY_TEST_NODE") or shutil.which("node")
REAL_BRIDGE = [sys.executable, "-m", "gateway_plugin"]

_PROGRAM = """
import { default as plugin } from "FOLDER/index.js";
import { existsSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
const log = [];
const logger = Object.fromEntries(["info", "warn", "error"].map((level) => [level, (line) => log.push(`${level} ${line}`)]));
const [hooks, services, options, commands] = [{}, [], {}, {}];
const known = {
  pluginConfig: CONFIG, logger, registrationMode: "full", config: HOST,
  on: (name, hook, given) => { hooks[name] = hook; options[name] = given; },
  registerService: (service) => services.push(service),
  registerCommand: (command) => { commands[command.name] = command.handler; },
};
const ignored = () => undefined;
const api = new Proxy(known, { get: (target, name) => target[name] ?? (String(name).startsWith("register") ? ignored : undefined) });
plugin.register(api);
const kept = "STATE/memrelay/kept-turns";
const files = () => (existsSync(kept) ? readdirSync(kept).filter((name) => name.endsWith(".turn")).sort() : []);
const bridge = () => [...globalThis[Symbol.for("memrelay.bridges")].values()].at(-1);
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (met, ms = 60_000) => {
  for (const end = Date.now() + ms; !(await met()); ) {
    if (Date.now() > end) throw new Error(`not met: ${met}`);
    await later(20);
  }
};
const up = () => until(() => bridge().info);
const killed = async () => {
  process.kill(bridge().child.pid, "SIGKILL");
  await until(() => !bridge().child);
};
const status = () => bridge().ask("status", {}, 30_000);
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });
let runs = 0;
const ends = (said, { session = "agent:main:main", before = [], answer = "I see." } = {}) =>
  hooks.agent_end({ success: true, messages: [...before, user(said), assistant(answer)] }, { sessionKey: session, runId: `r${++runs}` });
const answers = {};
const delivered = async () => {
  await until(() => !files().length);
  answers.waiting = (await status()).waiting;
};
BODY
await services[0].stop();
process.stdout.write(JSON.stringify({ log, answers }));
"""


class PluginInNode:
    """Runs statements in Node.js with the plugin registered; what they put into ``answers`` comes back beside the log.

    Args:
        folder: home and state of all the gateways of a test.
        config: the plugin's configuration; by default no relayer answers.
        host: the host's configuration.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.kept = self.state / "memrelay" / "kept-turns"

    def __call__(
        self,
        body: str,
        *,
        command: Sequence[str] = REAL_BRIDGE,
        config: dict[str, Any] | None = None,
        host: dict[str, Any] | None = None,
        start: bool = True,
    ) -> tuple[list[str], dict[str, Any]]:
        """Return what was logged and answered."""
        assert NODE is not None
        settings = {"url": "http://127.0.0.1:9", "command": list(command), **(config or {})}
        begun = "await services[0].start();\n" if start else ""
        program = _PROGRAM.replace("BODY", begun + body).replace("FOLDER", str(FOLDER))
        program = program.replace("STATE", str(self.state)).replace("CONFIG", json.dumps(settings))
        program = program.replace("HOST", json.dumps(host or {}))
        file = self.folder / "program.mjs"
        file.write_text(program)
        environment = CLEAN | {
            "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config"),
            "OPENCLAW_STATE_DIR": str(self.state),
        }  # fmt: skip
        done = subprocess.run(
            [NODE, str(file)], capture_output=True, text=True, env=environment, timeout=150, check=False
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return told["log"], told["answers"]
