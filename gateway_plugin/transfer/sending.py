"""Sends memories from elsewhere to a relayer, page by page, and counts what became of them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gateway_plugin.client import RelayerClient
from gateway_plugin.identity import Identity
from gateway_plugin.transfer.pages import pages
from relayer.wire.transfer import ImportItem, ImportRequest

__all__ = ["send_items", "shown_name"]


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
