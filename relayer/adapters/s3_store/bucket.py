"""The blocking half: each method of the port as one request, and its answer as an outcome.

Times are those of the ``Date`` header: whole seconds, of the server that answered. Entities are compared by the server
alone, so an etag is handed back exactly as it came.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from relayer.adapters.s3_store.client import Answer, Requester
from relayer.adapters.s3_store.failures import Failure, NoSuccess, judge_read, judge_write
from relayer.domain.object_keys import check_key
from relayer.errors import StoreMisconfigured, StoreUnavailable, VersionsHidden
from relayer.ports import (
    Absent,
    Changed,
    Created,
    CreateOutcome,
    Exists,
    Found,
    GetOutcome,
    ObjectInfo,
    SwapOutcome,
    Swapped,
    Unchanged,
    Unknown,
)

__all__ = ["Bucket", "Page", "Version"]

_NOT_OFFERED = frozenset({"NotImplemented", "MethodNotAllowed", "XNotImplemented"})


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing, and the token of the next one; None at the end."""

    rows: tuple[ObjectInfo, ...]
    token: str | None


@dataclass(frozen=True, slots=True)
class Version:
    """A version or delete marker of a name; without an id, the server keeps no versions."""

    id: str | None


class Bucket:
    """A bucket's requests. Methods block, and raise the port's errors."""

    def __init__(self, client: Requester, where: str) -> None:
        self._client = client
        self._where = where

    def read(self, key: str, byte_range: tuple[int, int] | None, if_none_match: str | None) -> GetOutcome:
        """Read an object or a part of it. Raises `StoreUnavailable` also for an answer that was cut short."""
        wanted = {"Key": key}
        if if_none_match is not None:
            wanted["IfNoneMatch"] = if_none_match
        if byte_range is not None:
            wanted["Range"] = f"bytes={byte_range[0]}-{byte_range[1] - 1}"
        try:
            answer = self._client.ask("get_object", **wanted)
        except NoSuccess as refusal:
            failure = refusal.failure
            if failure.status == 404 and failure.code == "NoSuchKey":
                return Absent(self._time(failure))
            if failure.status == 304:
                return Unchanged(self._time(failure))
            if failure.status == 416 and byte_range is not None:
                return _cut(self.read(key, None, if_none_match), byte_range)
            raise judge_read(failure, "get_object", self._where) from refusal
        found = Found(answer.body, self._etag(answer), self._time(answer))
        if byte_range is None:
            return found
        # A server may answer with the whole object.
        return self._checked(found, answer, byte_range) if answer.status == 206 else _cut(found, byte_range)

    def create(self, key: str, data: bytes) -> CreateOutcome:
        """Write the object if the name is free, with one request."""
        try:
            answer = self._client.ask(
                "put_object", Key=key, Body=data, ContentMD5=_md5(data), IfNoneMatch="*"
            )
        except NoSuccess as refusal:
            if refusal.failure.status == 412:
                told = _time(refusal.failure)
                return _timeless() if told is None else Exists(told)
            return judge_write(refusal.failure, "put_object", self._where)
        etag, told = answer.headers.get("etag"), _time(answer)
        return _timeless() if told is None or not etag else Created(etag, told)

    def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        """Replace the object if it has ``etag``, with one request."""
        try:
            answer = self._client.ask("put_object", Key=key, Body=data, ContentMD5=_md5(data), IfMatch=etag)
        except NoSuccess as refusal:
            failure = refusal.failure
            if failure.status == 412 or (failure.status == 404 and failure.code == "NoSuchKey"):
                told = _time(failure)
                return _timeless() if told is None else Changed(told)
            return judge_write(failure, "put_object", self._where)
        new_etag, told = answer.headers.get("etag"), _time(answer)
        return _timeless() if told is None or not new_etag else Swapped(new_etag, told)

    def delete(self, key: str, version: str | None = None) -> None:
        """Remove the object, or one version of it; absent is fine."""
        chosen = {} if version is None else {"VersionId": version}
        try:
            self._client.ask("delete_object", Key=key, **chosen)
        except NoSuccess as refusal:
            if refusal.failure.status == 404 and refusal.failure.code in {"NoSuchKey", "NoSuchVersion"}:
                return
            raise judge_read(refusal.failure, "delete_object", self._where) from refusal

    def page(self, prefix: str, token: str | None) -> Page:
        """Read one page of a listing; what cannot be a key of ours is left out."""
        after = {} if token is None else {"ContinuationToken": token}
        try:
            answer = self._client.ask("list_objects_v2", Prefix=prefix, **after)
        except NoSuccess as refusal:
            raise judge_read(refusal.failure, "list_objects_v2", self._where) from refusal
        self._refuse_other_than_listing(answer, "list_objects_v2")
        rows = tuple(
            ObjectInfo(row["Key"], int(row["Size"]), _ms(row["LastModified"]))
            for row in answer.fields.get("Contents", ())
            if _is_key(row["Key"])
        )
        next_token = answer.fields.get("NextContinuationToken") if answer.fields.get("IsTruncated") else None
        return Page(rows, next_token)

    def versions(self, key: str) -> list[Version]:
        """Return what is still kept of a name; at most one where the server keeps no versions."""
        found: list[Version] = []
        marker: dict[str, str] = {}
        while True:
            try:
                # The delimiter folds away whatever lies below the name.
                answer = self._client.ask("list_object_versions", Prefix=key, Delimiter="/", **marker)
            except NoSuccess as refusal:
                if refusal.failure.code in _NOT_OFFERED:
                    return [Version(None)] if isinstance(self.read(key, None, None), Found) else []
                error = judge_read(refusal.failure, "list_object_versions", self._where)
                if error.code == "access_denied":
                    raise VersionsHidden(str(error), kept=self._keeps_versions(key)) from refusal
                raise error from refusal
            self._refuse_other_than_listing(answer, "list_object_versions")
            fields = answer.fields
            rows = [*fields.get("Versions", ()), *fields.get("DeleteMarkers", ())]
            found += [Version(row.get("VersionId") or "null") for row in rows if row["Key"] == key]
            if not fields.get("IsTruncated") or not fields.get("NextKeyMarker"):
                return found
            marker = {"KeyMarker": fields["NextKeyMarker"]}
            if fields.get("NextVersionIdMarker"):
                marker["VersionIdMarker"] = fields["NextVersionIdMarker"]

    def _keeps_versions(self, key: str) -> bool:
        """Whether an object, or the mark that it was deleted, has a version's id: only buckets with versions give one."""
        try:
            return "x-amz-version-id" in self._client.ask("get_object", Key=key).headers
        except NoSuccess as refusal:
            return "x-amz-version-id" in refusal.failure.headers

    def _refuse_other_than_listing(self, answer: Answer, operation: str) -> None:
        """Any XML without rows would read like an empty listing; a listing says whether it is the whole."""
        if "IsTruncated" not in answer.fields:
            raise judge_read(Failure(status=200, code="NotS3", sent=True), operation, self._where)

    def _checked(self, found: Found, answer: Answer, byte_range: tuple[int, int]) -> Found:
        start, end = byte_range
        if not answer.headers.get("content-range", "").startswith(f"bytes {start}-"):
            raise StoreUnavailable(
                f"{self._where} answered with another part of the object than was asked for"
            )
        return found if len(found.data) <= end - start else _cut_bytes(found, 0, end - start)

    def _etag(self, answer: Answer) -> str:
        etag = answer.headers.get("etag")
        if not etag:
            raise StoreMisconfigured(f"{self._where} sends no ETag: it cannot hold the log")
        return etag

    def _time(self, answer: Answer | Failure) -> int:
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


def _cut(outcome: GetOutcome, byte_range: tuple[int, int]) -> GetOutcome:
    return _cut_bytes(outcome, *byte_range) if isinstance(outcome, Found) else outcome


def _cut_bytes(found: Found, start: int, end: int) -> Found:
    return Found(found.data[start:end], found.etag, found.store_time)


def _time(answer: Answer | Failure) -> int | None:
    """Return the ``Date`` header in ms since the epoch; None if there is none that can be read."""
    try:
        return _ms(parsedate_to_datetime(answer.headers.get("date", "")))
    except ValueError:
        return None


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _md5(data: bytes) -> str:
    """Return what makes a server refuse a body that did not arrive whole, whoever died on the way (ADR 8)."""
    return b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _timeless() -> Unknown:
    return Unknown("the answer has no etag or no time")


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except ValueError:
        return False
    return True
