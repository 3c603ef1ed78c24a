"""An empty variable is a deployment that lost a value: it must not lead to another secret, agent, relayer or store."""

from __future__ import annotations

from pathlib import Path

import pytest
from typed_commands import run_gateway, run_relayer

from gateway_plugin import MemoryPlugin
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.gateway_secret import load_keys

SECRET = bytes(range(32)).hex()
GATEWAYS = (
    "MEMRELAY_SECRET", "MEMRELAY_SECRET_FILE", "MEMRELAY_AGENT_SECRET", "MEMRELAY_AGENT_CERTIFICATE", "MEMRELAY_AGENT",
    "MEMRELAY_URL", "MEMRELAY_RELAYER_IDENTITY", "MEMRELAY_DEFAULT_NAMESPACE", "MEMRELAY_PROFILE",
)  # fmt: skip
RELAYERS = (
    "MEMRELAY_RELAYER_KEY", "MEMRELAY_RELAYER_KEY_FILE", "MEMRELAY_STORE", "MEMRELAY_DATA", "MEMRELAY_METRICS_TOKEN",
    "MEMRELAY_METRICS_TOKEN_FILE", "MEMRELAY_MODEL_API_KEY", "MEMRELAY_EMBEDDINGS_API_KEY_FILE",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A user who has a secret in a file already, which an empty variable must not fall back to."""
    folder = tmp_path / "memrelay"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.mark.parametrize("value", ["", "  "], ids=["empty", "blank"])
@pytest.mark.parametrize("name", GATEWAYS)
def test_a_command_of_the_gateway_ends_and_names_the_empty_variable(home, name, value):
    done = run_gateway({**home, name: value}, "status")
    assert done.returncode != 0
    assert f"{name}: is empty" in done.stderr
    assert not (Path(home["HOME"]) / "state").exists()


@pytest.mark.parametrize("name", GATEWAYS)
def test_a_plugin_names_the_empty_variable(home, name):
    with pytest.raises(GatewayError, match=f"{name}: is empty"):
        MemoryPlugin(environ={**home, name: ""})


@pytest.mark.parametrize("name", ["MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET", "MEMRELAY_SECRET_FILE"])
def test_no_secret_is_read_or_made_in_place_of_an_empty_one(home, name):
    with pytest.raises(GatewayError, match=name):
        load_keys({**home, name: ""}, notify=pytest.fail)


@pytest.mark.parametrize("name", RELAYERS)
def test_a_relayer_ends_and_names_the_empty_variable(home, tmp_path, name):
    done = run_relayer({**home, "MEMRELAY_DATA": str(tmp_path / "data"), name: ""}, "keys", "recovery")
    assert done.returncode != 0
    assert f"{name} is empty" in done.stderr
    assert not (tmp_path / "data").exists()
