"""How a refusal is told: RFC 9457 problem details."""

from __future__ import annotations

from relayer.wire.shapes import Answer

__all__ = ["Problem", "ProblemField"]


class ProblemField(Answer):
    """One field that broke a rule; never its value."""

    field: str
    rule: str
    length: int | None = None


class Problem(Answer):
    """RFC 9457 problem details with a stable ``code``."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    errors: tuple[ProblemField, ...] = ()
    retry_after: float | None = None
    server_time: int | None = None
    accepted: tuple[str, ...] | None = None
