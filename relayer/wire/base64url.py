"""Base64url without padding, in exactly one spelling per value, so that a header cannot be rewritten unnoticed."""

from __future__ import annotations

import base64
import binascii
import re

from relayer.wire.errors import Malformed

__all__ = ["decode", "encode"]

_ALPHABET = re.compile(r"[A-Za-z0-9_-]*\Z")


def encode(data: bytes) -> str:
    """Encode bytes."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decode text.

    Raises:
        Malformed: other characters, padding, or unused bits that are not zero.
    """
    if not _ALPHABET.match(text):
        raise Malformed("not base64url without padding")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise Malformed("not base64url") from error
    if encode(data) != text:
        raise Malformed("not the canonical base64url of its value")
    return data
