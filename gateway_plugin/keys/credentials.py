"""The certificates that go with every request: what an agent of the account, or the person who owns it, may do.

Whoever holds the account's root mints them as it goes: for an agent one that lasts 24 hours, for a person one of a few
minutes for each request.
"""

from __future__ import annotations

import secrets
from typing import Final, Protocol

from gateway_plugin.session_keys import OWNER
from relayer.wire import base64url
from relayer.wire.certificates import SERIAL_SIZE, Certificate, Right
from relayer.wire.keys import RootKeys

__all__ = ["OWNER", "Credential", "MintedCredential", "PersonsCredential", "mint"]

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
