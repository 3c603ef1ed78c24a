"""A database of sessions, of the shape that OpenClaw 2026.9.6 keeps for each of its agents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

SESSION = "agent:main:openai-user:one"
SAID = [("user", "Which berth is ours?"), ("assistant", "Berth seven."), ("user", "And the key?")]


def write_sessions(
    state: Path,
    agent: str = "main",
    session: str = SESSION,
    said: Sequence[tuple[str, str]] = SAID,
    noted: Mapping[str, object] | None = None,
) -> None:
    """Write the database of an agent, below the host's state directory; ``noted`` is in each message of a user."""
    folder = state / "agents" / agent / "agent"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "openclaw-agent.sqlite")) as log:
        log.execute("CREATE TABLE session_windows (session_id TEXT, session_key TEXT, created_at INTEGER)")
        log.execute(
            "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, created_at INTEGER)"
        )
        log.execute("INSERT INTO session_windows VALUES ('w1', ?, 1)", (session,))
        events = [{"type": "session", "id": "w1"}] + [
            {"type": "message", "id": f"m{number}", "timestamp": f"2026-11-22T02:0{number}:00.000Z",
             "message": {"role": role, "content": text} | ({} if role != "user" else dict(noted or {}))}
            for number, (role, text) in enumerate(said)
        ]  # fmt: skip
        rows = [
            ("w1", seq, json.dumps(event, separators=(",", ":")), seq) for seq, event in enumerate(events)
        ]
        log.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", rows)
        log.commit()
