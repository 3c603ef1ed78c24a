"""Where a relayer's objects are: below ``--data``, or in the bucket of ``--store`` and ``--endpoint-url``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from relayer.domain.object_keys import check_key
from relayer.errors import ConfigurationError

__all__ = ["BucketAddress", "check_endpoint", "objects_directory", "parse_store"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_SCHEME = "s3://"
# Room for the longest key of ours below the prefix, within S3's 1,024 bytes.
_LONGEST_PREFIX = 512


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, and the key prefix of this deployment in it, which may be empty."""

    bucket: str
    prefix: str


def objects_directory(data: Path) -> Path:
    """Return where the objects of a data directory are: the relayer key lies beside them, not among them."""
    return data.expanduser() / "objects"


def parse_store(url: str) -> BucketAddress:
    """Parse ``s3://bucket`` or ``s3://bucket/prefix``; raises `ConfigurationError` naming what is wrong."""
    if not url.startswith(_SCHEME):
        raise ConfigurationError(
            "must be s3://BUCKET or s3://BUCKET/PREFIX; a directory is given with --data"
        )
    bucket, _, prefix = url.removeprefix(_SCHEME).partition("/")
    prefix = prefix.removesuffix("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError("the bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens")
    if prefix:
        try:
            check_key(prefix)
        except ValueError as error:
            raise ConfigurationError(
                "the prefix is made of lower-case letters, digits, hyphens and underscores, in segments joined by slashes"
            ) from error
        if len(prefix) > _LONGEST_PREFIX:
            raise ConfigurationError(f"the prefix has at most {_LONGEST_PREFIX} characters")
    return BucketAddress(bucket, prefix)


def check_endpoint(url: str) -> None:
    """Raise `ConfigurationError` unless ``url`` is http(s) with a host, and without credentials or a query."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("must be a URL such as https://s3.example.org or http://127.0.0.1:8333")
    if parts.username is not None:
        raise ConfigurationError(
            "must hold no credentials: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )
