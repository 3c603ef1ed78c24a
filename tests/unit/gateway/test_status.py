"""Settings that change nothing are named where a person looks, each with the reason, and no others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import CLEAN
from s3_servers import free_ports

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.local_relayer import folder_of
from gateway_plugin.hosts.openclaw.commands import run_command
from gateway_plugin.settings.model import load_settings
from gateway_plugin.turn.status import REASONS, without_effect

ACCOUNT = "0x" + "1a" * 32
DOCS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
SET = {
    "active.fastMode": {"active": {"fastMode": True}},
    "active.toolsAllow": {"toolsAllow": ["memory_search"]},
    "accountId": {"accountId": "0x" + "2b" * 32},
    "provider": {"provider": "onnx"},
}


@pytest.mark.parametrize("name", REASONS)
def test_a_setting_without_effect_is_named_with_its_reason(name):
    (said,) = without_effect(load_settings(SET[name], {}), ACCOUNT)
    assert said == f"{name} has no effect: {REASONS[name]}"
    assert "2b2b" not in said


@pytest.mark.parametrize(
    "config",
    [{}, {"capture": {"storeTranscript": True}}, {"fastMode": False}, {"accountId": ACCOUNT.upper().replace("X", "x", 1)}],
)  # fmt: skip
def test_what_was_not_set_or_says_what_is_so_is_not_mentioned(config):
    assert without_effect(load_settings(config, {}), ACCOUNT) == ()


def test_the_page_of_the_settings_lists_the_same_keys():
    section = DOCS.read_text("utf-8").partition("| key | why it has no effect |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE) == list(REASONS)


def test_the_status_in_a_chat_has_a_note_of_each(wire, environ):
    settings = {"url": wire.url, **SET["active.fastMode"], **SET["accountId"]}
    with MemoryPlugin(settings=settings, secret="11" * 32, environ=environ) as plugin:
        shown = run_command(plugin, "status", {"sessionKey": "agent:main:main"}).splitlines()
    notes = [line.split()[1] for line in shown if line.startswith("note: ")]
    assert notes == ["active.fastMode", "accountId"]


# Where a person looks for a reason, a started relayer that keeps ending is named, to the gateways that use it.
SAID = "the relayer of this machine failed 3 times in a row and is being restarted"


@pytest.fixture
def failing(tmp_path: Path) -> dict[str, str]:
    """A home whose relayer was at an address that is dead now, and whose keeper recorded three failures."""
    environ = {
        "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }  # fmt: skip
    folder = folder_of(environ)
    folder.mkdir(parents=True, mode=0o700)
    (folder / "address.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_ports(1)[0]}"}))
    (folder / "trouble.json").write_text(json.dumps({"failures": 3}))
    return environ


@pytest.mark.parametrize("arguments", ["status", "status --global"])
def test_the_status_in_a_chat_says_that_the_relayer_keeps_ending(failing, arguments):
    with MemoryPlugin(settings={}, secret="11" * 32, environ=failing) as plugin:
        shown = run_command(plugin, arguments, {"sessionKey": "agent:main:main"})
    assert f"note: {SAID}" in shown.splitlines()


def test_a_gateway_that_uses_another_relayer_is_told_nothing_of_it(failing):
    with MemoryPlugin(settings={"url": "http://127.0.0.1:9"}, secret="11" * 32, environ=failing) as plugin:
        shown = run_command(plugin, "status", {"sessionKey": "agent:main:main"})
        assert plugin.status().relayer_trouble == ""
    assert "in a row" not in shown


@pytest.mark.tier("all")
def test_doctor_says_that_the_relayer_keeps_ending_and_names_its_log(failing):
    done = subprocess.run(
        [Path(sys.executable).with_name("memrelay-gateway"), "doctor", "--json"],
        capture_output=True, text=True, env=CLEAN | failing | {"MEMRELAY_SECRET": "11" * 32}, timeout=60, check=False,
    )  # fmt: skip
    check = {check["name"]: check for check in json.loads(done.stdout)}["relayer of this machine"]
    assert (done.returncode, check["ok"], check["found"]) == (1, False, SAID)
    assert check["fix"] == f"see {folder_of(failing) / 'relayer.log'}"
