"""What to put into ``openclaw.json``, ready to be pasted, and the commands that do the same."""

from __future__ import annotations

import json
from typing import Any, Final

from gateway_plugin.hosts.openclaw.manifest import PLUGIN_ID, SIDECAR_ID

__all__ = ["CONSENT", "settings_block", "settings_steps"]

CONSENT: Final = (
    "Recall and capture read the conversation: the messages before a turn, and the turn when it has ended. OpenClaw asks "
    "the operator to allow that, with hooks.allowConversationAccess. Without it memory works through its tools alone."
)


def settings_block(*, url: str, command: str, consent: bool, sidecar: bool = False) -> dict[str, Any]:
    """Return the ``plugins`` part of the host's configuration.

    Args:
        url: the relayer.
        command: the program that is the bridge: an absolute path, since a service seldom has a shell's search path.
        consent: the operator allows the plugin to read conversations.
        sidecar: beside another memory plugin, without the slot and without tools.
    """
    entry: dict[str, Any] = {"enabled": True, "config": {"url": url, "command": command}}
    if consent:
        entry["hooks"] = {"allowConversationAccess": True}
    if sidecar:
        return {"plugins": {"entries": {SIDECAR_ID: entry}}}
    # Loaded beside us, the host's own memory would register tools of the same names.
    entries = {PLUGIN_ID: entry, "memory-core": {"enabled": False}}
    return {"plugins": {"slots": {"memory": PLUGIN_ID}, "entries": entries}}


def settings_steps(block: dict[str, Any], source: str) -> str:
    """Return what a person does, in order, around the block."""
    name = SIDECAR_ID if SIDECAR_ID in block["plugins"]["entries"] else PLUGIN_ID
    return "\n".join(
        (
            "1. Install the plugin (--force says that you reviewed a local source):",
            f"   openclaw plugins install {source} --force --accept-capabilities",
            "2. Merge this into openclaw.json:",
            json.dumps(block, indent=2),
            "3. Check and restart:",
            "   openclaw config validate && openclaw gateway restart",
            f"4. See that it works: openclaw memrelay status; in a chat: /memory status ({name})",
        )
    )
