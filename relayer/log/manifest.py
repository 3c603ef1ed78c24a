"""What this process knows of a namespace's manifest, and whether that is recent enough to trust a slot.

The collector moves the watermark before it deletes (I2) and deletes no sooner than an hour later by the store's time, so
an answer of the manifest vouches for the slots above its watermark for ten minutes (I11). Both times are settings, and
the second is always the shorter one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from relayer.domain.namespace import Manifest
from relayer.errors import CorruptNamespace, NamespaceClosed, StoreUnavailable
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Found, GetOutcome, SwapOutcome, Swapped, Unchanged


@dataclass(frozen=True, slots=True)
class SeenManifest:
    """A manifest as the store showed it: what a swap is made from. ``store_time`` is in ms."""

    manifest: Manifest
    etag: str
    store_time: int


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
        return self._validated_at is not None and 0 <= store_time - self._validated_at < self._ports.trust_ms

    @property
    def snap_seq(self) -> int:
        """The last entry that is in a segment, as last read; 0 before the first answer."""
        return 0 if self._manifest is None else self._manifest.snap_seq

    def adopt(self, seen: SeenManifest) -> None:
        """Begin with what another reader of this manifest was shown, before anything was read here."""
        self._manifest, self._etag, self._validated_at = seen.manifest, seen.etag, seen.store_time

    async def read(self) -> Manifest:
        """Read the manifest and return it; raises as `see`."""
        return (await self.see()).manifest

    async def see(self) -> SeenManifest:
        """Read the manifest and return it with what a swap needs.

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
                assert self._etag is not None, "an etag was given"
                self._validated_at = outcome.store_time
                return SeenManifest(self._manifest, self._etag, outcome.store_time)
            try:
                return self._take(outcome)
            except CorruptNamespace:
                # An answer that was cut short looks like that, once.
                return self._take(await self._ports.store.get(self._at))

    async def swap(self, seen: SeenManifest, new: Manifest) -> SwapOutcome:
        """Replace the manifest if, and only if, it is still the one that was ``seen``.

        What this view knows stays as it is: only `see` tells what the store holds now.

        Raises:
            StoreError: the store did not take it.
        """
        sealed = self._sealer.seal_manifest(self._account, self._incarnation, self._key, new)
        return await self._ports.store.swap(self._at, sealed, seen.etag)

    async def settle(self, seen: SeenManifest, new: Manifest, mine: Callable[[Manifest], bool]) -> bool:
        """Swap as `swap` does, and find out whether it happened: whatever the answer, the manifest says (I9).

        What ``new`` names must have been uploaded after ``seen`` was read: only then has a collector not taken it for
        something that nobody will name any more.

        Args:
            seen: what the store held before the upload.
            new: what it is to hold.
            mine: whether a manifest has what this swap was made for.

        Returns:
            False if others were first, or have replaced it since.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `see` and `swap`; it may have happened.
        """
        try:
            outcome = await self.swap(seen, new)
        except StoreUnavailable:
            outcome = None
        now = await self.read()
        return isinstance(outcome, Swapped) or mine(now)

    async def name_index(self, seen: SeenManifest, key: str, seq: int, model: str) -> bool:
        """Name an index of the state after entry ``seq``, uploaded at ``key`` after ``seen`` was read; as `settle`.

        An index of the same model that is named already and knows as much stays; then this returns False.
        """
        old = seen.manifest
        if old.index_key and old.index_model == model and old.index_seq >= seq:
            return False
        new = msgspec.structs.replace(old, index_key=key, index_seq=seq, index_model=model)
        return await self.settle(seen, new, lambda now: now.index_key == key)

    def _take(self, outcome: GetOutcome) -> SeenManifest:
        if not isinstance(outcome, Found):
            raise NamespaceClosed("the namespace has no manifest: it was erased")
        manifest = self._sealer.unseal_manifest(self._account, self._incarnation, self._key, outcome.data)
        self._refuse_rollback(manifest)
        self._manifest, self._etag = manifest, outcome.etag
        self._validated_at = outcome.store_time
        return SeenManifest(manifest, outcome.etag, outcome.store_time)

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
