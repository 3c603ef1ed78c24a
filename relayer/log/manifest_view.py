"""What this process knows of a namespace's manifest, and whether that is recent enough to trust a slot.

The collector moves the watermark before it deletes (I2) and deletes no sooner than an hour later by the store's time, so
an answer of the manifest vouches for the slots above its watermark for ten minutes (I11).
"""

from __future__ import annotations

import asyncio

from relayer.domain.namespace import Manifest
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Found, GetOutcome, Unchanged

__all__ = ["VALID_MS", "ManifestView"]

VALID_MS = 10 * 60 * 1000


class ManifestView:
    """The newest manifest that this process has seen. Times are the store's, in ms."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation
        self._key = ports.layout.manifest(incarnation)
        self._at = ports.layout.at(self._key)
        self._manifest: Manifest | None = None
        self._etag: str | None = None
        self._validated_at: int | None = None
        # Two answers that overtake each other would look like a rollback.
        self._one_at_a_time = asyncio.Lock()

    @property
    def validated_at(self) -> int | None:
        """The store's time of the last answer, None before the first."""
        return self._validated_at

    @property
    def watermark(self) -> int:
        """The collector's watermark as last read; -1 before the first answer."""
        return -1 if self._manifest is None else self._manifest.gc_watermark

    def recently_validated(self, store_time: int) -> bool:
        """Whether an answer given at ``store_time`` may be trusted without reading the manifest again (I11)."""
        return self._validated_at is not None and 0 <= store_time - self._validated_at < VALID_MS

    async def read(self) -> Manifest:
        """Read the manifest and return it.

        Raises:
            CorruptNamespace: it does not open, or is older than one seen before.
            UpgradeRequired: its format is unknown (I12).
            NamespaceClosed: it is gone, which an erasure does last.
            StoreError: the store did not answer.
        """
        async with self._one_at_a_time:
            outcome = await self._ports.store.get(self._at, if_none_match=self._etag)
            if isinstance(outcome, Unchanged):
                assert self._manifest is not None, "an etag was given"
                self._validated_at = outcome.store_time
                return self._manifest
            try:
                return self._take(outcome)
            except CorruptNamespace:
                # An answer that was cut short looks like that, once.
                return self._take(await self._ports.store.get(self._at))

    def _take(self, outcome: GetOutcome) -> Manifest:
        if not isinstance(outcome, Found):
            raise NamespaceClosed("the namespace has no manifest: it was erased")
        manifest = self._sealer.unseal_manifest(self._account, self._incarnation, self._key, outcome.data)
        self._refuse_rollback(manifest)
        self._manifest, self._etag = manifest, outcome.etag
        self._validated_at = outcome.store_time
        return manifest

    def _refuse_rollback(self, manifest: Manifest) -> None:
        seen = self._manifest
        if seen is None:
            return
        if (
            manifest.gc_epoch < seen.gc_epoch
            or manifest.snap_seq < seen.snap_seq
            or manifest.gc_watermark < seen.gc_watermark
            or manifest.key_epoch < seen.key_epoch
        ):
            raise CorruptNamespace("the store shows a manifest that is older than one seen before")
