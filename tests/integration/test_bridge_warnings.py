"""What the bridge writes into the gateway's log when it starts, because a person should change something."""

from __future__ import annotations

import json

import pytest
from bridge_process import BridgeProcess
from processes import wait_until

URL = "http://127.0.0.1:9"


def log_of(folder, config, entries, plugin="memrelay"):
    """Start a bridge in a host with these entries, and return what it wrote."""
    file = folder / "openclaw.json"
    file.write_text(json.dumps({"plugins": {"slots": {"memory": "memrelay"}, "entries": entries}}))
    with BridgeProcess(folder, config, {"OPENCLAW_CONFIG_PATH": str(file)}) as bridge:
        told = bridge.call("initialize", protocol=[1], host="openclaw", pluginId=plugin, config=config)
        assert told["problem"] == ""
        bridge.call("ping")
    wait_until(lambda: bridge.process.poll() is not None)
    return (folder / "bridge.log").read_text()


@pytest.mark.row("CP-07", level="e2e")
@pytest.mark.parametrize(
    ("entries", "warned"),
    [
        ({"memrelay": {}}, True),
        ({"memrelay": {}, "memory-core": {"enabled": True}}, True),
        ({"memrelay": {}, "memory-core": {"enabled": False}}, False),
        ({"memrelay": {}, "memory-core": {"enabled": False}, "memsearch": {"enabled": True}}, True),
    ],
)
def test_another_plugin_that_owns_our_tools_is_warned_of_with_the_fix(tmp_path, entries, warned):
    said = log_of(tmp_path, {"url": URL}, entries)
    assert ("registers tools of the same names; run: openclaw config set plugins.entries." in said) is warned


def test_the_sidecar_has_no_tools_and_warns_of_none(tmp_path):
    assert "same names" not in log_of(
        tmp_path, {"url": URL}, {"memrelay-sidecar": {}}, plugin="memrelay-sidecar"
    )


@pytest.mark.row("MS-15", "MW-28", level="e2e")
def test_a_setting_without_effect_is_said_once(tmp_path):
    config = {"url": URL, "provider": "onnx", "accountId": "0x" + "2b" * 32}
    said = log_of(tmp_path, config, {"memrelay": {}, "memory-core": {"enabled": False}})
    assert [said.count(f"{name} has no effect") for name in ("provider", "accountId")] == [1, 1]
    assert "2b2b" not in said
