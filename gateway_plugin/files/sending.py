"""Send imported memories to a relayer in pages, and count the outcomes."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import Identity
from relayer.wire.service import ImportItem, ImportRequest

# Below the relayer's limit for a body, with a reserve for the overhead of JSON.
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_ITEMS: Final = 100


def pages(items: Sequence[ImportItem], *, most: int = _PAGE_ITEMS) -> list[tuple[ImportItem, ...]]:
    """Split memories, in order, into pages of at most ``most`` memories and about 1 MiB."""
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
    reprocess: bool = False,
    as_backup: bool = False,
) -> Counter[str]:
    """Store memories. Sending the same ones again stores nothing twice. Raises as the client does.

    With ``reprocess``, pages that were sent before are processed again, instead of returning their first outcome. With
    ``as_backup``, memories keep the attributes that they claim.
    """
    counts: Counter[str] = Counter()
    for page in pages(items):
        said: dict[str, object] = {"idempotency_key": secrets.token_hex(16)} if reprocess else {}
        if as_backup:
            said["as_backup"] = True
        request = ImportRequest.model_validate({"memories": page, **said})
        answer = await client.import_memories(identity, request, deadline=60)
        counts.update(one.status for one in answer.memories)
    return counts


def shown_name(root: Path, path: Path) -> str:
    """Return the name of a file in sources: its path from the name of its root on, never the full path on this machine."""
    return path.name if path == root else f"{root.name}/{path.relative_to(root).as_posix()}"
