"""Names of agents, scopes and namespaces, in one normal form.

A host may name an agent anything. `normalise` runs once, in the plugin; the relayer only checks `is_normal`. A name with
other characters, or a longer one, becomes ``_h_<slug>_<sha256>``. It cannot be confused with a name that was kept as it
is, because that has at most 64 characters and a hashed one at least 68.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from relayer.wire.codec import InvalidName

MAX_NAME = 1024
_MAX_SEGMENTS = 4
_PLAIN = re.compile(r"[a-z0-9_-]{1,64}\Z")
_HASHED = re.compile(r"_h_[a-z0-9-]{0,32}_[0-9a-f]{64}\Z")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


def normalise(name: str) -> str:
    """Return the normal form of a name given by a host or a person.

    The name is converted to NFKC, trimmed and put in lower case. It is kept if it then matches ``[a-z0-9_-]{1,64}``, and
    hashed otherwise.

    Raises:
        InvalidName: the name is empty after trimming, longer than 1,024 characters, or not valid Unicode.

    Example:
        >>> normalise("Researcher")
        'researcher'
    """
    if len(name) > MAX_NAME:
        raise InvalidName(f"a name has at most {MAX_NAME} characters; this one has {len(name)}")
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).strip().lower())
    if not folded:
        raise InvalidName("a name must not be empty")
    return folded if _PLAIN.match(folded) else hashed(folded)


def hashed(folded: str) -> str:
    """Return the hashed form of a name that is NFKC and lower case already.

    A name that `normalise` would keep as it is can be hashed here, too.

    Raises:
        InvalidName: the name is not valid Unicode.

    Example:
        >>> is_hashed(hashed("a name with spaces"))
        True
    """
    try:
        digest = hashlib.sha256(folded.encode()).hexdigest()
    except UnicodeEncodeError as error:
        raise InvalidName("a name must be valid Unicode: it contains a lone surrogate") from error
    return f"_h_{_NOT_SLUG.sub('-', folded).strip('-')[:32]}_{digest}"


def is_hashed(name: str) -> bool:
    """Return whether a name, in upper or lower case, has the hashed form.

    Example:
        >>> is_hashed("researcher")
        False
    """
    return bool(_HASHED.match(name.strip().lower()))


def as_shown(name: str) -> str:
    """Return the normal form of a name that may be in normal form already: people and models repeat names as they saw them.

    Raises:
        InvalidName: as `normalise`.

    Example:
        >>> as_shown("Researcher")
        'researcher'
    """
    return name if is_normal(name) else normalise(name)


def is_normal(name: str) -> bool:
    """Return whether a name is in normal form.

    Example:
        >>> is_normal("researcher"), is_normal("Re searcher")
        (True, False)
    """
    return bool(_PLAIN.match(name) or _HASHED.match(name))


def namespace(*parts: str) -> str:
    """Join names into a namespace: ``researcher``, ``researcher/sender-42``, ``shared/team``.

    Raises:
        InvalidName: as `normalise`, or there are not one to four parts.

    Example:
        >>> namespace("researcher", "sender-42")
        'researcher/sender-42'
    """
    if not 1 <= len(parts) <= _MAX_SEGMENTS:
        raise InvalidName(f"a namespace has one to {_MAX_SEGMENTS} parts")
    return "/".join(normalise(part) for part in parts)


def is_normal_namespace(text: str) -> bool:
    """Return whether a namespace is one to four normal names joined by ``/``.

    Example:
        >>> is_normal_namespace("shared/team"), is_normal_namespace("/team")
        (True, False)
    """
    parts = text.split("/", _MAX_SEGMENTS)
    return len(parts) <= _MAX_SEGMENTS and all(is_normal(part) for part in parts)
