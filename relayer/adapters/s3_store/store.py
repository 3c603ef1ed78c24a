"""The `ObjectStore` over a bucket: worker threads, time limits, and second tries of what may be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, Self, TypeVar

from relayer.adapters.s3_store.bucket import Bucket
from relayer.adapters.s3_store.client import Client, Patience, Requester
from relayer.adapters.s3_store.direct import DirectClient
from relayer.adapters.s3_store.failures import SILENT
from relayer.domain.object_keys import check_key, check_prefix, check_range
from relayer.errors import StoreThrottled, StoreUnavailable
from relayer.ports import (
    Clock,
    CreateOutcome,
    GetOutcome,
    ObjectInfo,
    SwapOutcome,
    Unknown,
)

__all__ = ["THREADS", "S3Client", "S3Store"]

T = TypeVar("T")

# What a client's requests are made by: this adapter for single objects, or boto3 for everything.
S3Client = Literal["direct", "boto3"]
# A request costs 0.5 to 3 ms of CPU and then waits for the network, so a core can keep some thirty of them going.
THREADS = 32
_ATTEMPTS = 3
_PAUSE = 0.1  # seconds before the second attempt; four times that before the third
_LONGEST_PAUSE = 5.0


class _Overdue(Exception):
    """Raised inside this module when a call took too long; ``begun`` says whether a thread had taken it up."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class S3Store:
    """An `ObjectStore` in a bucket.

    ``store_time`` is the server's ``Date`` header in ms. The log compares such times (I11), and a fact may be older than
    the header that tells it by as much as the call took; therefore a call that took longer than ``patience.call`` does
    not count, whatever its answer. Reads and listings are tried up to three times within that limit, writes and
    deletions once. A cancelled call either has not begun, and then never happens, or runs to its end in its thread.
    """

    def __init__(
        self, client: Requester, bucket: str, clock: Clock, patience: Patience, threads: int = THREADS
    ) -> None:
        self._client = client
        self._description = f"s3://{bucket} at {client.endpoint_url}"
        self._bucket = Bucket(client, self._description)
        self._clock = clock
        self._patience = patience
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="s3-store")
        self._closed = False

    @classmethod
    async def open(
        cls,
        bucket: str,
        *,
        clock: Clock,
        endpoint_url: str | None = None,
        region: str | None = None,
        patience: Patience | None = None,
        client: S3Client = "direct",
    ) -> Self:
        """Set up a client with the credentials of the usual AWS chain; asks the server nothing yet.

        Raises `StoreMisconfigured` when the settings make no client.
        """
        chosen = patience or Patience()
        boto = await asyncio.to_thread(Client, bucket, endpoint_url, region, THREADS, chosen)
        requester = boto if client == "boto3" else DirectClient(boto, THREADS, chosen)
        return cls(requester, bucket, clock, chosen)

    @property
    def description(self) -> str:
        """The bucket and the server's URL."""
        return self._description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read an object, or bytes ``[start, end)`` of it cut at its end; `Unchanged` if it has the given etag."""
        check_key(key)
        check_range(byte_range)
        return await self._patiently(partial(self._bucket.read, key, byte_range, if_none_match))

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, the name is free."""
        check_key(key)
        return await self._write(partial(self._bucket.create, key, data))

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``."""
        check_key(key)
        return await self._write(partial(self._bucket.swap, key, data, etag))

    async def delete(self, key: str) -> None:
        """Remove the object; absent is fine. A bucket with versions keeps them and gets a delete marker."""
        check_key(key)
        await self._once(partial(self._bucket.delete, key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``; one created or deleted meanwhile may be missing."""
        check_prefix(prefix)
        token: str | None = None
        while True:
            page = await self._patiently(partial(self._bucket.page, prefix, token))
            for row in page.rows:
                yield row
            token = page.token
            if token is None:
                return

    async def versions(self, key: str) -> int:
        """Count the versions and delete markers; where the server has none, 1 if the object exists."""
        check_key(key)
        return len(await self._patiently(partial(self._bucket.versions, key)))

    async def purge(self, key: str) -> int:
        """Destroy every version and delete marker; returns how many there were."""
        check_key(key)
        kept = await self._patiently(partial(self._bucket.versions, key))
        for version in kept:
            await self._once(partial(self._bucket.delete, key, version.id))
        return len(kept)

    async def close(self) -> None:
        """Wait for the calls that run, then release threads and connections; idempotent."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        self._client.close()

    async def _write(self, request: Callable[[], T]) -> T | Unknown:
        try:
            return await self._call(request, self._patience.call)
        except _Overdue as error:
            if error.begun:
                return Unknown("the write took too long, or the process was stopped: its time is not known")
            raise self._overdue(error) from None

    async def _once(self, request: Callable[[], T], within: float | None = None) -> T:
        try:
            return await self._call(request, self._patience.call if within is None else within)
        except _Overdue as error:
            raise self._overdue(error) from None

    async def _patiently(self, request: Callable[[], T]) -> T:
        """Ask up to three times, within the time of one call."""
        end = self._clock.monotonic() + self._patience.call
        pause = _PAUSE
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._once(request, end - self._clock.monotonic())
            except StoreUnavailable as error:
                asked = error.retry_after if isinstance(error, StoreThrottled) else 0.0
                wait = max(pause, min(asked, _LONGEST_PAUSE))
                if self._closed or self._clock.monotonic() + wait >= end:
                    raise
            await self._clock.sleep(wait)
            pause *= 4
        return await self._once(request, end - self._clock.monotonic())

    async def _call(self, request: Callable[[], T], within: float) -> T:
        """Run ``request`` in a thread; raises `_Overdue` when its answer takes longer than ``within`` seconds."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        job = self._pool.submit(self._timed, request)
        try:
            async with asyncio.timeout(within):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            raise _Overdue(begun=not job.cancel()) from None

    def _timed(self, request: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        started = self._clock.monotonic()
        result = request()
        if self._clock.monotonic() - started > self._patience.call:
            raise _Overdue(begun=True)
        return result

    def _overdue(self, error: _Overdue) -> StoreUnavailable:
        why = "did not answer" if error.begun else "had no connection free"
        return StoreUnavailable(
            f"{self._description} {why} within {self._patience.call:g} s", code="silent", fix=SILENT
        )
