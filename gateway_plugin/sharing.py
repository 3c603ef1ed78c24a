"""Namespaces that an agent may read beside its own, because a person said so; and one answer made of all of them.

What is shared stands in a private file of the gateway, by account and agent. Each request to a shared namespace carries a
certificate for that namespace alone, of a few minutes: an agent that nobody shared with has none, and one that was taken off the
list gets none any more. A namespace is another agent's (``researcher``), or belongs to nobody (``shared/team``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.identity import Identity, KeyHolder, RootHolder, before_set_apart, mint, typed
from gateway_plugin.people import passes
from gateway_plugin.private_files import locked, read_private, replace_private
from gateway_plugin.status import NotifyOnce
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.memories import RecallHit, RecallRequest, RecallResponse
from relayer.wire.sealing import FIRST_GENERATION, RootKeys
from relayer.wire.signing import Right

SHARED: Final = "shared"
"""First part of the name of a namespace that is no agent's own."""

_MAX_SHARES: Final = 8
_SECONDS: Final = 600
# A certificate that is about to end could end on its way.
_RENEW_BEFORE_END: Final = 120


class SharedHit(RecallHit):
    """A memory of another namespace; ``shared_from`` names it as a person types it."""

    shared_from: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    version: int = 1
    accounts: dict[str, dict[str, dict[str, bool]]] = {}


@dataclass(frozen=True, slots=True)
class Share:
    """A namespace that an agent may read, and with ``writes`` write to; both in normal form."""

    namespace: str
    agent: str
    writes: bool = False


@dataclass(frozen=True, slots=True)
class _ScopeKeys:
    """The secrets of namespaces that are no agent's own."""

    root: RootKeys = field(repr=False)

    def namespace_secret(self, namespace: str, generation: int) -> bytes:
        """The secret that opens one of them."""
        return self.root.shared_secret(namespace.partition("/")[2], generation)


class _ShareCredential:
    """Certificates for one shared namespace; each is good for a few minutes."""

    def __init__(self, root: RootKeys, share: Share) -> None:
        self._root = root
        self._share = share
        self._ends = 0
        self._header = ""

    def header(self, now: int) -> str:
        """Return the ``memory-certificate`` header; see `gateway_plugin.identity.Credential`."""
        if now > self._ends - _RENEW_BEFORE_END:
            rights = (Right.READ, Right.WRITE) if self._share.writes else (Right.READ,)
            own = mint(self._root, self._share.agent, now=now, seconds=_SECONDS, rights=rights)
            made = replace(own, namespaces=(self._share.namespace,))
            self._ends, self._header = (
                made.not_after,
                base64url.encode(made.issue(self._root.account_identity)),
            )
        return self._header


class Shares:
    """What is shared among the agents of one account.

    Args:
        path: the file, which need not be there.
        holder: the keys at hand; one agent's alone share nothing, and None (memory is switched off) neither.
        legacy: whether agents read beside it, too, what they remembered before their memories were set apart.
    """

    def __init__(self, path: Path, holder: KeyHolder | None, *, legacy: bool = False) -> None:
        self._path = path
        self._legacy = legacy
        self._root = holder.root if isinstance(holder, RootHolder) else None
        self._seen: tuple[int, int] | None = None
        self._known: tuple[Share, ...] = ()
        self._identities: dict[Share, Identity] = {}
        self._notify_once = NotifyOnce()

    def all(self) -> tuple[Share, ...]:
        """Return all shares of the account.

        Raises:
            IdentityError: the file cannot be read, or is damaged.
        """
        if self._root is None:
            return ()
        accounts = self._read().accounts.get(self._root.account, {})
        return tuple(
            Share(namespace, agent, writes)
            for agent, shared in sorted(accounts.items())
            for namespace, writes in sorted(shared.items())
        )

    def beside(self, identity: Identity) -> tuple[Identity, ...]:
        """Return who an agent is to all that it reads beside its own namespace: its former ones where they are read, then `of`."""
        former = before_set_apart(identity) if self._legacy else ()
        return (*former, *self.of(identity))

    def of(self, identity: Identity) -> tuple[Identity, ...]:
        """Return who an agent is to the namespaces that are shared with it; as the file is now, at no cost while it stays.

        What cannot be read shares nothing, and is told once: an agent keeps its own memories.
        """
        try:
            return self._of(identity)
        except IdentityError as error:
            self._notify_once(f"nothing is shared among agents: {error}")
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
        return tuple(self._as(share) for share in mine if share.namespace != identity.namespace)

    def may_write(self, identity: Identity, namespace: str) -> bool:
        """Whether a share lets the agent write to a namespace; raises as `all`."""
        return Share(namespace, identity.agent, writes=True) in self.all()

    def add(self, share: Share) -> bool:
        """Share; False when it was shared like this already.

        Raises:
            IdentityError: the file cannot be written, an agent would be given its own, or it has eight already.
        """
        if share.namespace.partition("/")[0] == share.agent:
            raise IdentityError(f"{typed(share.namespace)} is {typed(share.agent)}'s own")
        return self._change(share, remove=False)

    def remove(self, share: Share) -> bool:
        """End a share, with its right to write; False when there was none. Raises as `add`."""
        return self._change(share, remove=True)

    def _as(self, share: Share) -> Identity:
        if self._root is None:
            raise IdentityError("sharing takes the gateway's root secret")
        made = self._identities.get(share)
        if made is None:
            owner = share.namespace.partition("/")[0]
            made = self._identities[share] = Identity(
                agent=share.agent,
                account=self._root.account,
                namespace=share.namespace,
                generation=FIRST_GENERATION,
                keys=self._root.agent(share.agent),
                credential=_ShareCredential(self._root, share),
                owner=_ScopeKeys(self._root) if owner == SHARED else self._root.agent(owner),
            )
        return made

    def _change(self, share: Share, *, remove: bool) -> bool:
        if self._root is None:
            raise IdentityError("sharing takes the gateway's root secret; this host holds one agent's keys")
        with locked(self._path):
            told = self._read()
            shared = told.accounts.setdefault(self._root.account, {}).setdefault(share.agent, {})
            before = shared.get(share.namespace)
            if remove:
                shared.pop(share.namespace, None)
            elif before is None and len(shared) >= _MAX_SHARES:
                raise IdentityError(
                    f"{typed(share.agent)} has {_MAX_SHARES} shares already: end one with unshare"
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
            raise IdentityError(f"{self._path} is damaged: remove it, then share anew") from error


def shared_namespace(name: str) -> str:
    """Return the normal form of a namespace as a person types it: ``main``, ``researcher``, ``coder/sender-ana``, ``shared/team``.

    Raises:
        InvalidName: it has none.
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
    """Ask all at once and merge: by relevance, which compares across namespaces; of equal texts the agent's own stays.

    What is shared and cannot be had in time is left out: an agent never loses its own memories by it.

    Args:
        client: the relayer.
        own: asks the agent's own namespace; what it raises is raised.
        shared: from `Shares.of`.
        request: what is asked.
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
        hits += [_labelled(hit, identity) for hit in other.memories] if other is not None else []
    ranked: dict[str, RecallHit] = {}
    for hit in sorted(hits, key=lambda one: -one.relevance):
        known = ranked.get(hit.text)
        if known is None or (isinstance(known, SharedHit) and not isinstance(hit, SharedHit)):
            ranked[hit.text] = hit
    # What counts only where the question names it comes last, and takes nothing's place.
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


def _labelled(hit: RecallHit, identity: Identity) -> SharedHit:
    return SharedHit.model_validate(hit.model_dump() | {"shared_from": typed(identity.namespace)})
