"""The host's own commands: install from a folder and from a package, uninstall, and what the host says of each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import BRIDGE, PLUGIN, Gateway
from openclaw_install import Installed
from stub_model import StubModel

REVIEWED = ("--force", "--accept-capabilities")


@pytest.fixture
def host(openclaw: Installed, model: StubModel, tmp_path: Path) -> Gateway:
    """A host with nothing installed, not running."""
    return Gateway(openclaw, tmp_path, model.url, plugins={})


def run(host: Gateway, *arguments: str) -> str:
    done = host.cli(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.row("CP-02", "CP-03", level="e2e")
@pytest.mark.row("AR-25", "CP-08", "MS-28")
def test_a_linked_folder_takes_the_slot_and_gives_it_back(host: Gateway) -> None:
    run(host, "plugins", "install", "--link", str(PLUGIN), *REVIEWED)
    plugins = host.config()["plugins"]
    assert plugins["slots"]["memory"] == "memrelay"
    assert plugins["entries"]["memrelay"]["enabled"] is True
    run(host, "config", "set", "plugins.entries.memrelay.config.autoRecall", "false")
    assert host.config()["plugins"]["entries"]["memrelay"]["config"]["autoRecall"] is False
    run(host, "plugins", "uninstall", "memrelay", "--force")
    plugins = host.config()["plugins"]
    assert plugins.get("slots", {}).get("memory", "memory-core") == "memory-core"
    assert str(PLUGIN) not in plugins.get("load", {}).get("paths", [])


@pytest.mark.row("MS-28", level="e2e")
def test_what_was_remembered_is_still_there_when_the_plugin_is_gone(host: Gateway, relayer: Relayer) -> None:
    told = "The weather vane on the boathouse is a copper herring."
    run(host, "plugins", "install", "--link", str(PLUGIN), *REVIEWED)
    whole = host.config()
    whole["plugins"]["entries"]["memrelay"]["config"] = {"url": relayer.url, "command": str(BRIDGE)}
    host.write_config(whole)
    run(host, "memrelay", "remember", told)
    run(host, "plugins", "uninstall", "memrelay", "--force")
    assert "memrelay" not in host.config()["plugins"].get("slots", {}).values()
    assert relayer.memories(host) == [told]


@pytest.mark.row("CP-01", "CP-08", "CP-06")
def test_a_package_installs_loads_with_its_hooks_tools_and_commands_and_leaves_without_a_trace(
    host: Gateway, tmp_path: Path
) -> None:
    packed = subprocess.run(
        [str(BRIDGE), "openclaw", "pack", str(tmp_path)], capture_output=True, text=True, check=True
    )
    run(host, "plugins", "install", packed.stdout.strip(), *REVIEWED)
    assert (host.state / "extensions" / "memrelay" / "index.js").exists()
    shown = json.loads(run(host, "plugins", "inspect", "memrelay", "--runtime", "--json"))
    # The host names the hooks that it registered, and in a warning those that wait for the operator's consent.
    hooks = json.dumps([shown["typedHooks"], shown["diagnostics"]])
    assert all(name in json.dumps(shown["tools"]) for name in ("memory_search", "memory_forget"))
    assert all(name in hooks for name in ("before_prompt_build", "session_end"))
    assert shown["cliCommands"] == ["memrelay"]
    run(host, "plugins", "uninstall", "memrelay", "--force")
    plugins = host.config()["plugins"]
    assert plugins.get("slots", {}).get("memory", "memory-core") == "memory-core"
    assert not (host.state / "extensions" / "memrelay").exists()
    run(host, "config", "validate")
    # The host's own memory answers from its file again.
    (host.folder / "ws" / "main" / "MEMORY.md").write_text("- The quay at Visby is made of limestone.\n")
    run(host, "memory", "index", "--agent", "main")
    asked = "What is the quay at Visby made of?"
    assert "limestone" in run(host, "memory", "search", asked, "--agent", "main")


@pytest.mark.row("CP-04", "CP-08", "OC-06", level="e2e")
def test_after_the_documented_steps_memory_core_is_away_and_an_uninstall_brings_it_back(
    host: Gateway, tmp_path: Path
) -> None:
    (host.folder / "ws" / "main" / "MEMORY.md").write_text("- The quay at Visby is made of limestone.\n")
    before = host.config()["plugins"]
    packed = subprocess.run(
        [str(BRIDGE), "openclaw", "pack", str(tmp_path)], capture_output=True, text=True, check=True
    )
    run(host, "plugins", "install", packed.stdout.strip(), *REVIEWED)
    steps = (
        "init",
        "--host",
        "openclaw",
        "--write",
        "--no-conversation-access",
        "--url",
        "http://127.0.0.1:9",
    )
    subprocess.run([str(BRIDGE), *steps], env=host.environment, check=True, capture_output=True)
    run(host, "config", "validate")
    assert ours(host, "memory", "status")
    checks = subprocess.run(
        [str(BRIDGE), "doctor", "--host", "openclaw", "--json"],
        env=host.environment,
        capture_output=True,
        check=False,
    )
    owners = {check["name"]: check["ok"] for check in json.loads(checks.stdout)}
    assert owners["openclaw tool owners"] is True
    run(host, "plugins", "uninstall", "memrelay", "--force")
    plugins = host.config()["plugins"]
    assert plugins.get("slots", {}).get("memory", "memory-core") == "memory-core"
    assert "memory-core" not in plugins["entries"], before
    run(host, "memory", "index", "--agent", "main")
    asked = "What is the quay at Visby made of?"
    assert "limestone" in run(host, "memory", "search", asked, "--agent", "main")


def ours(host: Gateway, *arguments: str) -> bool:
    """Tell whether a command of the host is answered by this plugin."""
    done = host.cli(*arguments)
    return "memrelay" in done.stdout + done.stderr


@pytest.mark.row("AR-24", level="e2e")
def test_the_sidecar_installs_beside_the_hosts_own_memory(host: Gateway, tmp_path: Path) -> None:
    command = [str(BRIDGE), "openclaw", "pack", str(tmp_path), "--sidecar"]
    packed = subprocess.run(command, capture_output=True, text=True, check=True)
    run(host, "plugins", "install", packed.stdout.strip(), *REVIEWED)
    plugins = host.config()["plugins"]
    assert plugins.get("slots", {}).get("memory", "memory-core") == "memory-core"
    shown = json.loads(run(host, "plugins", "inspect", "memrelay-sidecar", "--runtime", "--json"))
    assert shown["tools"] == []
    assert {"name": "session_end"} in shown["typedHooks"]


def test_the_host_refuses_a_misspelt_setting_before_it_is_written(host: Gateway) -> None:
    run(host, "plugins", "install", "--link", str(PLUGIN), *REVIEWED)
    refused = host.cli("config", "set", "plugins.entries.memrelay.config.autoRecal", "false")
    assert refused.returncode != 0
    assert "autoRecal" in refused.stdout + refused.stderr
