"""Namespaces in this process, without HTTP: what filling, opening and keeping them costs by itself."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.material import DIMENSION, items, unit_vectors
from relayer.access.accounts import Access, Principal
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.domain.namespace import Custody
from relayer.domain.operations import Record, Source
from relayer.errors import EmbedderUnavailable
from relayer.extraction.statements import StatementExtractor
from relayer.lib.work import Deadline
from relayer.log.objects import LogPorts
from relayer.namespaces.cache import CacheLimits, OpenNamespaces
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.ports import Absent, EmbeddingModel, GetOutcome, ObjectStore
from relayer.search.baseline import LEXICAL_PRIOR, Calibration
from relayer.testing.local_relayer import RecordingStore
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Right
from relayer.writing.drafts import Draft, append_drafts

__all__ = ["NoEmbedder", "Replica", "WithoutIndexes"]

_AGENT = "bench"
_SESSION_TURNS = 40
_FOREVER = 3600.0
_ROOT = RootKeys(b"\x42" * 32)
STORE_KEY = b"\x17" * 32


class NoEmbedder:
    """Vectors are given; asking for one says that there is none."""

    model = EmbeddingModel("bench", "be" * 32, DIMENSION)

    async def embed(self, texts: Any, *, query: bool = False, prompt: bool = False) -> NDArray[np.float32]:  # noqa: ARG002 - neither
        """Refuse."""
        raise EmbedderUnavailable(f"{len(texts)} texts without vectors")

    async def close(self) -> None:
        """Do nothing."""


class WithoutIndexes(RecordingStore):
    """A store that has lost every index: what is opened is opened from its log."""

    async def get(
        self, key: str, *, byte_range: tuple[int, int] | None = None, if_none_match: str | None = None
    ) -> GetOutcome:
        """Read an object, unless it is an index."""
        if "/index/" in key:
            return Absent(SystemClock().now_ms())
        return await super().get(key, byte_range=byte_range, if_none_match=if_none_match)


@dataclass(frozen=True, slots=True)
class Replica:
    """A relayer's inside over a store; several over one store are several relayers."""

    context: Context

    @classmethod
    def over(cls, store: ObjectStore, limits: CacheLimits | None = None) -> Replica:
        """Make one; what it may hold open is unbounded unless limits are given."""
        ports = LogPorts(store, SystemClock(), SystemRandomness(), RelayerKeys.derive(STORE_KEY))
        calibration = Calibration(LEXICAL_PRIOR)
        unbounded = CacheLimits(bytes=2**60, namespaces=2**30)
        namespaces = OpenNamespaces(ports, NoEmbedder.model, calibration, limits or unbounded)
        return cls(Context(ports, NoEmbedder(), StatementExtractor(), namespaces))

    def access(self, name: str) -> Access:
        """Return a request's right to a namespace, with a nonce of its own."""
        keys = _ROOT.agent(_AGENT)
        now = self.context.clock.now_ms()
        certificate = Certificate(
            bytes(_ROOT.account_identity.verify_key),
            _AGENT,
            bytes(keys.identity.verify_key),
            (f"{_AGENT}/*",),
            tuple(Right),
            0,
            2**40,
            bytes(16),
        )
        principal = Principal(certificate, secrets.token_bytes(16), now + 120_000, bytes(32))
        full = f"{_AGENT}/{name}"
        return Access(principal, full, 0, Custody.AGENT, now + 2**35, keys.namespace_secret(full, 0))

    def deadline(self) -> Deadline:
        """Return a deadline that nothing here meets."""
        return Deadline.after(self.context.clock, _FOREVER)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[OpenNamespace]:
        """Open a namespace, making it if need be."""
        async with self.context.namespaces.use(self.access(name), self.deadline(), create=True) as opened:
            yield opened

    async def fill(self, name: str, count: int, *, seed: int, batch: int = 64) -> None:
        """Append memories with vectors, as a gateway's turns would come: an idempotency key for each batch."""
        for start in range(0, count, batch):
            access = self.access(name)
            async with self.context.namespaces.use(access, self.deadline(), create=True) as opened:
                await append_drafts(
                    self.context,
                    opened,
                    access,
                    _drafts(min(batch, count - start), seed * 1_000_003 + start, start),
                    idempotency_key=f"{seed}-{start}",
                    deadline=self.deadline(),
                )
                await opened.wait_indexed()

    async def close(self) -> None:
        """Let go of all namespaces."""
        await self.context.namespaces.close(10.0)


def _drafts(count: int, seed: int, start: int) -> list[Draft]:
    rows = unit_vectors(count, seed)
    return [
        Draft(
            Record(
                id=b"",
                namespace="",
                text=item["text"],
                source=Source(
                    host="bench", agent=_AGENT, session=f"s{(start + at) // _SESSION_TURNS}", speaker="Ada"
                ),
            ),
            row,
        )
        for at, (item, row) in enumerate(zip(items(rows, seed), rows, strict=True))
    ]
