"""The outbox: a queue of captured turns that wait for the relayer, and small values, in one sealed SQLite database.

`Outbox` keeps items in order, never loses one silently and never delivers one under two keys. It also stores values such as a
session's cursor, which is set in the same transaction as an item is queued; otherwise a crash in between would capture a turn
twice or never. `_RowSeal` encrypts the rows and `_Database` manages the file.

`put` returns when the turn is on the disk. If a process is killed, the file is as it was before or after a put, and the next
process with the same keys continues. Any number of processes may put items; the one that holds the lock file next to the
database delivers for all of them. An outbox in memory works the same without the file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ValidationError

from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.identity import KeyHolder, NamespaceRef, RootHolder
from gateway_plugin.keys.private_files import open_lock, state_directory, try_lock
from relayer.wire.codec import Field, Malformed, Reader, UnsealError, lp
from relayer.wire.schemas import AnalyzeRequest
from relayer.wire.sealing import (
    KEY_ID_SIZE,
    SALT_SIZE,
    SECRET_SIZE,
    ObjectType,
    RootKeys,
    SealingKey,
    context,
    derive,
    seal,
    unseal,
)

MAX_DEAD: Final = 100
MAX_VALUES: Final = 10_000
OWN_ROOM: Final = 8
DEFAULT_CAPACITY: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
IN_MEMORY: Final = Path(":memory:")
"""In a path's place: a database that ends with its process, as SQLite calls it."""


class OutboxFull(Exception):
    """Raised when an outbox takes no more: the turn is not captured, and the status shows it."""


class OutboxUnavailable(GatewayError):
    """Raised when the outbox's file cannot be read or written: the turn is not captured now, the next one tries again."""


class RevisionConflict(Exception):
    """Raised when a value is not what it was when it was read: another process captured; read it and decide again."""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One captured turn. The request's idempotency key is the item's identity."""

    owner: NamespaceRef
    request: AnalyzeRequest = field(repr=False)
    queued_at: int

    @property
    def key(self) -> str:
        """The idempotency key."""
        assert self.request.idempotency_key is not None
        return self.request.idempotency_key


@dataclass(frozen=True, slots=True)
class Versioned:
    """A value as it was found; ``revision`` counts its changes, and is 0 for one that was never set."""

    revision: int = 0
    value: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ValueUpdate:
    """A value as it is to be: of an owner, by name, in place of the revision that was read (None: of any).

    Beyond 10,000 the one that was set longest ago is forgotten, unless it is ``lasting``.
    """

    owner: NamespaceRef
    name: str = field(repr=False)
    value: bytes = field(repr=False)
    expected: int | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class QueuedItem:
    """An item as a person is shown it.

    Attributes:
        item: the turn, or None when it does not open.
    """

    id: str
    item: OutboxItem | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeadLetter(QueuedItem):
    """An item that will never be taken, and the reason."""

    reason: str


_FORMAT: Final = 1
_TAG_SIZE: Final = 16
_ROW_SIZE: Final = 16
_PLACE: Final = b"gateway"


class _Unreadable(Exception):
    """Raised when a row does not open: changed, moved, of other keys, or of a format that is not known here."""


class _RowSeal:
    """Seals and opens the rows of one holder's outbox; all of it raises `IdentityError` for an agent whose keys are not held."""

    def __init__(self, holder: KeyHolder) -> None:
        self._holder = holder
        self._tags = derive(holder.local_key, "tags")
        self._names = _sealing_key(derive(holder.local_key, "names"))

    def tag(self, *fields: Field) -> bytes:
        """Return the 16 bytes by which a thing is found without being named."""
        return hmac.new(self._tags, lp(*fields), hashlib.sha256).digest()[:_TAG_SIZE]

    def seal_item(self, item: OutboxItem, row: bytes) -> tuple[bytes, bytes]:
        """Seal whose item it is, which any keys of the holder open, and the item, which its agent's do."""
        owner = lp(item.owner.agent, item.owner.namespace, item.owner.generation)
        said = item.request.model_dump_json(exclude_unset=True).encode()
        content = lp(_FORMAT, owner, item.queued_at, said)
        return self._seal(self._names, row, owner), self.seal_value(item.owner, row, content)

    def open_item(self, row: bytes, owner: bytes, content: bytes) -> OutboxItem:
        """Open an item; raises `_Unreadable` also when it is none."""
        try:
            named = self._unseal(self._names, row, owner)
            reader = Reader(named)
            whose = NamespaceRef(reader.text(), reader.text(), reader.integer())
            reader.end()
            reader = Reader(self.open_value(whose, row, content))
            if reader.integer() != _FORMAT or reader.bytes() != named:
                raise _Unreadable
            queued_at = reader.integer()
            request = AnalyzeRequest.model_validate_json(reader.bytes())
            reader.end()
            if request.idempotency_key is None:
                raise _Unreadable
            item = OutboxItem(queued_at=queued_at, owner=whose, request=request)
        except (Malformed, ValidationError) as error:
            raise _Unreadable from error
        return item

    def seal_value(self, owner: NamespaceRef, row: bytes, value: bytes) -> bytes:
        """Seal what belongs in one row and to one agent."""
        return self._seal(self._agent_key(owner), row, value)

    def open_value(self, owner: NamespaceRef, row: bytes, sealed: bytes) -> bytes:
        """Open what `seal_value` sealed; raises `_Unreadable`."""
        return self._unseal(self._agent_key(owner), row, sealed)

    def _agent_key(self, owner: NamespaceRef) -> SealingKey:
        return _sealing_key(self._holder.agent(owner.agent).outbox_key)

    def _seal(self, key: SealingKey, row: bytes, content: bytes) -> bytes:
        return seal(key, ObjectType.OUTBOX, self._place(row), content, salt=secrets.token_bytes(SALT_SIZE))

    def _unseal(self, key: SealingKey, row: bytes, sealed: bytes) -> bytes:
        try:
            return unseal(key, ObjectType.OUTBOX, self._place(row), sealed)
        except UnsealError as error:
            raise _Unreadable from error

    def _place(self, row: bytes) -> bytes:
        return context(ObjectType.OUTBOX, self._holder.account, _PLACE, row)


def _sealing_key(secret: bytes) -> SealingKey:
    # A key of a gateway has no object to keep a random id in; one drawn from the secret identifies no one either.
    return SealingKey(derive(secret, "key id", length=KEY_ID_SIZE), derive(secret, "seal"))


_VERSION: Final = 1
_BUSY_SECONDS: Final = 5.0
_BUSY_PAUSE: Final = 0.005
# An extended result code keeps its primary one in the low byte (https://www.sqlite.org/rescode.html).
_PRIMARY_CODE: Final = 0xFF
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_IN_THE_WAY: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SCHEMA: Final = (
    """CREATE TABLE items (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        row BLOB NOT NULL UNIQUE,
        write BLOB NOT NULL UNIQUE,
        place BLOB NOT NULL,
        owner BLOB NOT NULL,
        content BLOB NOT NULL,
        reason TEXT
    )""",
    "CREATE INDEX items_by_place ON items (reason, place, seq)",
    """CREATE TABLE marks (
        tag BLOB PRIMARY KEY,
        revision INTEGER NOT NULL,
        used INTEGER NOT NULL,
        lasting INTEGER NOT NULL,
        value BLOB NOT NULL
    )""",
    "CREATE INDEX marks_by_use ON marks (lasting, used)",
    f"PRAGMA user_version={_VERSION}",
)
_SETTINGS: Final = (
    "PRAGMA synchronous=FULL",
    # Freed pages are overwritten: what was delivered or erased does not linger, sealed as it is.
    "PRAGMA secure_delete=ON",
    "PRAGMA wal_autocheckpoint=256",
    "PRAGMA journal_size_limit=1048576",
    "PRAGMA trusted_schema=OFF",
    "PRAGMA temp_store=MEMORY",
)


class _Connection:
    """A connection that is opened when it is first used; ``stale`` when the file is not that one any more."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.opened: sqlite3.Connection | None = None
        self.stale = False

    def close(self) -> None:
        opened, self.opened, self.stale = self.opened, None, False
        if opened is not None:
            with contextlib.suppress(sqlite3.Error):
                opened.close()


# Held while a new file is created, so that no other thread connects to it before its descriptor is closed.
_CREATING: Final = threading.Lock()


def _make_private(path: Path) -> None:
    """Create a file that only this user may read, or take the rights of other users away from an existing one.

    An existing file is never opened: when a process closes any descriptor of a file, it loses all its POSIX locks on that
    file, also those of its SQLite connections. The next process to close the database would believe to be its last user and
    would delete the write-ahead log, into which this process goes on writing.

    Raises:
        IsADirectoryError: the path is that of a directory.
        OSError: the file cannot be created or changed.
    """
    with _CREATING:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            if stat.S_IMODE(mode) & 0o077:
                path.chmod(0o600)


class _Database:
    """The SQLite file: made private, written durably, replaced when it is damaged, shared between processes and threads.

    Every write is one transaction that is on the disk when it returns (write-ahead log, ``synchronous=FULL``). Reading has a
    connection of its own and never waits for a writer. What SQLite reports becomes `OutboxUnavailable`, with a sentence for
    people; a file that is no database any more is set aside, never deleted.
    """

    def __init__(self, path: Path, notify: Callable[[str], None] | None) -> None:
        self.path = path
        self.durable = path != IN_MEMORY
        self._notify = notify
        self._writer = _Connection()
        self._reader = _Connection() if self.durable else self._writer

    def query(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a statement finds, which is nothing while there is no file; raises `OutboxUnavailable`."""
        with self._reader.lock:
            try:
                if self.durable and self._reader.opened is None and not self.path.exists():
                    return []
                return self._connected(self._reader).execute(statement, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                raise self._refusal(self._reader, error) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a connection inside a transaction, which is durable when the block ends and undone when it raises.

        Raises:
            OutboxUnavailable: the file cannot be written, e.g. because the disk is full.
        """
        with self._writer.lock:
            try:
                with self._connected(self._writer) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    yield connection
            except (sqlite3.Error, OSError) as error:
                # After an error of the disk nothing that a connection believes can be relied on.
                raise self._refusal(self._writer, error) from error

    def truncate_log(self) -> None:
        """Move everything from the write-ahead log into the file, and empty the log."""
        with self._writer.lock, contextlib.suppress(sqlite3.Error):
            if self._writer.opened is not None:
                self._writer.opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the connections to the file; the next use opens them again."""
        for connection in (self._reader, self._writer) if self.durable else ():
            with connection.lock:
                connection.close()

    def _connected(self, connection: _Connection) -> sqlite3.Connection:
        if connection.stale:
            connection.close()
        if connection.opened is None:
            try:
                connection.opened = self._opened()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._set_aside()
                connection.close()
                connection.opened = self._opened()
        return connection.opened

    def _opened(self) -> sqlite3.Connection:
        if self.durable:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_private(self.path)
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._keep_write_ahead_log(connection)
            for setting in _SETTINGS:
                connection.execute(setting)
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @staticmethod
    def _keep_write_ahead_log(connection: sqlite3.Connection) -> None:
        """Make the journal a write-ahead log, though another connection does so to the same new file.

        Two that change the mode at once would wait for each other, so SQLite answers one of them "database is locked"
        at once, whatever its timeout. It need only ask again.
        """
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(_BUSY_PAUSE)
            else:
                return

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == _VERSION:
            return
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            version = self._version(connection)
            for statement in _SCHEMA if version == 0 else ():
                connection.execute(statement)
        if version > _VERSION:
            raise OutboxUnavailable(
                f"{self.path} was written by a newer version of memrelay: update this one"
            )

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _set_aside(self) -> None:
        # The other connection may be in use by another thread, which must not be waited for here.
        self._reader.stale = self._writer.stale = True
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(aside.with_name(aside.name + suffix))
        if self._notify is not None:
            self._notify(
                f"memrelay: {self.path} was damaged and is now {aside.name}; captures go to a new file"
            )

    def _refusal(self, connection: _Connection, error: Exception) -> OutboxUnavailable:
        connection.close()
        if _is_damage(error):
            with contextlib.suppress(OSError):
                self._set_aside()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return OutboxUnavailable(f"the outbox {self.path} cannot be used ({reason}); {_advice(error)}")


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) in _DAMAGED


def _advice(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in _IN_THE_WAY:
        return "remove the file at this path"
    if isinstance(error, OSError) and error.errno in _FORBIDDEN:
        return "fix its permissions"
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code == sqlite3.SQLITE_BUSY:
        return "it is locked by another process: try again, or end that process"
    if code == sqlite3.SQLITE_READONLY:
        return "fix its permissions"
    # A full disk has many names: SQLite reports it as full, as an error of the disk, or as a file it cannot open.
    return "make room, or fix its permissions"


_UNREADABLE: Final = "it cannot be opened: it is damaged, or sealed with a different secret"
_TIDY_EVERY: Final = 64


def outbox_path(environ: Mapping[str, str], holder: KeyHolder, origin: str) -> Path:
    """Return the path of the outbox file for one set of keys and one relayer, which may not exist yet. Raises `IdentityError`."""
    whose = f"{holder.account}\n{holder.only_agent or ''}\n{origin}".encode()
    return state_directory(environ) / f"outbox-{hashlib.sha256(whose).hexdigest()[:16]}.db"


def other_outboxes(path: Path, holder: KeyHolder) -> Iterator[Outbox]:
    """Yield the outboxes next to one, of other relayer addresses or keys, each open until the next one."""
    for other in sorted(path.parent.glob("outbox-*.db")):
        if other != path:
            with contextlib.closing(Outbox(other, holder)) as outbox:
                yield outbox


def waiting_elsewhere(path: Path, holder: KeyHolder) -> dict[str, int]:
    """Return how many turns wait in each of the other outboxes, by the names of their files.

    Counting needs no keys; empty and unreadable ones are left out.
    """
    counts = {outbox.path.name: outbox.waiting() for outbox in other_outboxes(path, holder)}
    return {name: count for name, count in counts.items() if count}


class Outbox:
    """A bounded queue of captured turns, in order within each namespace, and values that are stored with it.

    What a method reads or writes it raises `OutboxUnavailable` for, unless it says otherwise. Reads never wait long.

    Args:
        path: the file, made when something is first written; or `IN_MEMORY`.
        capacity: how many items it takes, and 64 MiB in all. Beyond them, and up to as many again, a namespace may still have
            eight: what piles up for one that is refused must not keep the others' turns out.

    Attributes:
        durable: whether what is in it survives the process; then its writes wait for a disk, and belong off the event loop.
    """

    def __init__(
        self,
        path: Path,
        holder: KeyHolder,
        *,
        capacity: int = DEFAULT_CAPACITY,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self._capacity = capacity
        self._database = _Database(path, notify)
        self.durable = self._database.durable
        self._seal = _RowSeal(holder)
        self._lock: int | None = None
        # Delivered, but still in the file because it could not be written; forgotten once it could.
        self._done: set[bytes] = set()
        self._opened: tuple[bytes, OutboxItem] | None = None

    @classmethod
    def in_memory(cls, *, capacity: int = DEFAULT_CAPACITY) -> Self:
        """Return the outbox of a process that does not outlive its turns, under keys that no other process has."""
        return cls(IN_MEMORY, RootHolder(RootKeys(secrets.token_bytes(SECRET_SIZE))), capacity=capacity)

    def put(self, item: OutboxItem, update: ValueUpdate | None = None) -> bool:
        """Queue an item and set a value, both or neither, durable when it returns; False when its key is already waiting.

        Raises:
            OutboxFull: no room.
            RevisionConflict: the value is not the one that was read.
        """
        row = secrets.token_bytes(_ROW_SIZE)
        write, place = self._write(item), self._place(item.owner.namespace)
        owner, content = self._seal.seal_item(item, row)
        with self._database.writing() as database:
            if update is not None:
                self._update(database, update)
            if database.execute("SELECT 1 FROM items WHERE write = ?", (write,)).fetchone():
                return False
            size = len(content)
            held, own, stored = database.execute(
                "SELECT COUNT(*), COUNT(*) FILTER (WHERE place = ?), COALESCE(SUM(LENGTH(content)), 0) "
                "FROM items WHERE reason IS NULL",
                (place,),
            ).fetchone()
            room = held < self._capacity or (held < 2 * self._capacity and own < OWN_ROOM)
            if not room or stored + size > MAX_BYTES:
                raise OutboxFull(f"{held} captured turns already wait for the relayer")
            database.execute(
                "INSERT INTO items (row, write, place, owner, content) VALUES (?, ?, ?, ?, ?)",
                (row, write, place, owner, content),
            )
        return True

    def head(self, besides: Collection[str] = ()) -> OutboxItem | None:
        """Return the oldest item that opens and whose namespace is not among ``besides``, or None.

        One that does not open becomes a dead letter, and the queue moves on.
        """
        while True:
            where, values = self._undelivered(besides)
            found = self._database.query(
                f"SELECT row, owner, content, write, place FROM items WHERE {where} ORDER BY seq LIMIT 1",  # noqa: S608 - placeholders only
                values,
            )
            if not found:
                return None
            row, owner, content, write, place = found[0]
            if self._opened is None or self._opened[0] != row:
                item = self._item(row, owner, content)
                # Under tags that are not its own, which only an edited file has, it would be delivered again for ever.
                if item is None or (write, place) != (self._write(item), self._place(item.owner.namespace)):
                    self._bury("row", row, _UNREADABLE)
                    continue
                self._opened = (row, item)
            return self._opened[1]

    def delivered(self, item: OutboxItem) -> None:
        """Remove an item that the relayer has; when the file cannot be written, it is passed over now, and removed later."""
        self.pass_over(item)
        self.tidy()

    def pass_over(self, item: OutboxItem) -> None:
        """Count an item that the relayer has as waiting no more; it stays in the file until `tidy`, also of a process that is killed.

        If it is delivered again, then under the same key, by which the relayer recognizes it.
        """
        self._done.add(self._write(item))

    def tidy(self) -> None:
        """Remove what was passed over; what cannot be removed now is later."""
        owed = list(self._done)
        if not owed:
            return
        with contextlib.suppress(OutboxUnavailable):
            with self._database.writing() as database:
                database.executemany("DELETE FROM items WHERE write = ?", [(known,) for known in owed])
            self._done.difference_update(owed)

    def refused(self, item: OutboxItem, reason: str) -> None:
        """Make an item that will never be taken a dead letter; the newest 100 are kept."""
        self._bury("write", self._write(item), reason)

    def waiting(self, namespace: str | None = None) -> int:
        """Count items, of one namespace or of all; 0 when the file cannot be read."""
        where, values = self._undelivered()
        if namespace is not None:
            where, values = f"{where} AND place = ?", [*values, self._place(namespace)]
        with contextlib.suppress(OutboxUnavailable):
            for (count,) in self._database.query(f"SELECT COUNT(*) FROM items WHERE {where}", values):  # noqa: S608 - placeholders only
                return int(count)
        return 0

    def queued(self) -> tuple[QueuedItem, ...]:
        """Return what waits, oldest first."""
        rows = self._database.query("SELECT row, owner, content FROM items WHERE reason IS NULL ORDER BY seq")
        return tuple(QueuedItem(row[0].hex(), self._item(*row)) for row in rows)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Return what was refused, oldest first."""
        rows = self._database.query(
            "SELECT reason, row, owner, content FROM items WHERE reason IS NOT NULL ORDER BY seq"
        )
        return tuple(DeadLetter(row[0].hex(), self._item(*row), reason) for reason, *row in rows)

    def retry(self, letter_id: str | None) -> int:
        """Queue one dead letter, or all if the id is None, for delivery again, and return their number."""
        where, values = _named(letter_id)
        with self._database.writing() as database:
            return database.execute(
                f"UPDATE items SET reason = NULL WHERE reason IS NOT NULL AND {where}",  # noqa: S608 - placeholders only
                values,
            ).rowcount

    def drop(self, letter_id: str | None, *, dead_only: bool) -> int:
        """Destroy one row, or all (of the dead); return how many."""
        where, values = _named(letter_id)
        if dead_only:
            where += " AND reason IS NOT NULL"
        with self._database.writing() as database:
            count = database.execute(f"DELETE FROM items WHERE {where}", values).rowcount  # noqa: S608 - placeholders only
        self._database.truncate_log()
        return count

    def move_to(self, target: Outbox) -> int:
        """Move what waits here to another outbox, and return how many items stay because they do not open.

        An item is queued there before it is removed here. If the process is killed in between, it is delivered from both
        under one idempotency key.

        Raises:
            OutboxFull: the target has no room for all; the rest stays here.
        """
        sealed = 0
        for queued in self.queued():
            if queued.item is None:
                sealed += 1
                continue
            target.put(queued.item)
            self.drop(queued.id, dead_only=False)
        return sealed

    def remove(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy the items, waiting or dead, that match, and their traces in the write-ahead log; return how many there were."""
        found = [each for each in (*self.queued(), *self.dead_letters()) if each.item and matches(each.item)]
        with self._database.writing() as database:
            database.executemany(
                "DELETE FROM items WHERE row = ?", [(bytes.fromhex(each.id),) for each in found]
            )
        self._opened = None
        self._database.truncate_log()
        return len(found)

    def get(self, owner: NamespaceRef, name: str) -> Versioned:
        """Return a value; one that cannot be decrypted counts as never set."""
        return self.get_all(((owner, name),))[0]

    def get_all(self, wanted: Sequence[tuple[NamespaceRef, str]]) -> list[Versioned]:
        """Return values as `get` does, in the order of ``wanted``, by one query."""
        tags = [self._tag(owner, name) for owner, name in wanted]
        # Only question marks are put in.
        statement = f"SELECT tag, revision, value FROM marks WHERE tag IN ({_holes(tags)})"  # noqa: S608
        rows = self._database.query(statement, tags)
        known = {tag: (revision, value) for tag, revision, value in rows}
        return [
            self._value_of(owner, tag, known.get(tag)) for (owner, _), tag in zip(wanted, tags, strict=True)
        ]

    def _value_of(self, owner: NamespaceRef, tag: bytes, row: tuple[int, bytes] | None) -> Versioned:
        if row is None:
            return Versioned()
        try:
            return Versioned(row[0], self._seal.open_value(owner, tag, row[1]))
        except _Unreadable:
            return Versioned(row[0])

    def compare_and_set(self, *updates: ValueUpdate) -> None:
        """Set values, all or none, durable when it returns. Raises `RevisionConflict`: a value is not the one that was read."""
        with self._database.writing() as database:
            for update in updates:
                self._update(database, update)

    def claim(self) -> bool:
        """Take, or confirm, the sole right to deliver, without waiting for it; False while another process has it."""
        if not self.durable or self._lock is not None:
            return True
        try:
            descriptor = open_lock(self.path)
        except OSError:
            # Where no lock can be made, nothing can be queued either; what waits is still worth delivering.
            return True
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def release(self) -> None:
        """Release the sole right to deliver."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Release the lock and close the file; later calls open it again."""
        self.release()
        self._database.close()

    def _update(self, database: sqlite3.Connection, update: ValueUpdate) -> None:
        tag = self._tag(update.owner, update.name)
        found = database.execute("SELECT revision FROM marks WHERE tag = ?", (tag,)).fetchone()
        revision = found[0] if found else 0
        if update.expected is not None and revision != update.expected:
            raise RevisionConflict
        last = database.execute(
            "SELECT COALESCE(MAX(used), 0) FROM marks WHERE lasting = ?", (update.lasting,)
        )
        used = last.fetchone()[0] + 1
        sealed = self._seal.seal_value(update.owner, tag, update.value)
        database.execute(
            "INSERT OR REPLACE INTO marks (tag, revision, used, lasting, value) VALUES (?, ?, ?, ?, ?)",
            (tag, revision + 1, used, update.lasting, sealed),
        )
        if used % _TIDY_EVERY == 0:
            database.execute(
                "DELETE FROM marks WHERE tag IN (SELECT tag FROM marks WHERE lasting = 0 ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (MAX_VALUES,),
            )

    def _item(self, row: bytes, owner: bytes, content: bytes) -> OutboxItem | None:
        try:
            return self._seal.open_item(row, owner, content)
        except (_Unreadable, GatewayError):
            return None

    def _bury(self, column: str, value: bytes, reason: str) -> None:
        with self._database.writing() as database:
            database.execute(f"UPDATE items SET reason = ? WHERE {column} = ?", (reason, value))  # noqa: S608 - one of two columns
            database.execute(
                "DELETE FROM items WHERE reason IS NOT NULL AND seq NOT IN "
                "(SELECT seq FROM items WHERE reason IS NOT NULL ORDER BY seq DESC LIMIT ?)",
                (MAX_DEAD,),
            )

    def _undelivered(self, besides: Collection[str] = ()) -> tuple[str, list[bytes]]:
        done, passed = list(self._done), [self._place(namespace) for namespace in besides]
        condition = f"reason IS NULL AND write NOT IN ({_holes(done)}) AND place NOT IN ({_holes(passed)})"
        return condition, [*done, *passed]

    def _write(self, item: OutboxItem) -> bytes:
        return self._seal.tag("write", item.owner.namespace, item.key)

    def _place(self, namespace: str) -> bytes:
        return self._seal.tag("namespace", namespace)

    def _tag(self, owner: NamespaceRef, name: str) -> bytes:
        return self._seal.tag("mark", owner.namespace, name)


def _holes(values: Collection[bytes]) -> str:
    return ", ".join("?" * len(values))


def _named(letter_id: str | None) -> tuple[str, list[bytes]]:
    if letter_id is None:
        return "1", []
    try:
        return "row = ?", [bytes.fromhex(letter_id)]
    except ValueError:
        return "0", []
