"""Memory switched off by a person: for one chat session, or everywhere (AM-06, AM-07).

Kept beside the outbox, so that a no outlives the process and is seen by every process of this gateway. Where they
cannot be read, every method raises `OutboxUnavailable`: a no may be kept there, so whoever asks stays silent, and says why.
"""

from __future__ import annotations

from typing import Final

from gateway_plugin.outbox import Mark, Outbox, Waiting

__all__ = ["Toggles"]

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
