"""Capture of the chats that the host stored before the plugin was there.

OpenClaw keeps sessions in a SQLite database of each agent. Their turns go through capture, oldest first within a session, as if
the plugin had been there: the same filters, gates and outbox. A small file in the host's state directory says up to which event
of which session that was done, so a restart continues there, and until when the host's sessions count as earlier ones.

What was said keeps its place, which the session's key names, and its speaker, whom the host notes with each message that comes
over a platform. Groups and channels are captured only where the host's own memory was set to cover sessions. Sessions whose key
leaves open how many people are in them are left out.

From 2026.9 on OpenClaw compresses an event of 1,024 bytes or more with zstd where that saves a tenth. Its column ``event_json``
is then NULL. Python 3.11 cannot read zstd, but the Node.js that wrote the event can (`stored_events`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.hosting import (
    CaptureReport,
    HostTurn,
    NotRead,
    TurnAudience,
    notify,
    opened_below,
    parse_json,
    parse_session_key,
    replace_private,
)
from gateway_plugin.hosts.openclaw.turns import HOST, Json, as_object
from gateway_plugin.plugin import AsyncMemoryPlugin

_BUSY_SECONDS: Final = 1.0
_TURNS_AT_ONCE: Final = 20
_EVENTS_AT_ONCE: Final = 2_000
_EVENTS_IN_ALL: Final = 100_000
_MAX_TURNS: Final = 5_000
_MAX_WAITING: Final = 50
_WINDOWS: Final = """
    SELECT session_id, session_key FROM session_windows WHERE created_at < :until
    ORDER BY created_at DESC LIMIT 5000
"""
_EVENTS: Final = """
    SELECT * FROM transcript_events
    WHERE session_id = :session AND seq > :after AND created_at < :until
      AND (event_json IS NULL OR event_json LIKE '{"type":"message"%')
    ORDER BY seq LIMIT :most
"""
_FORGOTTEN: Final = "SELECT session_id FROM memory_session_tombstones"
# What OpenClaw notes in the place of a model for a text that no model wrote: a notice of an error, or a copy of an answer.
_HOSTS_OWN: Final = ("delivery-mirror", "gateway-injected")
# The ends of an answer that capture leaves out, too.
_FAILED: Final = ("error", "aborted")
AGAIN: Final = frozenset({"full", "failed", "unwritable", "skipped:outbox"})
"""Outcomes of a capture after which the messages are not in the outbox, but may be later, so the turn is tried again."""


def open_sessions(state: Path, agent: str) -> sqlite3.Connection:
    """Open the database of an agent's sessions for reading.

    Raises:
        NotRead: there is none, or it is a link to another agent's.
        sqlite3.Error: it cannot be opened.
    """
    agents = (state / "agents").resolve()
    # SQLite opens the file by its name, so it could be replaced by a link in between, but only by a user who can write, and
    # therefore read, the host's state anyway.
    with opened_below(agents, f"{agent}/agent/openclaw-agent.sqlite"):
        # `as_uri` escapes characters of the path that would have a meaning in a URI.
        place = (agents / agent / "agent" / "openclaw-agent.sqlite").as_uri()
        return sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=_BUSY_SECONDS)


NODE_VARIABLE: Final = "MEMRELAY_OPENCLAW_NODE"
"""The variable in which the host's plugin passes the path of the Node.js that runs OpenClaw."""

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
    # OpenClaw notes the role of a compressed event in clear text.
    rows = [
        row
        for row in cursor.execute(query, parameters)
        if row["event_json"] or '"role":"toolResult"' not in (row["navigation_json"] or "")
    ]
    packed = [row["event_zstd"] for row in rows if row["event_json"] is None]
    unpacked = iter(_decompressed(packed) if packed else ())
    return [(row["seq"], next(unpacked) if row["event_json"] is None else row["event_json"]) for row in rows]


def _decompressed(packed: list[bytes]) -> list[str]:
    node = os.environ.get(NODE_VARIABLE) or shutil.which("node")
    lines = b"\n".join(map(b64encode, packed))
    try:
        if node is None:
            raise FileNotFoundError
        done = subprocess.run(  # noqa: S603 - the host's own program
            [node, "-e", _PROGRAM], input=lines, capture_output=True, timeout=60.0, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Compressed(
            "OpenClaw stored long messages compressed, and no Node.js was found that can read them: "
            f"set {NODE_VARIABLE} to the path of node, 22.15 or newer"
        ) from error
    return [b64decode(line).decode("utf-8", "replace") for line in done.stdout.split(b"\n")]


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """A turn of a stored session.

    Attributes:
        last: number of the turn's last event in the session.
        messages: the messages, oldest first, beginning with the user's.
        sender: the host's id of the person who wrote; None if the host did not note it.
        platform: the platform on which they wrote; "" if the host did not note it.
        stranger: whether the host noted that they are not the owner.
        automatic: whether the host noted that no person wrote.
    """

    session: str
    key: str
    last: int
    messages: tuple[Json, ...] = field(repr=False)
    sender: str | None = None
    platform: str = ""
    stranger: bool = False
    automatic: bool = False


@dataclass(slots=True)
class EarlierSessions:
    """The earlier sessions of one agent.

    Attributes:
        account: the account that captures; another one starts from the beginning.
        groups: whether groups and channels are captured, too.
        apart: whether direct chats are kept apart now. What a person other than the owner said in a session of all, from when
            they were not, is then left out, because only the owner would hear it.
    """

    state: Path
    agent: str
    account: str
    groups: bool = False
    apart: bool = False
    _until: int = 0
    _done: dict[str, int] = field(default_factory=dict)
    _taken: int = 0
    _over: bool = False

    async def look(self, plugin: AsyncMemoryPlugin, workspace: Path) -> bool:
        """Capture the next turns; return whether there may be more.

        Does nothing while many captured turns wait, since new ones come first. Raises `Compressed`.
        """
        if not self._until:
            await asyncio.to_thread(self.begin)
        if self._over or plugin.status().waiting > _MAX_WAITING:
            return False
        try:
            turns = await asyncio.to_thread(lambda: [*self._turns()])
        except NotRead:
            turns = []
        except sqlite3.Error:
            return False  # the host is writing, or its version keeps sessions in another form
        for turn in turns:
            if not self._leaves_out(turn):
                report = await self.capture(plugin, turn, workspace)
                if report.status in AGAIN:
                    break
            self._done[turn.session] = turn.last
            self._taken += 1
        if not turns or self._taken >= _MAX_TURNS:
            self._over = True
            if self._taken:
                notify(
                    f"memrelay: {self._taken} earlier turns of agent {self.agent} were looked at for memories"
                )
        await asyncio.to_thread(self._save)
        return not self._over

    def left(self) -> list[EarlierTurn]:
        """Return every turn that is still to be captured, and change nothing. Raises `NotRead` and `sqlite3.Error`."""
        self._load()
        self._until = self._until or int(time.time() * 1000)
        return [turn for turn in self._turns(_MAX_TURNS, _EVENTS_IN_ALL) if not self._leaves_out(turn)]

    def all(self) -> list[EarlierTurn]:
        """Return every stored turn. Raises `NotRead` and `sqlite3.Error`."""
        self._until = int(time.time() * 1000)
        return [*self._turns(_EVENTS_IN_ALL, _EVENTS_IN_ALL)]

    async def capture(self, plugin: AsyncMemoryPlugin, turn: EarlierTurn, workspace: Path) -> CaptureReport:
        """Capture a turn as if the plugin had been there."""
        host = HostTurn(
            host=HOST,
            workspace=str(workspace),
            turn_id=f"earlier:{turn.session}:{turn.last}",
            sender=turn.sender,
            platform=turn.platform,
            inter_session=turn.automatic,
            earlier=True,
        )
        return await plugin.after_turn(turn.messages, session_key=turn.key, host=host)

    def _turns(self, left: int = _TURNS_AT_ONCE, most: int = _EVENTS_AT_ONCE) -> Iterator[EarlierTurn]:
        """Yield the next turns, those of the newest session first. Raises `NotRead` and `sqlite3.Error`."""
        with closing(open_sessions(self.state, self.agent)) as log:
            forgotten: set[str] = set()
            with suppress(sqlite3.Error):  # hosts before 2026.9 have no such table
                forgotten = {session for (session,) in log.execute(_FORGOTTEN)}
            for session, key in log.execute(_WINDOWS, {"until": self._until}).fetchall():
                if session in forgotten or not self._covers(key):
                    continue
                after = self._done.get(session, -1)
                wanted = {"session": session, "after": after, "until": self._until, "most": most}
                for turn in _turns_of(session, key, stored_events(log, _EVENTS, wanted)):
                    yield turn
                    left -= 1
                    if not left:
                        return

    def _covers(self, key: str) -> bool:
        with suppress(IdentityError):
            ref = parse_session_key(key)
            return ref.audience is TurnAudience.DIRECT or (self.groups and ref.audience is ref.said_to)
        return False

    def _leaves_out(self, turn: EarlierTurn) -> bool:
        if not (self.apart and turn.stranger):
            return False
        ref = parse_session_key(turn.key)
        return ref.audience is TurnAudience.DIRECT and ref.peer is None

    def place(self, name: str = "earlier-sessions") -> Path:
        """Return the file that keeps what is known about the agent's sessions under a name."""
        whose = hashlib.sha256(f"{self.account}\n{self.agent}".encode()).hexdigest()[:16]
        return self.state / "memrelay" / f"{name}-{whose}.json"

    def begin(self) -> None:
        """Read what is known about the sessions; the first time, note that earlier ones end now.

        From then on the plugin captures turns when they end, and leaves out what is said while memory is off.
        """
        self._load()
        if not self._until:
            self._until = int(time.time() * 1000)
            self._save()

    def _load(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = parse_json(self.place().read_text("utf-8"))
            self._done = {str(session): int(seq) for session, seq in kept["done"].items()}
            taken, over, until = int(kept["taken"]), kept["over"] is True, int(kept["until"])
            self._taken, self._over, self._until = taken, over, until
            if self.groups and not kept.get("groups"):
                self._taken, self._over = 0, False

    def _save(self) -> None:
        kept = {"until": self._until, "taken": self._taken, "over": self._over, "done": self._done}
        kept["groups"] = self.groups
        with suppress(OSError, IdentityError):
            self.place().parent.mkdir(parents=True, exist_ok=True)
            replace_private(self.place(), json.dumps(kept).encode())


def _turns_of(session: str, key: str, rows: list[tuple[int, str]]) -> Iterator[EarlierTurn]:
    """Yield the turns of a session: each message of the user with the answers to it."""
    messages: list[Json] = []
    last = -1
    for seq, text in rows:
        message = _message(text)
        if message is None:
            continue
        if message["role"] == "user" and messages:
            yield _turn(session, key, last, messages)
            messages = []
        if message["role"] == "user" or messages:
            messages.append(message)
        last = seq
    if messages:
        yield _turn(session, key, last, messages)


def _turn(session: str, key: str, last: int, messages: list[Json]) -> EarlierTurn:
    noted, cause = as_object(messages[0].get("__openclaw")), as_object(messages[0].get("provenance"))
    sender, platform = noted.get("senderId"), as_object(noted.get("senderIdentity")).get("pluginId")
    return EarlierTurn(
        session,
        key,
        last,
        tuple(messages),
        sender=sender if isinstance(sender, str) else None,
        platform=platform if isinstance(platform, str) else "",
        stranger=isinstance(sender, str) and noted.get("senderIsOwner") is False,
        automatic=cause.get("kind", "external_user") != "external_user",
    )


def _message(text: str) -> dict[str, Any] | None:
    try:
        entry = parse_json(text)
    except ValueError:
        return None
    message = as_object(as_object(entry).get("message"))
    if as_object(entry).get("type") != "message" or message.get("role") not in {"user", "assistant"}:
        return None
    if message.get("model") in _HOSTS_OWN or message.get("stopReason") in _FAILED:
        return None
    told = {name: message.get(name) for name in ("role", "content", "provenance", "__openclaw")}
    at, noted = message.get("timestamp") or entry.get("timestamp"), as_object(message.get("__openclaw"))
    return {**told, "timestamp": at, "id": entry.get("id"), "name": noted.get("senderName")}
