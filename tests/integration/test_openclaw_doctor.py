"""``memrelay-gateway doctor --host openclaw`` as a person runs it, against a real relayer and a real bridge."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import CLEAN, ran

from gateway_plugin.hosts.openclaw.config import settings_block
from gateway_plugin.hosts.openclaw.manifest import FOLDER

BRIDGE = Path(sys.executable).with_name("memrelay-gateway")


@pytest.fixture
def examine(tmp_path):
    """Runs doctor in a gateway of two agents; returns its checks by name, and its exit code."""

    def run(url, agents=("main", "research"), **entry):
        block = settings_block(url=url, command=str(BRIDGE), consent=True)
        block["plugins"]["load"] = {"paths": [str(FOLDER)]}
        block["plugins"]["entries"]["memrelay"] |= entry
        block["agents"] = {"entries": {name: {} for name in agents}}
        (tmp_path / "openclaw.json").write_text(json.dumps(block))
        environment = CLEAN | {
            "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "OPENCLAW_STATE_DIR": str(tmp_path),
        }  # fmt: skip
        done = ran([BRIDGE, "doctor", "--host", "openclaw", "--json"], env=environment, timeout=110)
        return {check["name"]: check for check in json.loads(done.stdout)}, done.returncode

    return run


@pytest.mark.row("MS-31", level="e2e")
def test_where_nothing_is_wrong_it_proves_recall_and_capture_for_each_agent(serve, examine):
    checks, code = examine(serve("--accounts", "open").url)
    assert {name: check["found"] for name, check in checks.items() if not check["ok"]} == {}
    assert code == 0
    assert "starts, version" in checks["bridge"]["found"]
    for agent in ("main", "research"):
        found = checks[f"openclaw agent {agent}"]["found"]
        assert found.startswith("written and recalled in ")
        assert found.endswith("no turn was noted yet: send one, and look again")


def test_a_setting_that_makes_the_hosts_agents_one_is_warned_of(serve, examine):
    url = serve("--accounts", "open").url
    checks, code = examine(
        url, config={"url": url, "command": str(BRIDGE), "agent": "coder", "dreaming": {"enabled": False}}
    )
    assert (checks["openclaw agent names"]["warning"], code) == (True, 0)
    assert checks["openclaw agent names"]["found"] == "main and research share their memories"


def test_what_keeps_the_bridge_from_its_work_is_named_with_the_setting(examine):
    config = {"url": "http://127.0.0.1:9", "command": str(BRIDGE), "recall": {"maxResult": 3}}
    checks, code = examine("http://127.0.0.1:9", config=config)
    assert code == 1
    assert "maxResult" in checks["bridge"]["found"]
    assert "plugins.entries.memrelay.config" in checks["bridge"]["fix"]


def test_it_looks_at_the_settings_of_the_host_and_names_those_without_effect(examine):
    config = {
        "url": "http://127.0.0.1:9", "command": str(BRIDGE), "capture": {"enabled": False}, "fastMode": True,
    }  # fmt: skip
    checks, _ = examine("http://127.0.0.1:9", config=config)
    assert checks["switches"]["found"] == "capture.enabled is false"
    assert checks["settings"]["ok"]
    assert checks["settings"]["found"].startswith("active.fastMode has no effect: ")


@pytest.mark.row("MS-07", level="e2e")
@pytest.mark.parametrize(
    ("hooks", "found", "fix"),
    [
        ({}, "allowConversationAccess is not true", "hooks.allowConversationAccess true"),
        (
            {"allowConversationAccess": True, "allowPromptInjection": False},
            "allowPromptInjection is false",
            "allowPromptInjection",
        ),
    ],
)
def test_a_permission_that_the_hooks_lack_is_named_with_the_command_that_gives_it(examine, hooks, found, fix):
    url = "http://127.0.0.1:9"
    checks, code = examine(url, config={"url": url, "command": str(BRIDGE)}, hooks=hooks)
    [check] = [check for check in checks.values() if check["found"] == found]
    assert (check["ok"], code) == (False, 1)
    assert fix in check["fix"]


@pytest.mark.parametrize("command", ["/nowhere/memrelay-gateway", sys.executable])
def test_a_program_that_is_no_bridge_is_named_with_what_to_install(examine, command):
    checks, _ = examine("http://127.0.0.1:9", config={"url": "http://127.0.0.1:9", "command": command})
    assert checks["bridge"]["ok"] is False
    assert command in checks["bridge"]["found"]
    assert "pip install . in a clone" in checks["bridge"]["fix"]
