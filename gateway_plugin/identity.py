"""Who speaks in a turn: agent, namespace, and the keys that its requests need.

The agent comes from the host's session key, the namespace from the agent and the configured scope. The model has no
say in either. Keys come from a holder, see `gateway_plugin.keys.holders`.

No two agents meet by a name: `gateway_plugin.session_keys.named` is asked for every name, whoever gives it. The default agent's
keys and namespaces are those of ``default``, which it gives to no other agent. A default namespace that is set lies below
``default``, where no agent's name leads either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.credentials import Credential
from gateway_plugin.session_keys import DEFAULT_NAME, SessionRef, named
from gateway_plugin.settings import NamespaceScope
from relayer.wire import names
from relayer.wire.errors import InvalidName
from relayer.wire.keys import FIRST_GENERATION, AgentKeys, route

__all__ = ["Identity", "KeyHolder", "identify"]

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
    default_agent: str | None = None,
    shown: bool = False,
    default_namespace: str = DEFAULT_NAME,
    scope: NamespaceScope = NamespaceScope.AGENT,
    sender: str | None = None,
    workspace: str | None = None,
    renamed: Mapping[str, str] = _NOBODY,
) -> Identity:
    """Tell whose turn it is.

    Args:
        holder: the keys at hand.
        ref: the parsed session key.
        default_agent: who speaks when the session key names nobody, as a host or a person calls it; None is the host's
            default agent: the one whose keys are held, where that is one alone.
        shown: ``default_agent`` may be a name as commands show it; see `named`.
        default_namespace: what sets the memories of the default agent apart from those of another gateway.
        scope: what separates memories.
        sender: the host's id of the person who wrote, for scope ``agent+sender``.
        workspace: the host's id or path of the workspace, for scope ``agent+workspace``.
        renamed: agents that go by another name here, because their keys were rotated; both in normal form.

    Raises:
        IdentityError: a name has no normal form or is another agent's here, the scope lacks its half, or the agent's keys
            are not held.
    """
    spelled = ref.agent if ref.agent is not None or ref.is_main else default_agent
    try:
        usual = DEFAULT_NAME if spelled is None else named(spelled, shown=shown)
        parts = _scope_parts(scope, sender=sender, workspace=workspace)
        below = _below(default_namespace)
    except (InvalidName, IdentityError) as error:
        raise IdentityError(f"no namespace for this turn: {error}") from error
    if usual == DEFAULT_NAME:
        usual = holder.only_agent or DEFAULT_NAME
    agent = renamed.get(usual, usual)
    if agent == usual and agent in renamed.values():
        raise IdentityError(
            f"no namespace for this turn: {agent} is what namespace.renamed calls another agent; rotate that one to another name"
        )
    return Identity(
        agent=agent,
        account=holder.account,
        namespace="/".join((agent, *(below if usual == DEFAULT_NAME else ()), *parts)),
        generation=FIRST_GENERATION,
        keys=holder.agent(agent),
        credential=holder.credential(agent),
    )


def _below(default_namespace: str) -> tuple[str, ...]:
    if names.normalise(default_namespace) == DEFAULT_NAME:
        return ()
    return (names.normalise(f"namespace-{default_namespace.strip()}"),)


def _scope_parts(scope: NamespaceScope, *, sender: str | None, workspace: str | None) -> tuple[str, ...]:
    if scope is NamespaceScope.AGENT:
        return ()
    kind, value = ("sender", sender) if scope is NamespaceScope.AGENT_SENDER else ("workspace", workspace)
    # Falling back to the agent's own namespace would show one person's memories to another.
    if not value or not value.strip():
        raise IdentityError(f"namespace.scope is {scope.value!r}, but the host did not name the {kind}")
    return (names.normalise(f"{kind}-{value.strip()}"),)
