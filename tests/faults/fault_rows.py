"""The faults of a store that a relayer is shown to bear, and what it says to each; docs/operations/s3.md has the same table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3_proxy import Fault as Answering
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


def _borne(name: str, what: Answering, method: str = "PUT", times: int = 1) -> Fault:
    """A fault of single requests for entries that a relayer gets over before it answers."""

    def make(proxy: S3Proxy, _: Path) -> None:
        proxy.set(what, method=method, key=ENTRY, times=times)

    return Fault(name, make, STARTS, DONE, DONE, READY)


def _failing(name: str, answer: Answering, code: str) -> Fault:
    """A store that answers nothing but errors for a while: writes run out of time, reads do not."""
    return Fault(name, lambda proxy, _: proxy.set(answer), f"`{code}`", LATE, UNAVAILABLE, f"`{code}`")


def _clock_of_the_store(name: str, seconds: int) -> Fault:
    return Fault(name, lambda proxy, _: proxy.set(shift_date(seconds)), STARTS, UNAVAILABLE, DONE, "`clock`")


FAULTS = (
    Fault("down", lambda proxy, _: proxy.stop(), "`unreachable`", LATE, UNAVAILABLE, "`unreachable`"),
    Fault("slow", lambda proxy, _: proxy.set(delay(proxy, 0.15)), STARTS, DONE, DONE, READY),
    Fault("hanging", lambda proxy, _: proxy.set(delay(proxy, 30.0)), "`silent`", LATE, LATE, "`silent`"),
    _failing("throttled_503", refuse(503, "SlowDown", retry_after="1"), "throttled"),
    _failing("throttled_429", refuse(429, "TooManyRequests", retry_after="1"), "throttled"),
    _failing("failing", refuse(500, "InternalError"), "failing"),
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
    _clock_of_the_store("store_clock_ahead", HOUR),
    _clock_of_the_store("store_clock_behind", -HOUR),
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
        "untrusted_certificate", lambda proxy, stranger: proxy.present(stranger), "certificate_not_trusted"
    ),
    _borne("reset_during_write", cut_body),
    _borne("reset_after_write", reset_after),
    _borne("error_after_write", refuse_after(500, "InternalError")),
    _borne("slow_down_after_write", refuse_after(503, "SlowDown")),
    _borne("answer_cut_twice", cut_answer, method="GET", times=2),
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
