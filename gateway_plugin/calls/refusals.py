"""A relayer's "no", read from its answer: what kind it is, and whether trying again can help."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from gateway_plugin.calls.transport import Answer
from gateway_plugin.errors import (
    DeadlineExceeded,
    GatewayError,
    RelayerRefused,
    RelayerUnreachable,
    RelayerUntrusted,
)
from relayer.wire.problems import Problem

__all__ = ["Refusal", "unproven"]

_TEMPORARY: Final = frozenset({429, 502, 503})
# What a proxy says of itself, or of a relayer that it does not reach.
_PROXIES: Final = frozenset({408, 413, 429})
_MAX_DETAIL: Final = 500
# Times in ms passed this in 1973; times in seconds will in the year 5138.
_MS_FROM: Final = 10**11


@dataclass(frozen=True, slots=True)
class Refusal:
    """One problem answer, of which it is known that the relayer gave it.

    Attributes:
        status: the HTTP status.
        code: the stable name; ``http_NNN`` for an answer in a form that this version does not know.
        detail: the relayer's sentence, bounded.
        request_id: what to quote to an operator.
        retry_after: seconds that the relayer asks to wait; 0 when it does not say.
        server_time: its clock, in seconds since the epoch, where it says so.
    """

    status: int
    code: str
    detail: str
    request_id: str = ""
    retry_after: float = 0.0
    server_time: int | None = None

    @classmethod
    def parse(cls, answer: Answer) -> Refusal:
        """Read an answer whose status is 300 or more."""
        request_id = answer.headers.get("x-request-id", "")[:128]
        header = _seconds(answer.headers.get("retry-after", ""))
        try:
            problem = Problem.model_validate_json(answer.body)
        except ValidationError:
            detail = "the relayer says no in a form that is unknown here: update this plugin"
            return cls(answer.status, f"http_{answer.status}", detail, request_id, header)
        server_time = problem.server_time
        if server_time is not None and abs(server_time) >= _MS_FROM:
            server_time //= 1000
        # A body may say less than the header, never that it is sooner.
        retry_after = max(problem.retry_after or 0.0, header)
        detail = _with_fields(problem)[:_MAX_DETAIL]
        return cls(answer.status, problem.code, detail, problem.request_id, retry_after, server_time)

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _TEMPORARY or self.code == "replayed"

    def error(self) -> GatewayError:
        """Return the error that a caller of the client sees."""
        if self.status == 504:
            return DeadlineExceeded(f"the relayer's work ({self.detail})")
        return RelayerRefused(self.code, self.detail, status=self.status, request_id=self.request_id)


def unproven(answer: Answer, origin: str) -> GatewayError:
    """Return the error for an answer without a relayer's proof: nothing in it counts but its status."""
    if 300 <= answer.status < 400:
        # Following would send a signed request where nobody decided to send it.
        return RelayerUntrusted(f"{origin} answers with a redirect; set the URL to the relayer itself")
    if answer.status >= 500 or answer.status in _PROXIES:
        return RelayerUnreachable(f"something answers in the relayer's place at {origin}: {answer.status}")
    return RelayerUntrusted(
        f"what answers at {origin} ({answer.status}) does not prove to be the relayer, and nothing of it is believed; "
        "see what listens there, and if it is a relayer that is older than this plugin, update it"
    )


def _with_fields(problem: Problem) -> str:
    fields = "; ".join(f"{error.field}: {error.rule}" for error in problem.errors[:5])
    return f"{problem.detail} ({fields})" if fields else problem.detail


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0  # absent, or the form with a date, which a relayer does not use
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
