"""What a person does with an installed plugin: another version over it, off and on, away and back; memories stay."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import BRIDGE, Gateway
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

from gateway_plugin import __version__

REVIEWED = ("--force", "--accept-capabilities")
NEWER = f"{__version__}-next.1"
FACT = "The trophy of the regatta was carved by Philomena from driftwood."
QUESTION = "Who carved the trophy of the regatta?"


@pytest.fixture
def host(openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path: Path) -> Iterator[Gateway]:
    """A host with nothing installed; where no settings name a relayer yet, its commands use the test's instead of starting one."""
    given = {"MEMRELAY_URL": relayer.url}
    folder = tmp_path / "openclaw"
    host = Gateway(openclaw, folder, model.url, plugins={}, agents=("main",), environment=given)
    yield host
    host.stop()


def run(host: Gateway, *arguments: str) -> str:
    done = host.cli(*arguments, patience=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ours(host: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Type a command of `memrelay-gateway` on the host's machine."""
    return subprocess.run(
        [str(BRIDGE), *arguments], capture_output=True, text=True, env=host.environment, check=False
    )


def packed(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(BRIDGE), "openclaw", "pack", str(folder)]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def of_version(package: Path, version: str) -> Path:
    """Return the same package as a later release would be."""
    other = package.with_name(f"memrelay-{version}.tgz")
    with tarfile.open(package) as old, tarfile.open(other, "w:gz") as new:
        for member in old.getmembers():
            file = old.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name.endswith(("/package.json", "/openclaw.plugin.json")):
                content = json.dumps(json.loads(content) | {"version": version}).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return other


def doctor(host: Gateway) -> dict[str, dict[str, Any]]:
    checks = json.loads(ours(host, "doctor", "--host", "openclaw", "--json").stdout)
    return {check["name"]: check for check in checks}


def recalls(host: Gateway, model: StubModel, user: str) -> bool:
    host.chat(QUESTION, user=user)
    return FACT in said(model.asked(QUESTION)[-1])


def tools(host: Gateway, model: StubModel, user: str) -> set[str]:
    host.chat("Which tools are there, by the way?", user=user)
    return {tool["function"]["name"] for tool in model.turns[-1]["tools"]}


@pytest.mark.row("CP-04", "CP-05", "CP-06", level="e2e")
def test_another_version_over_it_off_and_on_away_and_back_and_what_was_told_is_recalled(
    host: Gateway, relayer: Relayer, model: StubModel, tmp_path: Path
) -> None:
    package = packed(tmp_path / "packages")
    run(host, "plugins", "install", str(package), *REVIEWED)
    rival = doctor(host)["openclaw tool owners"]
    assert (rival["ok"], rival["found"]) == (False, "memory-core registers tools of the same names")
    run(host, *rival["fix"].partition(";")[0].split()[1:])
    found = doctor(host)
    assert found["openclaw tool owners"]["ok"]
    assert found["openclaw memory slot"]["ok"]
    write_settings(host, relayer)
    host.start()
    assert f"memrelay: version {__version__} of the plugin starts" in host.log_text()
    host.chat(FACT, user="telling")
    wait_until(lambda: FACT in relayer.memories(host))

    run(host, "plugins", "install", str(of_version(package, NEWER)), *REVIEWED)
    host.restart()
    assert f"memrelay: version {NEWER} of the plugin starts" in host.log_text()
    wait_until(lambda: recalls(host, model, "after-the-new-version"))
    told = doctor(host)["openclaw installed"]
    assert NEWER in told["found"]
    assert not told["ok"]

    run(host, "plugins", "disable", "memrelay")
    wait_until(lambda: "memory_store" not in tools(host, model, "disabled"))
    assert not recalls(host, model, "disabled-too")
    assert "openclaw plugins enable memrelay" in doctor(host)["openclaw plugin"]["fix"]
    run(host, "plugins", "enable", "memrelay", "--accept-capabilities")
    wait_until(lambda: recalls(host, model, "enabled"))
    host.restart()
    # It stays enabled: nobody has to say so again.
    wait_until(lambda: recalls(host, model, "restarted"))

    host.stop()
    run(host, "plugins", "uninstall", "memrelay", "--force")
    run(host, "plugins", "install", str(package), *REVIEWED)
    write_settings(host, relayer)
    host.start()
    wait_until(lambda: recalls(host, model, "back"))
    assert "plugin tool name conflict" not in host.log_text()


def write_settings(host: Gateway, relayer: Relayer) -> None:
    """The documented step after an installation."""
    steps = ("init", "--host", "openclaw", "--write", "--allow-conversation-access", "--url", relayer.url)
    done = ours(host, *steps)
    assert done.returncode == 0, done.stdout + done.stderr
