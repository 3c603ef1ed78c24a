"""Web pages of other origins: browsers let only those of the settings call the relayer and read its responses (CORS).

A browser asks before most requests, with a preflight, and hides a response that does not name the page's origin. Pages of
unlisted origins get no such header. Credentials are never allowed: requests are signed and carry no cookies.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from aiohttp.web import BaseRequest

_METHOD = "access-control-request-method"
# Seconds for which a browser remembers a permission; Chromium's maximum.
_REMEMBERED = "7200"
# Without a token the metrics are for programs of the relayer's own machine, and a browser there shows pages of others.
_WITHHELD = frozenset({"/metrics"})


class PageHeaders(NamedTuple):
    """The headers that a front's clients use, each separated by commas.

    Attributes:
        sent: of requests.
        read: of responses.
    """

    sent: str
    read: str


class PageOrigins:
    """Decides which pages may call; ``origins`` are in the form in which browsers send them."""

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._origins = frozenset(origins)

    def wanted(self, request: BaseRequest) -> str | None:
        """Return the method that a listed page's preflight asks for; None if the request is none."""
        if request.method != "OPTIONS" or request.headers.get("origin") not in self._origins:
            return None
        return request.headers.get(_METHOD)

    def permission(self, method: str, names: PageHeaders) -> dict[str, str]:
        """Return the headers of the response to a preflight, in addition to those of every response."""
        return {
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": names.sent,
            "Access-Control-Max-Age": _REMEMBERED,
        }

    def headers(self, request: BaseRequest, names: PageHeaders) -> dict[str, str]:
        """Return the headers that let a listed page read the response to a request."""
        if not self._origins:
            return {}
        origin = request.headers.get("origin")
        if origin not in self._origins or request.path in _WITHHELD:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": names.read,
        }
