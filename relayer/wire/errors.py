"""Errors of the shared layer."""

from __future__ import annotations


class WireError(Exception):
    """Root of the shared layer's errors."""


class Malformed(WireError):
    """Raised when bytes do not follow their format."""


class InvalidName(WireError):
    """Raised when a name has no normal form, or is not in it."""


class InvalidSecret(WireError):
    """Raised when a secret is not 32 bytes in hex or base64. The message never shows the value."""


class UnsealError(WireError):
    """Raised when a sealed object does not open. It gives no cause, so that it tells an attacker nothing."""

    def __init__(self) -> None:
        super().__init__("this object does not open with this key in this place")


class NotAccepted(WireError):
    """Raised when a certificate, sealed key or signature breaks a rule.

    Attributes:
        rule: stable name of the broken rule, for logs and tests. Responses to clients that are not authenticated do not
            contain it unless it follows from the request alone.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(f"not accepted: {rule}")
        self.rule = rule
