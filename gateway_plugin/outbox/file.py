"""The durable outbox: captured turns in a sealed file, delivered after any crash, by one process at a time.

A put returns when the turn is on the disk. A process that is killed at any instant leaves the file as it was before or
after a put, never between; whoever starts next with the same keys goes on. Any number of processes may put; the one that
holds the lock beside the file delivers for all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from gateway_plugin.errors import GatewayError
from gateway_plugin.identity import KeyHolder
from gateway_plugin.outbox.contract import (
    MAX_DEAD,
    MAX_MARKS,
    NOTHING_KEPT,
    OWN_ROOM,
    Kept,
    Letter,
    Mark,
    MarkMoved,
    NamespaceRef,
    OutboxFull,
    OutboxItem,
    OutboxUnavailable,
)
from gateway_plugin.outbox.database import OutboxDatabase, OutboxSeal, Unreadable
from gateway_plugin.private_files import state_directory


class DeliveryLock:
    """One process's hold on a lock file, which is made when it is first claimed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def claim(self) -> bool:
        """Take or confirm the lock, without waiting for it; False while another process has it."""
        if self._descriptor is not None:
            return True
        try:
            import fcntl  # noqa: PLC0415 - exists on POSIX only; elsewhere idempotency keys make up for it
        except ImportError:
            return True
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # Where no lock can be made, nothing can be queued either; what waits is still worth delivering.
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_TIDY_EVERY: Final = 64


class OutboxMarks:
    """Reads and sets the marks of one file; see `gateway_plugin.outbox.Mark` for how long one is kept."""

    def __init__(self, database: OutboxDatabase, seal: OutboxSeal) -> None:
        self._database = database
        self._seal = seal

    def kept(self, owner: NamespaceRef, name: str) -> Kept:
        """Return a mark; one that does not open counts as never set.

        Raises:
            OutboxUnavailable: the file cannot be read.
        """
        tag = self._tag(owner, name)
        with self._database.reading() as database:
            found = (
                database.execute("SELECT revision, value FROM marks WHERE tag = ?", (tag,)).fetchone()
                if database is not None
                else None
            )
        if found is None:
            return NOTHING_KEPT
        try:
            return Kept(found[0], self._seal.open_mark(owner, tag, found[1]))
        except Unreadable:
            return Kept(found[0], b"")

    def keep(self, database: sqlite3.Connection, mark: Mark) -> None:
        """Set a mark within the transaction of a connection.

        Raises:
            MarkMoved: the mark is not the one that was read.
        """
        tag = self._tag(mark.owner, mark.name)
        found = database.execute("SELECT revision FROM marks WHERE tag = ?", (tag,)).fetchone()
        revision = found[0] if found else 0
        if mark.replaces is not None and revision != mark.replaces:
            raise MarkMoved
        last = database.execute("SELECT COALESCE(MAX(used), 0) FROM marks WHERE lasting = ?", (mark.lasting,))
        used = last.fetchone()[0] + 1
        sealed = self._seal.seal_mark(mark.owner, tag, mark.value)
        database.execute(
            "INSERT OR REPLACE INTO marks (tag, revision, used, lasting, value) VALUES (?, ?, ?, ?, ?)",
            (tag, revision + 1, used, mark.lasting, sealed),
        )
        if used % _TIDY_EVERY == 0:
            database.execute(
                "DELETE FROM marks WHERE tag IN (SELECT tag FROM marks WHERE lasting = 0 ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (MAX_MARKS,),
            )

    def _tag(self, owner: NamespaceRef, name: str) -> bytes:
        return self._seal.tag("mark", owner.namespace, name)


DEFAULT_CAPACITY: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
_ROW_SIZE: Final = 16
_UNREADABLE: Final = "it does not open: damaged, or sealed with another secret"


def outbox_path(environ: Mapping[str, str], holder: KeyHolder, origin: str) -> Path:
    """Return where the turns wait that one holder's keys seal, for one relayer.

    Raises:
        IdentityError: the user has no home directory.
    """
    whose = f"{holder.account}\n{holder.only_agent or ''}\n{origin}".encode()
    return state_directory(environ) / f"outbox-{hashlib.sha256(whose).hexdigest()[:16]}.db"


class FileOutbox:
    """An outbox in a file; see `gateway_plugin.outbox.Outbox` for the contract of its methods.

    Args:
        path: the file; made when something is first written.
        holder: whose keys seal it.
        capacity: how many items it takes, as `MemoryOutbox` counts them; 64 MiB in all besides.
        notify: told a sentence for a person.
    """

    blocking = True
    durable = True

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
        self._database = OutboxDatabase(path, notify)
        self._seal = OutboxSeal(holder)
        self._marks = OutboxMarks(self._database, self._seal)
        self._lock = DeliveryLock(path.with_name(f"{path.name}.lock"))
        # Delivered, but still in the file because it could not be written; forgotten once it could.
        self._done: set[bytes] = set()
        self._opened: tuple[bytes, OutboxItem] | None = None

    def put(self, item: OutboxItem, mark: Mark | None = None) -> bool:
        """Queue an item and set a mark in one transaction; durable when it returns."""
        row = secrets.token_bytes(_ROW_SIZE)
        values = (row, self._write(item), self._place(item.owner.namespace))
        sealed = (self._seal.seal_owner(item.owner, row), self._seal.seal_item(item, row))
        with self._database.writing() as database:
            if mark is not None:
                self._marks.keep(database, mark)
            if database.execute("SELECT 1 FROM items WHERE write = ?", (values[1],)).fetchone():
                return False
            self._require_room(database, values[2], len(sealed[1]))
            database.execute(
                "INSERT INTO items (row, write, place, owner, content) VALUES (?, ?, ?, ?, ?)",
                (*values, *sealed),
            )
        return True

    def head(self, besides: Collection[str] = ()) -> OutboxItem | None:
        """Return the oldest item that opens; one that does not becomes a dead letter, and the queue moves on."""
        passed = {self._place(namespace) for namespace in besides}
        while True:
            found = self._oldest(passed)
            if found is None:
                return None
            row, owner, content = found
            if self._opened is not None and self._opened[0] == row:
                return self._opened[1]
            try:
                item = self._seal.open_item(self._seal.open_owner(owner, row), content, row)
            except (Unreadable, GatewayError):
                self._bury(row, _UNREADABLE)
                continue
            self._opened = (row, item)
            return item

    def delivered(self, item: OutboxItem) -> None:
        """Remove an item; when the file cannot be written, it is passed over from now on, and removed later."""
        write = self._write(item)
        self._done.add(write)
        owed = set(self._done)
        with contextlib.suppress(OutboxUnavailable):
            with self._database.writing() as database:
                database.executemany("DELETE FROM items WHERE write = ?", [(known,) for known in owed])
            self._done -= owed

    def refused(self, item: OutboxItem, reason: str) -> None:
        """Make an item a dead letter; the newest 100 are kept."""
        with self._database.writing() as database:
            database.execute("UPDATE items SET reason = ? WHERE write = ?", (reason, self._write(item)))
            self._trim_dead(database)

    def waiting(self, namespace: str | None = None) -> int:
        """Count items; 0 when the file cannot be read."""
        with contextlib.suppress(OutboxUnavailable), self._database.reading() as database:
            if database is None:
                return 0
            where, values = self._besides_done()
            if namespace is not None:
                where, values = f"{where} AND place = ?", [*values, self._place(namespace)]
            return int(database.execute(f"SELECT COUNT(*) FROM items WHERE {where}", values).fetchone()[0])  # noqa: S608 - placeholders only
        return 0

    def letters(self, *, dead: bool) -> tuple[Letter, ...]:
        """Return what waits, or the dead letters, oldest first.

        Raises:
            OutboxUnavailable: the file cannot be read.
        """
        condition = "reason IS NOT NULL" if dead else "reason IS NULL"
        with self._database.reading() as database:
            if database is None:
                return ()
            rows = database.execute(
                f"SELECT row, owner, content, reason FROM items WHERE {condition} ORDER BY seq"  # noqa: S608 - one of two constants
            ).fetchall()
        return tuple(
            Letter(row.hex(), reason or "", self._item(row, owner, content))
            for row, owner, content, reason in rows
        )

    def retry(self, letter_id: str | None) -> int:
        """Let one dead letter, or all, wait again; return how many; raises `OutboxUnavailable`."""
        where, values = _named(letter_id)
        with self._database.writing() as database:
            return database.execute(
                f"UPDATE items SET reason = NULL WHERE reason IS NOT NULL AND {where}",  # noqa: S608 - placeholders only
                values,
            ).rowcount

    def drop(self, letter_id: str | None, *, dead_only: bool) -> int:
        """Destroy one row, or all (of the dead); return how many; raises `OutboxUnavailable`."""
        where, values = _named(letter_id)
        if dead_only:
            where += " AND reason IS NOT NULL"
        with self._database.writing() as database:
            count = database.execute(f"DELETE FROM items WHERE {where}", values).rowcount  # noqa: S608 - placeholders only
        self._database.truncate_log()
        return count

    def remove(self, matches: Callable[[OutboxItem], bool]) -> int:
        """Destroy what matches, and its traces in the write-ahead log."""
        letters = (*self.letters(dead=False), *self.letters(dead=True))
        rows = [letter.id for letter in letters if letter.item is not None and matches(letter.item)]
        with self._database.writing() as database:
            database.executemany("DELETE FROM items WHERE row = ?", [(bytes.fromhex(row),) for row in rows])
        self._opened = None
        self._database.truncate_log()
        return len(rows)

    def kept(self, owner: NamespaceRef, name: str) -> Kept:
        """Return a mark; one that does not open counts as never set."""
        return self._marks.kept(owner, name)

    def keep(self, mark: Mark) -> None:
        """Set a mark; durable when it returns."""
        with self._database.writing() as database:
            self._marks.keep(database, mark)

    def claim(self) -> bool:
        """Take the lock beside the file; without waiting for it."""
        return self._lock.claim()

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def close(self) -> None:
        """Give the lock back and close the file."""
        self.release()
        self._database.close()

    def _oldest(self, passed: Collection[bytes]) -> tuple[bytes, bytes, bytes] | None:
        where, values = self._besides_done()
        if passed:
            where += f" AND place NOT IN ({_holes(passed)})"
        with self._database.reading() as database:
            if database is None:
                return None
            query = f"SELECT row, owner, content FROM items WHERE {where} ORDER BY seq LIMIT 1"  # noqa: S608 - placeholders only
            found: tuple[bytes, bytes, bytes] | None = database.execute(query, [*values, *passed]).fetchone()
            return found

    def _item(self, row: bytes, owner: bytes, content: bytes) -> OutboxItem | None:
        try:
            return self._seal.open_item(self._seal.open_owner(owner, row), content, row)
        except (Unreadable, GatewayError):
            return None

    def _bury(self, row: bytes, reason: str) -> None:
        with self._database.writing() as database:
            database.execute("UPDATE items SET reason = ? WHERE row = ?", (reason, row))
            self._trim_dead(database)

    @staticmethod
    def _trim_dead(database: sqlite3.Connection) -> None:
        database.execute(
            "DELETE FROM items WHERE reason IS NOT NULL AND seq NOT IN "
            "(SELECT seq FROM items WHERE reason IS NOT NULL ORDER BY seq DESC LIMIT ?)",
            (MAX_DEAD,),
        )

    def _require_room(self, database: sqlite3.Connection, place: bytes, size: int) -> None:
        held, stored = database.execute(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(content)), 0) FROM items WHERE reason IS NULL"
        ).fetchone()
        own = database.execute(
            "SELECT COUNT(*) FROM items WHERE reason IS NULL AND place = ?", (place,)
        ).fetchone()[0]
        room = held < self._capacity or (held < 2 * self._capacity and own < OWN_ROOM)
        if not room or stored + size > MAX_BYTES:
            raise OutboxFull(f"{held} captured turns wait for the relayer already")

    def _besides_done(self) -> tuple[str, list[bytes]]:
        if not self._done:
            return "reason IS NULL", []
        known = list(self._done)
        return f"reason IS NULL AND write NOT IN ({_holes(known)})", known

    def _write(self, item: OutboxItem) -> bytes:
        return self._seal.tag("write", item.owner.namespace, item.key)

    def _place(self, namespace: str) -> bytes:
        return self._seal.tag("namespace", namespace)


def _holes(values: Collection[bytes]) -> str:
    return ", ".join("?" * len(values))


def _named(letter_id: str | None) -> tuple[str, list[bytes]]:
    if letter_id is None:
        return "1", []
    try:
        return "row = ?", [bytes.fromhex(letter_id)]
    except ValueError:
        return "0", []
