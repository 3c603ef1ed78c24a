"""What the replaced systems promised of their back ends, asked of a relayer over HTTP or through the plugin."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from doubles.scripted_model_server import ScriptedModelServer, says
from plugin_site import PluginSite, own_relayer, recall, say
from processes import wait_until

from gateway_plugin.turn.gates import HostTurn
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.testing.local_relayer import LocalRelayer, local_relayer
from relayer.wire.signing import Right

COFFEE = "I only drink oat milk coffee before noon"
QUERY = "which oat milk coffee do I drink before noon"
OTHERS = ("Oat milk is in the fridge", "I drink tea in the evening", "The tram leaves at nine")
SAID = (
    "My sister Lena moved from Hamburg to Berlin.",
    "Our dinghy lies at berth seven.",
    "I am allergic to hazelnuts.",
)


async def tell(at: LocalRelayer, *texts: str, **more) -> list[str]:
    answer = await at.call("POST", "/v1/memories", {"items": [{"text": text} for text in texts]}, **more)
    assert answer.status_code == 200, answer.text
    return [memory["id"] for memory in answer.json()["memories"]]


async def ask(at: LocalRelayer, query: str = QUERY, **fields) -> dict:
    answer = await at.call("POST", "/v1/recall", {"query": query, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.row("MW-06", level="e2e")
async def test_recall_returns_the_nearest_memories_of_one_namespace_by_distance():
    async with local_relayer() as at:
        await tell(at, COFFEE, *OTHERS)
        coder = replace(at.gateway, agent="coder", namespaces=("coder",))
        await tell(at, QUERY, gateway=coder, key=coder.memory_key(at.fleet_key))
        found = (await ask(at, floor=0, limit=3))["memories"]
    assert next(hit["text"] for hit in found) == COFFEE
    assert len(found) == 3
    assert QUERY not in {hit["text"] for hit in found}
    distances = [hit["distance"] for hit in found]
    assert distances == sorted(distances)
    assert distances == pytest.approx([1 - hit["relevance"] for hit in found], abs=1e-4)


@pytest.mark.row("MS-21", level="e2e")
def test_what_one_relayer_acknowledged_is_found_through_another_at_once(tmp_path, secret):
    store = MemoryStore(SystemClock())
    with (
        own_relayer(store) as one,
        own_relayer(store) as other,
        PluginSite(tmp_path / "a", one.url, secret) as here,
        PluginSite(tmp_path / "b", other.url, secret) as there,
    ):
        writing, reading = here.plugin(), there.plugin()
        # The other relayer has an older view before each of them.
        for number in range(5):
            question = f"What colour is the gate number {number} of the harbour?"
            assert f"gate number {number} of the harbour is" not in recall(reading, question).text
            say(writing, f"The gate number {number} of the harbour is green.", key=f"agent:main:{number}")
            assert f"gate number {number} of the harbour is" in recall(reading, question + " Really?").text


@pytest.mark.row("MW-52", level="e2e")
async def test_without_any_index_a_relayer_answers_from_the_stored_objects_as_before():
    store = MemoryStore(SystemClock())
    question = "which locker is rented by the family of number 77"
    # An index is worth its writing from some dozens of memories on.
    texts = [f"Locker {number} is rented by the family of number {number}" for number in range(110)]
    async with local_relayer(store, rate_limits="off", compact_entries=2) as at:
        gateway = at.gateway
        for start in range(0, len(texts), 55):
            await tell(at, *texts[start : start + 55])
        before = await ask(at, question, floor=0)
        await asyncio.to_thread(wait_until, lambda: any("/index/" in call.key for call in at.store.calls))
    indexes = [key for key in await keys(store) if "/index/" in key]
    assert indexes
    for key in indexes:
        await store.delete(key)
    async with local_relayer(store) as at:
        at.gateway = gateway
        after = await ask(at, question, floor=0)
    assert before["memories"][0]["text"] == texts[77]
    assert [(hit["id"], hit["relevance"]) for hit in after["memories"]] == [
        (hit["id"], hit["relevance"]) for hit in before["memories"]
    ]


async def keys(store: MemoryStore) -> list[str]:
    return [entry.key async for entry in store.list("")]


@pytest.mark.row("MW-40", level="e2e")
async def test_duplicates_become_one_and_words_find_what_no_vector_does():
    embedder = HashingEmbedder()
    async with local_relayer(embedder=embedder) as at:
        ids = [await tell(at, text) for text in (COFFEE, COFFEE, COFFEE.upper() + " ")]
        assert len({one for (one,) in ids}) == 1
        parcels = [f"Parcel QX-77{number} stands on shelf {number}" for number in range(10, 20)]
        await tell(at, *parcels)
        listed = (await at.call("GET", "/v1/memories?limit=100")).json()
        assert listed["total"] == 11
        embedder.down = True
        found = await ask(at, "QX-7713", floor=0, limit=1)
    assert found["degraded"]
    assert [hit["text"] for hit in found["memories"]] == [parcels[3]]


@pytest.mark.row("MW-42", level="e2e")
async def test_the_cache_of_questions_is_bounded_and_emptied_by_an_erasure():
    embedder = HashingEmbedder(dimension=4096)
    async with local_relayer(embedder=embedder, rate_limits="off") as at:
        at.gateway = replace(at.gateway, rights=(Right.READ, Right.WRITE, Right.ADMIN))
        (coffee,) = await tell(at, COFFEE)

        async def computed(query: str) -> bool:
            before = len(embedder.calls)
            await ask(at, query, floor=0)
            return any(query in call for call in embedder.calls[before:])

        assert [await computed(QUERY) for _ in range(3)] == [True, False, False]
        # A quarter of a MiB of vectors: sixteen of this size.
        for number in range(40):
            await ask(at, f"question number {number}", floor=0)
        assert await computed(QUERY)
        assert not await computed(QUERY)
        erased = await at.call("DELETE", f"/v1/memories/{coffee}?mode=erase")
        assert erased.status_code == 200, erased.text
        assert await computed(QUERY)
        assert (await ask(at, floor=0))["memories"] == []


@pytest.mark.row("MS-20", level="e2e")
@pytest.mark.parametrize("answer", ["no json", says({"points": [{"text": "A dragon was sold to Bob."}]})])
def test_a_session_without_a_usable_summary_is_kept_as_it_was_said(tmp_path, secret, answer):
    with ScriptedModelServer(chat=answer) as models:
        relayer = own_relayer(real_model=True, model_url=models.url, model_name="notes")
        with relayer as running, PluginSite(tmp_path, running.url, secret) as site:
            plugin = site.plugin()
            history: list[dict[str, str]] = []
            for text in SAID:
                history += [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
                plugin.after_turn(history, session_key="agent:main:s1")
            report = plugin.flush_session(history, session_key="agent:main:s1", seconds=20, ended=True)
            assert report.ended
            wait_until(lambda: len(models.asked("chat")) > 0)
            wait_until(lambda: models.under_way == 0)
            assert sorted(site.texts()) == sorted(SAID)


@pytest.mark.row("MS-20", level="e2e")
def test_without_a_model_nothing_is_lost_when_a_session_ends(shared_relayer, tmp_path, secret):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        plugin = site.plugin()
        for text in SAID:
            say(plugin, text, key="agent:main:s1")
        assert plugin.flush_session((), session_key="agent:main:s1", seconds=20, ended=True).ended
        assert sorted(site.texts()) == sorted(SAID)


@pytest.mark.row("AM-16", level="e2e")
@pytest.mark.parametrize("effort", ["off", "low", "xhigh"])
def test_how_much_the_model_of_active_recall_thinks_is_set_by_the_plugin(tmp_path, secret, effort):
    with ScriptedModelServer(chat="NONE") as models:
        relayer = own_relayer(model_url=models.url, model_name="chatty")
        with relayer as running, PluginSite(tmp_path, running.url, secret) as site:
            thinking = {} if effort == "off" else {"thinking": effort}
            plugin = site.plugin(recall={"mode": "active"}, active={"agents": ["main"], **thinking})
            say(plugin, COFFEE, key="agent:main:telegram:direct:1")
            models.will_chat("Oat milk coffee, before noon.")
            asked = recall(plugin, QUERY, session_key="agent:main:telegram:direct:1", host=HostTurn())
            assert asked.summary == "Oat milk coffee, before noon."
            efforts = [json.dumps(request.body.get("reasoning_effort")) for request in models.asked("chat")][
                -1:
            ]
    assert efforts == ["null" if effort == "off" else f'"{effort}"']
