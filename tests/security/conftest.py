"""A real relayer process for tests that try to get at what is not theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from doubles.scripted_model_server import ScriptedModelServer

from demo.relayer_process import RelayerProcess


@pytest.fixture(scope="module")
def relayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayerProcess]:
    """One relayer for the tests of a module; it logs all that it can log."""
    folder = tmp_path_factory.mktemp("relayer")
    with ScriptedModelServer() as models:
        arguments = (
            "--rate-limits",
            "off",
            "--log-level",
            "debug",
            "--model-url",
            models.url,
            "--model-name",
            "m",
        )
        with RelayerProcess(folder, arguments=arguments) as running:
            yield running
