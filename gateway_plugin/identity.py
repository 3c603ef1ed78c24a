"""Who speaks in a turn: agent, namespace, and the keys that its requests need.

The agent comes from the host's session key, the namespace from the agent and the configured scope. The model has no
say in either. Keys come from a holder, see `gateway_plugin.keys.holders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.credentials import OWNER, Credential
from gateway_plugin.session_keys import SessionRef
from gateway_plugin.settings import NamespaceScope
from relayer.wire import names
from relayer.wire.errors import InvalidName
from relayer.wire.keys import FIRST_GENERATION, AgentKeys, route

__all__ = ["Identity", "KeyHolder", "identify", "named", "normal_part"]

_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


class KeyHolder(Protocol):
    """What this process may sign and open."""

    @property
    def account(self) -> str:
        """The account's id."""
        ...

    @property
    def only_agent(self) -> str | None:
        """The one agent whose keys are held, or None when all of the account are."""
        ...

    @property
    def local_key(self) -> bytes:
        """The key that hides names in files of this process; whoever holds the same keys finds them again."""
        ...

    def agent(self, agent: str) -> AgentKeys:
        """Return an agent's keys, by its normal name.

        Raises:
            IdentityError: they are not held here.
        """
        ...

    def credential(self, agent: str) -> Credential:
        """Return an agent's certificate source; raises as `agent`."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that a request of one agent on one namespace needs."""

    agent: str
    account: str
    namespace: str
    generation: int
    keys: AgentKeys = field(repr=False)
    credential: Credential = field(repr=False, compare=False)
    owner: AgentKeys | None = field(default=None, repr=False)
    """Whose the namespace is, where that is not the agent that signs."""

    @property
    def namespace_secret(self) -> bytes:
        """The secret that opens the namespace."""
        return (self.owner or self.keys).namespace_secret(self.namespace, self.generation)

    @property
    def route(self) -> str:
        """What a balancer may know of the namespace; see `relayer.wire.keys.route`."""
        return route(self.namespace_secret)

    def certificate_header(self, now: int) -> str:
        """Return the ``memory-certificate`` header; see `Credential.header`."""
        return self.credential.header(now)


def identify(
    holder: KeyHolder,
    ref: SessionRef,
    *,
    default_agent: str | None,
    scope: NamespaceScope = NamespaceScope.AGENT,
    sender: str | None = None,
    workspace: str | None = None,
    renamed: Mapping[str, str] = _NOBODY,
) -> Identity:
    """Tell whose turn it is.

    Args:
        holder: the keys at hand.
        ref: the parsed session key.
        default_agent: who speaks when the session key names nobody.
        scope: what separates memories.
        sender: the host's id of the person who wrote, for scope ``agent+sender``.
        workspace: the host's id or path of the workspace, for scope ``agent+workspace``.
        renamed: agents that go by another name here, because their keys were rotated; both in normal form.

    Raises:
        IdentityError: a name has no normal form, the scope lacks its half, or the agent's keys are not held.
    """
    try:
        named = ref.agent if ref.agent is not None else default_agent
        agent = names.normalise(named) if named is not None else holder.only_agent
        parts = _scope_parts(scope, sender=sender, workspace=workspace)
    except InvalidName as error:
        raise IdentityError(f"no namespace for this turn: {error}") from error
    if agent is None:
        raise IdentityError("no namespace for this turn: the host named no agent")
    agent = renamed.get(agent, agent)
    if agent == OWNER:
        raise IdentityError(f"no namespace for this turn: {OWNER} is the name of the account's owner")
    return Identity(
        agent=agent,
        account=holder.account,
        namespace="/".join((agent, *parts)),
        generation=FIRST_GENERATION,
        keys=holder.agent(agent),
        credential=holder.credential(agent),
    )


def normal_part(name: str) -> str:
    """Return the normal form of one part of a namespace's name; raises `IdentityError` when it has none."""
    try:
        return names.normalise(name)
    except InvalidName as error:
        raise IdentityError(f"{error}") from error


def named(agent: str) -> str:
    """Return the normal form of an agent's name.

    Raises:
        IdentityError: it has none, or is the owner's.
    """
    normal = normal_part(agent)
    if normal == OWNER:
        raise IdentityError(f"{OWNER} is the name of the account's owner, and no agent's")
    return normal


def _scope_parts(scope: NamespaceScope, *, sender: str | None, workspace: str | None) -> tuple[str, ...]:
    if scope is NamespaceScope.AGENT:
        return ()
    kind, value = ("sender", sender) if scope is NamespaceScope.AGENT_SENDER else ("workspace", workspace)
    # Falling back to the agent's own namespace would show one person's memories to another.
    if not value or not value.strip():
        raise IdentityError(f"namespace.scope is {scope.value!r}, but the host did not name the {kind}")
    return (names.normalise(f"{kind}-{value.strip()}"),)
