"""The facets of records: the properties by which searches can be filtered.

An index keeps them in memory by the number of the record, and they are stored with the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from operator import attrgetter

from relayer.domain.operations import Record

# The record's attribute for each facet. A string is used as it is, and a tuple of strings is joined by spaces. A record has the
# facet of a flag only if the flag is true.
FACETS = {"kind": "kind", "audience": "audiences", "trust": "trust", "suspect": "suspect"}
_TRUE = "yes"


def facets_of(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each facet that a record has."""
    for name, attribute in FACETS.items():
        value = attrgetter(attribute)(record)
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, tuple):
            yield name, " ".join(value)
        elif value:
            yield name, _TRUE


def schema() -> str:
    """Return a hash of the facet definitions, 8 hex digits: an index that was stored with other facets lacks some.

    Example:
        >>> len(schema())
        8
    """
    return hashlib.sha256(repr(sorted(FACETS.items())).encode()).hexdigest()[:8]
