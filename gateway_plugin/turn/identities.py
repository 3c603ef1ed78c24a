"""Whose keys a turn needs, and whose what waits in the outbox needs: the holder, as the settings let it be used."""

from __future__ import annotations

from dataclasses import replace

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.identity import Identity, KeyHolder, identify
from gateway_plugin.outbox import Waiting
from gateway_plugin.session_keys import SessionRef, parse_session_key
from gateway_plugin.settings import PluginSettings
from gateway_plugin.turn.host_turn import HostTurn

__all__ = ["Identities", "owner_of"]


def owner_of(identity: Identity) -> Waiting:
    """Return whose items an identity's are."""
    return Waiting(identity.agent, identity.namespace, identity.generation)


class Identities:
    """Finds identities for one plugin.

    Args:
        holder: the keys at hand; None while memory is switched off.
        settings: scope, fixed agent, default, and agents whose keys were rotated.
        agent: who speaks when a session key names nobody; None takes the settings'.
    """

    def __init__(self, holder: KeyHolder | None, settings: PluginSettings, agent: str | None = None) -> None:
        self.holder = holder
        self._settings = settings
        self._agent = agent

    @property
    def account(self) -> str:
        """The account's id; "" while memory is switched off."""
        return self.holder.account if self.holder is not None else ""

    @property
    def gateway(self) -> Waiting:
        """An owner of no namespace, for what is the whole gateway's."""
        agent = self.holder.only_agent if self.holder is not None else None
        return Waiting(agent or "", "", 0)

    def of_turn(self, ref: SessionRef, host: HostTurn) -> Identity:
        """Tell whose turn it is; raises `IdentityError`."""
        holder = self._held()
        fixed = host.agent or (self._settings.agent if self._agent is None else None)
        return identify(
            holder,
            ref if fixed is None else replace(ref, agent=fixed),
            default_agent=self._agent or None,
            default_namespace=self._settings.namespace.default,
            scope=self._settings.namespace.scope,
            sender=host.sender,
            workspace=host.workspace,
            renamed=self._settings.namespace.renamed,
        )

    def namespace_of(self, key: str | None, host: HostTurn) -> str:
        """Return the namespace of a session; "" where whose it is cannot be told."""
        try:
            return self.of_turn(parse_session_key(key or ""), host).namespace
        except GatewayError:
            return ""

    def of_owner(self, owner: Waiting) -> Identity:
        """Return the identity that delivers an item; raises `IdentityError`."""
        holder = self._held()
        # What was captured before an agent's keys were rotated goes where its memories are now.
        agent = self._settings.namespace.renamed.get(owner.agent, owner.agent)
        _, slash, below = owner.namespace.partition("/")
        return Identity(
            agent=agent,
            account=holder.account,
            namespace=f"{agent}{slash}{below}",
            generation=owner.generation,
            keys=holder.agent(agent),
            credential=holder.credential(agent),
        )

    def _held(self) -> KeyHolder:
        if self.holder is None:
            raise IdentityError("memory is switched off by MEMRELAY_DISABLE")
        return self.holder
