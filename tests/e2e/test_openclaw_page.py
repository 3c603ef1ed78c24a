"""The page about OpenClaw does as it says: its shell blocks are run as they stand, and what follows is memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from openclaw_gateway import BRIDGE, Gateway, free_port
from openclaw_install import Installed
from page_blocks import blocks_of
from processes import wait_until
from stub_model import StubModel, said

from gateway_plugin.calls.local_relayer import folder_of

ROOT = Path(__file__).parents[2]
FACT = "The spare key of the boathouse hangs behind the barometer."
QUESTION = "Where does the spare key of the boathouse hang?"


def blocks() -> list[str]:
    return [block.text for block in blocks_of("docs/hosts/openclaw.md", "sh")]


@pytest.fixture
def host(openclaw: Installed, model: StubModel, tmp_path: Path) -> Iterator[Gateway]:
    """A host with nothing installed. Its relayer's port is one that nobody has: others test on this machine, too."""
    host = Gateway(openclaw, tmp_path, model.url, plugins={}, agents=("main",))
    host.environment["XDG_STATE_HOME"] = str(tmp_path / "xdg-state")
    folder = folder_of(host.environment)
    (folder / "data").mkdir(parents=True)
    (folder / "address.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_port()}"}))
    command = tmp_path / "bin" / "openclaw"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{openclaw.node}" "{openclaw.openclaw}" "$@"\n')
    command.chmod(0o755)
    host.environment["PATH"] = f"{command.parent}{os.pathsep}{host.environment['PATH']}"
    yield host
    host.stop()
    end_relayer(folder)


def end_relayer(folder: Path) -> None:
    """End the keeper, and its relayer with it, by the id that it wrote down."""
    try:
        os.kill(int((folder / "keeper.lock").read_text()), signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        return  # none was started, or it has ended
    wait_until(lambda: not (folder / "ready.json").exists())


@pytest.mark.row("AR-28", "CP-01", "CP-02", "CP-03", "CP-04", "CP-50", level="e2e")
def test_the_blocks_of_the_page_install_memory_that_works_with_no_relayer_started(
    host: Gateway, model: StubModel
) -> None:
    assert blocks()
    for block in blocks():
        done = subprocess.run(
            ["bash", "-ec", block],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=host.environment,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    config = host.config()["plugins"]
    assert config["slots"]["memory"] == "memrelay"
    assert config["entries"]["memrelay"]["config"]["dreaming"] == {"enabled": False}
    assert "url" not in config["entries"]["memrelay"]["config"]
    host.start()
    folder = folder_of(host.environment)
    wait_until((folder / "ready.json").exists)
    host.chat(FACT, user="telling")
    wait_until(lambda: FACT in memories(host))
    host.chat(QUESTION, user="asking")
    assert FACT in said(model.asked(QUESTION)[-1])
    assert "plugin tool name conflict" not in host.log_text()


def memories(host: Gateway) -> list[str]:
    """What the plugin's own command lists, of a relayer that nobody named."""
    done = subprocess.run(
        [str(BRIDGE), "list", "--json"], capture_output=True, text=True, env=host.environment, check=False
    )
    return [one["text"] for one in json.loads(done.stdout)["memories"]] if done.returncode == 0 else []
