from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.manual_clock import ManualClock
from typer.testing import CliRunner, Result
from wire_relayer import SECRET, WireRelayer

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.cli import app
from gateway_plugin.keys import gateway_secret
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire.sealing import RootKeys


@pytest.fixture
def wire() -> Iterator[WireRelayer]:
    relayer = WireRelayer()
    yield relayer
    relayer.close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


@pytest.fixture
def make(wire: WireRelayer, environ: dict[str, str]) -> Iterator[Callable[..., MemoryPlugin]]:
    """Makes plugins of one gateway and closes them, with a relayer that answers again."""
    made: list[MemoryPlugin] = []

    def build(url: str = wire.url, **options: object) -> MemoryPlugin:
        made.append(MemoryPlugin(url, **{"secret": SECRET, "environ": environ} | options))
        return made[-1]

    yield build
    wire.script = []
    wire.refused_captures.clear()
    wire.released.set()
    for plugin in made:
        plugin.close()


@pytest.fixture
def plugin(make: Callable[..., MemoryPlugin]) -> MemoryPlugin:
    return make()


@pytest.fixture
def at_a_terminal(
    wire: WireRelayer, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, nothing_taken: None
) -> None:
    """The environment of a shell in which the commands of one gateway are typed."""
    for name in [name for name in os.environ if name.startswith(("MEMRELAY_", "XDG_"))]:
        monkeypatch.delenv(name)
    set_there = {"MEMRELAY_URL": wire.url, "MEMRELAY_SECRET": SECRET, "COLUMNS": "200"}
    for name, value in (environ | set_there).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def typed(at_a_terminal: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Types a command of the gateway beside a plugin of it: each begins with the secret, which both take out."""

    def invoke(*arguments: str) -> Result:
        monkeypatch.setattr(gateway_secret, "_taken", {})
        monkeypatch.setenv("MEMRELAY_SECRET", SECRET)
        return CliRunner().invoke(app, arguments)

    return invoke


@pytest.fixture
def trust_store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "config" / "memrelay" / "trust.json")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def nothing_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret that this process took out of its environment for another test."""
    monkeypatch.setattr(gateway_secret, "_taken", {})


@pytest.fixture
def holder() -> RootHolder:
    return RootHolder(RootKeys(bytes(range(32))))


@pytest.fixture
def identity(holder: RootHolder) -> Identity:
    return identify(holder, parse_session_key("agent:researcher:uuid-456"))
