"""What an object is, by its key alone."""

from __future__ import annotations

import re
from enum import Enum

__all__ = ["Kind", "incarnation_of", "kind_of"]


class Kind(Enum):
    """The kinds of objects in a store; the values are stable words of the JSON output."""

    ENTRY = "entry"
    SEGMENT = "segment"
    INDEX = "index"
    MANIFEST = "manifest"
    KEYRING = "keyring"
    POINTER = "pointer"
    ACCOUNT = "account"
    FLEET = "fleet"
    RELAYER = "relayer"
    PROBE = "probe"
    ERASURE = "erasure"
    QUARANTINE = "quarantine"
    OTHER = "other"


_NAMESPACE = r"ns/([0-9a-f]{32})/"
_PATTERNS = [
    (Kind.ENTRY, re.compile(_NAMESPACE + r"wal/\d{20}")),
    (Kind.SEGMENT, re.compile(_NAMESPACE + r"seg/[^/]+(?:/\d{4})?")),
    (Kind.INDEX, re.compile(_NAMESPACE + r"index/[^/]+(?:/\d{4})?")),
    (Kind.MANIFEST, re.compile(_NAMESPACE + r"manifest")),
    (Kind.KEYRING, re.compile(_NAMESPACE + r"keyring/\d{8}")),
    (Kind.POINTER, re.compile(r"acct/[0-9a-f]{40}/ns/[0-9a-f]{40}")),
    (Kind.ACCOUNT, re.compile(r"acct/[0-9a-f]{40}/(?:account|revoked)")),
    (Kind.ERASURE, re.compile(r"(?:erasing|erased)/[0-9a-f]{40}/[0-9a-z]{26}")),
    (Kind.FLEET, re.compile(r"fleet/\d{8}")),
    (Kind.RELAYER, re.compile(r"relayer")),
    (Kind.PROBE, re.compile(r"probed?/.+")),
    (Kind.QUARANTINE, re.compile(r"quarantine/.+")),
]


def kind_of(key: str) -> Kind:
    """Return the kind of the object at a key, which is without the store's prefix."""
    return next((kind for kind, pattern in _PATTERNS if pattern.fullmatch(key)), Kind.OTHER)


def incarnation_of(key: str) -> bytes | None:
    """Return the incarnation that an object belongs to, if it belongs to one."""
    found = re.match(_NAMESPACE, key)
    return None if found is None else bytes.fromhex(found[1])
