"""Where a relayer is, in the one spelling that signatures and pins use."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway_plugin.errors import SettingsError, SettingsIssue
from relayer.wire.loopback import is_loopback
from relayer.wire.signing import normal_authority

__all__ = ["Endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A relayer's address.

    Attributes:
        scheme: ``http``, on loopback only, or ``https``.
        authority: host and port in normal form.
        loopback: whether the address never leaves this machine.
    """

    scheme: str
    authority: str
    loopback: bool

    @property
    def origin(self) -> str:
        """Scheme and authority, as a URL without a path."""
        return f"{self.scheme}://{self.authority}"

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a URL.

        Raises:
            SettingsError: it is none; it would send keys in the clear; or it has a path. A path is refused because
                the signature covers the target that the relayer sees, which a proxy that strips a prefix changes:
                give the relayer a host name of its own.
        """
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong("is no URL") from error
        if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
            raise _wrong("is no URL of a relayer")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise _wrong("has a path; a relayer needs a host name, or a port, of its own")
        loopback = is_loopback(host)
        if parts.scheme == "http" and not loopback:
            raise _wrong("would send keys unencrypted; http is for this machine's loopback address only")
        name = f"[{host}]" if ":" in host else host
        authority = normal_authority(name if port is None else f"{name}:{port}", parts.scheme)
        return cls(parts.scheme, authority, loopback)


def _wrong(problem: str) -> SettingsError:
    return SettingsError(
        SettingsIssue("url", problem, "write https://host, or http://127.0.0.1:8787 on this machine")
    )
