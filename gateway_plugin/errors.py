"""The exceptions that memrelay raises, each with what its handler should do.

MemrelayError
└─ GatewayError
   ├─ InvalidInput       an argument is invalid: correct the caller; nothing was stored
   ├─ SettingsError      a setting is invalid: show the issues, and start without memory
   ├─ IdentityError      the turn has no agent, namespace or key: continue without memory
   ├─ RelayerUnreachable no relayer responded: continue without memory, keep the outbox, and retry later
   ├─ RelayerRefused     the relayer returned an error: ``code`` tells whether a retry can help
   ├─ RelayerUntrusted   the service that responded did not prove to be our relayer: send nothing, and tell the operator
   └─ DeadlineExceeded   the turn's time is up: continue without memory; the cause may be harmless

The messages of exceptions reach logs and terminals. They name fields, limits and fixes, and never contain a secret, a
message of a chat, a memory or a session key.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DeadlineExceeded",
    "GatewayError",
    "IdentityError",
    "InvalidInput",
    "MemrelayError",
    "RelayerRefused",
    "RelayerUnreachable",
    "RelayerUntrusted",
    "SettingsError",
    "SettingsIssue",
]


class MemrelayError(Exception):
    """The base class of all exceptions that memrelay raises deliberately. Their messages are safe to show."""


class GatewayError(MemrelayError):
    """The base class of the exceptions of the plugin and of `Memory`.

    Attributes:
        outcome: the status of a turn that ends with this exception.
    """

    outcome = "failed"


class InvalidInput(GatewayError, ValueError):
    """Raised when an argument of a call is invalid. The call had no effect.

    Attributes:
        field: the argument, with the place in it, e.g. ``metadata.ticket``.
        problem: the rule that it breaks, without the value.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True)
class SettingsIssue:
    """A single error in the settings.

    Attributes:
        field: the setting as the host spells it, with dots, e.g. ``recall.maxResults``; "" for the whole object.
        problem: the error, without the value of the setting.
        fix: how to fix it.
    """

    field: str
    problem: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.field}: " if self.field else ""
        return f"{place}{self.problem}; {self.fix}" if self.fix else f"{place}{self.problem}"


class SettingsError(GatewayError):
    """Raised when settings are invalid.

    Attributes:
        issues: all errors in the settings, at least one.
    """

    def __init__(self, *issues: SettingsIssue) -> None:
        super().__init__("\n".join(str(issue) for issue in issues))
        self.issues = issues


class IdentityError(GatewayError):
    """Raised when the agent, the namespace or the keys of a turn cannot be determined."""

    outcome = "skipped:identity"


class RelayerUnreachable(GatewayError):
    """Raised when no relayer responded: name resolution, connection or TLS failed, or the response was broken."""

    outcome = "unavailable"


class RelayerRefused(GatewayError):
    """Raised when the relayer responded with an error.

    Attributes:
        code: the stable name of the error.
        detail: the relayer's message for people.
        status: the HTTP status.
        request_id: the id to quote to the relayer's operator; "" if the response had none.
        accepted: whether the relayer proved that it refuses exactly this request. Otherwise it may have refused a copy
            that a proxy changed, so the request should not be given up.
    """

    def __init__(
        self, code: str, detail: str, *, status: int, request_id: str = "", accepted: bool = True
    ) -> None:
        trace = f" (request {request_id})" if request_id else ""
        super().__init__(f"the relayer refused with {status} {code}: {detail}{trace}")
        self.outcome = f"refused:{code}"
        self.code = code
        self.detail = detail
        self.status = status
        self.request_id = request_id
        self.accepted = accepted


class RelayerUntrusted(GatewayError):
    """Raised when the service that responded does not prove to be the relayer that was set up."""

    outcome = "untrusted"


class DeadlineExceeded(GatewayError):
    """Raised when the time for a turn's memory is up.

    Attributes:
        step: the step that was running.
    """

    outcome = "timeout"

    def __init__(self, step: str) -> None:
        super().__init__(f"the deadline passed during {step}")
        self.step = step
