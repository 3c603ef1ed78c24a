from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_relayer import WireRelayer

from gateway_plugin.calls.trust import TrustStore
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
def trust_store(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "config" / "memrelay" / "trust.json")


@pytest.fixture
def holder() -> RootHolder:
    return RootHolder(RootKeys(bytes(range(32))))


@pytest.fixture
def identity(holder: RootHolder) -> Identity:
    return identify(holder, parse_session_key("agent:researcher:uuid-456"))
