"""Requests and answers about erasing: what was destroyed, and how far that is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from relayer.wire.fields import MemoryId, NamespaceName, Time
from relayer.wire.shapes import Answer, Request

__all__ = ["EraseNamespaceRequest", "EraseNamespaceResponse", "ErasureView"]


class ErasureView(Answer):
    """``GET /v1/erasures/{id}``: how far an erasure is.

    ``erased``: gone from every answer. ``destroyed``: gone from what the store shows to a relayer, too. ``confirmed``: a
    sweep, later than anybody can have held on to anything, found nothing left of it, older versions included; that takes
    an hour at least.

    ``memories`` are what was asked for, with every version of it, every memory of the same text, and the kept turns that
    tell it; ``derived`` is what was made from them and went with them, the turns that they came from among it. ``entries``
    and ``objects`` count what holds, or held, something of it.
    """

    id: MemoryId
    what: Literal["memory", "namespace"]
    namespace: str
    state: Literal["erased", "destroyed", "confirmed"]
    memories: tuple[MemoryId, ...] = ()
    derived: tuple[MemoryId, ...] = ()
    entries: int = Field(default=0, ge=0)
    objects: int = Field(default=0, ge=0)
    asked_at: Time
    destroyed_at: Time | None = None
    confirmed_at: Time | None = None


class EraseNamespaceRequest(Request):
    """``POST /v1/namespaces/erase``: a dry run first; its answer's ``confirm`` goes into the request that erases."""

    namespace: NamespaceName | None = None
    dry_run: bool = True
    confirm: MemoryId | None = None

    @model_validator(mode="after")
    def _needs_a_dry_run_first(self) -> EraseNamespaceRequest:
        if self.dry_run == (self.confirm is not None):
            raise ValueError("begin with dry_run: true, then send its confirm with dry_run: false")
        return self


class EraseNamespaceResponse(Answer):
    """What would go, or goes. Counts are null where the log cannot be read; it can be erased all the same."""

    namespace: str
    dry_run: bool
    memories: int | None = None
    bytes: int | None = None
    confirm: MemoryId
    erasure: ErasureView | None = None
