"""Stored indexes of one log: read where the manifest names one, written and named.

An index is the state after some entry, and the view of it that a relayer with the namespace's key had. It spares the next
opening the entries up to there, and nothing else depends on it: one that is absent, damaged, of another version or of
another model is as good as none. So a manifest may name an index that was made while the manifest changed; but not one that
is older than the one it names, and not one that holds what was erased meanwhile.
"""

from __future__ import annotations

from relayer.domain.namespace import Manifest
from relayer.errors import CorruptNamespace, StoreUnavailable
from relayer.log.destruction import destroy
from relayer.log.index_pack import IndexBuilder, IndexPlace, model_tag
from relayer.log.index_reader import IndexReader
from relayer.log.log_ports import LogPorts
from relayer.log.replica import Replica
from relayer.log.sealed_objects import ObjectSealer
from relayer.ports import Created, EmbeddingModel
from relayer.wire import ulid

__all__ = ["IndexObjects"]

_ULID_RANDOM = 10
_ROUNDS = 5


class IndexObjects:
    """The stored indexes of the log that ``replica`` follows."""

    def __init__(self, ports: LogPorts, account: str, replica: Replica) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._replica = replica

    async def open(self, manifest: Manifest, model: EmbeddingModel, key_epoch: int) -> IndexReader | None:
        """Begin to read the index that a manifest names; None when there is none that fits.

        Raises:
            CorruptNamespace: it is damaged.
            StoreError: the store did not answer.
        """
        if not manifest.index_key or manifest.index_model != model_tag(model):
            return None
        at = self._ports.layout.at(manifest.index_key)
        reader = await IndexReader.open(self._ports.store, at, self._place(manifest.index_key))
        if reader is None:
            return None
        head = reader.head
        if head.position.seq != manifest.index_seq or head.tag != manifest.index_model:
            raise CorruptNamespace("the manifest names an index of another state")
        return reader if (head.key_epoch, head.dimension) == (key_epoch, model.dimension) else None

    async def indexed(self, model: EmbeddingModel) -> int:
        """Return the entry that the manifest's index goes up to, as the store shows it now; 0 without one that fits.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: as `ManifestView.see`.
        """
        manifest = await self._replica.manifest.read()
        return manifest.index_seq if manifest.index_model == model_tag(model) else 0

    def begin(self, model: EmbeddingModel, key_epoch: int) -> IndexBuilder:
        """Begin to write an index of the replica's state now, under a name of its own."""
        positions = self._replica.positions()
        now = max(self._replica.store_time, 0)
        name = ulid.make(now, self._ports.randomness.bytes(_ULID_RANDOM))
        key = self._ports.layout.index(self._replica.incarnation, positions[-1].seq, name)
        return IndexBuilder(self._place(key), positions, model, key_epoch)

    async def publish(self, builder: IndexBuilder, model: EmbeddingModel, data: bytes, erased: int) -> bool:
        """Upload an index and name it in the manifest; returns whether it is named (I9).

        Args:
            builder: whose ``finish`` made ``data``.
            model: as `begin` was given.
            data: the object.
            erased: how many records had been erased in the state that was written. If there are more now, the index may
                hold one of them: it is not named, and destroyed.

        Raises:
            CorruptNamespace, UpgradeRequired, NamespaceClosed, StoreError: it is not known whether it is named; that is
                harmless.
        """
        at = self._ports.layout.at(builder.key)
        try:
            if not isinstance(await self._ports.store.create(at, data), Created):
                return False
        except StoreUnavailable:
            return False
        seq, tag = builder.position.seq, model_tag(model)
        for _ in range(_ROUNDS):
            seen = await self._replica.manifest.see()
            # After the manifest: an erasure that is not in the log yet finds this index in the store when it is.
            await self._replica.catch_up()
            if len(self._replica.state.erased) != erased:
                await self._take_back(builder.key, at)
                return False
            if seen.manifest.index_model == tag and seen.manifest.index_seq >= seq:
                return False
            if await self._replica.manifest.name_index(seen, builder.key, seq, tag):
                return True
        return False

    async def _take_back(self, key: str, at: str) -> None:
        if (await self._replica.manifest.read()).index_key != key:
            await destroy(self._ports.store, [at])

    def _place(self, key: str) -> IndexPlace:
        return IndexPlace(self._sealer, self._account, self._replica.incarnation, key)
