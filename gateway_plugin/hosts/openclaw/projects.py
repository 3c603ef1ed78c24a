"""The lines of ``MEMORY.md`` for OpenClaw's block "Project Memory", which the system prompt has where an agent works in a repository.

OpenClaw asks for them without saying for which session. Only the agent's owner is told what ``MEMORY.md`` says, so there are
lines only if each session whose prompt is made at that time is a direct chat of the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from gateway_plugin.errors import IdentityError
from gateway_plugin.hosting import (
    PROJECTS_APART,
    NotRead,
    RunKind,
    Turn,
    TurnAudience,
    parse_session_key,
    read_below,
    read_markdown,
)
from relayer.wire.labels import PROJECTS
from relayer.wire.redaction import redact

_MEMORY: Final = "MEMORY.md"


def project_lines(
    workspace: Path, projects: frozenset[str], sessions: Iterable[object], owners: frozenset[str]
) -> list[dict[str, Any]]:
    """Return lines in the form of the host's own memory, the first in the file first.

    A line is told if all repositories that it names are among ``projects``.
    """
    keys = [*sessions]
    if not keys or not all(_is_private(key, owners) for key in keys):
        return []
    try:
        text = read_below(workspace, _MEMORY).decode()
    except (NotRead, UnicodeDecodeError):
        return []
    found = []
    for item in read_markdown(text, _MEMORY, UTC):
        named = str(item.metadata.get(PROJECTS, "")).split(PROJECTS_APART)
        clean = redact(item.text)
        if named != [""] and projects.issuperset(named) and not clean.blocked:
            line = int(item.source.reference.rpartition("#")[2])
            found.append(_entry(clean.text, line, named, item.metadata))
    return found


def _entry(text: str, line: int, projects: list[str], metadata: Mapping[str, Any]) -> dict[str, Any]:
    weight = metadata.get("importance")
    return {
        "path": _MEMORY,
        "startLine": line,
        "endLine": line,
        "score": 0,
        "snippet": text,
        "source": "memory",
        "projectKey": ";".join(projects),
        **({} if weight is None else {"importance": weight}),
    }


def _is_private(key: object, owners: frozenset[str]) -> bool:
    """Return whether a session is a direct chat of the owner, and not a run of which others may be told."""
    if not isinstance(key, str) or not key:
        return False
    try:
        ref = parse_session_key(key)
    except IdentityError:
        return False
    turn = Turn(session=ref, whose=IdentityError("of no namespace"), owners=owners)
    return ref.audience is TurnAudience.DIRECT and ref.run is RunKind.MAIN and turn.hearing.private
