"""The plugin in other versions of the host: the oldest that it asks for, some since, and one that is too old for a package."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import BRIDGE, PLUGIN, Gateway
from openclaw_install import OLDER, VERSION, Installed, installed
from processes import wait_until
from stub_model import StubModel, said

FACT = "The foghorn of the old pier was cast by Hieronymus in a church."
QUESTION = "Who cast the foghorn of the old pier?"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    command = [str(BRIDGE), "openclaw", "pack", str(tmp_path)]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(params=[*OLDER, VERSION])
def host(request: pytest.FixtureRequest, model: StubModel, tmp_path: Path) -> Iterator[Gateway]:
    found = installed(request.param)
    if not found.complete:
        pytest.skip(f"OpenClaw {request.param} is not in {found.prefix}: run `make test-hosts`")
    host = Gateway(found, tmp_path / "openclaw", model.url, plugins={}, agents=("main",))
    if request.param != VERSION:
        host.write_config(without_names(host.config()))
    yield host
    host.stop()


def without_names(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of one agent, which nobody names: how agents are listed changed from version to version."""
    defaults = config["agents"]["defaults"]
    defaults["heartbeat"] = {"every": "0m"}
    del defaults["systemAgent"]
    return config | {"agents": {"defaults": defaults}}


def install(host: Gateway, package: Path) -> None:
    """Install a package; what a person has to agree to grew from version to version."""
    told = ""
    for reviewed in (("--force", "--accept-capabilities"), ("--force",), ()):
        done = host.cli("plugins", "install", str(package), *reviewed, patience=300)
        told += done.stdout + done.stderr
        if done.returncode == 0:
            return
    pytest.fail(told)


def set_up(host: Gateway, relayer: Relayer) -> None:
    entry = {"enabled": True, "config": {"url": relayer.url, "command": str(BRIDGE)}}
    consented = entry | {"hooks": {"allowConversationAccess": True}}
    config, told = host.config(), ""
    # The oldest asks for no consent, and takes no such key.
    for one in (consented, entry):
        entries = {"memory-core": {"enabled": False}, "memrelay": one}
        host.write_config(config | {"plugins": config["plugins"] | {"entries": entries}})
        done = host.cli("config", "validate")
        told += done.stdout + done.stderr
        if done.returncode == 0:
            return
    pytest.fail(told)


@pytest.mark.row("AR-26", "MS-32", level="e2e")
def test_the_package_installs_captures_recalls_and_has_its_tools(
    host: Gateway, packed: Path, relayer: Relayer, model: StubModel
) -> None:
    install(host, packed)
    set_up(host, relayer)
    host.start()
    host.chat(FACT, user="telling")
    wait_until(lambda: FACT in relayer.memories(host))
    wait_until(lambda: recalled(host, model))
    assert FACT in str(host.invoke("memory_search", {"query": QUESTION}))


def recalled(host: Gateway, model: StubModel) -> bool:
    host.chat(QUESTION, user="asking")
    return FACT in said(model.asked(QUESTION)[-1])


@pytest.mark.row("AR-26", level="e2e")
def test_a_host_that_is_older_than_a_package_asks_for_is_told_so_and_installs_nothing(
    openclaw: Installed, model: StubModel, packed: Path, tmp_path: Path
) -> None:
    host = Gateway(openclaw, tmp_path / "openclaw", model.url, plugins={}, agents=("main",))
    newer = tmp_path / "newer.tgz"
    package = json.loads((PLUGIN / "package.json").read_text())
    assert package["openclaw"]["install"]["minHostVersion"] == f">={OLDER[0]}"
    package["openclaw"]["install"]["minHostVersion"] = ">=2031.1.1"
    folder = tmp_path / "unpacked"
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    (folder / "package" / "package.json").write_text(json.dumps(package))
    with tarfile.open(newer, "w:gz") as archive:
        archive.add(folder / "package", "package")
    done = host.cli("plugins", "install", str(newer), "--force", "--accept-capabilities")
    assert done.returncode != 0
    assert f"requires OpenClaw >=2031.1.1, but this host is {VERSION}" in done.stdout + done.stderr
    assert "memrelay" not in host.config()["plugins"].get("entries", {})
