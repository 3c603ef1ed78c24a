"""The chat commands ``/memory status|on|off|why|replaced``, for the current session or, with ``--global``, for all.

`memory_command` runs those that list and change memories, for the owner in direct chats: they show memories of all of the owner's chats,
and what they store counts as the owner's own words.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway_plugin.errors import GatewayError, IdentityError, SettingsError
from gateway_plugin.hosting import (
    LEAST_QUESTIONS,
    LEAST_RECALLS,
    OutboxUnavailable,
    TurnAudience,
    TurnTrace,
    parse_session_key,
    platform_id,
)
from gateway_plugin.hosts.openclaw.config import kept_turns, read_config
from gateway_plugin.hosts.openclaw.turns import host_turn, session_key_of
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.settings.model import ConsolidationSettings
from relayer.wire.fields import one_line

_HELP: Final = (
    "/memory status          the state of memory in this session\n"
    "/memory off | on        for this session; outlives a restart (in groups: owner)\n"
    "/memory status --global its state for all sessions of this gateway\n"
    "/memory off --global    for every session of this gateway (owner)\n"
    "/memory why             why the last turn was given what it was given\n"
    "/memory replaced        what was replaced lately, and by what (owner)\n"
    "/memory list            the newest memories (these: owner, direct chats)\n"
    "/memory search WORDS    memories about something\n"
    "/memory show ID         one, with what was said around it\n"
    "/memory remember TEXT   keep something; also /remember\n"
    "/memory remember --with-secrets TEXT  the same, with passwords and codes\n"
    "/memory forget ID       hide one; also /forget"
)
_DREAMING_HELP: Final = (
    "/dreaming status        what consolidation does, and when\n"
    "/dreaming on | off      switch it (owner, direct chats)\n"
    "/dreaming on files      also write MEMORY.md and DREAMS.md; off files: no longer\n"
    "what the last run did:  openclaw memrelay consolidate --last\n"
)
# What a command sets consolidation.enabled and consolidation.writeFiles to; None leaves a setting as it is.
_DREAMING: Final[Mapping[str, tuple[bool | None, bool | None]]] = {
    "on": (True, None), "on files": (True, True), "off": (False, None), "off files": (None, False),
}  # fmt: skip
_SWITCHES: Final = {
    "on": True, "enable": True, "enabled": True, "off": False, "disable": False, "disabled": False,
}  # fmt: skip
_ADMIN: Final = "operator.admin"
_READ_HERE: Final = "others would read your memories here"
_FOR_OWNER: Final = (
    "is for the owner of this gateway. If that is you: "
    "openclaw config set commands.ownerAllowFrom with the id that this chat knows you by."
)


def run_command(plugin: AsyncMemoryPlugin, arguments: str, context: Mapping[str, Any]) -> str:
    """Run a chat command and return its output."""
    words = arguments.split()
    everywhere = "--global" in words
    action = next((word.lower() for word in words if word != "--global"), "status")
    if action in _SWITCHES:
        return _switch(plugin, context, enabled=_SWITCHES[action], everywhere=everywhere)
    if action == "status":
        return _status_everywhere(plugin) if everywhere else _status(plugin, context)
    return _why(_trace(plugin, context)) if action == "why" else _HELP


async def list_replaced(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> str:
    """Return what was replaced lately in the namespace of the current session; only for the owner, whose words it quotes."""
    if refusal := owner_refusal(plugin, "/memory replaced", context, _READ_HERE):
        return refusal
    try:
        found = await plugin.replaced_lately(session_key_of(context), host=host_turn(context))
    except GatewayError as error:
        return f"Memory is unavailable here: {error}"
    if not found:
        return "Nothing was replaced lately."
    rows = [
        f"- {one_line(gone.statement)}\n+ {one_line(gone.text)}\n  memrelay-gateway restore {gone.memory}"
        for gone in found
    ]
    return "\n".join(rows)


def _switch(plugin: AsyncMemoryPlugin, context: Mapping[str, Any], *, enabled: bool, everywhere: bool) -> str:
    word = "on" if enabled else "off"
    if everywhere and not is_owner(plugin, context):
        return f"/memory {word} --global needs the gateway's owner or {_ADMIN}."
    # In a direct chat the switch is the person's own; in a group it would be everybody's.
    if _heard_by(context) in (TurnAudience.GROUP, TurnAudience.CHANNEL) and not is_owner(plugin, context):
        return f"/memory {word} in a group {_FOR_OWNER}"
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


def dreaming_command(
    plugin: AsyncMemoryPlugin, arguments: Sequence[str], context: Mapping[str, Any]
) -> tuple[str, bool | None, bool | None]:
    """Run ``/dreaming``, the host's name of consolidation.

    Return its output, and what ``consolidation.enabled`` and ``consolidation.writeFiles`` are to become; None leaves one as it is.
    """
    words, own = " ".join(arguments).lower(), plugin.settings.consolidation
    disabled = " (memory is off: MEMRELAY_DISABLE)" if plugin.settings.disabled else ""
    enabled, files = _DREAMING.get(words, (None, None))
    if enabled is None and files is None:
        rows = [
            f"Dreaming: {'on' if own.enabled else 'off'}{disabled}",
            *_dreams(own, write_files=own.write_files),
        ]
        return "\n".join(rows if words == "status" else [_DREAMING_HELP, *rows]), None, None
    reason = "it changes what is kept of your memories"
    if refusal := owner_refusal(plugin, f"/dreaming {words}", context, reason):
        return refusal, None, None
    on = own.enabled if enabled is None else enabled
    word = (
        f"stays {'on' if on else 'off'} and writes no files"
        if enabled is None
        else f"is {'on' if on else 'off'}"
    )
    rows = [f"Dreaming {word} as soon as OpenClaw has read its configuration again{disabled}."]
    if on:
        rows += _dreams(own, write_files=own.write_files if files is None else files)
    else:
        rows.append("Nothing is pinned, proposed or written on a schedule. What was written stays.")
    return "\n".join(rows), enabled, files


def _dreams(own: ConsolidationSettings, *, write_files: bool) -> list[str]:
    return [
        f"schedule: {own.schedule}, local time",
        f"pinned: what {LEAST_RECALLS} turns and {LEAST_QUESTIONS} different questions needed",
        f"repeated and replaced memories: {'removed' if own.apply else 'proposed, not removed (consolidation.apply is false)'}",
        f"MEMORY.md, DREAMS.md: {'written' if write_files else 'not written; to write them: /dreaming on files'}",
        f"skills: {f'what was told {own.skills} times' if own.skills else 'not written, see consolidation.skills'}",
    ]


def owner_refusal(plugin: AsyncMemoryPlugin, command: str, context: Mapping[str, Any], reason: str) -> str:
    """Return why the sender may not use a command of the owner's direct chats here; "" if they may."""
    if _heard_by(context) is not TurnAudience.DIRECT:
        return f"{command} works in direct chats only: {reason}."
    return "" if is_owner(plugin, context) else f"{command} {_FOR_OWNER}"


def is_owner(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> bool:
    """Return whether the sender has the owner's rights: gateway clients need the scope, others must be the owner.

    The host says who is the owner only to plugins that it trusts. To others it gives the sender's id alone, which is the owner's
    if the settings name it.
    """
    scopes, told = context.get("gatewayClientScopes"), context.get("senderIsOwner")
    if scopes is not None:
        return isinstance(scopes, list) and _ADMIN in scopes
    if told is not None:
        return told is True
    turn = host_turn(context)
    # A list of senders may contain a wildcard, which is no one's id.
    known = bool(turn.platform and turn.sender and turn.sender.strip() != "*")
    return known and platform_id(turn.platform, turn.sender or "") in plugin.settings.owners


def _heard_by(context: Mapping[str, Any]) -> TurnAudience | None:
    try:
        return host_turn(context).heard_by(parse_session_key(session_key_of(context) or ""))
    except IdentityError:
        return None


def _status(plugin: AsyncMemoryPlugin, context: Mapping[str, Any]) -> str:
    status, trace, key = plugin.status(), _trace(plugin, context), session_key_of(context)
    report = None if key is None else plugin.captured(key, host=host_turn(context))
    captured = "none yet" if report is None else report.status
    if report is not None and report.new:
        captured += f", {report.queued} of {report.new} new messages"
    rows = [
        f"Memory: {_state(plugin, context)}",
        f"relayer: {status.url}",
        f"last recall: {trace.status or 'none yet'}{f' in {trace.milliseconds} ms' if trace.milliseconds else ''}",
        f"last capture: {captured}",
        _captured(plugin),
    ]
    rows.append("OpenClaw's model: not asked" if status.host_model is None else status.host_model.line)
    refusal = (
        status.last_refusal if trace.agent and status.last_refusal.startswith(f"{trace.agent}: ") else ""
    )
    with contextlib.suppress(SettingsError):
        rows += filter(None, [read_config(os.environ).active_needs(plugin.settings)])
    notes = (trace.detail, status.last_error, status.relayer_trouble, refusal, status.warning, *status.notes)
    return "\n".join(rows + [f"note: {note}" for note in dict.fromkeys(notes) if note])


def _status_everywhere(plugin: AsyncMemoryPlugin) -> str:
    """Return the state of the gateway's own switch and what the settings disable, without anything about a session."""
    status = plugin.status()
    rows = [f"Memory: {_state_everywhere(plugin)}", f"relayer: {status.url}", _captured(plugin)]
    notes = (status.last_error, status.relayer_trouble, status.warning, *status.notes)
    return "\n".join(rows + [f"note: {note}" for note in dict.fromkeys(notes) if note])


def _state_everywhere(plugin: AsyncMemoryPlugin) -> str:
    if plugin.settings.disabled:
        return "off globally (MEMRELAY_DISABLE)"
    try:
        if not plugin.enabled_everywhere:
            return "off globally"
    except OutboxUnavailable as error:
        return f"silent globally: {error}"
    settings = {"recall": plugin.settings.recall.enabled, "capture": plugin.settings.capture.enabled}
    off = ", ".join(f"{name}.enabled is false" for name, on in settings.items() if not on)
    return f"on globally ({off})" if off else "on globally"


def _captured(plugin: AsyncMemoryPlugin) -> str:
    status = plugin.status()
    counts = f"{status.delivered} delivered, {status.waiting} waiting, {status.refused} refused"
    kept, where = kept_turns(os.environ)
    if kept:
        counts += f"; {kept} not taken by the outbox {'is' if kept == 1 else 'are'} kept in {where}"
    return f"captured turns of this gateway: {counts}"


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


_OUTCOMES: Final = {
    "not_asked_about": "left out: the question names neither who said it nor the group",
    "audience": "left out: it was said elsewhere",
    "in_prompt": "left out: its file is in the prompt already",
    "project": "left out: it is noted for another project",
    "unmentioned": "left out: not to be mentioned, as the user asked in memory",
}


def _why(trace: TurnTrace) -> str:
    if not trace.status:
        return "No turn of this session was looked at yet."
    rows = [f"last turn: {trace.status}{f': {trace.detail}' if trace.detail else ''}"]
    rows += [
        f"{'pass' if gate.allowed else 'STOP'}  {gate.gate}  {gate.reason}".rstrip() for gate in trace.gates
    ]
    rows += [
        f"memory {hit.id}  relevance {hit.relevance:.2f}  {_OUTCOMES.get(hit.outcome, hit.outcome)}  {hit.wish or one_line(hit.voice)}".rstrip()
        for hit in trace.hits
    ]
    return "\n".join(rows)


_LISTED: Final = 10
_MOST_LISTED: Final = 100
# OpenClaw shows the word after `--secret` as `***`, so the usage names the other form.
_SECRET: Final = re.compile(r"(?:--|\u2014)(?:with-secrets|secret)(?:\s|$)", re.IGNORECASE)
# By action: the tool, the argument that takes the rest of the line, and the usage.
_ACTIONS: Final = {
    "list": ("memory_list", "limit", "/memory list, or /memory list 30"),
    "search": ("memory_search", "query", "/memory search WORDS"),
    "show": ("memory_get", "ref", "/memory show ID, as /memory list shows it"),
    "remember": ("memory_store", "text", "/memory remember TEXT, or /memory remember --with-secrets TEXT"),
    "forget": ("memory_forget", "ref", "/memory forget ID, as /memory list shows it"),
}


async def memory_command(plugin: AsyncMemoryPlugin, arguments: str, context: Mapping[str, Any]) -> str | None:
    """Run a chat command about memories and return its output; None if it is another command."""
    action, _, rest = arguments.strip().partition(" ")
    action, rest = action.lower(), rest.strip()
    # Telephones write a long dash in place of two short ones.
    option = _SECRET.match(rest) if action == "remember" else None
    rest = rest if option is None else rest[option.end() :].strip()
    if action not in _ACTIONS:
        return None
    if refusal := owner_refusal(plugin, f"/memory {action}", context, _READ_HERE):
        return refusal
    tool, name, usage = _ACTIONS[action]
    if action == "list":
        wanted = rest or str(_LISTED)
        if not (wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= _MOST_LISTED):
            return f"A number from 1 to {_MOST_LISTED} is expected: {usage}"
        given: dict[str, object] = {name: int(wanted)}
    elif not rest:
        return f"Something is missing: {usage}"
    else:
        given = {name: rest}
    host = replace(host_turn(context), by_person=True, keeps_secrets=option is not None)
    answer = await plugin.tool(tool, given, session_key=session_key_of(context), host=host)
    if tool == "memory_get" and not answer.text:
        return "There is no such memory; /memory list shows the ids."
    shown = html.unescape(answer.text)
    if action == "list" and not answer.failed:
        shown += f"\n\n{answer.details['total']} memories in all; /memory forget ID hides one."
    return shown
