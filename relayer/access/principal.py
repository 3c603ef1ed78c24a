"""What an accepted request may do: the only thing that services know about who is asking."""

from __future__ import annotations

from dataclasses import dataclass, field

from relayer.domain.namespace import Custody
from relayer.domain.operations import Origin
from relayer.wire.certificates import Certificate, Right


@dataclass(frozen=True, slots=True)
class Principal:
    """An agent whose certificate and signature were accepted. Times are in ms since the epoch.

    ``nonce`` and ``expires`` are the signature's; together with the signing key they make a write the same write when
    it is sent twice (I7). ``body_digest`` is the SHA-256 of the request's body; ``peer`` is the name under which the machine that
    asks is counted, empty for none.
    """

    certificate: Certificate
    nonce: bytes
    expires: int
    body_digest: bytes
    peer: str = ""

    @property
    def account(self) -> str:
        """The account's id."""
        return self.certificate.account

    @property
    def author(self) -> bytes:
        """The agent's public signing key."""
        return self.certificate.agent_key

    def may(self, namespace: str, right: Right) -> bool:
        """Whether the certificate grants a right on a namespace."""
        return self.certificate.allows(namespace, right)


@dataclass(frozen=True, slots=True)
class Access:
    """A principal's way into one namespace; its right was checked.

    ``secret`` is the namespace secret (from the sealed key, or derived for custody ``relayer``) and ``key_not_after``
    the time in ms until which the relayer may hold it.
    """

    principal: Principal
    namespace: str
    generation: int
    custody: Custody
    key_not_after: int
    secret: bytes = field(repr=False)

    @property
    def account(self) -> str:
        """The account's id."""
        return self.principal.account

    def origin(self, index: int = 0) -> Origin:
        """Return whose operation it is: this request's one of that index."""
        principal = self.principal
        return Origin(principal.author, principal.nonce, index, principal.expires)
