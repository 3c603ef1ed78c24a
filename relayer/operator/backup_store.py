"""Where a backup keeps what: three streams, so that what must be forgotten can be destroyed while old data is kept.

    data/{key}-{sha256}          an object of the store as it was; only ever added
    keyrings/{key}-{sha256}      a keyring; destroyed when its namespace was erased, and every copy of its data with it
    ledger/{run}                 what was erased, all of it; applied before anything that was restored is read
    runs/{run}                   one backup: which objects belong together
    pages/{sha256}               the rows of a ledger or run

A name holds the digest of its object, so that a list of names is a list of what need not be copied again. Ledgers, runs
and pages are sealed under the metadata key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from relayer.errors import CorruptNamespace, StoreUnavailable, UpgradeRequired
from relayer.log.objects import LogPorts, ObjectSealer, Place
from relayer.operator.catalogue import Kind, kind_of, seq_of
from relayer.ports import Created, Exists, Found, Throttled, check_key
from relayer.wire.sealing import ObjectType

FORMAT = 1
_ROWS_PER_PAGE = 20_000
_NAME = re.compile(r"(?:data|keyrings)/(.+)-([0-9a-f]{64})")
_NUMBERED = re.compile(r"(?:runs|ledger)/[0-9]{20}")
_KINDS = frozenset(
    {
        *(Kind.ENTRY, Kind.SEGMENT, Kind.INDEX, Kind.MANIFEST),
        *(Kind.KEYRING, Kind.POINTER, Kind.ACCOUNT, Kind.ERASURE),
    }
)
# No run, ledger or page is near this size.
_LARGEST = 1 << 30
# Entries and keyrings are smaller.
_SPARE = 16 * 1024 * 1024
_ATTEMPTS = 5


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One object of a run: its key without the store's prefix, SHA-256 and size."""

    key: str
    digest: bytes
    size: int


class Erased(msgspec.Struct, frozen=True, array_like=True):
    """What was erased of one incarnation, up to entry ``seq``; ``gone``: all of it. ``key`` is its pointer's."""

    incarnation: bytes
    key: str
    seq: int = 0
    gone: bool = False
    records: tuple[bytes, ...] = ()


class BackupHead(msgspec.Struct, frozen=True, array_like=True):
    """What a run or ledger says of itself. Times are the store's, in ms; ``pages`` are digests."""

    format: int
    number: int
    began: int
    ended: int
    rows: int
    size: int
    namespaces: int
    pages: tuple[bytes, ...]
    whole: bool = True


T = TypeVar("T", Row, Erased)


class BackupStore:
    """A backup in a store of its own, or below a prefix of its own.

    Attributes:
        copied: objects that `keep` has written,
        copied_bytes: and their bytes.
    """

    def __init__(self, ports: LogPorts) -> None:
        self.ports = ports
        self.copied = 0
        self.copied_bytes = 0
        self._sealer = ObjectSealer(ports)
        self._held: dict[str, Row] = {}  # by key, one of them where a key has several
        self._others: set[str] = set()  # names of the rest
        self._new: set[str] = set()
        self._pages: frozenset[str] | None = None

    async def load(self) -> None:
        """List what is there; before anything is asked or kept."""
        self._pages = frozenset(await self.names("pages"))
        for stream in ("data/", "keyrings/"):
            async for info in self.ports.rows_below(stream):
                if named := _NAME.fullmatch(info.key):
                    self._hold(Row(named[1], bytes.fromhex(named[2]), info.size))

    def _hold(self, row: Row) -> None:
        other = self._held.get(row.key, row)
        if other.digest != row.digest:
            self._others.add(_name(other.key, other.digest))
        self._held[row.key] = row

    def was_there(self, name: str) -> bool:
        """Whether an object was there when this was loaded; without that, every object was."""
        if self._pages is None or name in self._pages:
            return True
        named = _NAME.fullmatch(name)
        return named is not None and self.holds(named[1], bytes.fromhex(named[2])) and name not in self._new

    def holds(self, key: str, digest: bytes) -> bool:
        """Whether an object need not be copied again."""
        row = self._held.get(key)
        return row is not None and (row.digest == digest or _name(key, digest) in self._others)

    def held(self, key: str) -> Row | None:
        """Return what is held of a key."""
        return self._held.get(key)

    async def keep(self, key: str, data: bytes) -> Row:
        """Store an object unless it is there, and return its row."""
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
        for _ in range(2):  # an answer that was cut short is asked for once more
            # Read no more of a huge file than shows that it is not the object. A row's size may be that of a copy
            # which was cut when it was listed and has been brought back since, so small sizes are not trusted.
            end = max(row.size, _SPARE) + 1
            found = await self.ports.store.get(self.ports.layout.at(name), byte_range=(0, end))
            if not isinstance(found, Found):
                return None
            if hashlib.sha256(found.data).digest() == row.digest:
                return found.data
        raise CorruptNamespace(f"the backup's copy of {row.key} holds other bytes than were backed up")

    async def drop(self, names: Sequence[str]) -> None:
        """Destroy objects of the backup, and older versions of them."""
        for name in names:
            await self.ports.store.purge(self.ports.layout.at(name))

    async def names(self, stream: str) -> list[str]:
        """Return the names of a stream in order; of runs and ledgers, only those that are numbers."""
        names = await self.ports.keys_below(f"{stream}/")
        return [name for name in names if stream not in {"runs", "ledger"} or _NUMBERED.fullmatch(name)]

    async def newest(self, stream: str) -> int:
        """Return the newest number of ``runs`` or ``ledger``; 0 if there is none."""
        return max(map(seq_of, await self.names(stream)), default=0)

    async def write(self, stream: str, head: BackupHead, rows: Sequence[T]) -> bool:
        """Write a run or a ledger, pages first; False if its number is taken."""
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
        """Return a run or a ledger.

        Raises:
            CorruptNamespace: it or a page of it is absent, damaged, or was made with another relayer key.
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
            raise CorruptNamespace(f"{name} of the backup holds something else") from error
        for row in rows:
            if isinstance(row, Row):
                _check(row, name)
        return head, rows

    async def _open(self, name: str) -> bytes:
        async for info in self.ports.rows_below(name):
            if info.key == name and info.size > _LARGEST:
                raise CorruptNamespace(
                    f"{name} of the backup has {info.size:,} bytes, more than any can have"
                )
        found = await self.ports.get(name)
        if found is None:
            raise CorruptNamespace(f"{name} of the backup is absent")
        return self._sealer.unseal(_place(name), found.data)

    async def _create(self, name: str, data: bytes) -> bool:
        taken = await create(
            self.ports, name, data, "the backup's store does not take an object; running the backup"
        )
        return taken is None or taken.data == data  # an attempt without an answer may have written it


async def create(ports: LogPorts, key: str, data: bytes, failure: str) -> Found | None:
    """Write an object unless its name is taken; returns what takes it.

    ``failure`` begins the sentence that says that the store took nothing, five times in a row.
    """
    for _ in range(_ATTEMPTS):
        outcome = await ports.store.create(ports.layout.at(key), data)
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


def _check(row: Row, run: str) -> None:
    """Raise `CorruptNamespace` unless a row can be that of an object which backups copy."""
    try:
        check_key(row.key)
    except ValueError:
        known = False
    else:
        known = kind_of(row.key) in _KINDS
    if not known or len(row.digest) != hashlib.sha256().digest_size or row.size < 0:
        raise CorruptNamespace(f"{run} of the backup names an object that no backup copies: {row.key[:80]!r}")


def _place(name: str) -> Place:
    return Place(ObjectType.CONSTANT, "", b"", f"backup/{name}")
