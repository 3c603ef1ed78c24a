"""Who speaks in a turn: agent, namespace, and the keys that its requests need.

The agent comes from the host's session key, the namespace from the agent and the configured scope. The model has no
say in either.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from gateway_plugin.errors import IdentityError
from gateway_plugin.session_keys import DEFAULT_NAME, OWNER, SessionRef, named
from gateway_plugin.settings import NamespaceScope
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.certificates import SERIAL_SIZE, Certificate, Right
from relayer.wire.errors import InvalidName, Malformed, NotAccepted
from relayer.wire.keys import FIRST_GENERATION, AgentKeys, RootKeys, derive, route

CERTIFICATE_SECONDS: Final = 24 * 3600
_RENEW_BEFORE_END: Final = 3600
# A relayer whose clock is a little behind must not take a fresh certificate for one of the future.
_BACKDATED: Final = 300
_RIGHTS: Final = (Right.READ, Right.WRITE)
_PERSON_SECONDS: Final = 600


class Credential(Protocol):
    """The certificate of one agent, as fresh as it can be had."""

    def header(self, now: int) -> str:
        """Return the ``memory-certificate`` header for a time in seconds since the epoch.

        Raises:
            IdentityError: the certificate ran out and cannot be renewed here.
        """
        ...


def mint(
    root: RootKeys,
    agent: str,
    *,
    now: int,
    seconds: int = CERTIFICATE_SECONDS,
    rights: tuple[Right, ...] = _RIGHTS,
    owner: str | None = None,
) -> Certificate:
    """Say what an agent of this account may do: read and write its own namespace and those below it.

    Args:
        root: the keys of the account.
        agent: the agent's normal name.
        now: seconds since the epoch.
        seconds: validity from now on.
        rights: something else than to read and write.
        owner: another agent, whose namespaces are meant.
    """
    whose = owner or agent
    return Certificate(
        account_key=bytes(root.account_identity.verify_key),
        agent=agent,
        agent_key=bytes(root.agent(agent).identity.verify_key),
        namespaces=(whose, f"{whose}/*"),
        rights=rights,
        not_before=max(now - _BACKDATED, 0),
        not_after=now + seconds,
        serial=secrets.token_bytes(SERIAL_SIZE),
    )


class MintedCredential:
    """Mints a certificate, keeps it, and mints the next one an hour before its end."""

    def __init__(self, root: RootKeys, agent: str) -> None:
        self._root = root
        self._agent = agent
        self._certificate: Certificate | None = None
        self._header = ""

    def header(self, now: int) -> str:
        """Return the ``memory-certificate`` header; see `Credential.header`."""
        known = self._certificate
        if known is None or not known.not_before <= now <= known.not_after - _RENEW_BEFORE_END:
            known = self._certificate = mint(self._root, self._agent, now=now)
            self._header = base64url.encode(known.issue(self._root.account_identity))
        return self._header


class PersonsCredential:
    """A certificate of a few minutes for what only a person may ask for; each request has its own."""

    def __init__(self, root: RootKeys, agent: str) -> None:
        self._root = root
        self._agent = agent

    def header(self, now: int) -> str:
        """Return a new ``memory-certificate`` header."""
        made = mint(
            self._root, OWNER, now=now, seconds=_PERSON_SECONDS, rights=tuple(Right), owner=self._agent
        )
        return base64url.encode(made.issue(self._root.account_identity))


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


class RootHolder:
    """Holds the gateway's root secret: every agent of the account."""

    only_agent = None

    def __init__(self, root: RootKeys) -> None:
        self.root = root
        self._account = root.account
        self._credentials: dict[str, Credential] = {}

    @property
    def account(self) -> str:
        """The account's id."""
        return self._account

    @property
    def local_key(self) -> bytes:
        """The key that hides names in local files."""
        return derive(self.root.root, "memrelay/v1/local")

    def agent(self, agent: str) -> AgentKeys:
        """Return an agent's keys, by its normal name."""
        return self.root.agent(agent)

    def credential(self, agent: str) -> Credential:
        """Return an agent's certificate source."""
        return self._credentials.setdefault(agent, MintedCredential(self.root, agent))

    def person(self, agent: str, namespace: str | None = None) -> Identity:
        """Return the account's owner, with every right on an agent's namespaces: for what a person typed, never for a turn.

        The owner signs with a key of its own, so that a revoked agent's memories are still the owner's.
        """
        return Identity(
            agent=OWNER,
            account=self._account,
            namespace=namespace or agent,
            generation=FIRST_GENERATION,
            keys=self.root.agent(OWNER),
            credential=PersonsCredential(self.root, agent),
            owner=self.root.agent(agent),
        )


class AgentHolder:
    """Holds one agent's secret and the certificate that the gateway with the root gave it."""

    def __init__(self, keys: AgentKeys, certificate: Certificate, header: str) -> None:
        self._keys = keys
        self._certificate = certificate
        self._header = header

    @classmethod
    def parse(cls, secret: bytes, header: str) -> AgentHolder:
        """Check that secret and certificate belong together.

        Raises:
            IdentityError: the certificate is malformed, forged, or another agent's.
        """
        try:
            certificate = Certificate.verify(base64url.decode(header.strip()))
        except (Malformed, NotAccepted) as error:
            raise IdentityError("MEMRELAY_AGENT_CERTIFICATE is not a valid certificate") from error
        keys = AgentKeys(certificate.agent, secret)
        if bytes(keys.identity.verify_key) != certificate.agent_key:
            raise IdentityError(
                "MEMRELAY_AGENT_SECRET and MEMRELAY_AGENT_CERTIFICATE belong to different agents"
            )
        return cls(keys, certificate, header.strip())

    @property
    def account(self) -> str:
        """The account's id."""
        return self._certificate.account

    @property
    def only_agent(self) -> str:
        """The agent whose keys are held."""
        return self._certificate.agent

    @property
    def local_key(self) -> bytes:
        """The key that hides names in local files."""
        return derive(self._keys.secret, "local")

    def agent(self, agent: str) -> AgentKeys:
        """Return the agent's keys.

        Raises:
            IdentityError: another agent's are asked for.
        """
        if agent != self._certificate.agent:
            raise IdentityError(f"this host holds the keys of agent {self.only_agent!r} only")
        return self._keys

    def credential(self, agent: str) -> Credential:
        """Return the certificate that was given; raises as `agent`."""
        self.agent(agent)
        return self

    def header(self, now: int) -> str:
        """Return the certificate.

        Raises:
            IdentityError: it ran out.
        """
        if now > self._certificate.not_after:
            raise IdentityError(
                f"the certificate of agent {self.only_agent!r} ran out; "
                "`memrelay-gateway keys export` on the host that holds the root secret makes a new one"
            )
        return self._header
