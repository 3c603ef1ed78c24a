"""Who takes a bucket and the relayer key opens no traffic of past days: not with old versions of objects either."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from doubles.seeded_randomness import SeededRandomness
from s3_servers import S3Server

from relayer.access.store_keys import FleetKeys
from relayer.adapters.s3_store import S3Store
from relayer.adapters.system import SystemClock
from relayer.crypto import RelayerKeys
from relayer.log.objects import LogPorts
from relayer.testing.fake_clock import FakeClock

DAY = 24 * 3600

# Servers by name, which is more than a look at the fixtures tells.
pytestmark = pytest.mark.tier("all")


class Bucket:
    """A bucket that keeps versions, and what its owner can read of it."""

    def __init__(self, server: S3Server, name: str, store: S3Store) -> None:
        self.store = store
        self._server, self._name = server, name

    def days(self) -> dict[str, int]:
        """Every day of which the bucket still has something, with how many versions and markers."""
        pages = self._server.admin.get_paginator("list_object_versions").paginate(
            Bucket=self._name, Prefix="fleet/"
        )
        days: dict[str, int] = {}
        for page in pages:
            for row in [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]:
                day = row["Key"].removeprefix("fleet/")
                days[day] = days.get(day, 0) + 1
        return days


@pytest.fixture(params=["seaweed", "moto_server"])
async def bucket(request: pytest.FixtureRequest, s3_credentials: None) -> AsyncIterator[Bucket]:
    server: S3Server = request.getfixturevalue(request.param)
    name = f"versioned-{secrets.token_hex(4)}"
    server.admin.create_bucket(Bucket=name)
    server.admin.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    store = await S3Store.open(name, clock=SystemClock(), endpoint_url=server.url)
    yield Bucket(server, name, store)
    await store.close()


def _relayer(bucket: Bucket, days_ago: float) -> tuple[FleetKeys, FakeClock]:
    """A relayer that runs so many days before today: the bucket's clock cannot be set back, its own can."""
    clock = FakeClock(int((datetime.now(UTC).timestamp() - days_ago * DAY) * 1000))
    ports = LogPorts(bucket.store, clock, SeededRandomness(int(days_ago)), RelayerKeys.derive(b"k" * 32))
    return FleetKeys(ports), clock


def _day(days_ago: float) -> str:
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() - days_ago * DAY, UTC).strftime("%Y%m%d")


async def test_a_day_that_is_over_leaves_no_version_of_its_private_half(bucket: Bucket) -> None:
    running, clock = _relayer(bucket, 3)
    await running.start()
    assert _day(3) in bucket.days()
    await clock.advance(3 * DAY)
    await running.refresh()
    assert _day(3) not in bucket.days()
    assert bucket.days()[_day(0)] == 1


async def test_a_start_destroys_what_a_plain_delete_left_of_earlier_days(bucket: Bucket) -> None:
    for days_ago in (3, 20, 45):
        await _relayer(bucket, days_ago)[0].start()
        await bucket.store.delete(f"fleet/{_day(days_ago)}")
    assert bucket.days()[_day(45)] >= 2  # the private half, and the mark that it was deleted
    await _relayer(bucket, 0)[0].start()
    assert set(bucket.days()) <= {_day(-1), _day(0), _day(1)}
