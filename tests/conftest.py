"""What all tests share: how many seeds a simulation runs, and hypothesis without a stopwatch.

pytest tests/simulation --seeds 2000                     more schedules
pytest tests/integration/test_s3_kills.py --rounds 30
pytest tests/simulation --seeds 1 --first-seed 4711      the one that failed
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from s3_servers import CREDENTIALS, S3Server, moto, seaweedfs

DEFAULT_SEEDS = 300
DEFAULT_ROUNDS = 3

# A shared machine may stall any single example; a slow test is caught by the test's own time limit.
settings.register_profile("memrelay", parent=settings.default, deadline=None, print_blob=True)
settings.load_profile("memrelay")

# A shell starts what runs in its background with interrupts ignored, and so would be every process of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memrelay")
    group.addoption("--seeds", type=int, default=DEFAULT_SEEDS, help="how many seeds a simulation runs")
    group.addoption(
        "--rounds", type=int, default=DEFAULT_ROUNDS, help="how often relayer and store are killed"
    )
    group.addoption("--first-seed", type=int, default=0, help="the seed that a simulation begins with")


def pytest_report_header(config: pytest.Config) -> str:
    seeds = _seeds(config)
    return f"simulation seeds: {seeds.start} to {seeds.stop - 1}"


@pytest.fixture(autouse=True)
def logs_of_a_test_end_with_it() -> Iterator[None]:
    """A command that ran in this process leaves its log to a stream that is closed when its test is over."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root = logging.getLogger()
        root.handlers[:] = [one for one in root.handlers if type(one).__module__ != "relayer.observability"]


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a process is killed."""
    count: int = request.config.getoption("--rounds")
    return count


@pytest.fixture(scope="session")
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds that a simulation runs; a failing one belongs in the assertion's message."""
    return _seeds(request.config)


def _seeds(config: pytest.Config) -> range:
    first: int = config.getoption("--first-seed")
    count: int = config.getoption("--seeds")
    return range(first, first + count)


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


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of this process find the test servers' credentials, and nothing of the developer's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
