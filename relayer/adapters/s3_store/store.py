"""The `ObjectStore` in a bucket: threads, time limits, and retries of requests that are safe to repeat.

`Bucket` makes the blocking requests and turns responses into outcomes of the port. `S3Store` runs them in threads, does not use
the time of a call that took too long, and retries reads and listings.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Self, TypeVar

from relayer.adapters.s3_store.client import (
    SILENT,
    Client,
    Failure,
    NoSuccess,
    StoreAnswer,
    Timeouts,
    judge_read,
    judge_write,
)
from relayer.errors import StoreMisconfigured, StoreThrottled, StoreUnavailable, VersionsHidden
from relayer.ports import (
    Absent,
    Changed,
    Clock,
    Created,
    CreateOutcome,
    Exists,
    Found,
    GetOutcome,
    ObjectInfo,
    SwapOutcome,
    Swapped,
    Throttled,
    Unchanged,
    Unknown,
    check_key,
    check_prefix,
    check_range,
)

_NOT_OFFERED = frozenset({"NotImplemented", "MethodNotAllowed", "XNotImplemented"})
_TIMELESS = Unknown("the answer has no etag or no time")


D = TypeVar("D", Created, Swapped)
L = TypeVar("L", Exists, Changed)


class Bucket:
    """The requests to a bucket, for keys below a prefix. Methods block, and raise the port's errors."""

    def __init__(self, client: Client, where: str, prefix: str = "") -> None:
        self._ask = client.ask
        self._where = where
        self._below = f"{check_key(prefix)}/" if prefix else ""

    def read(self, key: str, byte_range: tuple[int, int] | None, if_none_match: str | None) -> GetOutcome:
        """Read an object or a part of it. Raises `StoreUnavailable` also for a response that was cut short."""
        wanted: dict[str, Any] = {"Key": self._below + key}
        if if_none_match is not None:
            wanted["IfNoneMatch"] = if_none_match
        if byte_range is not None:
            wanted["Range"] = f"bytes={byte_range[0]}-{byte_range[1] - 1}"
            # A server may respond with the whole object.
            wanted["most"] = byte_range[1]
        try:
            answer = self._ask("get_object", **wanted)
        except NoSuccess as refusal:
            failure = refusal.failure
            if failure.status == 404 and failure.code == "NoSuchKey":
                return Absent(self._time(failure))
            if failure.status == 304:
                return Unchanged(self._time(failure))
            if failure.status == 416 and byte_range is not None:
                return _cut(self.read(key, None, if_none_match), *byte_range)
            raise judge_read(failure, "get_object", self._where) from refusal
        found = Found(answer.body, self._etag(answer), self._time(answer))
        if byte_range is None:
            return found
        if answer.status != 206:
            return _cut(found, *byte_range)
        start, end = byte_range
        if not answer.headers.get("content-range", "").startswith(f"bytes {start}-"):
            raise StoreUnavailable(
                f"{self._where} answered with another part of the object than was asked for"
            )
        return _cut(found, 0, end - start)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object with one request, if no object has this key."""
        return self._put(key, data, Created, Exists, IfNoneMatch="*")

    def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object with one request, if it has ``etag``."""
        return self._put(key, data, Swapped, Changed, IfMatch=etag)

    def _put(
        self, key: str, data: bytes, done: Callable[[str, int], D], lost: Callable[[int], L], **condition: Any
    ) -> D | L | Unknown | Throttled:
        # By the header Content-MD5, a server rejects a body that did not arrive completely (ADR 8).
        md5 = b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        try:
            answer = self._ask("put_object", Key=self._below + key, Body=data, ContentMD5=md5, **condition)
        except NoSuccess as refusal:
            failure = refusal.failure
            absent = "IfMatch" in condition and failure.status == 404 and failure.code == "NoSuchKey"
            if failure.status == 412 or absent:
                told = _time(failure)
                return _TIMELESS if told is None else lost(told)
            return judge_write(failure, "put_object", self._where)
        etag, told = answer.headers.get("etag"), _time(answer)
        return _TIMELESS if told is None or not etag else done(etag, told)

    def delete(self, key: str, version: str | None = None) -> None:
        """Remove the object or one version of it, if it exists."""
        chosen: dict[str, Any] = {} if version is None else {"VersionId": version}
        try:
            self._ask("delete_object", Key=self._below + key, **chosen)
        except NoSuccess as refusal:
            if refusal.failure.status == 404 and refusal.failure.code in {"NoSuchKey", "NoSuchVersion"}:
                return
            raise judge_read(refusal.failure, "delete_object", self._where) from refusal

    def page(self, prefix: str, token: str | None) -> tuple[list[ObjectInfo], str | None]:
        """Read one page of a listing, without names that are not valid keys, and the token of the next page, if any."""
        after: dict[str, Any] = {} if token is None else {"ContinuationToken": token}
        try:
            answer = self._ask("list_objects_v2", Prefix=self._below + prefix, **after)
        except NoSuccess as refusal:
            raise judge_read(refusal.failure, "list_objects_v2", self._where) from refusal
        self._refuse_other_than_listing(answer, "list_objects_v2")
        rows = [
            ObjectInfo(key, int(row["Size"]), _ms(row["LastModified"]))
            for row in answer.fields.get("Contents", ())
            if _is_key(key := row["Key"].removeprefix(self._below))
        ]
        return rows, answer.fields.get("NextContinuationToken") if answer.fields.get("IsTruncated") else None

    def versions(self, key: str) -> list[str | None]:
        """Return the ids of the versions and delete markers of a key; at most one None if the server has no versions."""
        found: list[str | None] = []
        marker: dict[str, Any] = {}
        while True:
            try:
                # The delimiter groups all keys below this one, so that they are not listed.
                answer = self._ask("list_object_versions", Prefix=self._below + key, Delimiter="/", **marker)
            except NoSuccess as refusal:
                if refusal.failure.code in _NOT_OFFERED:
                    return [None] if isinstance(self.read(key, (0, 1), None), Found) else []
                error = judge_read(refusal.failure, "list_object_versions", self._where)
                if error.code == "access_denied":
                    raise VersionsHidden(str(error), kept=self._keeps_versions(key)) from refusal
                raise error from refusal
            self._refuse_other_than_listing(answer, "list_object_versions")
            fields = answer.fields
            rows = [*fields.get("Versions", ()), *fields.get("DeleteMarkers", ())]
            found += [row.get("VersionId") or "null" for row in rows if row["Key"] == self._below + key]
            if not fields.get("IsTruncated") or not fields.get("NextKeyMarker"):
                return found
            marker = {"KeyMarker": fields["NextKeyMarker"]}
            if fields.get("NextVersionIdMarker"):
                marker["VersionIdMarker"] = fields["NextVersionIdMarker"]

    def _keeps_versions(self, key: str) -> bool:
        """Return whether an object or its delete marker has a version id, which only buckets with versions assign."""
        try:
            return "x-amz-version-id" in self._ask("get_object", Key=self._below + key, most=0).headers
        except NoSuccess as refusal:
            return "x-amz-version-id" in refusal.failure.headers

    def _refuse_other_than_listing(self, answer: StoreAnswer, operation: str) -> None:
        """Reject a response that is not a listing: without ``IsTruncated``, any XML would look like an empty listing."""
        if "IsTruncated" not in answer.fields:
            raise judge_read(Failure(status=200, code="NotS3", sent=True), operation, self._where)

    def _etag(self, answer: StoreAnswer) -> str:
        etag = answer.headers.get("etag")
        if not etag:
            raise StoreMisconfigured(f"{self._where} sends no ETag: it cannot hold the log")
        return etag

    def _time(self, answer: StoreAnswer | Failure) -> int:
        told = _time(answer)
        if told is None:
            raise StoreMisconfigured(
                f"{self._where} sends no Date that can be read: a proxy in between must pass it on"
            )
        if answer.headers.get("age", "0") != "0":
            raise StoreMisconfigured(
                f"{self._where} answers from a cache in between: ask the store itself with --endpoint-url"
            )
        return told


def _cut(outcome: GetOutcome, start: int, end: int) -> GetOutcome:
    return replace(outcome, data=outcome.data[start:end]) if isinstance(outcome, Found) else outcome


def _time(answer: StoreAnswer | Failure) -> int | None:
    """Return the ``Date`` header in ms since the epoch; None if it is missing or invalid."""
    try:
        return _ms(parsedate_to_datetime(answer.headers.get("date", "")))
    except ValueError:
        return None


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except ValueError:
        return False
    return True


T = TypeVar("T")
_Request = Callable[[Bucket], T]


# A request costs about 1 ms of CPU and then waits 10 to 30 ms for the network.
THREADS = 64
_ATTEMPTS = 3
_PAUSE = 0.1  # seconds before the second attempt; four times that before the third
_LONGEST_PAUSE = 5.0


class _Overdue(Exception):
    """Raised inside this module if a call took too long; ``begun`` says whether a thread had started it."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class S3Store:
    """An `ObjectStore` in a bucket, below a prefix of its keys, which may be empty and is part of no key outside of this class.

    ``store_time`` is the server's ``Date`` header in ms. The log compares such times (I11), and the state that a response
    describes may be older than its header by the duration of the call. Therefore the response to a call that took longer than
    ``patience.call`` is not used. Reads and listings are tried up to three times within that limit, writes and deletions once. A
    cancelled call that has not begun never happens; one that has begun runs to its end in its thread.
    """

    def __init__(
        self,
        client: Client,
        bucket: str,
        clock: Clock,
        patience: Timeouts,
        threads: int = THREADS,
        *,
        prefix: str = "",
    ) -> None:
        self._client = client
        self._description = f"s3://{bucket} at {client.endpoint_url}"
        self._bucket = Bucket(client, self._description, prefix)
        self._clock = clock
        self._patience = patience
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="s3-store")
        self._closed = False

    @classmethod
    async def open(
        cls,
        bucket: str,
        *,
        prefix: str = "",
        clock: Clock,
        endpoint_url: str | None = None,
        region: str | None = None,
        patience: Timeouts | None = None,
    ) -> Self:
        """Return a store of the keys below ``prefix``, with the credentials of the usual AWS chain. No request is sent yet.

        Raises:
            StoreMisconfigured: no client can be created from the settings.
        """
        chosen = patience or Timeouts()
        client = await asyncio.to_thread(Client, bucket, endpoint_url, region, THREADS, chosen)
        return cls(client, bucket, clock, chosen, prefix=prefix)

    @property
    def description(self) -> str:
        """The bucket and the server's URL."""
        return self._description

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Return an object, or its bytes ``[start, end)`` as far as they exist; `Unchanged` if its etag is ``if_none_match``."""
        check_key(key)
        check_range(byte_range)
        return await self._patiently(lambda of: of.read(key, byte_range, if_none_match))

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if, and only if, no object has this key."""
        check_key(key)
        return await self._write(lambda of: of.create(key, data))

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if, and only if, it still has ``etag``."""
        check_key(key)
        return await self._write(lambda of: of.swap(key, data, etag))

    async def delete(self, key: str) -> None:
        """Remove the object if it exists. A bucket with versions keeps them and adds a delete marker."""
        check_key(key)
        await self._once(lambda of: of.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose key starts with ``prefix``; one created or deleted meanwhile may be missing."""
        check_prefix(prefix)
        token: str | None = None
        while True:
            rows, token = await self._patiently(partial(Bucket.page, prefix=prefix, token=token))
            for row in rows:
                yield row
            if token is None:
                return

    async def versions(self, key: str) -> int:
        """Return the number of versions and delete markers; without versions, 1 if the object exists, otherwise 0."""
        check_key(key)
        return len(await self._patiently(lambda of: of.versions(key)))

    async def purge(self, key: str) -> int:
        """Delete every version and delete marker permanently, and return their number."""
        check_key(key)
        kept = await self._patiently(lambda of: of.versions(key))
        for version in kept:
            await self._once(partial(Bucket.delete, key=key, version=version))
        return len(kept)

    async def close(self) -> None:
        """Wait for running calls, then release threads and connections. This is idempotent."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        self._client.close()

    async def _write(self, request: _Request[T]) -> T | Unknown:
        try:
            return await self._call(request, self._patience.call)
        except _Overdue as error:
            if error.begun:
                return Unknown("the write took too long, or the process was stopped: its time is not known")
            raise self._overdue(error) from None

    async def _once(self, request: _Request[T], within: float | None = None) -> T:
        try:
            return await self._call(request, self._patience.call if within is None else within)
        except _Overdue as error:
            raise self._overdue(error) from None

    async def _patiently(self, request: _Request[T]) -> T:
        """Make a request up to three times, within the time limit of one call."""
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

    async def _call(self, request: _Request[T], within: float) -> T:
        """Make a request in a thread of the store's own.

        Raises:
            _Overdue: the response takes longer than ``within`` seconds.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed")
        job = self._pool.submit(self._timed, request)
        try:
            async with asyncio.timeout(within):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            raise _Overdue(begun=not job.cancel()) from None

    def _timed(self, request: _Request[T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        started = self._clock.monotonic()
        result = request(self._bucket)
        if self._clock.monotonic() - started > self._patience.call:
            raise _Overdue(begun=True)
        return result

    def _overdue(self, error: _Overdue) -> StoreUnavailable:
        why = "did not answer" if error.begun else "had no connection free"
        return StoreUnavailable(
            f"{self._description} {why} within {self._patience.call:g} s", code="silent", fix=SILENT
        )
