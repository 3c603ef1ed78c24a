"""The layout of a backup: separate streams, so that keyrings of erased data can be deleted while old data is kept.

    data/{key}-{sha256}          an object of the store as it was; never changed
    keyrings/{key}-{sha256}      a keyring; deleted when its namespace was erased, which makes every copy of its data unreadable
    ledger/{run}                 everything that was erased; applied before any restored data is read
    runs/{run}                   one backup: the objects that belong together
    pages/{sha256}               the rows of a ledger or run
    store-key                    a copy of the object ``relayer``: the store key, wrapped under the relayer key of the last run

A name contains the digest of its object, so listing the names tells which objects need not be copied again. Ledgers, runs
and pages are sealed under the metadata key, which is derived from the store key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from relayer.access.store_keys import StoredKey
from relayer.errors import CorruptNamespace, StoreUnavailable, UpgradeRequired
from relayer.log.collector import seq_of
from relayer.log.objects import LogPorts, ObjectLocation, ObjectSealer
from relayer.operator.catalogue import ObjectKind, kind_of
from relayer.ports import Created, Exists, Found, Swapped, Throttled, check_key
from relayer.wire.sealing import ObjectType

FORMAT = 1
STORE_KEY = "store-key"
_ROWS_PER_PAGE = 20_000
_NAME = re.compile(r"(?:data|keyrings)/(.+)-([0-9a-f]{64})")
_NUMBERED = re.compile(r"(?:runs|ledger)/[0-9]{20}")
_KINDS = frozenset(
    {
        *(ObjectKind.ENTRY, ObjectKind.SEGMENT, ObjectKind.INDEX, ObjectKind.MANIFEST),
        *(ObjectKind.KEYRING, ObjectKind.POINTER, ObjectKind.ACCOUNT, ObjectKind.ERASURE),
    }
)
# Maximum size of a run, ledger or page, far above any real one.
_LARGEST = 1 << 30
# Bytes that are read of an object even if its row gives a smaller size. Entries and keyrings are smaller than this.
_SPARE = 16 * 1024 * 1024
_ATTEMPTS = 5
_PAUSE = 0.2  # seconds after a write whose outcome is unclear


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One object of a run: its key without the store's prefix, SHA-256 and size."""

    key: str
    digest: bytes
    size: int


class LedgerRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of a ledger about one incarnation.

    Attributes:
        incarnation: of the namespace.
        key: of its pointer.
        seq: the log entry up to which erasures are listed.
        gone: whether the whole namespace was erased.
        records: ids of the records that were erased.
    """

    incarnation: bytes
    key: str
    seq: int = 0
    gone: bool = False
    records: tuple[bytes, ...] = ()


class BackupHead(msgspec.Struct, frozen=True, array_like=True):
    """The head of a run or ledger. Times are the store's, in ms; ``pages`` are digests of the pages with its rows."""

    format: int
    number: int
    began: int
    ended: int
    rows: int
    size: int
    namespaces: int
    pages: tuple[bytes, ...]
    whole: bool = True


T = TypeVar("T", Row, LedgerRow)


class BackupStore:
    """A backup in a store of its own, or below a prefix of its own.

    Attributes:
        copied: number of objects that `keep` has written.
        copied_bytes: their size.
    """

    def __init__(self, ports: LogPorts) -> None:
        self.ports = ports
        self.copied = 0
        self.copied_bytes = 0
        self._sealer = ObjectSealer(ports)
        # One row for each key, and the names of further objects with the same key.
        self._held: dict[str, Row] = {}
        self._others: set[str] = set()
        self._new: set[str] = set()
        self._pages: frozenset[str] | None = None

    async def stored_key(self) -> StoredKey | None:
        """Return the wrapped store key of the backup; None if there is no backup.

        Raises:
            WrongRelayerKey, UpgradeRequired: the object is damaged, or was written by a newer version.
        """
        found = await self.ports.get(STORE_KEY)
        return None if found is None else StoredKey.decode(found.data)

    async def keep_key(self, data: bytes) -> None:
        """Store a copy of the object that contains the wrapped store key.

        Raises:
            StoreUnavailable: five attempts in a row failed.
        """
        for _ in range(_ATTEMPTS):
            found = await self.ports.get(STORE_KEY)
            if found is not None and found.data == data:
                return
            if found is None:
                await self.ports.store.create(STORE_KEY, data)
            elif not isinstance(await self.ports.store.swap(STORE_KEY, data, found.etag), Swapped):
                await self.ports.clock.sleep(_PAUSE)
        raise StoreUnavailable(
            "the backup's store does not take the store key; running the backup again goes on"
        )

    async def load(self) -> None:
        """List the objects of the backup. Call this before `holds`, `held` and `keep`."""
        self._pages = frozenset(await self.names("pages"))
        for stream in ("data/", "keyrings/"):
            async for info in self.ports.store.list(stream):
                if named := _NAME.fullmatch(info.key):
                    self._hold(Row(named[1], bytes.fromhex(named[2]), info.size))

    def _hold(self, row: Row) -> None:
        other = self._held.get(row.key, row)
        if other.digest != row.digest:
            self._others.add(_name(other.key, other.digest))
        self._held[row.key] = row

    def was_there(self, name: str) -> bool:
        """Return whether an object existed when `load` was called; always true if it was not called."""
        if self._pages is None or name in self._pages:
            return True
        named = _NAME.fullmatch(name)
        return named is not None and self.holds(named[1], bytes.fromhex(named[2])) and name not in self._new

    def holds(self, key: str, digest: bytes) -> bool:
        """Return whether the backup holds an object already, so that it need not be copied again."""
        row = self._held.get(key)
        return row is not None and (row.digest == digest or _name(key, digest) in self._others)

    def held(self, key: str) -> Row | None:
        """Return the row of an object that the backup holds of a key; None if it holds none."""
        return self._held.get(key)

    async def keep(self, key: str, data: bytes) -> Row:
        """Store an object unless the backup holds it already, and return its row."""
        row = Row(key, hashlib.sha256(data).digest(), len(data))
        if not self.holds(key, row.digest):
            name = _name(key, row.digest)
            await self._create(name, data)
            self._hold(row)
            self._new.add(name)
            self.copied += 1
            self.copied_bytes += row.size
        return row

    async def fetch(self, row: Row) -> bytes | None:
        """Return an object as it was; None if the backup no longer has it.

        Raises:
            CorruptNamespace: the backup holds other bytes.
        """
        name = _name(row.key, row.digest)
        for _ in range(2):  # A response that was cut short is requested once more.
            # Of a file that is too large, read only enough to show that it is not the object. A row's size may be that of a
            # truncated copy which was replaced since it was listed, so small sizes are not trusted.
            end = max(row.size, _SPARE) + 1
            found = await self.ports.store.get(name, byte_range=(0, end))
            if not isinstance(found, Found):
                return None
            if hashlib.sha256(found.data).digest() == row.digest:
                return found.data
        raise CorruptNamespace(f"the backup's copy of {row.key} differs from the object that was backed up")

    async def drop(self, names: Sequence[str]) -> None:
        """Delete objects of the backup permanently, including older versions of them."""
        for name in names:
            await self.ports.store.purge(name)

    async def names(self, stream: str) -> list[str]:
        """Return the names of a stream in order; for runs and ledgers, only names that are numbers."""
        names = await self.ports.keys_below(f"{stream}/")
        return [name for name in names if stream not in {"runs", "ledger"} or _NUMBERED.fullmatch(name)]

    async def newest(self, stream: str) -> int:
        """Return the newest number of ``runs`` or ``ledger``; 0 if there is none."""
        return max(map(seq_of, await self.names(stream)), default=0)

    async def write(self, stream: str, head: BackupHead, rows: Sequence[T]) -> bool:
        """Write a run or a ledger, pages first; return False if its number is taken."""
        pages = []
        for start in range(0, len(rows), _ROWS_PER_PAGE):
            plain = msgspec.msgpack.encode(rows[start : start + _ROWS_PER_PAGE])
            digest = hashlib.sha256(plain).digest()
            name = f"pages/{digest.hex()}"
            await self._create(name, self._sealer.seal(_place(name), plain))
            pages.append(digest)
        name = f"{stream}/{head.number:020d}"
        plain = msgspec.msgpack.encode(msgspec.structs.replace(head, pages=tuple(pages)))
        return await self._create(name, self._sealer.seal(_place(name), plain))

    async def read(self, stream: str, number: int, kind: type[T]) -> tuple[BackupHead, list[T]]:
        """Return the head and the rows of a run or a ledger.

        Raises:
            CorruptNamespace: it or a page of it is missing, damaged, or was made with another relayer key.
            UpgradeRequired: its format is unknown.
        """
        name = f"{stream}/{number:020d}"
        try:
            head = msgspec.msgpack.decode(await self._open(name), type=BackupHead)
            if head.format != FORMAT:
                raise UpgradeRequired(f"{name} has format {head.format}; this version knows {FORMAT}")
            rows: list[T] = []
            for digest in head.pages:
                page = msgspec.msgpack.decode(await self._open(f"pages/{digest.hex()}"))
                rows += [msgspec.convert(item, kind) for item in page]
        except msgspec.MsgspecError as error:
            raise CorruptNamespace(f"{name} of the backup has an unexpected content") from error
        for row in rows:
            if isinstance(row, Row):
                # Raise `CorruptNamespace` if a row is not of a kind of object that backups contain.
                try:
                    check_key(row.key)
                except ValueError:
                    known = False
                else:
                    known = kind_of(row.key) in _KINDS
                if not known or len(row.digest) != hashlib.sha256().digest_size or row.size < 0:
                    raise CorruptNamespace(
                        f"{name} of the backup lists an object that backups never contain: {row.key[:80]!r}"
                    )
        return head, rows

    async def _open(self, name: str) -> bytes:
        async for info in self.ports.store.list(name):
            if info.key == name and info.size > _LARGEST:
                raise CorruptNamespace(f"{name} of the backup has {info.size:,} bytes, more than the maximum")
        found = await self.ports.get(name)
        if found is None:
            raise CorruptNamespace(f"{name} of the backup is missing")
        return self._sealer.unseal(_place(name), found.data)

    async def _create(self, name: str, data: bytes) -> bool:
        taken = await create(
            self.ports, name, data, "the backup's store does not take an object; running the backup"
        )
        # An earlier attempt whose response was lost may have written the same object.
        return taken is None or taken.data == data


async def create(ports: LogPorts, key: str, data: bytes, failure: str) -> Found | None:
    """Write an object, and return None; if its name is taken, return the existing object instead.

    ``failure`` is the beginning of the error message. Raises `StoreUnavailable`: five attempts in a row failed.
    """
    for _ in range(_ATTEMPTS):
        outcome = await ports.store.create(key, data)
        if isinstance(outcome, Created):
            return None
        if isinstance(outcome, Exists) and (found := await ports.get(key)):
            return found
        if isinstance(outcome, Throttled):
            await ports.clock.sleep(outcome.retry_after)
    raise StoreUnavailable(f"{failure} again goes on")


def _name(key: str, digest: bytes) -> str:
    stream = "keyrings" if "/keyring" in key else "data"
    return f"{stream}/{key}-{digest.hex()}"


def _place(name: str) -> ObjectLocation:
    return ObjectLocation(ObjectType.CONSTANT, "", b"", f"backup/{name}")
