"""The properties of records that filters ask for: kept by number in memory, and stored in an index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from operator import attrgetter

from relayer.domain.operations import Record

# By name, the attribute of a record. A text is a value itself, several are joined by spaces; of a flag, those records have one for
# which it is true.
FACETS = {"kind": "kind", "audience": "audiences", "trust": "trust", "suspect": "suspect"}
_TRUE = "yes"


def facets_of(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the facets that a record has, with their values."""
    for name, attribute in FACETS.items():
        value = attrgetter(attribute)(record)
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, tuple):
            yield name, " ".join(value)
        elif value:
            yield name, _TRUE


def schema() -> str:
    """Return what tells these facets from others: an index that was stored with others lacks some."""
    return hashlib.sha256(repr(sorted(FACETS.items())).encode()).hexdigest()[:8]
