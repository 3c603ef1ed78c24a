"""Namespaces that a person has shared with an agent, and recall across all namespaces that an agent may read.

`Shares` reads and changes the shares, which are stored in a private file of the gateway, by account and agent. Each request
to a shared namespace carries a certificate for that namespace alone, which is valid for ten minutes and is issued only
while the share exists. A shared namespace belongs to another agent (``researcher``), or to none (``shared/team``).
`recall_shared` sends a recall to all namespaces at the same time and merges the responses.

The same file lists what is shared with agents of other accounts (`Grant`), and contains the invitations that agents of
this account have accepted from others. They stay sealed to the agent's key; `shares_of` opens them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import GatewayError, IdentityError, RelayerRefused
from gateway_plugin.keys.identity import (
    Identity,
    KeyHolder,
    RootHolder,
    identities_before_split,
    invited,
    typed,
)
from gateway_plugin.keys.invitations import Invitation
from gateway_plugin.keys.private_files import MAX_BYTES, locked, read_private, replace_private
from gateway_plugin.turn.gates import passes
from gateway_plugin.turn.status import NotifyOnce
from relayer.wire import names
from relayer.wire.relevance import CHOSEN, LEAST_SHARE, MOST_UNCERTAIN, PROBABLY_HELPS
from relayer.wire.schemas import RecallHit, RecallRequest, RecallResponse

_MAX_SHARES: Final = 8


class SharedHit(RecallHit):
    """A hit from another namespace, whose name is ``shared_from``, see `Identity.shown`."""

    shared_from: str = ""

    @property
    def is_foreign(self) -> bool:
        """Return whether the namespace belongs to another account, whose user is another person."""
        return "@" in self.shared_from


class MergedResponse(RecallResponse):
    """The merged response of several namespaces; ``unavailable`` says which are missing and why."""

    unavailable: tuple[str, ...] = ()


class Grant(BaseModel):
    """A namespace of this account that an agent of another account was invited to.

    Attributes:
        agent_key: the other agent's public key, in hexadecimal digits.
        until: when the invitation ends, in seconds since the epoch.
        serial: the serial of its certificate, in hexadecimal digits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    namespace: str
    agent_key: str
    writes: bool
    until: int
    serial: str


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    version: int = 1
    accounts: dict[str, dict[str, dict[str, bool]]] = {}
    grants: dict[str, list[Grant]] = {}
    # By account, agent and the name that the agent's namespace is shown by: the invitation, sealed to the agent's key.
    accepted: dict[str, dict[str, dict[str, str]]] = {}


@dataclass(frozen=True, slots=True)
class Share:
    """A namespace that an agent may read and, if ``writes`` is set, write to. Both names are normalized."""

    namespace: str
    agent: str
    writes: bool = False


class Shares:
    """The namespaces that are shared among the agents of one account, and with agents of other accounts.

    Args:
        path: the file with the shares, which need not exist.
        holder: the gateway's keys. Sharing needs the root secret: with the keys of a single agent there are only the
            invitations that it accepted, and with None (memory is switched off) nothing is shared.
        legacy: whether agents also read the namespaces that they used before the settings ``namespace.default`` or
            ``namespace.scope`` gave them another one.
    """

    def __init__(self, path: Path, holder: KeyHolder | None, *, legacy: bool = False) -> None:
        self._path = path
        self._legacy = legacy
        self._holder = holder
        self._root = holder if isinstance(holder, RootHolder) else None
        self._seen: tuple[int, int] | None = None
        self._identities: dict[str, tuple[Identity, ...]] = {}
        self._notify_once = NotifyOnce()

    def all(self) -> tuple[Share, ...]:
        """Return all shares of the account. Raises `IdentityError`: the file cannot be read, or it is damaged."""
        return () if self._root is None else _shares_in(self._read(), self._root.account)

    def grants(self) -> tuple[Grant, ...]:
        """Return what agents of other accounts were invited to; raises like `all`."""
        return () if self._root is None else tuple(self._read().grants.get(self._root.account, ()))

    def accepted(self) -> tuple[Identity, ...]:
        """Return the identities for the namespaces of other accounts, of all agents; raises like `all`."""
        if self._holder is None:
            return ()
        agents = self._read().accepted.get(self._holder.account, {})
        return tuple(
            invited(keys, Invitation.open(text, keys))
            for keys, texts in ((self._holder.agent(agent), texts) for agent, texts in sorted(agents.items()))
            for _, text in sorted(texts.items())
        )

    def also_read(self, identity: Identity) -> tuple[Identity, ...]:
        """Return the identities with which an agent reads other namespaces than its own.

        First those for its previous namespaces, if ``legacy`` is set, then those for the namespaces shared with it.
        """
        former = identities_before_split(identity) if self._legacy else ()
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
        if self._holder is None:
            return ()
        try:
            told = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise IdentityError(f"{self._path} cannot be read: {error.strerror}") from error
        stamp = (told.st_mtime_ns, told.st_ino)
        if stamp != self._seen:
            self._identities = {}
            self._seen = stamp
        if identity.agent not in self._identities:
            self._identities[identity.agent] = self._open(identity.agent, self._holder)
        return tuple(
            one
            for one in self._identities[identity.agent]
            if one.is_guest or one.namespace != identity.namespace
        )

    def _open(self, agent: str, holder: KeyHolder) -> tuple[Identity, ...]:
        stored, root, keys = self._read(), self._root, holder.agent(agent)
        guests = []
        for name, text in sorted(stored.accepted.get(holder.account, {}).get(agent, {}).items()):
            try:
                guests.append(invited(keys, Invitation.open(text, keys)))
            except IdentityError as error:
                self._notify_once(f"{name} is not recalled: {error}")
        if root is None:
            return tuple(guests)
        own = (one for one in _shares_in(stored, root.account) if one.agent == agent)
        return (*(root.reader(agent, one.namespace, writes=one.writes) for one in own), *guests)

    def may_write(self, identity: Identity, shared: Identity) -> bool:
        """Return whether an agent may write to a namespace that is shared with it; raises like `all`."""
        if isinstance(shared.owner, Invitation):
            return shared.owner.writes
        return Share(shared.namespace, identity.agent, writes=True) in self.all()

    def add(self, share: Share) -> bool:
        """Add a share, or change its right to write. Return False if the same share exists already.

        Raises:
            IdentityError: the file cannot be written, the namespace is the agent's own, or the agent has eight shares
                already.
        """
        if share.namespace.partition("/")[0] == share.agent:
            raise IdentityError(f"{typed(share.namespace)} already belongs to {typed(share.agent)}")
        return self._change_share(share, remove=False)

    def remove(self, share: Share) -> bool:
        """Remove a share, including its right to write. Return False if there was none. Raises like `add`."""
        return self._change_share(share, remove=True)

    def _change_share(self, share: Share, *, remove: bool) -> bool:
        account = self.account

        def change(stored: _File) -> bool:
            shared = stored.accounts.setdefault(account, {}).setdefault(share.agent, {})
            before = shared.get(share.namespace)
            if remove:
                shared.pop(share.namespace, None)
            else:
                if before is None:
                    _require_capacity(stored, account, share.agent)
                shared[share.namespace] = share.writes
            return shared.get(share.namespace) != before

        return self._change(change)

    @property
    def account(self) -> str:
        """The account whose root secret is held. Raises `IdentityError`: this host only has the keys of one agent."""
        if self._root is None:
            raise IdentityError(
                "sharing needs the gateway's root secret; this host only has the keys of one agent"
            )
        return self._root.account

    def set_grant(self, namespace: str, agent_key: str, grant: Grant | None) -> None:
        """Replace the grant of a namespace to an agent's key; None removes it. Raises like `add`."""
        account = self.account

        def change(stored: _File) -> bool:
            kept = [
                one
                for one in stored.grants.get(account, ())
                if (one.namespace, one.agent_key) != (namespace, agent_key)
            ]
            stored.grants[account] = kept if grant is None else [*kept, grant]
            return True

        self._change(change)

    def accept(self, identity: Identity, text: str) -> None:
        """Store an invitation, which replaces an earlier one to the same namespace.

        Raises:
            IdentityError: the file cannot be written, or the agent has eight shares already.
        """

        def change(stored: _File) -> bool:
            account = self._holder.account if self._holder is not None else ""
            texts = stored.accepted.setdefault(account, {}).setdefault(identity.agent, {})
            known = texts.get(identity.shown)
            if known is None:
                _require_capacity(stored, account, identity.agent)
            elif Invitation.open(known, identity.keys).certificate.account != identity.account:
                raise IdentityError(
                    f"another account's namespace is shown as {identity.shown} already: remove it with unshare"
                )
            texts[identity.shown] = text
            return True

        self._change(change)

    def drop(self, shown: str, agent: str) -> bool:
        """Remove an invitation that an agent accepted. Return False if there was none. Raises `IdentityError`."""

        def change(stored: _File) -> bool:
            account = self._holder.account if self._holder is not None else ""
            return stored.accepted.get(account, {}).get(agent, {}).pop(shown, None) is not None

        return self._change(change)

    def _change(self, change: Callable[[_File], bool]) -> bool:
        """Change the file, if ``change`` returns True; return what it returned."""
        with locked(self._path):
            stored = self._read()
            if not change(stored):
                return False
            # Without what is empty, so that an earlier version reads a file that has only what it knows.
            text = json.dumps(stored.model_dump(exclude_defaults=True), indent=2, sort_keys=True)
            if len(text) >= MAX_BYTES:
                raise IdentityError(f"{self._path} would be too long: remove shares with unshare")
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


def _shares_in(stored: _File, account: str) -> tuple[Share, ...]:
    return tuple(
        Share(namespace, agent, writes)
        for agent, shared in sorted(stored.accounts.get(account, {}).items())
        for namespace, writes in sorted(shared.items())
    )


def _require_capacity(stored: _File, account: str, agent: str) -> None:
    kinds = (stored.accounts, stored.accepted)
    if sum(len(kind.get(account, {}).get(agent, {})) for kind in kinds) >= _MAX_SHARES:
        raise IdentityError(
            f"{typed(agent)} has {_MAX_SHARES} shares, which is the maximum: remove one with unshare"
        )


def shared_namespace(name: str) -> str:
    """Return the normalized name of a namespace that a person typed.

    Examples of such names are ``main``, ``researcher``, ``coder/sender-ana`` and ``shared/team``.

    Raises:
        InvalidName: the name is invalid.
    """
    first, *below = name.strip().split("/")
    whose = "default" if first.strip().casefold() == "main" else names.as_shown(first)
    parts = [whose, *(names.as_shown(part) for part in below)]
    shown = "/".join(parts)
    return shown if names.is_normal_namespace(shown) else names.namespace(*parts)


async def recall_shared(
    client: RelayerClient,
    own: Awaitable[RecallResponse],
    shared: Sequence[Identity],
    request: RecallRequest,
    *,
    seconds: float,
) -> RecallResponse:
    """Recall from an agent's own and its shared namespaces at the same time, and merge the hits by relevance.

    Relevance is comparable across namespaces. A prompt gets the hits that are relevant enough compared with the best of all
    namespaces. If several hits have the same text, the agent's own is kept. A shared namespace that fails or is too slow is
    left out, and the response is a `MergedResponse` that is marked ``degraded`` and says why.
    """
    if not shared:
        return await own
    asked = request.model_copy(update={"standing": (), "min_position": None})

    async def ask(identity: Identity) -> RecallResponse | GatewayError:
        try:
            return await client.recall(identity, asked, deadline=seconds)
        except GatewayError as error:
            return error

    answer, others = await asyncio.gather(own, asyncio.gather(*map(ask, shared)))
    responses = [other for other in others if isinstance(other, RecallResponse)]
    hits = list(answer.memories)
    unavailable = []
    for identity, other in zip(shared, others, strict=True):
        if isinstance(other, GatewayError):
            reason = str(other)
            code = other.code if isinstance(other, RelayerRefused) else ""
            if identity.is_guest and code in {"unauthorized", "account_revoked"}:
                reason = "its owner has ended the share, or the relayer does not serve that account any more"
            unavailable.append(f"{identity.shown} is left out: {reason}")
            continue
        hits += [
            SharedHit.model_validate(hit.model_dump() | {"shared_from": identity.shown})
            for hit in other.memories
        ]
    distinct = _distinct(hits)
    # Memories that are disclosed only because the query names their speaker or place come last, and do not count towards
    # the limit of the others.
    told = [one for one in distinct if not request.named or passes(one, request.audiences)]
    rest = [one for one in distinct if one not in told]
    if request.prompt and request.floor >= CHOSEN:
        told, rest = _chosen_together(told), _chosen_together(rest)
    merged = [
        one for hits in (told, rest) for one in sorted(hits, key=lambda one: -one.relevance)[: request.limit]
    ]
    return MergedResponse.model_construct(
        **dict(answer)
        | {
            "memories": tuple(merged),
            "considered": answer.considered + sum(one.considered for one in responses),
            "degraded": answer.degraded or bool(unavailable) or any(one.degraded for one in responses),
            "former": answer.former or any(one.former for one in responses),
            "unavailable": tuple(unavailable),
        }
    )


def _distinct(hits: Iterable[RecallHit]) -> list[RecallHit]:
    """Return one hit of each text, the agent's own if there is one, with the relevance of the best."""
    ranked: dict[str, RecallHit] = {}
    for hit in sorted(hits, key=lambda one: -one.relevance):
        known = ranked.setdefault(hit.text, hit)
        if isinstance(known, SharedHit) and not isinstance(hit, SharedHit):
            best = {"relevance": known.relevance, "distance": known.distance}
            ranked[hit.text] = hit.model_copy(update=best)
    return [*ranked.values()]


def _chosen_together(hits: Sequence[RecallHit]) -> list[RecallHit]:
    """Return the hits that a prompt gets of several namespaces, each of which chose them by its own best hit.

    As in one namespace (`relayer.search.relevance.chosen`), a hit needs a share of the best one's probability, and of what is
    uncertain there are few: `MOST_UNCERTAIN` of all namespaces whose own best hit is uncertain. Hits with equal relevance are
    kept together, because a newer statement has the relevance of the one that it may replace.
    """
    best: dict[str, float] = {}
    for hit in hits:
        best[_shared_from(hit)] = max(hit.relevance, best.get(_shared_from(hit), 0.0))
    least = CHOSEN + LEAST_SHARE * (max(best.values(), default=CHOSEN) - CHOSEN)
    uncertain = {namespace for namespace, relevance in best.items() if relevance < PROBABLY_HELPS}
    doubted = sorted((hit.relevance for hit in hits if _shared_from(hit) in uncertain), reverse=True)
    least_doubted = max([least, *doubted[MOST_UNCERTAIN - 1 : MOST_UNCERTAIN]])
    return [
        hit for hit in hits if hit.relevance >= (least_doubted if _shared_from(hit) in uncertain else least)
    ]


def _shared_from(hit: RecallHit) -> str:
    return hit.shared_from if isinstance(hit, SharedHit) else ""
