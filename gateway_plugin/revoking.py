"""Taking keys back: the account's list of revocations, and an agent's memories moved to keys that nobody else has.

A list is always whole, under a counter that only grows. So a change starts from the list that the relayer has, whose
signature is checked, and keeps everything in it: what was taken back once stays taken back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from gateway_plugin.client import RelayerClient
from gateway_plugin.doctor import CANARY
from gateway_plugin.errors import GatewayError, RelayerRefused
from gateway_plugin.identity import Identity
from gateway_plugin.keys.holders import RootHolder
from gateway_plugin.transfer.pages import pages
from relayer.wire import base64url
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.revocations import Revocations, RevocationsRequest
from relayer.wire.transfer import ExportRequest, ImportItem, ImportRequest

__all__ = ["Moved", "copy_memories", "fetch", "namespaces_of", "revoke"]

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of the memories of one namespace."""

    source: str
    target: str
    found: int
    there: int


async def fetch(client: RelayerClient, holder: RootHolder, agent: str) -> Revocations:
    """Return the account's revocations; an empty list when it has none.

    Raises:
        GatewayError: the relayer does not answer, or gives a list that this account did not sign.
    """
    key = bytes(holder.root.account_identity.verify_key)
    answer = await client.revocations(holder.person(agent))
    if not answer.revocations:
        return Revocations(key, 0)
    try:
        found = Revocations.verify(base64url.decode(answer.revocations))
    except (Malformed, NotAccepted) as error:
        raise GatewayError("the relayer gave a list of revocations that nobody signed") from error
    if found.account_key != key:
        raise GatewayError("the relayer gave another account's list of revocations")
    return found


async def revoke(
    client: RelayerClient,
    holder: RootHolder,
    agent: str,
    *,
    agent_keys: Sequence[bytes] = (),
    serials: Sequence[bytes] = (),
) -> Revocations:
    """Add to the list of revocations what is not in it, send it, and return the list that holds now.

    Args:
        client: the relayer.
        holder: the account's keys.
        agent: whose keys it is about.
        agent_keys: public keys of agents, good for nothing from now on.
        serials: of single certificates.

    Raises:
        GatewayError: as `fetch`; or the list would be longer than a thousand.
    """
    for attempt in range(_ATTEMPTS):
        known = await fetch(client, holder, agent)
        wanted = replace(
            known,
            counter=known.counter + 1,
            agent_keys=tuple(dict.fromkeys((*known.agent_keys, *agent_keys))),
            serials=tuple(dict.fromkeys((*known.serials, *serials))),
        )
        if (wanted.agent_keys, wanted.serials) == (known.agent_keys, known.serials):
            # Sent all the same: a relayer whose store lost the account's object has it made anew from this.
            wanted = known
        try:
            encoded = wanted.issue(holder.root.account_identity)
        except Malformed as error:
            raise GatewayError(str(error)) from error
        try:
            await client.revoke(
                holder.person(agent), RevocationsRequest(revocations=base64url.encode(encoded))
            )
        except RelayerRefused as error:
            # Somebody else changed the list meanwhile: theirs has to be kept, too.
            if error.code != "stale_counter" or attempt == _ATTEMPTS - 1:
                raise
            continue
        return wanted
    raise AssertionError("every attempt returns or raises")


async def namespaces_of(client: RelayerClient, holder: RootHolder, agent: str) -> list[str]:
    """Return the names of an agent's namespaces; that of the canary holds nothing of anybody's."""
    found: list[str] = []
    cursor = None
    while True:
        page = await client.namespaces(holder.person(agent), cursor=cursor)
        found += [
            view.name
            for view in page.namespaces
            if view.state == "live" and not view.name.endswith(f"/{CANARY}")
        ]
        cursor = page.next_cursor
        if not cursor:
            return found


async def copy_memories(
    client: RelayerClient, holder: RootHolder, agent: str, new: str
) -> AsyncIterator[Moved]:
    """Copy every live memory of an agent to another one's namespaces; what is there already is not stored again.

    ``new`` is a namespace: another agent's own, or one below it.
    """
    for name in await namespaces_of(client, holder, agent):
        target = f"{new}{name.removeprefix(agent)}"
        owner = new.partition("/")[0]
        yield await _copy(client, holder.person(agent, name), holder.person(owner, target))


async def _copy(client: RelayerClient, source: Identity, target: Identity) -> Moved:
    async with aclosing(client.export(source, ExportRequest())) as memories:
        items = [ImportItem.model_validate(memory.model_dump()) async for memory in memories]
    there = 0
    for page in pages(items):
        answer = await client.import_memories(
            target, ImportRequest(memories=page, as_backup=True), deadline=60
        )
        there += sum(one.status in {"stored", "duplicate"} for one in answer.memories)
    return Moved(source.namespace, target.namespace, len(items), there)
