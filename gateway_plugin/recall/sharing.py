"""Namespaces that a person has shared with an agent, and recall across all namespaces that an agent may read.

`Shares` reads and changes the shares, which are stored in a private file of the gateway, by account and agent. Each request
to a shared namespace carries a certificate for that namespace alone, which is valid for ten minutes and is issued only
while the share exists. A shared namespace belongs to another agent (``researcher``), or to none (``shared/team``).
`recall_shared` sends a recall to all namespaces at the same time and merges the responses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.keys.identity import Identity, KeyHolder, RootHolder, before_set_apart, typed
from gateway_plugin.keys.people import passes
from gateway_plugin.keys.private_files import locked, read_private, replace_private
from gateway_plugin.turn.status import NotifyOnce
from relayer.wire import names
from relayer.wire.memories import RecallHit, RecallRequest, RecallResponse

_MAX_SHARES: Final = 8


class SharedHit(RecallHit):
    """A hit from another namespace, whose name as a person types it is ``shared_from``."""

    shared_from: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    version: int = 1
    accounts: dict[str, dict[str, dict[str, bool]]] = {}


@dataclass(frozen=True, slots=True)
class Share:
    """A namespace that an agent may read and, if ``writes`` is set, write to. Both names are normalized."""

    namespace: str
    agent: str
    writes: bool = False


class Shares:
    """The namespaces that are shared among the agents of one account.

    Args:
        path: the file with the shares, which need not exist.
        holder: the gateway's keys. Sharing needs the root secret: nothing is shared with the keys of a single agent, or
            with None (memory is switched off).
        legacy: whether agents also read the namespaces that they used before the settings ``namespace.default`` or
            ``namespace.scope`` gave them another one.
    """

    def __init__(self, path: Path, holder: KeyHolder | None, *, legacy: bool = False) -> None:
        self._path = path
        self._legacy = legacy
        self._root = holder if isinstance(holder, RootHolder) else None
        self._seen: tuple[int, int] | None = None
        self._known: tuple[Share, ...] = ()
        self._identities: dict[Share, Identity] = {}
        self._notify_once = NotifyOnce()

    def all(self) -> tuple[Share, ...]:
        """Return all shares of the account.

        Raises:
            IdentityError: the file cannot be read, or it is damaged.
        """
        if self._root is None:
            return ()
        accounts = self._read().accounts.get(self._root.account, {})
        return tuple(
            Share(namespace, agent, writes)
            for agent, shared in sorted(accounts.items())
            for namespace, writes in sorted(shared.items())
        )

    def also_read(self, identity: Identity) -> tuple[Identity, ...]:
        """Return the identities with which an agent reads other namespaces than its own.

        First those for its previous namespaces, if ``legacy`` is set, then those for the namespaces shared with it.
        """
        former = before_set_apart(identity) if self._legacy else ()
        return (*former, *self.shares_of(identity))

    def shares_of(self, identity: Identity) -> tuple[Identity, ...]:
        """Return the identities with which an agent reads the namespaces shared with it.

        The file is read again only if it has changed. If it cannot be read, nothing is shared, and a message is printed
        once: the agent still has its own memories.
        """
        try:
            return self._of(identity)
        except IdentityError as error:
            self._notify_once(f"the shares cannot be read, so no namespaces are shared: {error}")
            return ()

    def _of(self, identity: Identity) -> tuple[Identity, ...]:
        if self._root is None:
            return ()
        try:
            told = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise IdentityError(f"{self._path} cannot be read: {error.strerror}") from error
        stamp = (told.st_mtime_ns, told.st_ino)
        if stamp != self._seen:
            self._known = self.all()
            self._identities = {}
            self._seen = stamp
        mine = [share for share in self._known if share.agent == identity.agent]
        for share in mine:
            if share not in self._identities:
                self._identities[share] = self._root.reader(share.agent, share.namespace, writes=share.writes)
        return tuple(self._identities[share] for share in mine if share.namespace != identity.namespace)

    def may_write(self, identity: Identity, namespace: str) -> bool:
        """Return whether a share lets the agent write to a namespace; raises like `all`."""
        return Share(namespace, identity.agent, writes=True) in self.all()

    def add(self, share: Share) -> bool:
        """Add a share, or change its right to write. Return False if the same share exists already.

        Raises:
            IdentityError: the file cannot be written, the namespace is the agent's own, or the agent has eight shares
                already.
        """
        if share.namespace.partition("/")[0] == share.agent:
            raise IdentityError(f"{typed(share.namespace)} already belongs to {typed(share.agent)}")
        return self._change(share, remove=False)

    def remove(self, share: Share) -> bool:
        """Remove a share, including its right to write. Return False if there was none. Raises like `add`."""
        return self._change(share, remove=True)

    def _change(self, share: Share, *, remove: bool) -> bool:
        if self._root is None:
            raise IdentityError(
                "sharing needs the gateway's root secret; this host only has the keys of one agent"
            )
        with locked(self._path):
            told = self._read()
            shared = told.accounts.setdefault(self._root.account, {}).setdefault(share.agent, {})
            before = shared.get(share.namespace)
            if remove:
                shared.pop(share.namespace, None)
            elif before is None and len(shared) >= _MAX_SHARES:
                raise IdentityError(
                    f"{typed(share.agent)} has {_MAX_SHARES} shares, which is the maximum: remove one with unshare"
                )
            else:
                shared[share.namespace] = share.writes
            if shared.get(share.namespace) == before:
                return False
            text = json.dumps(told.model_dump(), indent=2, sort_keys=True)
            replace_private(self._path, text.encode() + b"\n")
        return True

    def _read(self) -> _File:
        try:
            return _File.model_validate_json(read_private(self._path))
        except FileNotFoundError:
            return _File()
        except ValidationError as error:
            raise IdentityError(
                f"{self._path} is damaged: remove it, then create the shares again"
            ) from error


def shared_namespace(name: str) -> str:
    """Return the normalized name of a namespace that a person typed.

    Examples of such names are ``main``, ``researcher``, ``coder/sender-ana`` and ``shared/team``.

    Raises:
        InvalidName: the name is invalid.
    """
    first, *below = name.strip().split("/")
    whose = "default" if first.strip().casefold() == "main" else names.as_shown(first)
    parts = [whose, *(names.as_shown(part) for part in below)]
    if not names.is_normal_namespace("/".join(parts)):
        return names.namespace(*parts)
    return "/".join(parts)


async def recall_shared(
    client: RelayerClient,
    own: Awaitable[RecallResponse],
    shared: Sequence[Identity],
    request: RecallRequest,
    *,
    seconds: float,
) -> RecallResponse:
    """Recall from an agent's own and its shared namespaces at the same time, and merge the hits by relevance.

    Relevance is comparable across namespaces. If several hits have the same text, the agent's own is kept. A shared
    namespace that fails or is too slow is left out, and the response is marked ``degraded``.

    Args:
        client: the relayer's client.
        own: the recall from the agent's own namespace; its errors are raised.
        shared: the identities for the other namespaces, see `Shares.also_read`.
        request: the recall request.
        seconds: the deadline.
    """
    if not shared:
        return await own
    asked = request.model_copy(update={"standing": (), "min_position": None})

    async def ask(identity: Identity) -> RecallResponse | None:
        try:
            return await client.recall(identity, asked, deadline=seconds)
        except GatewayError:
            return None

    answer, others = await asyncio.gather(own, asyncio.gather(*map(ask, shared)))
    hits = list(answer.memories)
    for identity, other in zip(shared, others, strict=True):
        shared_from = typed(identity.namespace)
        hits += [
            SharedHit.model_validate(hit.model_dump() | {"shared_from": shared_from})
            for hit in (other.memories if other is not None else ())
        ]
    ranked: dict[str, RecallHit] = {}
    for hit in sorted(hits, key=lambda one: -one.relevance):
        known = ranked.get(hit.text)
        if known is None or (isinstance(known, SharedHit) and not isinstance(hit, SharedHit)):
            ranked[hit.text] = hit
    # Memories that are disclosed only because the query names their speaker or place come last, and do not count towards
    # the limit of the others.
    told = [one for one in ranked.values() if not request.named or passes(one, request.audiences)]
    rest = [one for one in ranked.values() if one not in told]
    merged = [
        one for hits in (told, rest) for one in sorted(hits, key=lambda one: -one.relevance)[: request.limit]
    ]
    return answer.model_copy(
        update={
            "memories": tuple(merged),
            "considered": answer.considered + sum(other.considered for other in others if other is not None),
            "degraded": answer.degraded or any(other is None or other.degraded for other in others),
        }
    )
