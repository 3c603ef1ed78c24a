"""Opens what is sealed under a namespace's key, to see that it opens; nothing of it is kept or shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relayer.crypto.namespace_keys import NamespaceKeys
from relayer.domain.operations import (
    JobAccepted,
    JobFinished,
    Malformed,
    Operation,
    Put,
    Stored,
    Supersede,
    VectorSet,
    decode_operation,
)
from relayer.domain.record import decode_record
from relayer.errors import UpgradeRequired
from relayer.log.slots import LinkedEntry
from relayer.wire.errors import UnsealError

__all__ = ["BodyCheck", "whole"]


class BodyCheck:
    """Looks at every body of a log: is it there, and does it open?

    Attributes:
        there: records of which some operation still has the text.
        opened: bodies that opened.
        failed: slots that hold one that does not, each once, in order.
    """

    def __init__(self, keys: NamespaceKeys | None) -> None:
        self._keys = keys
        self.there: set[bytes] = set()
        self.opened = 0
        self.failed: list[int] = []

    def __call__(self, linked: LinkedEntry) -> None:
        """Look at the operations of one entry."""
        for raw in linked.entry.operations:
            try:
                operation = decode_operation(raw)
            except UpgradeRequired:
                continue
            self.there.update(item.record for item in _stored(operation) if item.sealed)
            if self._keys is None:
                continue
            if whole(self._keys, operation):
                self.opened += 1
            elif linked.entry.seq not in self.failed[-1:]:
                self.failed.append(linked.entry.seq)


def whole(keys: NamespaceKeys, operation: Operation | Malformed) -> bool:
    """Whether every body of an operation that is there opens under these keys."""
    try:
        for item in _stored(operation):
            if item.key_epoch == keys.epoch:
                _open_stored(keys, item)
        if isinstance(operation, JobAccepted) and operation.sealed:
            keys.unseal_record(operation.job, operation.sealed)
        if isinstance(operation, JobFinished):
            for vectors in operation.vectors:
                _open_vectors(keys, vectors)
    except (UnsealError, msgspec.MsgspecError):
        return False
    return True


def _open_stored(keys: NamespaceKeys, item: Stored) -> None:
    if item.sealed:
        decode_record(keys.unseal_record(item.record, item.sealed))
    _open_vectors(keys, item)


def _open_vectors(keys: NamespaceKeys, item: Stored | VectorSet) -> None:
    for which, sealed in (("own", item.vector), ("context", item.context_vector)):
        if sealed:
            keys.unseal_vector(item.record, which, sealed)


def _stored(operation: Operation | Malformed) -> Sequence[Stored]:
    match operation:
        case Put(stored=stored) | Supersede(stored=stored):
            return (stored,)
        case JobFinished(stored=results):
            return results
        case _:
            return ()
