"""The faults of a store that a relayer is shown to bear, and what it says to each; docs/operations/s3.md has the same table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3_proxy import (
    S3Proxy,
    cut_answer,
    cut_body,
    delay,
    deny_instead_of_absent,
    refuse,
    refuse_after,
    reset_after,
    shift_date,
    shift_signing,
    shorten_answer,
    tamper,
)

HOUR = 3600
ENTRY = "/wal/"
DONE = "200"
LATE = "504 `deadline_exceeded`"
UNAVAILABLE = "503 `store_unavailable`"
STARTS = "starts"
READY = "ready"


def unversioned(_: Any, __: str) -> None:
    """A bucket as it is made."""


def versioned(admin: Any, bucket: str) -> None:
    admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})


def locked(admin: Any, bucket: str) -> None:
    retention = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    admin.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention}
    )


@dataclass(frozen=True)
class Fault:
    """A row: how the fault is made, and four cells of the table.

    Attributes:
        name: of the row and of its test.
        make: puts the fault in force; the second argument is a certificate that nobody trusts.
        start, write, recall, ready: what a relayer answers while it is in force.
        bucket: makes the bucket what it must be, before the first relayer starts.
    """

    name: str
    make: Callable[[S3Proxy, Path], object]
    start: str
    write: str
    recall: str
    ready: str
    bucket: Callable[[Any, str], None] = unversioned


def _refused(name: str, make: Callable[[S3Proxy, Path], object], code: str) -> Fault:
    """A store that refuses everything: an operator must act, and every answer says so at once."""
    return Fault(name, make, f"`{code}`", UNAVAILABLE, UNAVAILABLE, f"`{code}`")


FAULTS = (
    Fault("down", lambda proxy, _: proxy.stop(), "`unreachable`", LATE, UNAVAILABLE, "`unreachable`"),
    Fault("slow", lambda proxy, _: proxy.set(delay(proxy, 0.15)), STARTS, DONE, DONE, READY),
    Fault("hanging", lambda proxy, _: proxy.set(delay(proxy, 30.0)), "`silent`", LATE, LATE, "`silent`"),
    Fault(
        "throttled_503",
        lambda proxy, _: proxy.set(refuse(503, "SlowDown", retry_after="1")),
        "`throttled`",
        LATE,
        UNAVAILABLE,
        "`throttled`",
    ),
    Fault(
        "throttled_429",
        lambda proxy, _: proxy.set(refuse(429, "TooManyRequests", retry_after="1")),
        "`throttled`",
        LATE,
        UNAVAILABLE,
        "`throttled`",
    ),
    Fault(
        "failing",
        lambda proxy, _: proxy.set(refuse(500, "InternalError")),
        "`failing`",
        LATE,
        UNAVAILABLE,
        "`failing`",
    ),
    _refused(
        "unknown_credentials",
        lambda proxy, _: proxy.set(tamper("authorization", "Credential=[^/]+", "Credential=nobody")),
        "credentials_refused",
    ),
    _refused(
        "wrong_secret",
        lambda proxy, _: proxy.set(tamper("authorization", "Signature=.*", f"Signature={'0' * 64}")),
        "credentials_refused",
    ),
    _refused("clock_ahead", lambda proxy, _: proxy.set(shift_signing(HOUR)), "clock_refused"),
    _refused("clock_behind", lambda proxy, _: proxy.set(shift_signing(-HOUR)), "clock_refused"),
    Fault(
        "store_clock_ahead",
        lambda proxy, _: proxy.set(shift_date(HOUR)),
        STARTS,
        UNAVAILABLE,
        DONE,
        "`clock`",
    ),
    Fault(
        "store_clock_behind",
        lambda proxy, _: proxy.set(shift_date(-HOUR)),
        STARTS,
        UNAVAILABLE,
        DONE,
        "`clock`",
    ),
    _refused("no_bucket", lambda proxy, _: proxy.set(refuse(404, "NoSuchBucket")), "no_such_bucket"),
    _refused("no_list_permission", lambda proxy, _: proxy.set(deny_instead_of_absent), "access_denied"),
    Fault(
        "no_write_permission",
        lambda proxy, _: proxy.set(refuse(403, "AccessDenied"), method="PUT"),
        "`access_denied`",
        UNAVAILABLE,
        DONE,
        "`access_denied`",
    ),
    _refused(
        "other_region",
        lambda proxy, _: proxy.set(
            refuse(301, "PermanentRedirect", x_amz_bucket_region="eu-west-3", location="https://127.0.0.1:1/")
        ),
        "elsewhere",
    ),
    _refused(
        "other_address",
        lambda proxy, _: proxy.set(refuse(307, "TemporaryRedirect", location="https://127.0.0.1:1/")),
        "elsewhere",
    ),
    _refused(
        "untrusted_certificate",
        lambda proxy, stranger: proxy.present(stranger),
        "certificate_not_trusted",
    ),
    Fault(
        "reset_during_write",
        lambda proxy, _: proxy.set(cut_body, method="PUT", key=ENTRY, times=1),
        STARTS,
        DONE,
        DONE,
        READY,
    ),
    Fault(
        "reset_after_write",
        lambda proxy, _: proxy.set(reset_after, method="PUT", key=ENTRY, times=1),
        STARTS,
        DONE,
        DONE,
        READY,
    ),
    Fault(
        "error_after_write",
        lambda proxy, _: proxy.set(refuse_after(500, "InternalError"), method="PUT", key=ENTRY, times=1),
        STARTS,
        DONE,
        DONE,
        READY,
    ),
    Fault(
        "slow_down_after_write",
        lambda proxy, _: proxy.set(refuse_after(503, "SlowDown"), method="PUT", key=ENTRY, times=1),
        STARTS,
        DONE,
        DONE,
        READY,
    ),
    Fault(
        "answer_cut_twice",
        lambda proxy, _: proxy.set(cut_answer, method="GET", key=ENTRY, times=2),
        STARTS,
        DONE,
        DONE,
        READY,
    ),
    Fault(
        "answers_cut",
        lambda proxy, _: proxy.set(cut_answer, method="GET"),
        "`silent`",
        LATE,
        UNAVAILABLE,
        "`silent`",
    ),
    Fault(
        "answers_shortened",
        lambda proxy, _: proxy.set(shorten_answer, method="GET", key=ENTRY),
        STARTS,
        "500 `corrupt_namespace`",
        "500 `corrupt_namespace`",
        READY,
    ),
    Fault("versions", lambda _, __: None, STARTS, DONE, DONE, READY, bucket=versioned),
    Fault(
        "versions_hidden",
        lambda proxy, _: proxy.set(refuse(403, "AccessDenied"), method="GET", key=r"\?.*versions"),
        "`versions_stay`",
        DONE,
        DONE,
        READY,
        bucket=versioned,
    ),
    Fault(
        "versions_indelible",
        lambda proxy, _: proxy.set(refuse(403, "AccessDenied"), method="DELETE", key="versionId"),
        "`versions_stay`",
        DONE,
        DONE,
        READY,
        bucket=versioned,
    ),
    Fault("object_lock", lambda _, __: None, "`versions_stay`", DONE, DONE, READY, bucket=locked),
)
