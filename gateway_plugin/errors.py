"""Every error that leaves the plugin, drawn as the decision its catcher makes.

GatewayError
├─ SettingsError         a setting is wrong: show the issues, start without memory
├─ IdentityError         no agent, namespace or key can be told for this turn: go on without memory
├─ RelayerUnreachable    nothing answered: fail open, keep the outbox, try again later
├─ RelayerRefused        the relayer answered no: ``code`` says whether trying again can help
├─ RelayerUntrusted      what answered could not prove to be our relayer: send nothing, tell the operator
└─ DeadlineExceeded      the turn's time is up: go on without memory, nothing is known to be wrong

Texts of errors reach logs and terminals. They name fields, limits and fixes and never carry a secret, a message, a
memory or a session key.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DeadlineExceeded",
    "GatewayError",
    "IdentityError",
    "RelayerRefused",
    "RelayerUnreachable",
    "RelayerUntrusted",
    "SettingsError",
    "SettingsIssue",
]


class GatewayError(Exception):
    """Root of everything the plugin raises on purpose; its text is safe to show.

    Attributes:
        outcome: the status of a turn that ends with it.
    """

    outcome = "failed"


@dataclass(frozen=True, slots=True)
class SettingsIssue:
    """One thing that is wrong with the settings.

    Attributes:
        field: the setting as the host spells it, dotted, e.g. ``recall.maxResults``; empty for the whole object.
        problem: what is wrong, without the value.
        fix: what to do about it.
    """

    field: str
    problem: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.field}: " if self.field else ""
        return f"{place}{self.problem}; {self.fix}" if self.fix else f"{place}{self.problem}"


class SettingsError(GatewayError):
    """Raised when settings are wrong.

    Attributes:
        issues: all that was found, at least one.
    """

    def __init__(self, *issues: SettingsIssue) -> None:
        super().__init__("\n".join(str(issue) for issue in issues))
        self.issues = issues


class IdentityError(GatewayError):
    """Raised when a turn cannot be given an agent, a namespace or a key."""

    outcome = "skipped:identity"


class RelayerUnreachable(GatewayError):
    """Raised when no relayer answered: name resolution, connection, TLS or a broken answer."""

    outcome = "unavailable"


class RelayerRefused(GatewayError):
    """Raised when the relayer answered with a problem.

    Attributes:
        code: the stable name of the problem.
        detail: the relayer's sentence for people.
        status: the HTTP status.
        request_id: what to quote to the relayer's operator; empty when the answer carried none.
        accepted: whether the relayer proved that it refuses this very request. Before it accepts one, it may have
            refused a copy that a proxy changed: do not give anything up for that.
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
    """Raised when the answering service does not prove to be the relayer that was set up."""

    outcome = "untrusted"


class DeadlineExceeded(GatewayError):
    """Raised when the time given to a turn's memory is up.

    Attributes:
        step: what was running.
    """

    outcome = "timeout"

    def __init__(self, step: str) -> None:
        super().__init__(f"the deadline passed during {step}")
        self.step = step
