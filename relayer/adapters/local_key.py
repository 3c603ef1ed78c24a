"""The relayer key as 32 bytes in the environment or in a file of the relayer's machine."""

from __future__ import annotations

from relayer.ports import Randomness
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import SALT_SIZE, ObjectType, SealingKey, context, derive, seal, unseal

_PLACE = context(ObjectType.CONSTANT, "", b"", "relayer/store-key")


class LocalKey:
    """Wraps the store key with a relayer key of 32 bytes that this process holds, as the `KeyProvider` port."""

    name = "local"

    def __init__(self, relayer_key: bytes, randomness: Randomness) -> None:
        key_id = derive(relayer_key, "memrelay/v1/relayer-key/id", length=16)
        self._key = SealingKey(key_id, derive(relayer_key, "memrelay/v1/relayer-key/wrap"))
        self._randomness = randomness

    async def wrap(self, store_key: bytes) -> bytes:
        """Return the store key as a sealed object."""
        salt = self._randomness.bytes(SALT_SIZE)
        return seal(self._key, ObjectType.CONSTANT, _PLACE, store_key, salt=salt)

    async def unwrap(self, wrapped: bytes) -> bytes | None:
        """Return the store key; None if it was wrapped under another key."""
        try:
            return unseal(self._key, ObjectType.CONSTANT, _PLACE, wrapped)
        except UnsealError:
            return None
