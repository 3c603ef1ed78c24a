"""What the default model's vectors say of the worth of a memory."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.search.baseline import PRIORS, Calibration
from relayer.search.index import MemoryIndex
from relayer.search.ranking import WorthReader, Worths, worth_reader

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


def test_a_memory_is_looked_at_once_and_again_when_it_has_another_vector():
    reader = WorthReader(np.array([1.0, 0.0], np.float32), steepness=2.0, bias=0.0)
    lies = {3: 0.5, 200: -0.5}
    asked: list[list[int]] = []

    def along(direction, keys):
        assert direction is reader.direction
        asked.append(list(keys))
        return np.array([lies.get(key, np.nan) for key in keys])

    worths = Worths()
    first = worths.importances([3, 200], reader, along).tolist()
    assert first == pytest.approx([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))])
    assert worths.importances([3, 200], reader, along).tolist() == first
    lies[3] = -0.5
    worths.forget(3)
    worths.forget(10_000)
    assert worths.importances([3, 200], reader, along)[0] == pytest.approx(first[1])
    assert asked == [[3, 200], [3]]
    worths.clear()
    worths.importances([200], reader, along)
    assert asked[2:] == [[200]]
    assert worths.nbytes >= 4 * 201


def test_without_memories_or_vectors_nothing_is_worth_anything():
    reader = WorthReader(np.array([1.0, 0.0], np.float32), steepness=2.0, bias=0.0)
    nowhere = Worths()
    assert nowhere.importances([], reader, lambda _, keys: np.zeros(len(keys))).tolist() == []
    assert nowhere.importances([1], reader, lambda _, keys: np.full(len(keys), np.nan)).tolist() == [0.0]


def test_the_order_follows_a_vector_that_is_replaced_and_forgets_a_model_that_is_left():
    model = "3baa718a3a42454f99e560e1ccfa8cdea10c8477b691cda31e3e8b074a7155b4"
    reader = worth_reader(model)
    assert reader is not None
    direction = reader.direction
    query = np.eye(len(direction), dtype=np.float32)[0]
    query -= (query @ direction) * direction
    query /= np.linalg.norm(query)
    lasts, passes = (np.float32(0.6) * query + np.float32(sign * 0.8) * direction for sign in (1, -1))
    index = MemoryIndex(len(direction), Calibration(PRIORS[model], (), {}, model))

    def order() -> list[int]:
        return [hit.key for hit in index.search(query, "Where is the ferry?", 2, floor=0.0).hits]

    for key, row in enumerate((passes, lasts)):
        index.put(key, row, "the ferry leaves")
    assert order() == [1, 0]
    index.put_vectors(0, lasts, ())
    index.put_vectors(1, passes, ())
    assert order() == [0, 1]
    index.remove(0)
    index.put(0, passes, "the ferry leaves")
    index.put(1, lasts, "the ferry leaves")
    assert order() == [1, 0]
    index.prepare(len(direction))
    for key in (0, 1):
        index.put_coming(key, query)
    index.cut_over(Calibration(PRIORS[model], (), {}, "ab" * 32))
    assert order() == [0, 1]
