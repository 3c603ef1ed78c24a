"""Relayers to talk to: a real `memrelay serve` process, and the same application inside the test's own process."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from border import Border, border
from plugin_site import PluginSite, own_relayer
from processes import CLEAN, Served, wait_for
from typed_commands import Done, machine, run_gateway

from relayer.testing.local_relayer import LocalRelayer, threaded_relayer


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts relayers on free ports; all are ended with the test, by their process ids."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, data: Path | None = None, environment: dict[str, str] | None = None) -> Served:
        number = len(started)
        folder = data or tmp_path / "data"
        ready_file, log = tmp_path / f"ready-{number}.json", tmp_path / f"log-{number}.txt"
        command = [sys.executable, "-m", "relayer", "serve", "--port", "0", "--data", str(folder)]
        command += ["--ready-file", str(ready_file), "--log-format", "json", *arguments]
        with log.open("w") as sink:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=sink, text=True, env=CLEAN | (environment or {})
            )
        started.append(process)
        ready = wait_for(ready_file, process, log)
        return Served(process, ready, folder, ready_file, log)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def relayer() -> Iterator[LocalRelayer]:
    """A relayer for the tests of a module, with the settings that it has by itself."""
    with threaded_relayer() as running:
        yield running


@pytest.fixture(scope="session")
def plain_relayer() -> Iterator[LocalRelayer]:
    """A relayer without a model for all tests, each of an account of its own, of which it takes any number."""
    with own_relayer(rate_limits="off") as running:
        yield running


@pytest.fixture
def plain_site(plain_relayer: LocalRelayer, secret: str, tmp_path: Path) -> Iterator[PluginSite]:
    """One gateway of an account of its own, at the relayer without a model."""
    with PluginSite(tmp_path, plain_relayer.url, secret) as made:
        yield made


@pytest.fixture
def secret() -> str:
    """A gateway's secret that no other test has, and so an account of its own at a relayer that tests share."""
    return secrets.token_hex(32)


@pytest.fixture
def environment(shared_relayer: str, secret: str, tmp_path: Path) -> dict[str, str]:
    """A machine with a gateway of an account of its own, at the relayer that tests share."""
    return machine(tmp_path, shared_relayer, secret)


@pytest.fixture
def run(environment: dict[str, str]) -> Callable[..., str]:
    """Types a command that ends with ``code`` on a wide terminal; returns what it printed."""

    def invoke(*arguments: object, code: int = 0) -> str:
        done = run_gateway(environment | {"COLUMNS": "250"}, *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return invoke


@pytest.fixture
def command(environment: dict[str, str]) -> Callable[..., Done]:
    """Types a command of one agent, which must not fail unless the test looks at that itself."""

    def invoke(*arguments: object, agent: str = "ops", check: bool = True) -> Done:
        done = run_gateway(environment, *arguments, "--agent", agent)
        assert done.returncode == 0 or not check, done.stderr
        return done

    return invoke


@pytest.fixture
def site(shared_relayer: str, secret: str, tmp_path: Path) -> Iterator[PluginSite]:
    """One gateway of an account of its own, at the relayer that tests share."""
    with PluginSite(tmp_path, shared_relayer, secret) as made:
        yield made


@pytest.fixture
async def at_border() -> AsyncIterator[Border]:
    async with border() as running:
        yield running
