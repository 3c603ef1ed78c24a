"""The chat commands that show, add and hide memories: ``/memory list``, ``search``, ``show``, ``remember`` and ``forget``.

They are for the owner in direct chats, because their answers show memories of all of the owner's chats, and what they store
counts as the owner's own words.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gateway_plugin.hosts.openclaw.commands import owner_refusal
from gateway_plugin.hosts.openclaw.turns import host_turn, session_key_of
from gateway_plugin.plugin import AsyncMemoryPlugin

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
    """Run a chat command about memories and return its output; None if it is another command.

    Args:
        plugin: the gateway's memory.
        arguments: the text after the command's name.
        context: the host's context of the command: session, sender, rights.
    """
    action, _, rest = arguments.strip().partition(" ")
    action, rest = action.lower(), rest.strip()
    # Telephones write a long dash in place of two short ones.
    option = _SECRET.match(rest) if action == "remember" else None
    rest = rest if option is None else rest[option.end() :].strip()
    if action not in _ACTIONS:
        return None
    if refusal := owner_refusal(f"/memory {action}", context, "others would read your memories here"):
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
