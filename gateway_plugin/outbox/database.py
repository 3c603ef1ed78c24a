"""The outbox's SQLite file: made private, written durably, replaced when it is damaged, shared between processes.

Every write is one transaction that is on the disk when it returns (write-ahead log, ``synchronous=FULL``). Reading has a
connection of its own and never waits for a writer. What SQLite reports becomes `OutboxUnavailable`, with a sentence for
people; a file that is no database any more is set aside, never deleted.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from gateway_plugin.identity import KeyHolder
from gateway_plugin.outbox.contract import NamespaceRef, OutboxItem, OutboxUnavailable
from relayer.wire.codec import Field, Reader, lp
from relayer.wire.errors import Malformed, UnsealError
from relayer.wire.keys import derive
from relayer.wire.schemas import AnalyzeRequest
from relayer.wire.sealing import KEY_ID_SIZE, SALT_SIZE, ObjectType, SealingKey, context, seal, unseal

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


class OutboxDatabase:
    """One file. Safe to use from several threads, and from several processes.

    Args:
        path: the file; its directory is made with mode 0700 when something is first written.
        notify: told a sentence for a person when a damaged file was set aside.
    """

    def __init__(self, path: Path, notify: Callable[[str], None] | None = None) -> None:
        self.path = path
        self._notify = notify
        self._writing = threading.RLock()
        self._reading = threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """Give a connection to read from, or None while there is no file.

        Raises:
            OutboxUnavailable: the file cannot be read.
        """
        with self._reading:
            try:
                if self._reader is None and self.path.exists():
                    self._reader = self._connected()
                yield self._reader
            except (sqlite3.Error, OSError) as error:
                self._close_reader()
                raise self._refusal(error) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give a connection inside a transaction, which is durable when the block ends and undone when it raises.

        Raises:
            OutboxUnavailable: the file cannot be written, e.g. because the disk is full.
        """
        with self._writing:
            try:
                connection = self._writer = self._writer or self._connected()
                connection.execute("BEGIN IMMEDIATE")
            except (sqlite3.Error, OSError) as error:
                self._close_writer()
                raise self._refusal(error) from error
            try:
                yield connection
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                # After an error of the disk nothing that a connection believes can be relied on.
                self._close_writer()
                raise self._refusal(error) from error
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def truncate_log(self) -> None:
        """Move everything from the write-ahead log into the file, and empty the log."""
        with self._writing, contextlib.suppress(sqlite3.Error):
            if self._writer is not None:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        with self._reading:
            self._close_reader()
        with self._writing:
            self._close_writer()

    def _connected(self) -> sqlite3.Connection:
        try:
            return self._opened()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGED:
                raise
            self._set_aside()
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        self._make_private()
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._keep_write_ahead_log(connection)
            for setting in _SETTINGS:
                connection.execute(setting)
            self._migrate(connection)
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
                if (
                    error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY
                    or time.monotonic() > deadline
                ):
                    raise
                time.sleep(_BUSY_PAUSE)
            else:
                return

    def _make_private(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == _VERSION:
            return
        connection.execute("BEGIN IMMEDIATE")
        version = self._version(connection)
        if version == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={_VERSION}")
        connection.execute("COMMIT")
        if version > _VERSION:
            raise OutboxUnavailable(
                f"{self.path} was written by a newer version of memrelay: update this one"
            )

    def _version(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(aside.with_name(aside.name + suffix))
        if self._notify is not None:
            self._notify(
                f"memrelay: {self.path} was damaged and is now {aside.name}; captures go to a new file"
            )

    def _refusal(self, error: Exception) -> OutboxUnavailable:
        if isinstance(error, sqlite3.DatabaseError) and self._is_damage(error):
            self.close()
            with contextlib.suppress(OSError):
                self._set_aside()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return OutboxUnavailable(f"the outbox {self.path} cannot be used ({reason}); {_advice(error)}")

    @staticmethod
    def _is_damage(error: sqlite3.Error) -> bool:
        return getattr(error, "sqlite_errorcode", None) in _DAMAGED

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(sqlite3.Error):
                writer.close()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(sqlite3.Error):
                reader.close()


def _advice(error: Exception) -> str:
    """Return what a person does about it."""
    if isinstance(error, OSError) and error.errno in _IN_THE_WAY:
        return "move away what stands in its place"
    if isinstance(error, OSError) and error.errno in _FORBIDDEN:
        return "put its permissions right"
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code == sqlite3.SQLITE_BUSY:
        return "another process holds it: try again, or end that process"
    if code == sqlite3.SQLITE_READONLY:
        return "put its permissions right"
    # A full disk has many names: SQLite reports it as full, as an error of the disk, or as a file it cannot open.
    return "make room, or put its permissions right"


TAG_SIZE: Final = 16
_FORMAT: Final = 1
_PLACE: Final = b"gateway"


class Unreadable(Exception):
    """Raised when a row does not open: changed, moved, of other keys, or of a format that is not known here."""


class OutboxSeal:
    """Seals and opens the rows of one holder's outbox."""

    def __init__(self, holder: KeyHolder) -> None:
        self._holder = holder
        self._tags = derive(holder.local_key, "tags")
        self._names = _sealing_key(derive(holder.local_key, "names"))

    def tag(self, *fields: Field) -> bytes:
        """Return the 16 bytes by which a thing is found without being named."""
        return hmac.new(self._tags, lp(*fields), hashlib.sha256).digest()[:TAG_SIZE]

    def seal_owner(self, owner: NamespaceRef, row: bytes) -> bytes:
        """Seal whose row it is."""
        return self._seal(self._names, row, _encoded(owner))

    def open_owner(self, sealed: bytes, row: bytes) -> NamespaceRef:
        """Tell whose row it is; raises `Unreadable`."""
        return _read_owner(Reader(self._unseal(self._names, row, sealed)))

    def seal_item(self, item: OutboxItem, row: bytes) -> bytes:
        """Seal an item.

        Raises:
            IdentityError: the agent's keys are not held.
        """
        said = item.request.model_dump_json(exclude_unset=True).encode()
        content = lp(_FORMAT, _encoded(item.owner), item.queued_at, said)
        return self._seal(self._agent_key(item.owner.agent), row, content)

    def open_item(self, owner: NamespaceRef, sealed: bytes, row: bytes) -> OutboxItem:
        """Open an item.

        Raises:
            Unreadable: it does not open, or is none.
            IdentityError: the agent's keys are not held.
        """
        content = self._unseal(self._agent_key(owner.agent), row, sealed)
        try:
            reader = Reader(content)
            if reader.integer() != _FORMAT or _read_owner(Reader(reader.bytes())) != owner:
                raise Unreadable
            queued_at = reader.integer()
            request = AnalyzeRequest.model_validate_json(reader.bytes())
            reader.end()
        except (Malformed, ValidationError) as error:
            raise Unreadable from error
        if request.idempotency_key is None:
            raise Unreadable
        return OutboxItem(owner, request, queued_at)

    def seal_mark(self, owner: NamespaceRef, tag: bytes, value: bytes) -> bytes:
        """Seal a mark's value; raises as `seal_item`."""
        return self._seal(self._agent_key(owner.agent), tag, value)

    def open_mark(self, owner: NamespaceRef, tag: bytes, sealed: bytes) -> bytes:
        """Open a mark's value; raises as `open_item`."""
        return self._unseal(self._agent_key(owner.agent), tag, sealed)

    def _agent_key(self, agent: str) -> SealingKey:
        return _sealing_key(self._holder.agent(agent).outbox_key)

    def _seal(self, key: SealingKey, row: bytes, content: bytes) -> bytes:
        return seal(key, ObjectType.OUTBOX, self._place(row), content, salt=secrets.token_bytes(SALT_SIZE))

    def _unseal(self, key: SealingKey, row: bytes, sealed: bytes) -> bytes:
        try:
            return unseal(key, ObjectType.OUTBOX, self._place(row), sealed)
        except UnsealError as error:
            raise Unreadable from error

    def _place(self, row: bytes) -> bytes:
        return context(ObjectType.OUTBOX, self._holder.account, _PLACE, row)


def _sealing_key(secret: bytes) -> SealingKey:
    # A key of a gateway has no object to keep a random id in; one drawn from the secret names nobody either.
    return SealingKey(derive(secret, "key id", length=KEY_ID_SIZE), derive(secret, "seal"))


def _encoded(owner: NamespaceRef) -> bytes:
    return lp(owner.agent, owner.namespace, owner.generation)


def _read_owner(reader: Reader) -> NamespaceRef:
    try:
        owner = NamespaceRef(reader.text(), reader.text(), reader.integer())
        reader.end()
    except Malformed as error:
        raise Unreadable from error
    return owner
