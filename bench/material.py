"""Texts and vectors to measure with: invented, all different, the same for the same seed."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIMENSION", "encoded", "items", "queries", "sentences", "unit_vectors"]

DIMENSION = 384
_WHO = (
    "Ada",
    "Bruno",
    "Chiara",
    "Dmitri",
    "Elif",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kemal",
    "Lena",
)
_DID = ("moved", "lent", "repaired", "painted", "sold", "found", "lost", "ordered", "returned", "borrowed")
_WHAT = ("bicycle", "camera", "lamp", "guitar", "tent", "kettle", "passport", "ladder", "jacket", "notebook")
_WHERE = ("Porto", "Leipzig", "the office", "the cellar", "Lyon", "the garage", "Turin", "the library")
_WHEN = ("in March", "last Friday", "before the holidays", "after lunch", "in the spring", "at night")


def unit_vectors(count: int, seed: int) -> NDArray[np.float32]:
    """Random directions; shape (count, 384), float32, rows of length 1."""
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)
    normal: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normal


def encoded(vector: NDArray[np.float32]) -> str:
    """A vector as the API takes it: base64 of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def items(rows: NDArray[np.float32], seed: int) -> list[dict[str, Any]]:
    """One memory for each row, with its vector given."""
    chosen = random.Random(seed)
    return [
        {"text": f"{_sentence(chosen)} (note {seed}-{at})", "vector": encoded(row)}
        for at, row in enumerate(rows)
    ]


def queries(count: int, seed: int) -> list[str]:
    """Questions, all different."""
    chosen = random.Random(seed)
    return [f"Where has {_sentence(chosen)}, and was it number {seed}-{at}?" for at in range(count)]


def sentences(count: int, seed: int) -> list[str]:
    """What somebody says that is worth remembering, all different."""
    chosen = random.Random(seed)
    return [
        f"My friend {chosen.choice(_WHO)} keeps the {chosen.choice(_WHAT)} {seed}-{at} in {chosen.choice(_WHERE)}."
        for at in range(count)
    ]


def _sentence(chosen: random.Random) -> str:
    who, did, what, where, when = (chosen.choice(words) for words in (_WHO, _DID, _WHAT, _WHERE, _WHEN))
    return f"{who} {did} the {what} near {where} {when}"
