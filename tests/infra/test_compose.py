"""Compose takes the file, with the secrets that `prepare` makes, and relayers are set up with settings that exist."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from infra_tools import INFRA, ROOT, run, tool

from relayer.settings.config import RelayerSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of infra/ with secrets, so that none are made in the work tree."""
    tool("openssl")
    copy = tmp_path_factory.mktemp("compose") / "infra"
    shutil.copytree(INFRA, copy, ignore=shutil.ignore_patterns("secrets"))
    made = run(copy / "compose/prepare")
    assert made.returncode == 0, made.stderr
    (copy / "compose/.env").write_text("MEMRELAY_ACCOUNTS=open\n", "utf-8")
    return copy / "compose"


@pytest.fixture(scope="module")
def project(folder: Path) -> dict[str, Any]:
    shown = run(tool("docker-compose"), "-f", folder / "compose.yaml", "config", "--format", "json")
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_who_is_served_has_no_default() -> None:
    compose = (INFRA / "compose/compose.yaml").read_text("utf-8")
    assert "MEMRELAY_ACCOUNTS: ${MEMRELAY_ACCOUNTS:?" in compose


def test_every_setting_of_a_relayer_exists(project: dict[str, Any]) -> None:
    relayers = [service for name, service in project["services"].items() if name.startswith("relayer-")]
    assert len(relayers) == 3
    named = {name for relayer in relayers for name in relayer["environment"] if name.startswith("MEMRELAY_")}
    assert named <= {f"MEMRELAY_{name.upper()}" for name in RelayerSettings.model_fields}


def test_relayers_are_confined(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert "no-new-privileges:true" in service["security_opt"], name
        if name.startswith("relayer-"):
            assert (service["read_only"], service["cap_drop"], service["user"]) == (
                True,
                ["ALL"],
                "10001:10001",
            )
            assert "ports" not in service


def test_nothing_is_reachable_from_other_machines(project: dict[str, Any]) -> None:
    ports = [port for service in project["services"].values() for port in service.get("ports", ())]
    assert ports
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_every_file_that_is_mounted_is_there(project: dict[str, Any]) -> None:
    sources = [
        Path(volume["source"])
        for service in project["services"].values()
        for volume in service.get("volumes", ())
        if volume["type"] == "bind"
    ] + [Path(secret["file"]) for secret in project["secrets"].values()]
    assert sources
    assert not [source for source in sources if not source.is_file()]


def test_secrets_are_made_once_kept_from_other_users_and_from_git(folder: Path) -> None:
    secrets = folder / "secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    before = {file.name: file.read_bytes() for file in secrets.iterdir()}
    again = run(folder / "prepare")
    assert {file.name: file.read_bytes() for file in secrets.iterdir()} == before
    assert not [
        name for name in ("relayer.key", "store.env") if before[name].decode().strip() in again.stdout
    ]
    ignored = run("git", "check-ignore", "-q", "infra/compose/secrets/relayer.key", cwd=ROOT)
    assert ignored.returncode == 0
