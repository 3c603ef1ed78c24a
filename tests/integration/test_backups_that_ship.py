"""Backups that repeat by themselves, and how relayers say when the last good one was made."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from processes import CLEAN, wait_until
from typed_commands import machine, run_gateway, run_relayer

from demo.relayer_process import RelayerProcess

SECRET = "6b" * 32
COFFEE = "I only drink oat milk coffee."


@pytest.fixture
def relayer(tmp_path: Path) -> Iterator[RelayerProcess]:
    with RelayerProcess(tmp_path) as started:
        person = machine(tmp_path / "person", started.url, SECRET)
        assert run_gateway(person, "remember", COFFEE).returncode == 0
        yield started


def _noted(relayer: RelayerProcess) -> float:
    """Return what the relayer says of the last backup, read by a page that is made anew."""
    page = httpx.get(f"{relayer.url}/metrics", trust_env=False).text
    [found] = re.findall(r"^memrelay_backup_last_success_timestamp_seconds (\S+)$", page, re.MULTILINE)
    return float(found)


def test_a_relayer_says_when_its_store_was_backed_up_and_never_before(
    relayer: RelayerProcess, tmp_path: Path
) -> None:
    place = {"MEMRELAY_DATA": str(relayer.data), "MEMRELAY_BACKUP_TO": str(tmp_path / "backup")}
    assert _noted(relayer) == 0
    began = time.time()
    assert run_relayer(place, "backup", "--keep", "3").returncode == 0
    relayer.stop()
    relayer.start()
    assert began - 1 <= _noted(relayer) <= time.time() + 1
    # The note is an object of the store that the operator's commands know.
    assert run_relayer(place, "verify").returncode == 0
    assert "backed_up" in run_relayer(place, "inspect", "backed_up").stdout
    kinds = json.loads(run_relayer(place, "stats", "--json").stdout)
    assert "other" not in json.dumps(kinds["kinds"])


def test_a_backup_that_is_not_whole_is_not_noted(relayer: RelayerProcess, tmp_path: Path) -> None:
    relayer.stop()
    [slot] = relayer.data.glob("objects/ns/*/wal/*")
    slot.write_bytes(b"damaged")
    place = {"MEMRELAY_DATA": str(relayer.data), "MEMRELAY_BACKUP_TO": str(tmp_path / "backup")}
    assert run_relayer(place, "backup").returncode == 1
    relayer.start()
    assert _noted(relayer) == 0


def test_backups_repeat_until_they_are_stopped_and_go_on_after_one_that_failed(
    relayer: RelayerProcess, tmp_path: Path
) -> None:
    backup, log = tmp_path / "backup", tmp_path / "backup.log"
    backup.write_text("a file is in the way")
    place = {"MEMRELAY_DATA": str(relayer.data), "MEMRELAY_BACKUP_TO": str(backup)}
    command = [sys.executable, "-m", "relayer", "backup", "--keep", "2", "--every", "1"]
    with log.open("w") as sink:
        process = subprocess.Popen(command, env=CLEAN | place, stderr=sink, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: "backup_failed" in log.read_text() or process.poll() is not None)
        backup.unlink()
        wait_until(lambda: log.read_text().count('"backed_up"') >= 3 or process.poll() is not None)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.communicate()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    runs = [line["run"] for line in lines if line["event"] == "backed_up"]
    assert runs == sorted(runs)
    assert len(list((backup / "objects/runs").iterdir())) == 2
    assert COFFEE not in log.read_text()
