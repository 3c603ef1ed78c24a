"""Which reads were already answered: a recorded read must not be sent again.

Writes are not kept here: their nonce is in the log, where every replica finds the first result. This memory is one
replica's; across replicas a read can be repeated within its window by someone who recorded it, and learns nothing new.
"""

from __future__ import annotations

from relayer.http.problems import HttpProblem
from relayer.wire.signing import SKEW_SECONDS

__all__ = ["SeenReads"]

_SLICE = 60
# A signature lives at most 120 s and is accepted 60 s around that: five slices, some 100 bytes for each read.
_MOST = 1_000_000


class SeenReads:
    """Remembers reads until their signatures have run out, in slices of a minute."""

    def __init__(self, *, most: int = _MOST) -> None:
        self._most = most
        self._slices: dict[int, set[bytes]] = {}
        self._count = 0

    def note(self, agent_key: bytes, nonce: bytes, *, expires: int, now: int) -> None:
        """Remember a read; times in seconds since the epoch.

        Raises:
            HttpProblem: ``replayed``, or ``queue_full`` when there is no room: what cannot be remembered is not served.
        """
        seen = self._slices.get(expires // _SLICE)
        if seen is None:
            self._drop(now)
            seen = self._slices[expires // _SLICE] = set()
        read = agent_key[:16] + nonce
        if read in seen:
            raise HttpProblem("replayed")
        if self._count >= self._most:
            self._drop(now)
            if self._count >= self._most:
                raise HttpProblem("queue_full", retry_after=float(_SLICE), rule="seen_reads_full")
        seen.add(read)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def _drop(self, now: int) -> None:
        for over in [at for at in self._slices if (at + 1) * _SLICE + SKEW_SECONDS < now]:
            self._count -= len(self._slices.pop(over))
