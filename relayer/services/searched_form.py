"""The form in which a memory is embedded and searched: its text below a header, its vector in the precision that is kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relayer.domain.record import Record
from relayer.search.text import indexed_text

__all__ = ["decode_vector", "encode_vector", "header_of"]

_VECTOR_TYPE = np.dtype("<f2")


def encode_vector(vector: NDArray[np.float32]) -> bytes:
    """Encode a unit vector as little-endian float16, the precision in which it is kept and searched."""
    return vector.astype(_VECTOR_TYPE).tobytes()


def decode_vector(data: bytes) -> NDArray[np.float32]:
    """Decode what `encode_vector` made."""
    return np.frombuffer(data, _VECTOR_TYPE).astype(np.float32)


def header_of(record: Record) -> str:
    """Return a record's text as it is embedded and indexed."""
    return indexed_text(record.source.speaker or None, record.occurred_at, record.text)
