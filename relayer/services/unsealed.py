"""What this process has just sealed, in clear while the log takes it.

What is appended comes back from the log sealed, and whoever follows the log opens it. The relayer that sealed it still has
the contents, and opening them again would be a tenth of a write's work. They are used only where the log brings back the
very bytes that were made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relayer.domain.operations import Stored
from relayer.domain.record import Record

__all__ = ["Unsealed", "UnsealedTable"]


@dataclass(frozen=True, slots=True)
class Unsealed:
    """The contents of ``stored``: the record, the size of its encoding, and both vectors encoded, empty where it has none."""

    stored: Stored
    record: Record = field(repr=False)
    size: int
    own: bytes = field(repr=False)
    context: bytes = field(repr=False)


class UnsealedTable:
    """Contents by their seals, which are never equal for two of them."""

    def __init__(self) -> None:
        self._by_seal: dict[bytes, Unsealed] = {}

    def of(self, stored: Stored) -> Unsealed | None:
        """Return the contents of what the log brought, if they are known."""
        known = self._by_seal.get(stored.sealed)
        return known if known is not None and known.stored == stored else None

    @contextmanager
    def holding(self, contents: Sequence[Unsealed]) -> Iterator[None]:
        """Know contents until the block ends."""
        for one in contents:
            self._by_seal[one.stored.sealed] = one
        try:
            yield
        finally:
            for one in contents:
                del self._by_seal[one.stored.sealed]

    def __len__(self) -> int:
        return len(self._by_seal)
