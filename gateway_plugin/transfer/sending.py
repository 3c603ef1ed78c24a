"""Sends memories from elsewhere to a relayer, page by page, and counts what became of them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.identity import Identity
from relayer.wire.service import ImportItem, ImportRequest

# Under the relayer's bound for a body, with room for what JSON adds.
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_ITEMS: Final = 100


def pages(items: Sequence[ImportItem], *, most: int = _PAGE_ITEMS) -> list[tuple[ImportItem, ...]]:
    """Divide memories, in order, into pages of at most so many."""
    found: list[tuple[ImportItem, ...]] = []
    page: list[ImportItem] = []
    size = 0
    for item in items:
        weight = len(item.model_dump_json())
        if page and (len(page) == most or size + weight > _PAGE_BYTES):
            found.append(tuple(page))
            page, size = [], 0
        page.append(item)
        size += weight
    return [*found, tuple(page)] if page else found


async def send_items(
    client: RelayerClient,
    identity: Identity,
    items: Sequence[ImportItem],
    *,
    anew: bool = False,
    as_backup: bool = False,
) -> Counter[str]:
    """Store memories; the same ones again are stored once. Raises as the client does.

    Args:
        client: the relayer.
        identity: whose memories they become.
        items: the memories.
        anew: have a page that was sent before judged again, instead of being told what became of it then.
        as_backup: store them as they say they were; otherwise as imported ones.
    """
    counts: Counter[str] = Counter()
    for page in pages(items):
        said: dict[str, object] = {"idempotency_key": secrets.token_hex(16)} if anew else {}
        if as_backup:
            said["as_backup"] = True
        request = ImportRequest.model_validate({"memories": page, **said})
        answer = await client.import_memories(identity, request, deadline=60)
        counts.update(one.status for one in answer.memories)
    return counts


def shown_name(root: Path, path: Path) -> str:
    """Return how a file is named as a source: below its directory, never where that lies on this machine."""
    return path.name if path == root else f"{root.name}/{path.relative_to(root).as_posix()}"
