"""What an operating system's error means for the caller of a store."""

from __future__ import annotations

import errno
import os

from relayer.errors import StoreError, StoreFull, StoreMisconfigured, StoreUnavailable

__all__ = ["UncertainWrite", "nothing_written", "perhaps_written"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_BLOCKED = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ELOOP})
_INCAPABLE = frozenset(
    {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EXDEV, errno.EINVAL}
)


class UncertainWrite(Exception):
    """Raised inside this adapter when a write may have happened; its callers get `Unknown`."""


def nothing_written(error: OSError, path: str) -> StoreError:
    """Return the error to raise for ``error``, which came before anything could have changed at ``path``."""
    name = errno.errorcode.get(error.errno or 0, "an unknown error")
    if error.errno in _FULL:
        return StoreFull(
            f"no room to write {path} ({name}): free space, or raise the quota or file size limit"
        )
    if error.errno in _FORBIDDEN:
        return StoreMisconfigured(
            f"user id {os.geteuid()} is not allowed to use {path} ({name}): "
            "it needs read, write and search permission there, on a file system that is mounted writable"
        )
    if error.errno in _BLOCKED:
        return StoreMisconfigured(
            f"a file is where {path} needs a directory, or the other way round ({name}): move it away"
        )
    if error.errno in _INCAPABLE:
        return StoreMisconfigured(
            f"the file system of {path} cannot do what the store needs ({name}): use a local one, not a network share"
        )
    return StoreUnavailable(f"the file system answered {name} for {path}")


def perhaps_written(error: OSError, path: str) -> StoreError | UncertainWrite:
    """Return the error to raise for a failed link(2) or rename(2) on ``path``.

    The errors by which the kernel refuses say that nothing happened. The others, EIO above all, do not.
    """
    if error.errno in _FULL | _FORBIDDEN | _BLOCKED | _INCAPABLE or isinstance(error, FileNotFoundError):
        return nothing_written(error, path)
    return UncertainWrite(
        f"the file system answered {errno.errorcode.get(error.errno or 0, 'an unknown error')}"
    )
