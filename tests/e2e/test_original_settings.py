"""Each earlier plugin's own block, with nothing but its id renamed, is a valid configuration of the real host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import BRIDGE, PLUGIN, Gateway, memrelay_plugins
from openclaw_install import Installed
from stub_model import StubModel

from gateway_plugin.settings.model import load_settings

ACCOUNT = "0x" + "3c" * 32
BLOCKS: dict[str, dict[str, Any]] = {
    "memory-core-plus": {
        "autoRecall": True, "autoRecallMaxResults": 5, "autoRecallMinPromptLength": 5,
        "autoCapture": True, "autoCaptureMaxMessages": 10,
    },
    "auto-recall": {
        "enabled": True, "maxResults": 5, "minScore": 0.5, "maxTokens": 768,
        "SKIP_PATTERNS": ["/^HEARTBEAT_OK/", "/^NO_REPLY/"],
        "DRAFT_PATH_PENALTY": 0.15, "DRAFT_PATH_PATTERNS": ["/memory\\/drafts\\//", "/memory\\/draft-.*\\.md$/"],
    },
    "memwal": {
        "privateKey": "${MY_MEMORY_SECRET}", "accountId": ACCOUNT, "serverUrl": "https://relayer.example.org",
        "defaultNamespace": "default", "autoRecall": True, "autoCapture": True, "maxRecallResults": 5,
        "minRelevance": 0.3, "captureMaxMessages": 10, "requestTimeoutMs": 10000,
    },
    "memsearch": {"provider": "onnx", "autoCapture": True, "autoRecall": True},
    "active-memory": {
        "enabled": True, "agents": ["main"], "allowedChatTypes": ["direct"], "modelFallbackPolicy": "default-remote",
        "queryMode": "recent", "promptStyle": "balanced", "timeoutMs": 15000, "maxSummaryChars": 220,
        "persistTranscripts": False, "logging": True,
    },
}  # fmt: skip


@pytest.fixture
def host(openclaw: Installed, model: StubModel, tmp_path: Path) -> Gateway:
    """A host that is not running."""
    return Gateway(openclaw, tmp_path, model.url, plugins={}, environment={"MY_MEMORY_SECRET": "7b" * 32})


def write(host: Gateway, config: dict[str, Any]) -> None:
    plugins = memrelay_plugins("")
    plugins["entries"]["memrelay"]["config"] = {"command": str(BRIDGE), **config}
    host.write_config(host.config() | {"plugins": plugins})


@pytest.mark.row("CP-10", "CP-13", "AR-20", "MW-28", "MW-29", "MS-15", "AM-04", "AM-29", level="e2e")
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_with_its_id_renamed_is_valid_in_the_host(host: Gateway, name: str) -> None:
    write(host, BLOCKS[name])
    done = host.cli("config", "validate")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.row("MS-15", "MW-28", level="e2e")
def test_what_has_no_counterpart_is_said_by_doctor(host: Gateway, relayer: Relayer) -> None:
    memwal = {key: value for key, value in BLOCKS["memwal"].items() if key != "serverUrl"}
    write(host, {"url": relayer.url, **memwal, **BLOCKS["memsearch"]})
    command = [str(BRIDGE), "doctor", "--host", "openclaw", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=host.environment, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["bridge"]["ok"], checks["bridge"]
    told = checks["settings"]["found"]
    assert "provider has no effect" in told
    assert "accountId has no effect" in told
    assert ACCOUNT not in done.stdout


def test_a_value_out_of_memwals_bounds_is_refused_by_the_host_under_its_name(host: Gateway) -> None:
    write(host, {"maxRecallResults": 21})
    done = host.cli("config", "validate")
    assert done.returncode != 0
    assert "maxRecallResults" in done.stdout + done.stderr


@pytest.mark.row("AM-04")
def test_every_value_that_the_hosts_own_active_memory_takes_is_taken(openclaw: Installed) -> None:
    theirs = _properties(openclaw.openclaw.parent / "dist/extensions/active-memory")
    assert set(theirs) <= set(_properties(PLUGIN))
    for name, schema in theirs.items():
        bounds = [schema[bound] for bound in ("minimum", "maximum") if bound in schema]
        for value in (*schema.get("enum", ()), *bounds):
            assert load_settings({name: value}, {}), name


def _properties(folder: Path) -> dict[str, Any]:
    properties: dict[str, Any] = json.loads((folder / "openclaw.plugin.json").read_text())["configSchema"][
        "properties"
    ]
    return properties
