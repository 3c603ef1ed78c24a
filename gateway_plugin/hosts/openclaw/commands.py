"""What ``/memory`` answers in a chat: how things stand, memory off and on, and why the last turn was given what it was.

A session's switch is its own; ``--global`` is for the gateway's owner. What is told of turns is told of the session that asks:
others, of other people and agents, may be nobody's business there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.async_plugin import AsyncMemoryPlugin
from gateway_plugin.errors import GatewayError
from gateway_plugin.hosts.openclaw.turns import host_turn, session_key_of
from gateway_plugin.outbox import OutboxUnavailable
from gateway_plugin.status import TurnTrace

__all__ = ["run_command"]

_HELP: Final = (
    "/memory status          how memory stands in this session\n"
    "/memory off | on        for this session; outlives a restart\n"
    "/memory off --global    for every session of this gateway (owner)\n"
    "/memory why             why the last turn was given what it was given"
)
_SWITCHES: Final = {
    "on": True, "enable": True, "enabled": True, "off": False, "disable": False, "disabled": False,
}  # fmt: skip
_ADMIN: Final = "operator.admin"


def run_command(plugin: AsyncMemoryPlugin, arguments: str, context: Mapping[str, Any]) -> str:
    """Answer a command.

    Args:
        plugin: the gateway's memory.
        arguments: what stands behind the command's name.
        context: the host's context of the command: session, sender, rights.
    """
    words = arguments.split()
    everywhere = "--global" in words
    action = next((word.lower() for word in words if word != "--global"), "status")
    if action in _SWITCHES:
        return _switch(plugin, context, enabled=_SWITCHES[action], everywhere=everywhere)
    if action == "status":
        return _status(plugin, context)
    return _why(_trace(plugin, context)) if action == "why" else _HELP


def _switch(plugin: AsyncMemoryPlugin, context: Mapping[str, Any], *, enabled: bool, everywhere: bool) -> str:
    word = "on" if enabled else "off"
    if everywhere and not _may_decide_for_all(context):
        return f"/memory {word} --global needs the gateway's owner or {_ADMIN}."
    try:
        if everywhere:
            plugin.set_everywhere(enabled=enabled)
            return f"Memory is {word} for every session of this gateway."
        key = session_key_of(context)
        if key is None:
            return "There is no session here to switch."
        plugin.set_session(key, enabled=enabled, host=host_turn(context))
    except GatewayError as error:
        return f"Memory could not be switched {word}: {error}"
    return f"Memory is {word} for this session."


def _may_decide_for_all(context: Mapping[str, Any]) -> bool:
    """Tell whether the sender may: a client of the gateway by its scopes, anybody else by being the owner."""
    scopes = context.get("gatewayClientScopes")
    return _ADMIN in scopes if isinstance(scopes, list) else context.get("senderIsOwner") is True


def _status(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> str:
    status, trace = plugin.status(), _trace(plugin, context)
    rows = [
        f"Memory: {_state(plugin, context)}",
        f"relayer: {status.url}",
        f"last recall: {trace.status or 'none yet'}{f' in {trace.milliseconds} ms' if trace.milliseconds else ''}",
        f"captured turns: {status.delivered} delivered, {status.waiting} waiting, {status.refused} refused",
    ]
    refusal = (
        status.last_refusal if trace.agent and status.last_refusal.startswith(f"{trace.agent}: ") else ""
    )
    notes = (trace.detail, status.last_error, refusal, status.warning, *status.notes)
    return "\n".join(rows + [f"note: {note}" for note in dict.fromkeys(notes) if note])


def _state(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> str:
    if plugin.settings.disabled:
        return "off (MEMRELAY_DISABLE)"
    try:
        on = plugin.session_enabled(session_key_of(context), host=host_turn(context))
    except OutboxUnavailable as error:
        return f"silent here: {error}"
    except GatewayError as error:
        return f"unavailable here: {error}"
    return "on for this session" if on else "off for this session"


def _trace(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> TurnTrace:
    key = session_key_of(context)
    return TurnTrace("") if key is None else plugin.why(key, host=host_turn(context))


def _why(trace: TurnTrace) -> str:
    if not trace.status:
        return "No turn of this session was looked at yet."
    rows = [f"last turn: {trace.status}{f': {trace.detail}' if trace.detail else ''}"]
    rows += [
        f"{'pass' if gate.allowed else 'STOP'}  {gate.gate}  {gate.reason}".rstrip() for gate in trace.gates
    ]
    rows += [f"memory {hit.id}  relevance {hit.relevance:.2f}  {hit.outcome}" for hit in trace.hits]
    return "\n".join(rows)
