"""The relayer's own keys: everything it needs beyond what gateways send, from one 32-byte key.

The metadata key seals what the log itself must read; the names key hides names in object keys; the identity signs what
the relayer says of itself; the custody key stands in for a gateway's secret where a namespace has custody ``relayer``.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from nacl.signing import SigningKey

from relayer.wire.codec import Field, lp
from relayer.wire.keys import derive
from relayer.wire.sealing import SealingKey

_TAG_SIZE = 20


@dataclass(frozen=True, slots=True)
class RelayerKeys:
    """Subkeys of the relayer key; a relayer with another key sees noise in the same store."""

    metadata: SealingKey
    identity: SigningKey = field(repr=False)
    _names: bytes = field(repr=False)
    _custody: bytes = field(repr=False)

    @classmethod
    def derive(cls, relayer_key: bytes) -> RelayerKeys:
        """Derive all subkeys from the 32-byte relayer key."""
        key_id = derive(relayer_key, "memrelay/v1/relayer/metadata-id", length=16)
        return cls(
            metadata=SealingKey(key_id, derive(relayer_key, "memrelay/v1/relayer/metadata")),
            identity=SigningKey(derive(relayer_key, "memrelay/v1/relayer/identity")),
            _names=derive(relayer_key, "memrelay/v1/relayer/names"),
            _custody=derive(relayer_key, "memrelay/v1/relayer/custody"),
        )

    def tag(self, *fields: Field) -> str:
        """Return a keyed hash of names as 40 hex digits: the same for every replica, meaningless without the key."""
        return hmac.new(self._names, lp(*fields), hashlib.sha512).digest()[:_TAG_SIZE].hex()

    def namespace_secret(self, account: str, namespace: str, generation: int) -> bytes:
        """Return the secret of a namespace of custody ``relayer``."""
        return derive(self._custody, "namespace", account, namespace, generation)
