"""Whether memory is on for a turn: what a person switched off, and what the gates look at besides.

The gates come before the identity: a turn that they stop needs no keys, and shows no error about them.
"""

from __future__ import annotations

from typing import Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.gates import TurnContext
from gateway_plugin.outbox import Mark, Outbox, OutboxUnavailable, Waiting
from gateway_plugin.session_keys import SessionRef
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import ToldOnce
from gateway_plugin.turn.host_turn import HostTurn, Identities, owner_of

_OFF: Final = b"off"
_ON: Final = b"on"
_EVERYWHERE: Final = "everywhere"


class Toggles:
    """The switches of one gateway.

    Args:
        outbox: where they are kept.
        gateway: an owner of no namespace, under which the gateway's own switch is kept.
    """

    def __init__(self, outbox: Outbox, gateway: Waiting) -> None:
        self._outbox = outbox
        self._gateway = gateway

    def session_enabled(self, owner: Waiting, session: str) -> bool:
        """Whether memory is on for a session of a namespace."""
        return self._is_on(owner, _name(session))

    def set_session(self, owner: Waiting, session: str, *, enabled: bool) -> None:
        """Switch a session."""
        self._set(owner, _name(session), enabled=enabled)

    @property
    def enabled_everywhere(self) -> bool:
        """Whether memory is on at all."""
        return self._is_on(self._gateway, _EVERYWHERE)

    def set_everywhere(self, *, enabled: bool) -> None:
        """Switch the whole gateway."""
        self._set(self._gateway, _EVERYWHERE, enabled=enabled)

    def _is_on(self, owner: Waiting, name: str) -> bool:
        return self._outbox.kept(owner, name).value != _OFF

    def _set(self, owner: Waiting, name: str, *, enabled: bool) -> None:
        if self._is_on(owner, name) != enabled:
            self._outbox.keep(Mark(owner, name, _ON if enabled else _OFF, lasting=not enabled))


def _name(session: str) -> str:
    return f"session:{session}"


class Switches:
    """The switches of one plugin, by session key.

    Args:
        outbox: where they are kept.
        identities: whose sessions they are.
        settings: a fixed agent, if there is one.
        told: told why they cannot be read.
    """

    def __init__(
        self, outbox: Outbox, identities: Identities, settings: PluginSettings, told: ToldOnce
    ) -> None:
        self._toggles = Toggles(outbox, identities.gateway)
        self._identities = identities
        self._settings = settings
        self._told = told

    def context(self, ref: SessionRef, query: str, host: HostTurn, *, success: bool = True) -> TurnContext:
        """Return what the gates look at; where the switches cannot be read, it says why."""
        enabled, unreadable = False, ""
        try:
            enabled = self.is_on_here(ref, host)
        except OutboxUnavailable as error:
            unreadable = str(error)
            self._told.tell(unreadable)
        return host.context(
            ref,
            query,
            agent=host.agent or self._settings.agent,
            session_enabled=enabled,
            outbox_error=unreadable,
            success=success,
        )

    def is_on_here(self, ref: SessionRef, host: HostTurn) -> bool:
        """Whether memory is on for a turn; nobody switched it off where nobody can be told.

        Raises:
            OutboxUnavailable: the switches cannot be read.
        """
        try:
            return self.is_on(ref, host)
        except IdentityError:
            return True

    def is_on(self, ref: SessionRef, host: HostTurn) -> bool:
        """Whether memory is on for a session, by its own switch and the gateway's.

        Raises:
            IdentityError: whose session it is cannot be told.
            OutboxUnavailable: the switches cannot be read.
        """
        owner = self._owner(ref, host)
        return self._toggles.enabled_everywhere and self._toggles.session_enabled(owner, ref.key)

    def set_session(self, ref: SessionRef, host: HostTurn, *, enabled: bool) -> None:
        """Switch a session; raises as `is_on`."""
        self._toggles.set_session(self._owner(ref, host), ref.key, enabled=enabled)

    def set_everywhere(self, *, enabled: bool) -> None:
        """Switch every session; raises `OutboxUnavailable`."""
        self._toggles.set_everywhere(enabled=enabled)

    def _owner(self, ref: SessionRef, host: HostTurn) -> Waiting:
        return owner_of(self._identities.of_turn(ref, host))
