"""How arguments of a call become the body and the target of its request."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from pydantic import BaseModel

__all__ = ["body_of", "paged", "segment"]


def body_of(request: BaseModel) -> bytes:
    """Return what the caller said, and no more: defaults are the relayer's business."""
    return request.model_dump_json(exclude_unset=True).encode()


def segment(value: str) -> str:
    """Return one segment of a path. Bytes that are no text, as a shell may hand them over, are no id: the relayer says so."""
    return quote(value, safe="", errors="replace")


def paged(path: str, limit: int, cursor: str | None, filters: list[tuple[str, str]]) -> str:
    """Return the target of one page of a list; ``cursor`` is the ``next_cursor`` of the page before."""
    query = [("limit", str(limit)), *([("cursor", cursor)] if cursor else []), *filters]
    return f"{path}?{urlencode(query, safe=',', errors='replace')}"
