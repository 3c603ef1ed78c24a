"""The events of OpenClaw's stored sessions, as JSON: those that OpenClaw compressed are decompressed by its own Node.js.

From 2026.9 on OpenClaw compresses an event of 1,024 bytes or more with zstd where that saves a tenth. Its column ``event_json`` is
then NULL. Python 3.11 cannot read zstd, but the Node.js that wrote the event can.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from gateway_plugin.errors import GatewayError

NODE_VARIABLE: Final = "MEMRELAY_OPENCLAW_NODE"
"""The variable in which the host's plugin passes the path of the Node.js that runs OpenClaw."""
_SECONDS: Final = 60.0
# No event that OpenClaw compresses is longer than 4 MiB.
_PROGRAM: Final = """
const { zstdDecompressSync } = require("node:zlib");
if (!zstdDecompressSync) process.exit(3);
const decompressed = (line) => {
  try {
    return zstdDecompressSync(Buffer.from(line, "base64"), { maxOutputLength: 4194304 }).toString("base64");
  } catch {
    return "";
  }
};
const lines = require("node:fs").readFileSync(0, "latin1").split("\\n");
process.stdout.write(lines.map(decompressed).join("\\n"));
"""


class Compressed(GatewayError):
    """Raised when events are compressed and no Node.js here can decompress them. The message names the fix."""


def stored_events(
    log: sqlite3.Connection, query: str, parameters: Mapping[str, object]
) -> list[tuple[int, str]]:
    """Return the number and JSON of events; JSON that is damaged is "". Compressed results of tools are left out.

    Raises:
        Compressed: an event is compressed and cannot be decompressed here.
        sqlite3.Error: the database cannot be read.
    """
    cursor = log.cursor()
    cursor.row_factory = sqlite3.Row
    rows = [row for row in cursor.execute(query, parameters) if row["event_json"] or not _is_of_tool(row)]
    packed = [row["event_zstd"] for row in rows if row["event_json"] is None]
    unpacked = iter(_decompressed(packed) if packed else ())
    return [(row["seq"], next(unpacked) if row["event_json"] is None else row["event_json"]) for row in rows]


def _is_of_tool(row: sqlite3.Row) -> bool:
    """Return whether a compressed event, whose role OpenClaw notes in clear text, is the result of a tool."""
    return '"role":"toolResult"' in (row["navigation_json"] or "")


def _decompressed(packed: list[bytes]) -> list[str]:
    node = os.environ.get(NODE_VARIABLE) or shutil.which("node")
    lines = b"\n".join(map(b64encode, packed))
    try:
        if node is None:
            raise FileNotFoundError
        done = subprocess.run(  # noqa: S603 - the host's own program
            [node, "-e", _PROGRAM], input=lines, capture_output=True, timeout=_SECONDS, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Compressed(
            "OpenClaw stored long messages compressed, and no Node.js was found that can read them: "
            f"set {NODE_VARIABLE} to the path of node, 22.15 or newer"
        ) from error
    return [b64decode(line).decode("utf-8", "replace") for line in done.stdout.split(b"\n")]
