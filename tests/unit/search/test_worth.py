"""What the default model's vectors say of the worth of a memory."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.worth import worth_reader

LASTS = (
    "the spare key hangs behind the boiler",
    "mein Zug geht immer um 6:42 ab Gleis 9",
    "soy alérgica a la penicilina desde niña",
    "母の誕生日は十一月三日です",
)
DOES_NOT = (
    "Wow, that sounds lovely! Enjoy every minute of it!",
    "Danke dir, das ist ja super, freut mich total!",
    "¡Qué bien! Me alegro mucho por ti, ya me contarás.",
    "ありがとう、すごくうれしいです、楽しんできてね!",
)


async def _worth(texts: tuple[str, ...]) -> list[float]:
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    try:
        rows = await embedder.embed(texts)
    finally:
        await embedder.close()
    reader = worth_reader(embedder.model.sha256)
    assert reader is not None
    worth: list[float] = reader.read((rows @ reader.direction).astype(np.float64)).tolist()
    return worth


def test_what_lasts_is_told_from_thanks_and_congratulations_in_any_language():
    worth = asyncio.run(_worth((*LASTS, *DOES_NOT)))
    assert min(worth[: len(LASTS)]) > 0.7
    assert max(worth[len(LASTS) :]) < 0.3


def test_a_memory_without_a_vector_is_worth_nothing_more_and_of_another_model_nothing_is_known():
    (reader,) = (worth_reader("3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"),)
    assert reader is not None
    assert reader.read(np.array([np.nan, 0.0])).tolist() == pytest.approx(
        [0.0, 1 / (1 + np.exp(-reader.bias))]
    )
    assert np.linalg.norm(reader.direction) == pytest.approx(1.0, abs=1e-5)
    assert worth_reader("ab" * 32) is None
