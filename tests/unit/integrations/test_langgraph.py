"""The LangGraph store does what LangGraph documents of a store: its operations, namespaces, filters and times to live."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langgraph.store.base", reason="make test-integrations installs LangGraph")

from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from memrelay import AsyncMemory, InvalidInput, MemrelayError
from memrelay.integrations.langgraph import MemrelayStore

pytestmark = pytest.mark.filterwarnings("default")
ANA = ("memories", "ana")


@pytest.fixture
def store(memory: AsyncMemory) -> MemrelayStore:
    return MemrelayStore(memory, fail_open=False)


def keys(found: Any) -> list[str]:
    return [one.key for one in found]


async def test_put_get_update_and_delete(store: MemrelayStore) -> None:
    value = {"text": "I'm allergic to peanuts.", "score": 3, "nested": {"list": [1, "two", None]}}
    await store.aput(ANA, "food", value)
    item = await store.aget(ANA, "food")
    assert item is not None
    assert (item.value, item.key, item.namespace) == (value, "food", ANA)
    assert item.created_at.tzinfo is not None

    await store.aput(ANA, "food", {"text": "I eat everything."})
    newer = await store.aget(ANA, "food")
    assert newer is not None
    assert newer.value == {"text": "I eat everything."}
    assert newer.created_at == item.created_at
    assert newer.updated_at >= item.updated_at
    assert keys(await store.asearch(ANA)) == ["food"]

    await store.adelete(ANA, "food")
    assert await store.aget(ANA, "food") is None
    assert await store.asearch(ANA) == []
    await store.adelete(ANA, "food")


@pytest.mark.parametrize(
    "value",
    [
        {"text": "One text."},
        {"title": "A title", "body": "A body", "more": {"deep": "text"}},
        {"n": 1},
        {"same": "twice", "again": "twice"},
        {"text": " spaces around "},
        {"long": "word " * 5000},
        {},
    ],
)
async def test_a_value_is_returned_as_it_was_put(store: MemrelayStore, value: dict[str, Any]) -> None:
    await store.aput(ANA, "one", value)
    item = await store.aget(ANA, "one")
    assert item is not None
    assert item.value == value
    assert [one.value for one in await store.asearch(ANA)] == [value]


async def test_two_items_with_the_same_value_are_two_items(store: MemrelayStore) -> None:
    await asyncio.gather(*(store.aput(ANA, key, {"text": "the same"}) for key in ("a", "b")))
    assert sorted(keys(await store.asearch(ANA))) == ["a", "b"]


async def test_the_operations_of_a_batch_are_done_as_in_the_memory_store(store: MemrelayStore) -> None:
    await store.aput(ANA, "old", {"text": "old"})
    results = await store.abatch(
        [
            PutOp(ANA, "new", {"text": "first"}),
            PutOp(ANA, "new", {"text": "second"}),
            GetOp(ANA, "old"),
            GetOp(ANA, "new"),
            SearchOp(ANA),
            ListNamespacesOp(),
        ]
    )
    assert results[:2] == [None, None]
    assert results[2].value == {"text": "old"}  # type: ignore[union-attr]
    # Reads come before the writes of their batch.
    assert results[3] is None
    assert keys(results[4]) == ["old"]
    assert results[5] == [ANA]
    assert (await store.aget(ANA, "new")).value == {"text": "second"}  # type: ignore[union-attr]


async def test_search_by_meaning(store: MemrelayStore) -> None:
    await store.aput(ANA, "bike", {"text": "The bike is a red Brompton."})
    await store.aput(ANA, "food", {"text": "Ana is allergic to peanuts."})
    await store.aput(ANA, "hidden", {"text": "The other bike is hidden."}, index=False)
    await store.aput(ANA, "title", {"title": "Garden", "body": "Bike shed."}, index=["title"])
    found = await store.asearch(ANA, query="Which Brompton bike?", limit=1)
    assert keys(found) == ["bike"]
    assert found[0].score is not None
    assert "hidden" not in keys(await store.asearch(ANA, query="Which bike?"))
    assert len(await store.asearch(ANA)) == 4
    page = await store.asearch(ANA, limit=2, offset=1)
    assert keys(page) == keys(await store.asearch(ANA))[1:3]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"price": 15}, ["15"]),
        ({"price": {"$eq": 15}}, ["15"]),
        ({"price": {"$ne": 15}}, ["25", "5"]),
        ({"price": {"$gt": 15}}, ["25"]),
        ({"price": {"$gte": 15}}, ["15", "25"]),
        ({"price": {"$lt": 15}}, ["5"]),
        ({"price": {"$lte": 15}}, ["15", "5"]),
        ({"price": {"$gt": 5, "$lt": 25}}, ["15"]),
        ({"shop": {"city": "Ulm"}}, ["25"]),
        ({"missing": 1}, []),
        ({"price": 15, "shop": {"city": "Ulm"}}, []),
    ],
)
async def test_filters(store: MemrelayStore, condition: dict[str, Any], expected: list[str]) -> None:
    for price in (5, 15, 25):
        shop = {"city": "Ulm" if price == 25 else "Bern"}
        await store.aput(ANA, str(price), {"text": f"A lamp for {price}", "price": price, "shop": shop})
    assert sorted(keys(await store.asearch(ANA, filter=condition))) == expected
    assert sorted(keys(await store.asearch(ANA, query="lamp", filter=condition))) == expected


async def test_namespaces(store: MemrelayStore) -> None:
    for namespace in (
        ANA,
        ("memories", "ben"),
        ("memories", "ana", "work"),
        ("docs",),
        ("Bücher", "Ana Müller"),
    ):
        await store.aput(namespace, "k", {"text": "/".join(namespace)})
    assert len(await store.alist_namespaces()) == 5
    assert await store.alist_namespaces(prefix=("memories",), max_depth=2) == [ANA, ("memories", "ben")]
    assert await store.alist_namespaces(suffix=("work",)) == [("memories", "ana", "work")]
    assert await store.alist_namespaces(prefix=("*", "ana")) == [ANA, ("memories", "ana", "work")]
    assert await store.alist_namespaces(prefix=("memories",), limit=1, offset=1) == [
        ("memories", "ana", "work")
    ]
    conditions = (MatchCondition("prefix", ("memories",)), MatchCondition("suffix", ("ben",)))
    assert await store.abatch([ListNamespacesOp(conditions)]) == [[("memories", "ben")]]
    # A search covers the namespaces below its prefix, and those alone.
    assert {one.namespace for one in await store.asearch(ANA)} == {ANA, ("memories", "ana", "work")}
    assert len(await store.asearch(())) == 5
    for bad in ((), ("a.b",), ("",), ("langgraph",)):
        with pytest.raises(InvalidNamespaceError):
            await store.aput(bad, "k", {"text": "x"})


async def test_an_expired_item_is_gone(memory: AsyncMemory) -> None:
    store = MemrelayStore(memory, fail_open=False, ttl={"default_ttl": None, "refresh_on_read": True})
    await store.aput(ANA, "short", {"text": "short lived"}, ttl=0.4 / 60)
    await store.aput(ANA, "long", {"text": "long lived"}, ttl=10)
    assert sorted(keys(await store.asearch(ANA, refresh_ttl=False))) == ["long", "short"]
    await asyncio.sleep(0.25)
    assert await store.aget(ANA, "short", refresh_ttl=True) is not None
    await asyncio.sleep(0.25)
    # The read prolonged it.
    assert await store.aget(ANA, "short", refresh_ttl=False) is not None
    await asyncio.sleep(0.3)
    assert await store.aget(ANA, "short") is None
    assert keys(await store.asearch(ANA)) == ["long"]
    assert [one.text async for one in memory.list(user="memories.ana")] == ["long lived"]


async def test_a_deleted_item_is_in_no_history(store: MemrelayStore, memory: AsyncMemory) -> None:
    await store.aput(ANA, "food", {"text": "first"})
    await store.aput(ANA, "food", {"text": "second"})
    (one,) = [each async for each in memory.list(user="memories.ana")]
    await store.adelete(ANA, "food")
    with pytest.raises(MemrelayError, match="not_found"):
        await memory.get(one.id, user="memories.ana")


async def test_an_item_of_the_same_text_stays_until_it_is_deleted(
    store: MemrelayStore, memory: AsyncMemory
) -> None:
    texts = {"one": "Call the dentist.", "other": "call the  dentist", "done": "Call the dentist!"}
    for key, text in texts.items():
        await store.aput(ANA, key, {"text": text, "key": key})
    await store.aput(ANA, "done", {"text": "The dentist was called."})
    known = {one.text: one.id async for one in memory.list(user="memories.ana")}
    await store.adelete(ANA, "one")
    assert sorted(keys(await store.asearch(ANA))) == ["done", "other"]
    await store.aput(ANA, "other", {"text": texts["other"]}, ttl=0.01 / 60)
    await asyncio.sleep(0.05)
    assert await store.aget(ANA, "other") is None
    # Its text is that of an old version.
    assert keys(await store.asearch(ANA)) == ["done"]
    await store.adelete(ANA, "done")
    for one in known.values():
        with pytest.raises(MemrelayError, match="not_found"):
            await memory.get(one, user="memories.ana")


async def test_items_of_the_same_text_that_are_deleted_together_are_gone(
    store: MemrelayStore, memory: AsyncMemory
) -> None:
    for key in "ab":
        await store.aput(ANA, key, {"text": "Call the dentist.", "key": key})
    known = [one.id async for one in memory.list(user="memories.ana")]
    await store.abatch([PutOp(ANA, key, None) for key in "ab"])
    assert await store.asearch(ANA) == []
    for one in known:
        with pytest.raises(MemrelayError, match="not_found"):
            await memory.get(one, user="memories.ana")


async def test_bad_values_and_filters_are_named(store: MemrelayStore, memory: AsyncMemory) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        await MemrelayStore(memory).aput(ANA, "big", {"a": "x" * 3000, "b": "y" * 3000})
    with pytest.raises(InvalidInput, match=r"filter\.price"):
        await MemrelayStore(memory).asearch(ANA, filter={"price": {"$near": 1}})
    assert await store.asearch(ANA) == []


async def test_while_the_relayer_is_away_nothing_is_found(away: AsyncMemory) -> None:
    store = MemrelayStore(away, deadline=0.3)
    await store.aput(ANA, "food", {"text": "x"})
    assert await store.aget(ANA, "food") is None
    assert await store.asearch(ANA, query="x") == []
    assert await store.alist_namespaces() == []
    with pytest.raises(MemrelayError):
        await MemrelayStore(away, fail_open=False).aget(ANA, "food")


def test_synchronous_code_uses_the_same_store(unopened: AsyncMemory) -> None:
    store = MemrelayStore(unopened, fail_open=False)
    store.put(ANA, "food", {"text": "I'm allergic to peanuts."})
    assert store.get(ANA, "food").value == {"text": "I'm allergic to peanuts."}  # type: ignore[union-attr]
    assert keys(store.search(ANA, query="peanuts")) == ["food"]
    assert store.list_namespaces() == [ANA]


async def test_nodes_of_a_graph_get_the_store(store: MemrelayStore) -> None:
    async def remember(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(ANA, "last", {"text": state["messages"][-1].text})
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("remember", remember)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    await graph.compile(store=store).ainvoke({"messages": [("user", "My bike is red.")]})
    assert (await store.asearch(ANA, query="bike"))[0].value == {"text": "My bike is red."}
