"""The lock beside an outbox's file: of all processes that share it, the one that holds the lock delivers.

The system takes it back from a process that ends, however it ends.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DeliveryLock"]


class DeliveryLock:
    """One process's hold on a lock file, which is made when it is first claimed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def claim(self) -> bool:
        """Take or confirm the lock, without waiting for it; False while another process has it."""
        if self._descriptor is not None:
            return True
        try:
            import fcntl  # noqa: PLC0415 - exists on POSIX only; elsewhere idempotency keys make up for it
        except ImportError:
            return True
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # Where no lock can be made, nothing can be queued either; what waits is still worth delivering.
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
