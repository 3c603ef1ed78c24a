"""Errors of the shared layer.

WireError
├─ Malformed          bytes that are not what their format says
├─ InvalidName        a name that has no normal form, or is not in it
├─ InvalidSecret      a secret that is not 32 bytes
├─ UnsealError        every failure of opening a sealed thing, on purpose one and the same
└─ NotAccepted        a certificate, sealed key or signature that breaks a rule; ``rule`` names it for the log
"""

from __future__ import annotations


class WireError(Exception):
    """Root of the shared layer's errors."""


class Malformed(WireError):
    """Raised when bytes are not what their format says."""


class InvalidName(WireError):
    """Raised when a name has no normal form, or is not in it."""


class InvalidSecret(WireError):
    """Raised when a secret is not 32 bytes in hex or base64; never shows the value."""


class UnsealError(WireError):
    """Raised when a sealed thing does not open; says no more, so that it tells an attacker nothing."""

    def __init__(self) -> None:
        super().__init__("this object does not open with this key in this place")


class NotAccepted(WireError):
    """Raised when a certificate, sealed key or signature breaks a rule.

    Attributes:
        rule: stable name of the broken rule, for logs and tests; answers to strangers do not carry it
            unless it follows from the request alone.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(f"not accepted: {rule}")
        self.rule = rule
