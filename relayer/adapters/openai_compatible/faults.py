"""How a request to a model endpoint can fail, drawn as what the next step is."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto

__all__ = ["EndpointFault", "Fault", "advice", "fault_of_status", "retry_after_seconds"]

# Longer waits are a matter for whoever asked, not for a request that is kept open.
_LONGEST_RETRY_AFTER = 24 * 3600.0


class Fault(Enum):
    """What is to be done about a failure."""

    TRANSIENT = auto()  # the same request may work a moment later
    REJECTED = auto()  # this request never works; another one may
    REFUSED = auto()  # no request works until an operator acts


class EndpointFault(Exception):
    """Raised when a request got no usable answer.

    Attributes:
        fault: see `Fault`.
        what: the failure in a few words, which quote nothing of request or answer.
        retry_after: seconds that the server asked for; None when it did not.
    """

    def __init__(self, fault: Fault, what: str, retry_after: float | None = None) -> None:
        super().__init__(what)
        self.fault = fault
        self.what = what
        self.retry_after = retry_after


def fault_of_status(status: int, retry_after: float | None) -> EndpointFault:
    """Return what an HTTP status other than 200 means; the body of such an answer is never looked at."""
    if status in {401, 403}:
        return EndpointFault(Fault.REFUSED, f"the key is missing or not accepted (HTTP {status})")
    if status in {404, 405}:
        return EndpointFault(Fault.REFUSED, f"no such route or model (HTTP {status})")
    if 300 <= status < 400:
        return EndpointFault(Fault.REFUSED, f"it redirects elsewhere (HTTP {status}): give the final URL")
    if status in {408, 409, 425, 429} or status >= 500:
        return EndpointFault(Fault.TRANSIENT, f"HTTP {status}", retry_after)
    return EndpointFault(Fault.REJECTED, f"the request is not accepted (HTTP {status})")


def advice(fault: EndpointFault, *, setting: str, url: str, path: str, model: str) -> str:
    """Return what an operator is to look at.

    Args:
        fault: what no request will get past.
        setting: what the settings of this endpoint begin with.
        url: its base URL.
        path: what is asked below it.
        model: the option that names the model, and its value.
    """
    if "key" in fault.what:
        return (
            f"--{setting}-url: {url}: {fault.what}: give the key in the file that "
            f"MEMRELAY_{setting.replace('-', '_').upper()}_API_KEY_FILE names"
        )
    return (
        f"--{setting}-url: {url}{path} with --{setting}-{model}: {fault.what}; the URL ends before {path}, as in "
        "https://api.example.org/v1"
    )


def retry_after_seconds(value: str | None, now_ms: int) -> float | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3): seconds or a date; None when it is absent or neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            then = parsedate_to_datetime(value)
        except ValueError:
            return None
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        seconds = (then - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds()
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER) if seconds == seconds else None  # noqa: PLR0124 - NaN
