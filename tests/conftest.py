"""What all tests share: S3 servers, and an end to what a test set for its process. Which test runs when: tests/tiers.py."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import cache
from types import FrameType

import pytest
import structlog
from fitted_priors import fitted_once
from s3_servers import CREDENTIALS, S3Server, moto, seaweedfs
from typer.main import get_command

from relayer import telemetry
from relayer.search import baseline

pytest_plugins = ["tiers", "row_levels"]


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Do what Python's own handler does, whose place asyncio takes for as long as each fixture and each test runs.

    To put it back, the module `signal` asks an enum for the handler, and the enum formats it for an error that nobody
    sees: the task, its result, a relayer with every vector that it holds. That took 50 to 100 ms of many a fixture.
    """
    signal.default_int_handler(number, frame)


# A shell starts what runs in its background with interrupts ignored, and so would be every process of the tests.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _interrupted)


def pytest_configure() -> None:
    """Look for garbage after 5,000 objects, not 700: most of those that a run makes first are tests, and stay."""
    gc.set_threshold(5_000, 10, 10)


def pytest_collection_finish() -> None:
    """Look through no test, module or plugin for garbage again: those took most of a search."""
    gc.freeze()


@pytest.fixture(autouse=True)
def logs_of_a_test_end_with_it() -> Iterator[None]:
    """A relayer on another thread must not log to what is standard error while a command of this process runs."""
    telemetry.output.stream = sys.stderr
    yield
    telemetry.output.stream = sys.stderr
    if structlog.is_configured():
        structlog.reset_defaults()
        root = logging.getLogger()
        root.handlers[:] = [one for one in root.handlers if type(one).__module__ != "relayer.telemetry"]


@pytest.fixture(scope="session", autouse=True)
def a_model_is_calibrated_once() -> Iterator[None]:
    """A relayer fits what it judges an unknown model by, as tests' own model is: a third of what a start costs, and every time the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baseline, "fit_prior", fitted_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def a_command_line_is_built_once() -> Iterator[None]:
    """Of a command that is typed in this process, making all that `memrelay-gateway` could do took 50 of 65 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A SeaweedFS server for the whole session."""
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A moto server for the whole session."""
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def shared_relayer() -> Iterator[str]:
    """The URL of one relayer for all tests of this process that neither kill nor configure it, each with its own secret."""
    from relayer.testing.local_relayer import local_relayer, threaded_relayer

    with threaded_relayer(lambda: local_relayer(real_model=True, rate_limits="off")) as relayer:
        yield relayer.url


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of this process find the test servers' credentials, and nothing of the developer's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
