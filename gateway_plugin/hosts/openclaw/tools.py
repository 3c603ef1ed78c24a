"""The memory tools as the host registers them, and the host's own memory search, which uses the same tools."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.hosting import (
    DEFAULT_AGENT,
    INTENT_TOOL,
    HostFiles,
    NamespaceScope,
    NoSuchLog,
    NotRead,
    ToolAnswer,
    ToolError,
    Turn,
    TurnAudience,
    parse_json,
    parse_session_key,
    tool_schemas,
)
from gateway_plugin.hosts.openclaw.sessions import Compressed, open_sessions, stored_events
from gateway_plugin.hosts.openclaw.turns import Json, as_object, host_turn, session_key_of
from gateway_plugin.plugin import AsyncMemoryPlugin

_MAX_MESSAGES: Final = 2000
_MESSAGES: Final = """
    SELECT * FROM transcript_events
    WHERE session_id IN (SELECT session_id FROM session_windows WHERE session_key = :session OR session_id = :session)
      AND (event_json IS NULL OR event_json LIKE '{"type":"message"%')
    ORDER BY created_at DESC, seq DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """The sessions that may be read in one turn.

    Attributes:
        only: the key of the only session that may be read, if the others might reveal something to the readers of this
            one; None for all sessions.
    """

    state: Path
    agent: str = DEFAULT_AGENT
    only: str | None = None

    def entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield the stored messages of a session, oldest first; of a long one only the last 2,000.

        Raises:
            NoSuchLog: there is no such session here.
            ToolError: the session may not be read, or the host's database cannot be read at the moment.
        """
        if self.only is not None and path != self.only:
            raise ToolError("path: in a group only the group's own session can be read")
        try:
            with closing(open_sessions(self.state, self.agent)) as log:
                rows = stored_events(log, _MESSAGES, {"session": path, "limit": _MAX_MESSAGES})
        except NotRead as error:
            raise NoSuchLog("path: this host keeps no sessions of this agent that can be read") from error
        except Compressed as error:
            raise ToolError(f"path: {error}") from error
        except sqlite3.Error as error:
            raise ToolError("path: the host's sessions cannot be read just now") from error
        if not rows:
            raise NoSuchLog("path: there is no such session of this agent; memory_get names the sessions")
        for _, text in reversed(rows):
            try:
                entry = parse_json(text)
            except ValueError:
                continue
            if isinstance(entry, Mapping) and entry.get("type") == "message":
                yield entry


PROMPT_SECTION: Final = (
    "## Long-term memory",
    (
        "Notes that fit the latest message come with it; memory_search finds more, memory_get what was said around one, or "
        "the file that it is from. What is said is kept without a call: memory_store only what the user asks you to remember."
    ),
    "",
)
"""Lines of the system prompt. They never change within a version, so that a provider's prompt cache stays valid."""

_LABELS: Final = {
    "memory_search": "Search memory",
    "memory_get": "Read memory",
    "memory_store": "Remember",
    "memory_update": "Correct memory",
    "memory_forget": "Forget",
    "memory_transcript": "Read transcript",
}
_MAX_RESULTS: Final = 50
_NOTHING_THERE: Final = (
    "Nothing can be read here under this id or path: memory_search shows the ids and paths that there are."
)
# The arguments in the schemas, which the host sends with every request. Other arguments and names are accepted as well.
_SHOWN: Final[dict[str, dict[str, str]]] = {
    "memory_search": {"query": "", "limit": ""},
    "memory_get": {"ref": "Id or path"},
    "memory_store": {"text": ""},
    "memory_update": {"ref": "", "text": ""},
    "memory_forget": {"ref": ""},
    "memory_transcript": {"transcript_path": "Session", "anchor": "Time"},
}
_DESCRIBED: Final = {
    "memory_search": "Search earlier conversations.",
    "memory_get": "Read one memory whole, and what was said around it.",
    "memory_store": "Remember a lasting fact, preference or decision.",
    "memory_update": "Correct a memory: its id, the new text.",
    "memory_forget": "Hide a memory, by id.",
    "memory_transcript": "Read a session word for word, as memory_get names it.",
}

# Under the name and with the arguments of the host's own tool; its other arguments, and a list of keywords, are accepted, too.
_INTENT: Final[Json] = {
    "name": INTENT_TOOL,
    "label": "Standing intent",
    "description": "Reminders by keyword.",
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["create", "list", "cancel"]},
            "description": {"type": "string"},
            "triggerKeywords": {"type": "string"},
            "id": {"type": "string"},
        },
    },
}


def tool_definitions() -> list[dict[str, Any]]:
    """Return the definitions of the tools.

    The schemas require no argument except a query or a text: the others have several accepted names, of which a schema can
    show only one. If one is missing, the plugin's error names it.
    """
    return [*(_definition(schema) for schema in tool_schemas()), dict(_INTENT)]


async def call_tool(
    plugin: AsyncMemoryPlugin, params: Json, context: Json, *, state: Path, files: HostFiles | None = None
) -> Json:
    """Run a tool call of the model and return its result; every failure is a result, too."""
    arguments = params.get("arguments")
    name = str(params.get("name", ""))
    if name == INTENT_TOOL:
        said = await plugin.intent(arguments, session_key=session_key_of(context), host=host_turn(context))
        return {"text": said.text, "details": {**said.details, "failed": said.failed}}
    recall = as_object(context.get("conversationRecall"))
    if recall.get("corpus") == "sessions" and isinstance(arguments, Mapping):
        arguments = {**arguments, "corpus": "sessions"}
    logs = _sessions(plugin, context, state) if name == "memory_transcript" else None
    answer = await _call(plugin, name, arguments, context, logs=logs, files=files)
    details: dict[str, Any] = {**answer.details, "failed": answer.failed}
    if name == "memory_get" and not answer.text and not answer.failed:
        return {"text": _NOTHING_THERE, "details": details}
    if name == "memory_search":
        # The host's active-memory reads hits and failures only under these names.
        details |= {"error": answer.text} if answer.failed else {"results": _hits(answer)}
    return {"text": answer.text, "details": details}


async def search_hits(plugin: AsyncMemoryPlugin, params: Json, context: Json) -> Json:
    """Run a search of the host's memory API and return hits in its format.

    A memory of a file is returned with that file and line, any other memory as a file of its own.
    """
    options = as_object(params.get("options"))
    arguments: dict[str, object] = {"query": str(params.get("query", ""))}
    limit, floor = options.get("maxResults"), options.get("minScore")
    if isinstance(limit, int) and not isinstance(limit, bool):
        arguments["limit"] = max(1, min(limit, _MAX_RESULTS))
    if isinstance(floor, int | float) and 0 <= floor <= 1:
        arguments["minScore"] = floor
    key = options.get("sessionKey")
    whose = {**context, "sessionKey": key} if isinstance(key, str) and key else context
    answer = await _call(plugin, "memory_search", arguments, whose)
    return {"hits": _hits(answer), "error": answer.text if answer.failed else ""}


async def read_file(
    plugin: AsyncMemoryPlugin, params: Json, context: Json, *, files: HostFiles | None = None
) -> Json:
    """Return the text of an agent's file, or of a memory that is addressed as a file, to the host."""
    place = as_object(params.get("place"))
    path = str(place.get("relPath", ""))
    arguments = {"path": path, "from": place.get("from") or 1, "lines": place.get("lines")}
    answer = await _call(plugin, "memory_get", arguments, context, files=files)
    found = bool(answer.details.get("text")) and not answer.failed
    return {"status": "ok" if found else "not_found", "text": answer.text if found else "", "path": path}


def _sessions(plugin: AsyncMemoryPlugin, context: Json, state: Path) -> AgentSessions | None:
    """Return the sessions that may be read in a turn.

    Those are all sessions of the agent, but only the current one in a group, or if people are kept apart.
    """
    try:
        ref = parse_session_key(session_key_of(context) or "")
    except IdentityError:
        return None
    owners = frozenset(plugin.settings.owners)
    turn = Turn(session=ref, host=host_turn(context), whose=IdentityError("of no namespace"), owners=owners)
    shared = turn.hearing.private and plugin.settings.namespace.scope is NamespaceScope.AGENT
    agent = context.get("agentId") if ref.agent is None else ref.agent
    return AgentSessions(state, str(agent or DEFAULT_AGENT), None if shared else ref.key)


async def _call(
    plugin: AsyncMemoryPlugin,
    name: str,
    arguments: object,
    context: Json,
    *,
    logs: AgentSessions | None = None,
    files: HostFiles | None = None,
) -> ToolAnswer:
    host = replace(host_turn(context), transcripts=logs, files=files)
    if session_key_of(context) is None:
        # The host may search on behalf of any chat of the agent, so the search gets only what a group may see.
        host = replace(host, audience=TurnAudience.GROUP)
    return await plugin.tool(name, as_object(arguments), session_key=session_key_of(context), host=host)


def _hits(answer: ToolAnswer) -> list[dict[str, object]]:
    return [
        {
            "path": memory["path"],
            "startLine": memory["line"],
            "endLine": memory["line"],
            "citation": f"{memory['path']}#L{memory['line']}",
            "date": memory["date"],
            "id": memory["id"],
            "score": memory["relevance"],
            "snippet": memory["text"],
            "source": "sessions" if memory["path"].endswith(".jsonl") else "memory",
        }
        for memory in answer.details.get("memories", [])
    ]


def _definition(schema: Json) -> dict[str, Any]:
    name, parameters = schema["name"], schema["parameters"]
    shown = {
        field: {"type": parameters["properties"][field]["type"], **({"description": told} if told else {})}
        for field, told in _SHOWN[name].items()
    }
    required = [field for field in parameters["required"] if field in {"query", "text"}]
    return {
        "name": name,
        "label": _LABELS[name],
        "description": _DESCRIBED[name],
        "parameters": {"type": "object", "properties": shown, **({"required": required} if required else {})},
    }
