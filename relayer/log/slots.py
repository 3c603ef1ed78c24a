"""Reading and making entries: slots of the log, verified and linked.

The log is a chain: an entry carries the SHA-256 of the stored bytes of the one before it, so that no entry can be left
out, exchanged or put elsewhere unnoticed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from relayer.domain.entry import Entry, decode_entry, encode_entry
from relayer.domain.namespace import Position
from relayer.errors import CorruptNamespace
from relayer.lib.single_flight import together
from relayer.log.log_ports import LogPorts
from relayer.log.sealed_objects import ObjectSealer, Place
from relayer.ports import Absent, Found, Unchanged
from relayer.wire.sealing import ObjectType


@dataclass(frozen=True, slots=True)
class FoundSlot:
    """The stored bytes of a slot."""

    seq: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Tail:
    """Slots in order, up to the first absent one; ``ended`` says whether that was reached.

    ``times`` are the store's, of every answer that counts, in ms.
    """

    slots: tuple[FoundSlot, ...]
    ended: bool
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkedEntry:
    """An entry that belongs where it was found, and the digest that the next one carries.

    ``size`` is that of its stored bytes, 0 when it comes from a segment.
    """

    entry: Entry
    digest: bytes
    size: int = 0


class Slots:
    """The slots of one incarnation."""

    def __init__(self, ports: LogPorts, account: str, incarnation: bytes) -> None:
        self._ports = ports
        self._sealer = ObjectSealer(ports)
        self._account = account
        self._incarnation = incarnation

    def key(self, seq: int) -> str:
        """Return the slot's key in the store."""
        return self._ports.layout.at(self._place(seq).key)

    async def read(self, start: int, count: int) -> Tail:
        """Read ``count`` slots from ``start`` on at the same time; raises `StoreError`."""
        answers = await together([self._get(seq) for seq in range(start, start + count)])
        slots: list[FoundSlot] = []
        times: list[int] = []
        for seq, answer in enumerate(answers, start):
            times.append(answer.store_time)
            if isinstance(answer, Absent):
                return Tail(tuple(slots), ended=True, times=tuple(times))
            slots.append(FoundSlot(seq, answer.data))
        return Tail(tuple(slots), ended=False, times=tuple(times))

    async def _get(self, seq: int) -> Found | Absent:
        outcome = await self._ports.store.get(self.key(seq))
        assert not isinstance(outcome, Unchanged), "no etag was given"
        return outcome

    async def link(self, slot: FoundSlot, after: Position) -> LinkedEntry:
        """Open the entry that follows ``after``.

        An answer that was cut short is read once more, before the namespace is called corrupt.

        Raises:
            CorruptNamespace: it does not open in this slot or does not follow.
            UpgradeRequired: its version is unknown (I12).
            StoreError: the store did not answer.
        """
        try:
            return self._link(slot, after)
        except CorruptNamespace:
            again = await self._get(slot.seq)
            if isinstance(again, Absent) or again.data == slot.data:
                raise
            return self._link(FoundSlot(slot.seq, again.data), after)

    def _link(self, slot: FoundSlot, after: Position) -> LinkedEntry:
        linked = self._open(slot)
        if slot.seq != after.seq + 1:
            raise CorruptNamespace(f"slot {slot.seq} holds an entry of another slot")
        if linked.entry.previous != after.digest:
            raise CorruptNamespace(f"the entry in slot {slot.seq} does not follow the one before it")
        return linked

    def _open(self, slot: FoundSlot) -> LinkedEntry:
        entry = decode_entry(self._sealer.unseal(self._place(slot.seq), slot.data))
        if entry.seq != slot.seq:
            raise CorruptNamespace(f"slot {slot.seq} holds an entry of another slot")
        return LinkedEntry(entry, digest_of(slot.data), len(slot.data))

    async def read_alone(self, seq: int) -> tuple[bytes, LinkedEntry] | None:
        """Return the stored bytes of a slot and the entry in them, whatever it follows; None when it is absent.

        Raises:
            CorruptNamespace: what is there does not open in this slot; it was read twice.
            UpgradeRequired: its version is unknown (I12).
            StoreError: the store did not answer.
        """
        found = await self._get(seq)
        if isinstance(found, Absent):
            return None
        try:
            return found.data, self._open(FoundSlot(seq, found.data))
        except CorruptNamespace:
            found = await self._get(seq)
            return None if isinstance(found, Absent) else (found.data, self._open(FoundSlot(seq, found.data)))

    def seal(self, entry: Entry) -> bytes:
        """Return the bytes to store for an entry."""
        return self._sealer.seal(self._place(entry.seq), encode_entry(entry))

    def _place(self, seq: int) -> Place:
        key = self._ports.layout.entry(self._incarnation, seq)
        return Place(ObjectType.ENTRY, self._account, self._incarnation, key)


def digest_of(stored: bytes) -> bytes:
    """Return what the next entry carries of the entry stored in these bytes."""
    return hashlib.sha256(stored).digest()
