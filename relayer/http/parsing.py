"""The head of a request and strict JSON: one of each that matters, plain ASCII, bounded.

Nothing here is decoded twice: what was signed is what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never

from aiohttp.web import BaseRequest

from relayer.http.limits import Network, peer_behind
from relayer.http.problems import HttpProblem
from relayer.wire import signing
from relayer.wire.certificates import MAX_CERTIFICATE
from relayer.wire.sealed_keys import MAX_SEALED_KEY

MAX_TARGET = 2048
_BASE64_CERTIFICATE = (MAX_CERTIFICATE * 4 + 2) // 3
_BASE64_KEY = (MAX_SEALED_KEY * 4 + 2) // 3
DEADLINE_HEADER = "x-deadline-ms"
EVENTS = "text/event-stream"
_LONGEST_DEADLINE_MS = 600_000

# The longest value of each header that decides something; a second one of any of them is refused.
_SINGLE: dict[bytes, tuple[str, int]] = {
    signing.CERTIFICATE_HEADER.encode(): (signing.CERTIFICATE_HEADER, _BASE64_CERTIFICATE),
    signing.KEY_HEADER.encode(): (signing.KEY_HEADER, _BASE64_KEY),
    signing.SIGNATURE_HEADER.encode(): (signing.SIGNATURE_HEADER, 128),
    signing.DIGEST_HEADER.encode(): (signing.DIGEST_HEADER, 64),
    b"host": ("host", 300),
    b"content-length": ("content-length", 20),
    b"content-type": ("content-type", 256),
    b"content-encoding": ("content-encoding", 64),
    b"transfer-encoding": ("transfer-encoding", 64),
    b"expect": ("expect", 64),
    DEADLINE_HEADER.encode(): (DEADLINE_HEADER, 16),
    b"accept": ("accept", 1024),
    b"last-event-id": ("last-event-id", 64),
    b"authorization": ("authorization", 8190),
}


@dataclass(frozen=True, slots=True)
class Head:
    """Method, raw target and the headers that decide something; absent ones are missing from ``values``.

    ``peer`` is the address of who asks, as far as it is known: see `relayer.http.limits.peer_behind`.
    """

    method: str
    target: str
    peer: str
    values: dict[str, str]

    def need(self, name: str) -> str:
        """Return a header's value; raises `HttpProblem` ``missing_header``."""
        value = self.values.get(name)
        if not value:
            raise HttpProblem("missing_header", f"The header {name} is missing.", rule=f"missing {name}")
        return value

    @property
    def has_body(self) -> bool:
        """Whether the request announces a body."""
        return self.values.get("content-length", "0").strip("0") != "" or "transfer-encoding" in self.values

    @property
    def wants_events(self) -> bool:
        """Whether the answer should be a stream of server-sent events, where there is one."""
        accepted = self.values.get("accept", "").lower().split(",")
        return any(part.partition(";")[0].strip() == EVENTS for part in accepted)

    def deadline_seconds(self, bound: float) -> float:
        """Return the time this request has, at most ``bound``; raises `HttpProblem` ``malformed``."""
        text = self.values.get(DEADLINE_HEADER)
        if text is None:
            return bound
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _LONGEST_DEADLINE_MS):
            raise HttpProblem("malformed", f"{DEADLINE_HEADER} must be 1..{_LONGEST_DEADLINE_MS}.")
        return min(bound, int(text) / 1000)


def read_head(request: BaseRequest, trusted: Sequence[Network] = ()) -> Head:
    """Read and bound the head; ``trusted`` are the proxies that are believed whom they forward.

    Raises:
        HttpProblem: ``malformed`` for a second header or one that is not ASCII, ``header_too_large``.
    """
    target = request.raw_path
    if len(target) > MAX_TARGET:
        raise HttpProblem("header_too_large", "The request's target is too long.", status=414)
    if not target.startswith("/") or not target.isascii():
        raise HttpProblem("malformed", "The target must be a path in ASCII.")
    values: dict[str, str] = {}
    for raw_name, raw_value in request.raw_headers:
        known = _SINGLE.get(raw_name.lower())
        if known is None:
            continue
        name, longest = known
        if name in values:
            raise HttpProblem("malformed", f"The header {name} is given twice.", rule=f"second {name}")
        if len(raw_value) > longest:
            raise HttpProblem("header_too_large", f"The header {name} is too long.")
        if not raw_value.isascii():
            raise HttpProblem("malformed", f"The header {name} must be ASCII.")
        values[name] = raw_value.decode("ascii")
    peername = request.transport.get_extra_info("peername") if request.transport else None
    peer = peername[0] if isinstance(peername, tuple) else ""
    if trusted:
        peer = peer_behind(peer, ",".join(request.headers.getall("x-forwarded-for", [])), trusted)
    return Head(request.method, target, peer, values)


# The largest object of the API has about twenty; each unknown one beyond is an error to collect.
_MOST_KEYS = 64
# The largest request has a hundred items with two or three in each.
_MOST_OBJECTS = 4_096


def parse_json(body: bytes) -> Any:
    """Parse one document.

    Raises:
        HttpProblem: ``invalid_json``, naming the rule and never a value.
    """
    try:
        text = body.decode("utf-8")
        value = _decoder().decode(text)
        # A lone surrogate can only come from an escape; most bodies have none, and need no second look.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid("The body is not UTF-8.") from error
    except UnicodeEncodeError as error:
        raise _invalid("A string contains a lone surrogate.") from error
    except RecursionError as error:
        raise _invalid("The body is nested too deeply.") from error
    except _Rule as error:
        raise _invalid(str(error)) from None
    except ValueError as error:
        raise _invalid("The body is not one JSON document.") from error
    return value


class _Rule(ValueError):
    pass


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem("invalid_json", detail)


def _decoder() -> json.JSONDecoder:
    left = _MOST_OBJECTS

    def counted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise _Rule(f"The body has more than {_MOST_OBJECTS} objects.")
        return _object(pairs)

    return json.JSONDecoder(object_pairs_hook=counted, parse_constant=_constant)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise _Rule(f"An object has more than {_MOST_KEYS} keys.")
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Rule("An object has the same key twice.")
    return value


def _constant(_: str) -> Never:
    raise _Rule("NaN and Infinity are not JSON.")
