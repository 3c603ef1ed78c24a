"""Real servers that take conditional writes and ignore the condition: neither the probe nor a relayer accepts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from careless_servers import CarelessServer, rclone, s3rver
from processes import run_memrelay
from s3_servers import BUCKET, CREDENTIALS


@pytest.fixture(scope="module", params=[rclone, s3rver], ids=["rclone", "s3rver"])
def careless(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CarelessServer]:
    start: Callable[[Path], AbstractContextManager[CarelessServer]] = request.param
    with start(tmp_path_factory.mktemp("careless")) as server:
        yield server


def _environment(server: CarelessServer) -> dict[str, str]:
    return CREDENTIALS | {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "MEMRELAY_RELAYER_KEY": "ab" * 32,
        "MEMRELAY_STORE": f"s3://{BUCKET}/team",
        "MEMRELAY_ENDPOINT_URL": server.url,
    }


def test_the_probe_names_the_promise_that_a_real_server_breaks(careless: CarelessServer) -> None:
    environment = _environment(careless)
    del environment["MEMRELAY_RELAYER_KEY"]
    ended = run_memrelay(["store", "probe"], environment)
    assert ended.returncode == 1, ended.stderr
    last = ended.stdout.splitlines()[-1]
    assert last.startswith("BROKEN")
    assert "cannot hold the log" in last


def test_a_relayer_does_not_start_over_a_real_server_that_ignores_conditions(
    careless: CarelessServer, tmp_path: Path
) -> None:
    ended = run_memrelay(["serve", "--port", "0", "--data", str(tmp_path)], _environment(careless))
    assert ended.returncode == 2
    assert "cannot hold the log" in ended.stderr
