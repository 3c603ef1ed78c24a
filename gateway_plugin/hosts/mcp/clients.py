"""Configuration blocks to paste into MCP clients, so that they start or find our server. No block contains a secret."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

NAME: Final = "memrelay"
TOKEN_VARIABLE: Final = "MEMRELAY_MCP_TOKEN"  # noqa: S105 - the name of a variable
"""The variable with a client's token for the HTTP form. Configuration files are often shared, so the token is not in them."""


class ClientProgram(StrEnum):
    """The client programs whose configuration format is supported."""

    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    CODEX = "codex"
    VSCODE = "vscode"
    ZED = "zed"


_FILES: Final = {
    ClientProgram.CLAUDE_CODE: ".mcp.json of a project, or for yourself: claude mcp add-json --scope user memrelay 'ENTRY'",
    ClientProgram.CURSOR: "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
    ClientProgram.CODEX: "~/.codex/config.toml",
    ClientProgram.VSCODE: ".vscode/mcp.json, or MCP: Open User Configuration",
    ClientProgram.ZED: "settings.json (zed: open settings)",
}
_SECTIONS: Final = {ClientProgram.VSCODE: "servers", ClientProgram.ZED: "context_servers"}


@dataclass(frozen=True, slots=True)
class StartCommand:
    """The command that starts the server over standard streams."""

    command: str
    arguments: Sequence[str]
    environment: Mapping[str, str]


def place_of(client: ClientProgram) -> str:
    """Return the place where a person pastes the block."""
    return _FILES[client]


def started_block(client: ClientProgram, start: StartCommand) -> str:
    """Return the configuration text with which a client starts the server over standard streams."""
    entry: dict[str, Any] = {"command": start.command, "args": list(start.arguments)}
    if client in {ClientProgram.CLAUDE_CODE, ClientProgram.VSCODE}:
        entry = {"type": "stdio", **entry}
    if client is ClientProgram.ZED:
        entry = {"source": "custom", **entry}
    if start.environment:
        entry["env"] = dict(start.environment)
    return _toml(entry) if client is ClientProgram.CODEX else _json(client, entry)


def found_block(client: ClientProgram, url: str) -> str:
    """Return the block that makes a client use the running server at a URL, with its token from `TOKEN_VARIABLE`."""
    if client is ClientProgram.CODEX:
        return _toml({"url": url, "bearer_token_env_var": TOKEN_VARIABLE})
    if client is ClientProgram.VSCODE:
        asked = {
            "type": "promptString",
            "id": "memrelay-token",
            "description": "memrelay token",
            "password": True,
        }
        headers = {"Authorization": "Bearer ${input:memrelay-token}"}
        block = {"inputs": [asked], "servers": {NAME: {"type": "http", "url": url, "headers": headers}}}
        return json.dumps(block, indent=2)
    variable = {ClientProgram.CURSOR: f"${{env:{TOKEN_VARIABLE}}}", ClientProgram.ZED: "TOKEN"}
    headers = {"Authorization": f"Bearer {variable.get(client, f'${{{TOKEN_VARIABLE}}}')}"}
    kind = {"type": "http"} if client is ClientProgram.CLAUDE_CODE else {}
    return _json(client, {**kind, "url": url, "headers": headers})


def _json(client: ClientProgram, entry: Mapping[str, Any]) -> str:
    return json.dumps({_SECTIONS.get(client, "mcpServers"): {NAME: entry}}, indent=2)


def _toml(entry: Mapping[str, Any]) -> str:
    # JSON strings and lists of strings are valid TOML, too.
    lines = [f"[mcp_servers.{NAME}]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items() if name != "env"]
    if "env" in entry:
        lines += ["", f"[mcp_servers.{NAME}.env]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in entry["env"].items()]
    return "\n".join(lines)
