"""Whose keys this process has: a whole account's, from its root secret, or those of a single agent.

A holder of the root mints certificates as it goes; one of a single agent was given its secret with a certificate.
"""

from __future__ import annotations

from gateway_plugin.errors import IdentityError
from gateway_plugin.identity import Identity
from gateway_plugin.keys.credentials import OWNER, Credential, MintedCredential, PersonsCredential
from relayer.wire import base64url
from relayer.wire.certificates import Certificate
from relayer.wire.errors import Malformed, NotAccepted
from relayer.wire.keys import FIRST_GENERATION, AgentKeys, RootKeys, derive

__all__ = ["AgentHolder", "RootHolder"]


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
