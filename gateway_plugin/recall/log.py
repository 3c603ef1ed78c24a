"""One line for each recall, for who asked for it: what was done, of what and how long it took, and no text of a memory."""

from __future__ import annotations

from typing import Final

from gateway_plugin.query import clean_query
from gateway_plugin.settings import PluginSettings
from gateway_plugin.status import Injection, TurnTrace
from gateway_plugin.text.measures import clip, one_line
from relayer.wire.redaction import redact

__all__ = ["recall_line"]

_QUERY_CHARS: Final = 80


def recall_line(injection: Injection, trace: TurnTrace, prompt: str, settings: PluginSettings) -> str:
    """Return the line (CP-29).

    Args:
        injection: what the turn was given.
        trace: why.
        prompt: what the user wrote; shown, cut and without secrets, only where ``recall.logQueries`` asks for it.
        settings: whether it does.
    """
    spent = f"{injection.milliseconds}ms"
    about = f"query of {trace.query_chars} characters"
    if settings.recall.log_queries:
        query = redact(one_line(clean_query(prompt)), settings.capture.redaction).text
        about = f"query: {clip(query, _QUERY_CHARS)}"
    gate = injection.status.removeprefix("skipped:")
    if gate != injection.status:
        said = f"recall skipped ({injection.detail or gate})"
    elif injection.hits:
        named = ", ".join(f"memory/{hit.id}.md({round(hit.relevance * 100)}%)" for hit in injection.hits)
        said = f"injecting {len(injection.hits)} memories into context ({spent}) [{named}]"
    elif injection.summary:
        said = f"injecting a summary of {len(injection.summary)} characters into context ({spent})"
    elif injection.status == "empty":
        said = f"recall returned 0 results ({spent}, {about})"
    else:
        said = f"recall {injection.status} ({spent}){f': {injection.detail}' if injection.detail else ''}"
    return f"memrelay: {said}"
