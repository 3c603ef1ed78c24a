"""Memories in pages that a relayer takes in one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relayer.wire.transfer import ImportItem

__all__ = ["pages"]

# Under the relayer's bound for a body, with room for what JSON adds.
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_ITEMS: Final = 100


def pages(items: Sequence[ImportItem]) -> list[tuple[ImportItem, ...]]:
    """Divide memories, in order."""
    found: list[tuple[ImportItem, ...]] = []
    page: list[ImportItem] = []
    size = 0
    for item in items:
        weight = len(item.model_dump_json())
        if page and (len(page) == _PAGE_ITEMS or size + weight > _PAGE_BYTES):
            found.append(tuple(page))
            page, size = [], 0
        page.append(item)
        size += weight
    return [*found, tuple(page)] if page else found
