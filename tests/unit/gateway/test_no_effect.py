"""Settings that change nothing are named where a person looks, each with the reason, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway_plugin import MemoryPlugin
from gateway_plugin.hosts.openclaw.host import run_command
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
