"""Copies one log: a manifest, the segments that it names, and every entry after them, from one moment of its life."""

from __future__ import annotations

from collections.abc import Iterable

from relayer.domain.namespace import Manifest
from relayer.domain.operations import Erase, decode_operation
from relayer.errors import CorruptNamespace, NamespaceClosed
from relayer.log.layout import Layout
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer
from relayer.log.segments import Segments
from relayer.log.slots import LinkedEntry
from relayer.log.together import together
from relayer.operator.backup_store import BackupStore, Erased, Row
from relayer.operator.catalogue import Listed
from relayer.operator.log_walk import SlotReader, walk_log
from relayer.ports import Found

__all__ = ["LogCopy"]

_ROUNDS = 5
_SLOTS_AT_ONCE = 8


class LogCopy:
    """The copying of one log.

    What the backup holds already is not read again, as far as ``known`` says that its erasures were noted; the last such
    entry is, so that the chain vouches for all before it.

    Attributes:
        rows: what belongs to the copy, by key, after `run`.
    """

    def __init__(self, source: LogPorts, target: BackupStore, listed: Listed, known: Erased) -> None:
        self.rows: dict[str, Row] = {}
        self._source = source
        self._target = target
        self._listed = listed
        self._known = known
        self._trusts = True
        self._erases = False
        self._sealer = ObjectSealer(source)
        self._slots = SlotReader(source, listed.account, listed.incarnation)
        self._segments = Segments(source, listed.account, listed.incarnation)

    async def run(self) -> Erased:
        """Copy the log and return what was erased of it so far.

        Raises:
            CorruptNamespace, UpgradeRequired: it cannot be read from end to end.
            NamespaceClosed: it has no manifest.
            StoreError: a store did not answer.
        """
        for _ in range(_ROUNDS):
            self.rows.clear()
            head = await self._copy()
            if head is not None and head < self._known.seq:
                raise CorruptNamespace(
                    f"the log ends at entry {head}, and went on to {self._known.seq} before; if an older run was restored "
                    "on purpose, give the backups a new place"
                )
            if head is not None:
                return await self._ledger_row(head)
        raise CorruptNamespace("the manifest names objects that do not exist")

    async def _copy(self) -> int | None:
        """Make one attempt; returns the last entry's number, None if the log was compacted or collected meanwhile."""
        data, manifest = await self._manifest()
        for epoch in range(1, manifest.key_epoch + 1):
            there = await self._keyring(Layout.keyring(self._listed.incarnation, epoch))
            if not there and epoch == manifest.key_epoch:
                raise CorruptNamespace("a namespace has a manifest and no keyring")
        for row in manifest.segments:
            if self._target.holds(row.key, row.digest) and row.last_seq <= self._known.seq:
                self.rows[row.key] = Row(row.key, row.digest, row.size)
                continue
            segment = await self._segments.read(row)
            if segment is None:
                return None
            self._note(segment.entries())
            await self._keep(row.key, segment.data)
        head = await self._tail(manifest)
        if head is None or await self._was_collected(manifest):
            return None
        await self._keep(Layout.manifest(self._listed.incarnation), data)
        return head

    async def _was_collected(self, manifest: Manifest) -> bool:
        """Whether entries behind a manifest's segments may be deleted by now."""
        return (await self._manifest())[1].gc_watermark > manifest.snap_seq

    async def _manifest(self) -> tuple[bytes, Manifest]:
        account, incarnation = self._listed.account, self._listed.incarnation
        key = Layout.manifest(incarnation)
        found = await self._source.store.get(self._source.layout.at(key))
        if not isinstance(found, Found):
            raise NamespaceClosed("the namespace has no manifest")
        return found.data, self._sealer.unseal_manifest(account, incarnation, key, found.data)

    async def _keyring(self, key: str) -> bool:
        """Copy the keyring of an epoch; False if there is none: it was destroyed."""
        held = self._target.held(key).get(key)
        if held is not None:
            self.rows[key] = held
            return True
        found = await self._source.store.get(self._source.layout.at(key))
        if not isinstance(found, Found):
            return False
        self._sealer.unseal_keyring(self._listed.account, self._listed.incarnation, key, found.data)
        await self._keep(key, found.data)
        return True

    async def _tail(self, manifest: Manifest) -> int | None:
        held = self._target.held(Layout.entries(self._listed.incarnation)) if self._trusts else {}
        link, seq = manifest.chain_digest, manifest.snap_seq + 1
        while seq < self._known.seq and (row := held.get(self._slots.key(seq))) is not None:
            self.rows[row.key] = row
            link, seq = row.digest, seq + 1
        trusted = seq - 1 > manifest.snap_seq
        while True:
            window = range(seq, seq + _SLOTS_AT_ONCE)
            found = await together([self._slots.read_stored(number) for number in window])
            while found:
                stored = found.pop(0)
                if stored is None and trusted:
                    self._trusts = False  # what the backup holds is of another history: copy all of it
                    return None
                if stored is None and any(found):
                    # Entries were written, or collected, while they were asked for.
                    await self._check_hole(seq, manifest)
                    return None
                if stored is None:
                    return seq - 1
                data, linked = stored
                if linked.entry.previous != link:
                    if not trusted:
                        raise CorruptNamespace(f"entry {seq} does not follow the one before it")
                    self._trusts = False  # what the backup holds is of another history: copy all of it
                    return None
                self._note([linked])
                await self._keep(self._slots.key(seq), data)
                link, seq, trusted = linked.digest, seq + 1, False

    async def _check_hole(self, seq: int, manifest: Manifest) -> None:
        """See that an entry that was absent before later ones is there by now, or not to be read any more."""
        if await self._slots.read(seq) is None and not await self._was_collected(manifest):
            raise CorruptNamespace(f"entry {seq} is absent, and later ones are there")

    async def _keep(self, key: str, data: bytes) -> None:
        self.rows[key] = await self._target.keep(key, data)

    def _note(self, entries: Iterable[LinkedEntry]) -> None:
        """See whether anything was erased; whether it took effect is for the state to say."""
        for linked in entries:
            operations = map(decode_operation, linked.entry.operations)
            self._erases = self._erases or any(isinstance(operation, Erase) for operation in operations)

    async def _ledger_row(self, head: int) -> Erased:
        records = self._known.records
        if self._erases:
            walk = await walk_log(self._source, self._listed.account, self._listed.incarnation)
            records = tuple(sorted(walk.state.erased | set(records)))
        known = self._known
        # An erasure that was asked for stays so while its name does not show it yet.
        return Erased(self._listed.incarnation, self._listed.key, head, known.gone, records)
