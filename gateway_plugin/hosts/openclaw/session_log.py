"""The dialogue of an agent's earlier sessions, read from the host's own database and from nowhere else (MS-11).

OpenClaw keeps each agent's sessions in a SQLite file of that agent's own. It is opened for reading alone, and only the file
of the agent whose turn it is: neither the model nor a session's name leads to another's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway_plugin.bounded_files import NotRead, opened_below
from gateway_plugin.session_keys import DEFAULT_AGENT
from gateway_plugin.tool_arguments import ToolError
from gateway_plugin.turn.transcript import NoSuchLog

__all__ = ["AgentSessions"]

_MAX_MESSAGES: Final = 2000
_BUSY_SECONDS: Final = 1.0
_MESSAGES: Final = """
    SELECT event_json FROM transcript_events
    WHERE session_id IN (SELECT session_id FROM session_windows WHERE session_key = :session OR session_id = :session)
      AND event_json LIKE '{"type":"message"%'
    ORDER BY created_at DESC, seq DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """The sessions that may be read in one turn.

    Attributes:
        state: the host's state directory.
        agent: the agent's id in the host.
        only: the one session that may be read, where others could hear of what they were not told; None for all of them.
    """

    state: Path
    agent: str = DEFAULT_AGENT
    only: str | None = None

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield the messages of a session as the host keeps them, oldest first; of a long one the last 2,000.

        Args:
            path: a session key, or a session's id.

        Raises:
            NoSuchLog: there is no such session here.
            ToolError: it may not be read, or the host's file cannot be read just now.
        """
        if self.only is not None and path != self.only:
            raise ToolError("path: in a group only the group's own session can be read")
        agents = (self.state / "agents").resolve()
        file = agents / self.agent / "agent" / "openclaw-agent.sqlite"
        try:
            # No link leads to another agent's. SQLite opens it by its name, but who could put a link there in between
            # may write to the host's state, and so reads its databases anyway.
            with opened_below(agents, f"{self.agent}/agent/openclaw-agent.sqlite"):
                # Not through a URI built of text alone: a name may hold what a URI takes for something else.
                place = f"{file.as_uri()}?mode=ro"
                with closing(sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS)) as log:
                    rows = log.execute(_MESSAGES, {"session": path, "limit": _MAX_MESSAGES}).fetchall()
        except NotRead as error:
            raise NoSuchLog("path: this host keeps no sessions of this agent that can be read") from error
        except sqlite3.Error as error:
            raise ToolError("path: the host's sessions cannot be read just now") from error
        if not rows:
            raise NoSuchLog("path: there is no such session of this agent; memory_get names the sessions")
        for (text,) in reversed(rows):
            entry = json.loads(text)
            if isinstance(entry, Mapping):
                yield entry
