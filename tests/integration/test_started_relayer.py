"""The relayer that comes with a gateway: one for all gateways of a user, private files, and no process left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import alive, wait_until
from s3_servers import free_ports

from gateway_plugin.calls.local_relayer import (
    LocalRelayer,
    LocalRelayerFailed,
    folder_of,
    is_wanted,
    recorded_url,
    trouble_of,
)
from gateway_plugin.settings.model import load_settings
from gateway_plugin.setup import settings_from

pytestmark = pytest.mark.tier("all")  # it starts a relayer, by way of a process that leaves at once


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home in which a relayer was started before, at a port that nobody has: others test on this machine, too."""
    found = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MEMRELAY_SECRET": "11" * 32,
    }
    folder = folder_of(found)
    (folder / "data").mkdir(parents=True, mode=0o700)
    (folder / "address.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_ports(1)[0]}"}))
    return found


def ready(environ: dict[str, str]) -> dict[str, object]:
    return json.loads((folder_of(environ) / "ready.json").read_text())


@pytest.mark.row("AR-28", "AR-03", level="e2e")
def test_two_gateways_share_one_relayer_which_ends_after_the_last(environ):
    first, second = (LocalRelayer(environ, idle_seconds=1.5) for _ in range(2))
    url = asyncio.run(first.ensure())
    pid = int(ready(environ)["pid"])
    assert asyncio.run(second.ensure()) == url == recorded_url(environ)
    assert ready(environ)["pid"] == pid
    assert settings_from({}, environ, url=None).url == url
    first.release()
    time.sleep(3)
    assert alive(pid), "the second gateway still needs it"
    second.release()
    wait_until(lambda: not alive(pid))
    assert recorded_url(environ) == url
    assert asyncio.run(first.ensure()) == url, "the outbox and the pin belong to an address"
    first.release()
    wait_until(lambda: not (folder_of(environ) / "ready.json").exists())


def test_a_relayer_that_dies_is_started_again_at_its_address_and_its_files_are_the_users_alone(environ):
    claim = LocalRelayer(environ, idle_seconds=1)
    url = asyncio.run(claim.ensure())
    os.kill(int(ready(environ)["pid"]), signal.SIGKILL)
    (folder_of(environ) / "ready.json").unlink()
    assert asyncio.run(claim.ensure()) == url
    open_files = [
        path.name
        for path in folder_of(environ).rglob("*")
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077 and path.name != "address.json"
    ]
    assert open_files == []
    assert "11" * 32 not in (folder_of(environ) / "relayer.log").read_text()
    claim.release()
    wait_until(lambda: not (folder_of(environ) / "ready.json").exists())


def test_a_relayer_that_keeps_dying_is_started_until_it_lives_and_status_says_so_meanwhile(environ):
    folder = folder_of(environ)
    (folder / "data").rmdir()
    (folder / "data").touch()  # as long as this is no folder, every start fails at once
    claim = LocalRelayer(environ, idle_seconds=5)
    with pytest.raises(LocalRelayerFailed, match=r"failed \d+ times? in a row"):
        asyncio.run(claim.ensure(12))
    wait_until(lambda: "failed 4 times in a row" in trouble_of(environ))
    assert "failed 4 times in a row; the next start is in" in (folder / "relayer.log").read_text()
    (folder / "data").unlink()
    wait_until((folder / "ready.json").exists)
    assert asyncio.run(claim.ensure()) == recorded_url(environ)
    wait_until(lambda: trouble_of(environ) == "")
    claim.release()
    wait_until(lambda: not (folder / "ready.json").exists())


def test_a_relayer_that_keeps_dying_is_given_up_when_no_gateway_needs_it(environ):
    folder = folder_of(environ)
    (folder / "data").rmdir()
    (folder / "data").touch()
    claim = LocalRelayer(environ, idle_seconds=1)
    with pytest.raises(LocalRelayerFailed):
        asyncio.run(claim.ensure(3))
    wait_until(lambda: "in a row" in trouble_of(environ))
    keeper = int((folder / "keeper.lock").read_text())
    assert alive(keeper)
    claim.release()
    wait_until(lambda: not alive(keeper))


def test_a_gateway_that_was_killed_holds_nothing(environ):
    code = (
        "import asyncio, os, time; from gateway_plugin.calls.local_relayer import LocalRelayer;"
        "asyncio.run(LocalRelayer(os.environ, idle_seconds=1).ensure()); print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ, text=True
    ) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == "up\n"
        pid = int(ready(environ)["pid"])
        gateway.kill()
    wait_until(lambda: not alive(pid))


def test_a_relayer_that_a_person_ran_at_the_usual_address_is_not_stood_beside(environ):
    folder = folder_of(environ)
    (folder / "data").rmdir()
    (folder / "address.json").unlink()
    config = Path(environ["XDG_CONFIG_HOME"]) / "memrelay"
    config.mkdir(parents=True)
    pins = config / "trust.json"
    pins.write_text(json.dumps({"relayers": {"http://127.0.0.1:8787": "ab" * 32}}))
    pins.chmod(0o600)
    assert asyncio.run(LocalRelayer(environ).ensure()) == "http://127.0.0.1:8787"
    assert not (folder / "ready.json").exists()


def test_where_one_cannot_run_the_fix_is_named(environ, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LocalRelayerFailed, match=r"pip install '\.\[relayer\]'"):
        asyncio.run(LocalRelayer(environ).ensure())


@pytest.mark.parametrize(
    ("config", "variables", "wanted"),
    [
        ({}, {}, True),
        ({"url": "http://127.0.0.1:9"}, {}, False),
        ({"serverUrl": "https://relayer.example.org"}, {}, False),
        ({}, {"MEMRELAY_URL": "http://127.0.0.1:9"}, False),
        ({"relayer": {"autostart": False}}, {}, False),
        ({}, {"MEMRELAY_DISABLE": "1"}, False),
    ],
)
def test_one_is_brought_along_only_where_nobody_names_one(config, variables, wanted):
    assert is_wanted(load_settings(config, variables)) is wanted
