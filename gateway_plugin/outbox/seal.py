"""What the outbox's file holds, sealed: nobody who reads it learns a text, a name, or whose turns wait.

Contents are sealed with the agent's outbox key, so that whoever is handed one agent's keys opens that agent's turns and
no others. Which agent a row belongs to is sealed under a key of the holder's own; rows are found by keyed tags.

    item    seal(agent's outbox key, lp(1, agent, namespace, generation, queued_at, request as JSON))
    owner   seal(local key, lp(agent, namespace, generation))
    mark    seal(agent's outbox key, value)
    tag     HMAC-SHA256(local key, lp(what, ...))[:16]

The context of each is (account, "gateway", its row's id or tag), so that rows cannot be exchanged.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from pydantic import ValidationError

from gateway_plugin.identity import KeyHolder
from gateway_plugin.outbox.contract import OutboxItem, Waiting
from relayer.wire.errors import Malformed, UnsealError
from relayer.wire.keys import derive
from relayer.wire.lp import Field, Reader, lp
from relayer.wire.schemas import AnalyzeRequest
from relayer.wire.sealing import KEY_ID_SIZE, SALT_SIZE, ObjectType, SealingKey, context, seal, unseal

__all__ = ["TAG_SIZE", "OutboxSeal", "Unreadable"]

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

    def seal_owner(self, owner: Waiting, row: bytes) -> bytes:
        """Seal whose row it is."""
        return self._seal(self._names, row, _encoded(owner))

    def open_owner(self, sealed: bytes, row: bytes) -> Waiting:
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

    def open_item(self, owner: Waiting, sealed: bytes, row: bytes) -> OutboxItem:
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

    def seal_mark(self, owner: Waiting, tag: bytes, value: bytes) -> bytes:
        """Seal a mark's value; raises as `seal_item`."""
        return self._seal(self._agent_key(owner.agent), tag, value)

    def open_mark(self, owner: Waiting, tag: bytes, sealed: bytes) -> bytes:
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


def _encoded(owner: Waiting) -> bytes:
    return lp(owner.agent, owner.namespace, owner.generation)


def _read_owner(reader: Reader) -> Waiting:
    try:
        owner = Waiting(reader.text(), reader.text(), reader.integer())
        reader.end()
    except Malformed as error:
        raise Unreadable from error
    return owner
