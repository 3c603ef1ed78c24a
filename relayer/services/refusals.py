"""Refusals that more than one use case answers with, each in one wording."""

from __future__ import annotations

from relayer.domain.outcomes import Refusal
from relayer.errors import Refused

__all__ = ["idempotency_conflict", "no_such_memory", "nonce_reused"]


def no_such_memory() -> Refused:
    """Return the one answer for ids that are unknown, malformed, erased, or somebody else's."""
    return Refused("not_found", "no such memory in this namespace")


def nonce_reused() -> Refused:
    """Return the answer for a signature whose nonce was seen with another operation."""
    return Refused("nonce_reused", "this signature's nonce belongs to another operation: sign anew")


def idempotency_conflict() -> Refused:
    """Return the answer for an idempotency key that was seen with another body."""
    return Refused(
        Refusal.IDEMPOTENCY_CONFLICT, "this idempotency_key was used with another body: use a new key"
    )
