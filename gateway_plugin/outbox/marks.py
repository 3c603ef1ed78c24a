"""The marks in an outbox's file: small sealed values beside the queue, each with the count of its changes."""

from __future__ import annotations

import sqlite3
from typing import Final

from gateway_plugin.outbox.contract import MAX_MARKS, NOTHING_KEPT, Kept, Mark, MarkMoved, Waiting
from gateway_plugin.outbox.database import OutboxDatabase
from gateway_plugin.outbox.seal import OutboxSeal, Unreadable

__all__ = ["OutboxMarks"]

_TIDY_EVERY: Final = 64


class OutboxMarks:
    """Reads and sets the marks of one file; see `gateway_plugin.outbox.Mark` for how long one is kept."""

    def __init__(self, database: OutboxDatabase, seal: OutboxSeal) -> None:
        self._database = database
        self._seal = seal

    def kept(self, owner: Waiting, name: str) -> Kept:
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

    def _tag(self, owner: Waiting, name: str) -> bytes:
        return self._seal.tag("mark", owner.namespace, name)
