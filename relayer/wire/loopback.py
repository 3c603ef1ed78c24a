"""Host names and addresses: recognise this machine's loopback, and write a host as a URL does.

Requests to a loopback address never leave the machine, so they may be sent without encryption.
"""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host, as a URL or a socket gives it, is this machine's loopback address.

    Addresses count only in their full form (``127.0.0.0/8``, ``::1``, and IPv4-mapped IPv6 addresses), names as RFC 6761
    (6.3) reserves them. Forms that some resolvers read as an address and others as a name, ``127.1`` or ``0x7f000001``, do
    not count.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("10.0.0.5")
        (True, True, False)
    """
    if ":" in host and host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    name = host.lower().removesuffix(".")
    if name == "localhost" or (host.isascii() and name.endswith(".localhost") and _is_name(name)):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return address.scope_id is None and (address.is_loopback if mapped is None else mapped.is_loopback)
    return address.is_loopback


def in_url(host: str) -> str:
    """Return a host as URLs write it: an IPv6 address in brackets, also one that has them already.

    Example:
        >>> in_url("::1")
        '[::1]'
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_name(name: str) -> bool:
    return all(part and all(char.isalnum() or char in "-_" for char in part) for part in name.split("."))
