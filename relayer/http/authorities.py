"""The names by which this relayer may be addressed: a request signed for another relayer is worth nothing here."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from relayer.errors import ConfigurationError
from relayer.http.problems import HttpProblem
from relayer.wire.loopback import is_loopback
from relayer.wire.signing import normal_authority

__all__ = ["Authorities", "accepted_authorities", "public_authority"]

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ANY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to
_MOST_SPELLINGS = 256


def public_authority(url: str) -> str:
    """Return the authority of a public URL.

    Raises:
        ConfigurationError: not an http(s) URL without path, query, fragment or credentials.
    """
    parts = urlsplit(url)
    plain = (
        parts.scheme in {"http", "https"}
        and parts.netloc
        and not (parts.query or parts.fragment or parts.username)
    )
    if not plain or parts.path not in {"", "/"}:
        raise ConfigurationError(
            "--public-url must be a URL without a path, such as https://memory.example.org"
        )
    return normal_authority(parts.netloc, parts.scheme)


def accepted_authorities(host: str, port: int, *, scheme: str, public_url: str | None) -> tuple[str, ...]:
    """Return what a request may be addressed to: the bound address, loopback names if they lead here, the public URL."""
    names: list[str] = []
    if host not in _ANY:
        names.append(f"[{host}]" if ":" in host and not host.startswith("[") else host)
    if host in _ANY or is_loopback(host):
        names.extend(_LOOPBACK)
    accepted = [normal_authority(f"{name}:{port}", scheme) for name in names]
    if public_url is not None:
        accepted.insert(0, public_authority(public_url))
    return tuple(dict.fromkeys(accepted))


class Authorities:
    """Checks the Host header. Behind a proxy the client's scheme is not visible, so both default ports are plain."""

    def __init__(self, accepted: Iterable[str]) -> None:
        self.accepted = tuple(accepted)
        self._spellings: dict[str, str] = {}

    def check(self, host: str) -> str:
        """Return the authority as it is signed.

        Raises:
            HttpProblem: ``wrong_authority``, with the accepted ones.
        """
        known = self._spellings.get(host)
        if known is not None:
            return known
        for scheme in ("https", "http"):
            authority = normal_authority(host, scheme)
            if authority in self.accepted:
                if len(self._spellings) < _MOST_SPELLINGS:
                    self._spellings[host] = authority
                return authority
        raise HttpProblem("wrong_authority", accepted=self.accepted)
