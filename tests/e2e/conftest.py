"""Real hosts, started as a user would start them. They are large and slow: ``make test-e2e`` asks for them, ``make test`` skips.

One gateway serves all tests. A test names the configuration that it wants; where that is not the present one, the gateway
takes it over while it runs, as it does when a person edits the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_relayer import Relayer
from fault_proxy import FaultProxy
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed, installed
from stub_model import StubModel

SECRET_VARIABLE = "MY_MEMORY_SECRET"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    wanted = bool(os.environ.get("MEMRELAY_E2E"))
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))
            if not wanted:
                item.add_marker(pytest.mark.skip(reason="real hosts: run `make test-e2e`"))


@pytest.fixture(scope="session")
def openclaw() -> Installed:
    found = installed()
    if not found.complete:
        pytest.fail(f"OpenClaw is not in {found.folder}: run `make test-e2e`, which fetches it")
    return found


@pytest.fixture(scope="session")
def model() -> Iterator[StubModel]:
    with StubModel() as server:
        yield server


@pytest.fixture(scope="session")
def line() -> Iterator[FaultProxy]:
    """The line over which gateways reach their relayer; tests cut it, and listen."""
    with FaultProxy() as proxy:
        yield proxy


@pytest.fixture(scope="session")
def relayer(tmp_path_factory: pytest.TempPathFactory, line: FaultProxy) -> Iterator[Relayer]:
    with Relayer(tmp_path_factory.mktemp("relayer"), line) as process:
        yield process


@pytest.fixture(scope="session")
def running(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """The gateway, in whatever configuration the test before wanted."""
    gateway = Gateway(
        openclaw,
        tmp_path_factory.mktemp("openclaw"),
        model.url,
        plugins=memrelay_plugins(relayer.url),
        environment={SECRET_VARIABLE: "7b" * 32},
    )
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def gateway(running: Gateway, relayer: Relayer) -> Gateway:
    """The gateway as a user sets it up, with everything on."""
    running.reload(memrelay_plugins(relayer.url))
    return running
