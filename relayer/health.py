"""The client of a relayer's health endpoints, used by ``memrelay health``.

A container runs it to check itself, so it uses only modules that are imported quickly.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from relayer.errors import ConfigurationError
from relayer.wire.calls import in_url, is_loopback

_SECONDS = 8.0
_MOST_BYTES = 65536
_ANY = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104 - compared with, not bound to


class Unhealthy(Exception):
    """Raised when the relayer does not respond, or reports that it is not ready."""


def own_url(environment: Mapping[str, str]) -> str:
    """Return the URL of the relayer that has these environment variables, as reached from its own machine."""
    host = environment.get("MEMRELAY_HOST", "")
    if host in _ANY:
        host = "127.0.0.1"
    scheme = "https" if environment.get("MEMRELAY_TLS_CERT") else "http"
    return f"{scheme}://{in_url(host)}:{environment.get('MEMRELAY_PORT') or 8787}"


def ask(url: str, *, ready: bool) -> str:
    """Request ``GET /health``, or ``GET /ready``, and return ``alive`` or ``ready``.

    The certificate of a loopback address is not verified: it is issued for the public name, and nothing secret is sent.

    Raises:
        ConfigurationError: the URL is invalid.
        Unhealthy: there was no response within eight seconds, or checks failed; the message names these checks.
    """
    status, document = _get(url, "/ready" if ready else "/health")
    checks = document.get("checks")
    if isinstance(checks, dict):
        failing = [f"{name}: {state}" for name, state in checks.items() if state != "ok"]
        if failing:
            raise Unhealthy(f"{url} is not ready: {'; '.join(failing)}")
    if status != http.client.OK:
        raise Unhealthy(f"{url} answers {status}, not as a relayer does")
    return "ready" if ready else "alive"


def _get(url: str, path: str) -> tuple[int, dict[str, Any]]:
    try:
        connection = _connection(url)
    except ValueError as error:
        raise ConfigurationError(f"--url: {url} is no URL; write http://127.0.0.1:8787") from error
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        document = json.loads(answer.read(_MOST_BYTES))
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(f"no relayer answers at {url} ({type(error).__name__})") from error
    except ValueError as error:
        raise Unhealthy(f"{url} does not answer as a relayer does") from error
    finally:
        connection.close()
    return answer.status, document if isinstance(document, dict) else {}


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_SECONDS)
    context = ssl.create_default_context()
    if is_loopback(parts.hostname):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_SECONDS, context=context)
