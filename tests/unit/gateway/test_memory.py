"""`Memory` at default settings, over a relayer: what a program adds is found, changed, listed, moved and erased, by its users alone."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway_plugin.client import LoopClosed, LoopThread
from gateway_plugin.keys.identity import AgentHolder, mint
from gateway_plugin.memory import _user_of, user_names
from memrelay import (
    AsyncMemory,
    GatewayError,
    HostTurn,
    IdentityError,
    InvalidInput,
    Memory,
    MemoryPlugin,
    MemrelayError,
    RelayerRefused,
    SettingsError,
)
from relayer.testing.local_relayer import LocalRelayer, local_relayer, threaded_relayer
from relayer.wire import names
from relayer.wire.sealing import RootKeys

SECRET = "5e" * 32


@pytest.fixture(scope="module")
def relayer() -> Iterator[LocalRelayer]:
    with threaded_relayer(lambda: local_relayer(rate_limits="off")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


Make = Callable[..., Memory]


@pytest.fixture
def make(relayer: LocalRelayer, home: dict[str, str]) -> Iterator[Make]:
    """Make objects of one new account."""
    made: list[Memory] = []
    secret = os.urandom(32).hex()

    def one(**arguments: Any) -> Memory:
        defaults = {"agent": "support", "url": relayer.url, "secret": secret, "environ": dict(home)}
        made.append(Memory(**defaults | arguments))
        return made[-1]

    yield one
    for each in made:
        each.close()


def texts(memory: Memory, **arguments: Any) -> list[str]:
    return [one.text for one in memory.list(**arguments)]


def test_what_is_added_is_found_with_its_tags_and_metadata(make: Make) -> None:
    memory = make(user="ana", session="s1")
    added = memory.add("I'm allergic to peanuts", tags=["health"], metadata={"ticket": 4711})
    (hit,) = memory.search("peanuts allergic?", limit=3)
    assert (hit.id, hit.text) == (added.id, "I'm allergic to peanuts")
    assert (hit.tags, hit.metadata) == (("health",), {"ticket": 4711})
    assert hit.session == "s1"
    assert 0.3 <= hit.score <= 1
    assert hit.created_at.tzinfo is UTC
    assert memory.get(added.id).text == hit.text
    assert added.status == "stored"
    again = memory.add("I'm allergic to peanuts", tags=["health"], metadata={"ticket": 4711})
    assert again.status == "duplicate"


def test_secrets_are_removed_from_a_text_unless_they_are_to_stay(make: Make) -> None:
    memory, said = make(), "The wifi password is Tr0ub4dor&3x."
    assert "Tr0ub4dor" not in memory.get(memory.add(said).id).text
    assert memory.get(memory.add(said, keep_secrets=True).id).text == said
    with pytest.raises(InvalidInput, match="keep_secrets"):
        memory.add([{"role": "user", "content": said}], keep_secrets=True)


def test_the_same_text_with_other_metadata_is_another_memory(make: Make) -> None:
    memory = make()
    ids = {memory.add("Invoice sent.", metadata={"invoice": number}).id for number in (1, 2)}
    assert len(ids) == 2
    assert {hit.metadata["invoice"] for hit in memory.search("invoice sent", min_score=0)} == {1, 2}


def test_messages_are_extracted_and_keep_tags_metadata_and_time(make: Make) -> None:
    memory = make(user="ana")
    said = datetime(2026, 5, 1, tzinfo=UTC)
    added = memory.add(
        [
            {"role": "user", "content": "My bike is a red Brompton from 2019."},
            {"role": "assistant", "content": "Nice."},
        ],
        tags=["bike"],
        metadata={"source": "chat"},
        occurred_at=said,
    )
    (one,) = memory.list()
    assert added.ids == (one.id,)
    assert (one.tags, one.metadata, one.occurred_at) == (("bike",), {"source": "chat"}, said)
    assert memory.add([{"role": "user", "content": "ok"}]).status == "empty"
    assert memory.add([{"role": "user", "content": "ok"}]).id == ""


def test_many_texts_are_added_in_order_and_listed_newest_first(make: Make) -> None:
    memory = make()
    said = [f"Shelf {number} holds box {number}." for number in range(230)]
    added = memory.add_many(said, tags=["shelf"])
    assert [memory.get(one.id).text for one in (added[0], added[-1])] == [said[0], said[-1]]
    assert texts(memory) == said[::-1]
    assert texts(memory, where={"tags": "shelf"}) == said[::-1]


def test_a_filter_selects_in_search_list_and_delete_all(make: Make) -> None:
    memory = make()
    for price in (5, 15, 25):
        memory.add(f"The lamp costs {price} euro.", metadata={"price": price})
    cheap = {"price": {"lt": 20}}
    found = memory.search("lamp costs euro", where=cheap, min_score=0)
    assert {hit.metadata["price"] for hit in found} == {5, 15}
    assert texts(memory, where=cheap) == ["The lamp costs 15 euro.", "The lamp costs 5 euro."]
    assert memory.delete_all(where=cheap) == 2
    assert texts(memory) == ["The lamp costs 25 euro."]
    assert memory.delete_all() == 1


def test_an_update_keeps_what_it_does_not_name_and_the_history_has_all_versions(make: Make) -> None:
    memory = make()
    first = memory.add("The office is in Ulm.", tags=["office"], metadata={"floor": 2}).id
    second = memory.update(first, "The office is in Bern.")
    assert (second.tags, second.metadata, second.supersedes) == (("office",), {"floor": 2}, (first,))
    third = memory.update(second.id, tags=[], metadata={"floor": 3})
    assert (third.text, third.tags, third.metadata) == ("The office is in Bern.", (), {"floor": 3})
    assert [one.id for one in memory.history(first)] == [first, second.id, third.id]
    assert texts(memory) == ["The office is in Bern."]


def test_a_deleted_memory_can_be_restored_and_an_erased_one_not(make: Make) -> None:
    memory = make(user="ana")
    one = memory.add("The gate code is on the fridge.").id
    memory.delete(one)
    assert memory.search("gate code fridge") == ()
    memory.restore(one)
    assert [hit.id for hit in memory.search("gate code fridge")] == [one]
    assert one in memory.erase(one).memories
    with pytest.raises(RelayerRefused) as caught:
        memory.restore(one)
    assert caught.value.code == "not_found"
    assert [one.change for one in memory.changes().changes] == ["erased"]


def test_changes_go_on_behind_their_cursor(make: Make) -> None:
    memory = make()
    memory.add("One.")
    seen = memory.changes()
    assert [one.memory.text for one in seen.changes if one.memory] == ["One."]
    assert memory.changes(seen.cursor).changes == ()
    memory.add("Two.")
    assert [one.memory.text for one in memory.changes(seen.cursor, wait=5).changes if one.memory] == ["Two."]


def test_the_profile_cites_memories_and_a_question_needs_a_model(make: Make) -> None:
    memory = make(user="ana")
    added = memory.add("I live in Bern.")
    assert added.id in memory.profile().text
    with pytest.raises(RelayerRefused) as caught:
        memory.ask("Where do I live?")
    assert caught.value.code == "no_model"


def test_an_export_is_imported_with_everything(make: Make) -> None:
    memory = make()
    memory.add(
        "I live in Bern.", user="ana", tags=["home"], metadata={"n": {"deep": [1, None]}}, session="s1"
    )
    exported = list(memory.export(user="ana"))
    assert memory.import_(exported, user="copy").stored == 1
    (one,) = memory.list(user="copy")
    assert (one.text, one.session) == ("I live in Bern.", "s1")
    assert (one.tags, one.metadata) == (("home",), {"n": {"deep": [1, None]}})


def test_a_backup_brings_back_what_was_deleted_or_erased_since(make: Make) -> None:
    memory = make()
    said = ["I live in Bern.", "My bike is a red Brompton."]
    memory.add_many(said)
    backup = list(memory.export())
    again = memory.import_(backup)
    assert (again.stored, again.duplicates) == (0, 2)
    memory.delete_all()
    assert memory.import_(backup).stored == 2
    assert sorted(texts(memory)) == said
    for one in list(memory.list()):
        memory.erase(one.id)
    assert memory.import_(backup).stored == 2
    assert sorted(texts(memory)) == said


USERS = [
    "ana", "Ana", "ANA", " ana", "ana ", "ana@example.com", "Ana Müller", "sender-ana", "用户", "a/b", "user-85n62",
]  # fmt: skip


def test_each_user_has_memories_of_their_own_and_is_listed_exported_and_erased_by_name(make: Make) -> None:
    memory = make()
    for number, user in enumerate(USERS):
        memory.add(f"My locker has number {number}.", user=user)
    assert memory.users() == tuple(sorted(USERS))
    for number, user in enumerate(USERS):
        own = [f"My locker has number {number}."]
        assert texts(memory, user=user) == own
        assert [one["text"] for one in memory.export(user=user)] == own
        assert [hit.text for hit in memory.search("my locker has number", user=user, min_score=0)] == own
    assert texts(memory) == []
    assert texts(make(agent="sales"), user="ana") == []
    memory.erase_all(user="Ana")
    assert memory.users() == tuple(sorted(set(USERS) - {"Ana"}))
    assert texts(memory, user="Ana") == []
    assert texts(memory, user="ana") == ["My locker has number 0."]
    memory.add("I am back.", user="Ana")
    assert texts(memory, user="Ana") == ["I am back."]


def test_reading_and_deleting_what_an_unknown_user_has_creates_nothing(make: Make) -> None:
    memory = make()
    memory.add("I live in Bern.", user="ana")
    unknown = "0" * 26
    for user in ("unknown", "Un Known"):
        assert memory.search("Where do I live?", user=user, where={"tags": "home"}) == ()
        assert memory.recall("Where do I live?", user=user) == ""
        assert list(memory.list(user=user)) == []
        assert memory.changes(user=user).changes == ()
        assert memory.profile(user=user).total == 0
        assert memory.delete_all(user=user) == 0
        assert memory.delete_all(user=user, where={"tags": "home"}) == 0
        assert memory.add([{"role": "user", "content": "ok"}], user=user).status == "empty"
        for refused in (memory.get, memory.history, memory.delete, memory.restore, memory.erase):
            with pytest.raises(RelayerRefused, match="no such memory"):
                refused(unknown, user=user)
        with pytest.raises(InvalidInput):
            memory.erase_all(user=user)
        with pytest.raises(InvalidInput):
            list(memory.export(user=user))
    assert memory.users() == ("ana",)

    async def stored() -> list[str]:
        client = await memory._inner._client()
        page = await client.namespaces(memory._inner._agent)
        return [one.name for one in page.namespaces]

    assert memory._here.call(stored()) == ["support/sender-ana"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_two_users_never_share_a_namespace_and_every_name_comes_back(one: str, other: str) -> None:
    assume(one != other)
    known = []
    for user in (one, other):
        try:
            known.append(user_names(user))
        except InvalidInput:
            continue
        assert _user_of(known[-1]) == user
        assert names.is_normal_namespace("/".join(("support", *known[-1])))
    assert len(set(known)) == len(known)


def test_a_sender_of_the_plugin_is_a_user(relayer: LocalRelayer, home: dict[str, str]) -> None:
    settings = {"namespace": {"scope": "agent+sender"}}
    secret = os.urandom(32).hex()
    with MemoryPlugin(relayer.url, "support", settings=settings, secret=secret, environ=dict(home)) as plugin:
        plugin.after_turn(
            [{"role": "user", "content": "My bike is a red Brompton."}], host=HostTurn(sender="user-17")
        )
        assert plugin.flush()
    with Memory(agent="support", url=relayer.url, secret=secret, environ=dict(home)) as memory:
        assert memory.users() == ("user-17",)
        assert texts(memory, user="user-17") == ["My bike is a red Brompton."]


BAD: list[tuple[str, Callable[[Memory], object]]] = [
    ("content", lambda memory: memory.add("")),
    ("content[0]", lambda memory: memory.add(["text"])),  # type: ignore[list-item]
    ("content[0]", lambda memory: memory.add(3)),  # type: ignore[arg-type]
    ("content[0].role", lambda memory: memory.add([{"role": "boss", "content": "x"}])),
    ("content[0].content", lambda memory: memory.add([{"role": "user", "content": 3}])),
    ("content", lambda memory: memory.add([{"role": "system", "content": "x"}])),
    ("content[0].role", lambda memory: memory.capture([{"role": "boss", "content": "x"}])),
    ("content", lambda memory: memory.capture([])),
    ("texts", lambda memory: memory.add_many("text")),
    ("texts[2]", lambda memory: memory.add_many(["one", "two", ""])),
    ("metadata", lambda memory: memory.add([{"role": "user", "content": "x"}], metadata=[1])),  # type: ignore[arg-type]
    ("occurred_at", lambda memory: memory.add("x", occurred_at=datetime(2026, 1, 1))),  # noqa: DTZ001 - the mistake
    ("limit", lambda memory: memory.search("x", limit=0)),
    ("min_score", lambda memory: memory.search("x", min_score=2)),
    ("where", lambda memory: memory.search("x", where={})),
    ("where.ticket", lambda memory: memory.search("x", where={"ticket": {"near": 1}})),
    ("where.ticket", lambda memory: list(memory.list(where={"ticket": {"near": 1}}))),
    ("where.ticket", lambda memory: memory.delete_all(where={"ticket": {"near": 1}})),
    ("text", lambda memory: memory.update("0" * 26)),
    ("user", lambda memory: memory.search("x", user="x" * 117)),
    ("user", lambda memory: memory.search("x", user="\ud800")),
    ("user", lambda memory: list(memory.export(user="unknown"))),
    ("exported[1].text", lambda memory: memory.import_([{"text": "fine"}, {"text": ""}])),
    ("exported[0].metadata", lambda memory: memory.import_([{"text": "fine", "metadata": 1}])),
    ("exported[0]", lambda memory: memory.import_([5])),  # type: ignore[list-item]
    ("exported", lambda memory: memory.import_(None)),  # type: ignore[arg-type]
    ("texts", lambda memory: memory.add_many(5)),  # type: ignore[arg-type]
    ("states.0", lambda memory: list(memory.list(states=["gone"]))),
    ("cursor", lambda memory: memory.changes("x")),
    ("wait", lambda memory: memory.changes(wait=math.nan)),
    ("wait", lambda memory: memory.changes(wait=31)),
    ("max_tokens", lambda memory: memory.profile(max_tokens=0)),
]


@pytest.mark.parametrize(
    ("field", "call"), BAD, ids=[f"{number}:{field}" for number, (field, _) in enumerate(BAD)]
)
def test_bad_input_is_refused_by_the_name_of_the_field_and_nothing_is_stored(
    make: Make, field: str, call: Callable[[Memory], object]
) -> None:
    memory = make()
    with pytest.raises(InvalidInput) as caught:
        call(memory)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert texts(memory) == []


def test_every_error_is_a_memrelay_error(home: dict[str, str]) -> None:
    for arguments, kind in (
        ({"user": ""}, InvalidInput),
        ({"url": "ftp://x"}, SettingsError),
        ({"secret": "short"}, IdentityError),
        ({"environ": {**home, "MEMRELAY_DISABLE": "1"}}, IdentityError),
    ):
        with pytest.raises(kind) as caught:
            Memory(**{"url": "http://127.0.0.1:1", "secret": SECRET, "environ": dict(home)} | arguments)
        assert isinstance(caught.value, MemrelayError)
    with (
        Memory(url="http://127.0.0.1:1", secret=SECRET, environ=dict(home)) as memory,
        pytest.raises(MemrelayError, match="no relayer answers"),
    ):
        memory.search("x")


def test_a_closed_object_says_so_and_may_be_closed_again(make: Make) -> None:
    memory = make()
    memory.close()
    memory.close()
    with pytest.raises(LoopClosed) as caught:
        memory.search("x")
    assert isinstance(caught.value, GatewayError)


def test_an_agents_key_alone_cannot_erase(relayer: LocalRelayer, home: dict[str, str]) -> None:
    root = RootKeys(os.urandom(32))
    with Memory(agent="support", url=relayer.url, secret=root.root.hex(), environ=dict(home)) as memory:
        one = memory.add("I live in Bern.").id
        memory._inner._holder = AgentHolder(root.agent("support"), mint(root, "support", now=0), "")
        with pytest.raises(IdentityError, match="needs the account's secret"):
            memory.erase(one)


def test_one_object_serves_two_event_loops_one_after_the_other(
    relayer: LocalRelayer, home: dict[str, str]
) -> None:
    memory = AsyncMemory(agent="support", url=relayer.url, secret=os.urandom(32).hex(), environ=dict(home))

    async def add_and_search() -> int:
        await memory.add("I live in Bern.")
        return len(await memory.search("I live in Bern"))

    assert [asyncio.run(add_and_search()), asyncio.run(add_and_search())] == [1, 1]


async def test_closing_closes_the_connections_of_other_loops(
    relayer: LocalRelayer, home: dict[str, str]
) -> None:
    other = LoopThread("other")
    memory = AsyncMemory(agent="support", url=relayer.url, secret=os.urandom(32).hex(), environ=dict(home))
    await memory.add("I live in Bern.")
    assert len(await asyncio.to_thread(other.call, memory.search("I live in Bern"))) == 1
    connections = list(memory._connections.values())
    assert len(connections) == 2
    await memory.aclose()
    await until_closed(connections)
    await asyncio.to_thread(other.close)


async def test_garbage_collection_closes_connections(relayer: LocalRelayer, home: dict[str, str]) -> None:
    memory = AsyncMemory(agent="support", url=relayer.url, secret=os.urandom(32).hex(), environ=dict(home))
    await memory.add("I live in Bern.")
    connections = list(memory._connections.values())
    cycle: list[object] = [memory]
    cycle.append(cycle)
    del memory, cycle
    gc.collect()
    await until_closed(connections)


async def until_closed(connections: Sequence[Any]) -> None:
    async with asyncio.timeout(10):
        while any(one.client is not None for one in connections):  # noqa: ASYNC110 - the other loop does not tell
            await asyncio.sleep(0.01)


async def test_it_is_used_inside_a_running_loop(make: Make) -> None:
    memory = make()
    memory.add("I live in Bern.")
    assert texts(memory) == ["I live in Bern."]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent", 5), ("session", 5), ("url", 5), ("secret", 5),
        ("timeout", "x"), ("timeout", 0), ("timeout", -1.0), ("timeout", math.nan), ("timeout", math.inf),
    ],
)  # fmt: skip
def test_a_bad_argument_of_the_object_is_named(home: dict[str, str], field: str, value: Any) -> None:
    arguments = {"url": "http://127.0.0.1:1", "secret": SECRET, "environ": dict(home), field: value}
    with pytest.raises(InvalidInput) as caught:
        Memory(**arguments)
    assert caught.value.field == field


def test_threads_share_one_object(make: Make) -> None:
    memory = make()
    threads = [
        threading.Thread(target=memory.add, args=(f"Thread {number} was here.",)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts(memory)) == 8


def test_an_iteration_may_be_left_early(make: Make) -> None:
    memory = make()
    memory.add_many(["One.", "Two."])
    assert next(iter(memory.list())).text == "Two."
    assert len(texts(memory)) == 2


def test_it_has_every_method_of_the_asynchronous_class() -> None:
    public = {name for name in vars(AsyncMemory) if not name.startswith("_")} - {"aclose"}
    assert public <= set(vars(Memory))


def test_a_filter_follows_every_change(make: Make) -> None:
    memory = make()
    where = {"tags": "lamp", "price": {"gte": 40}}
    desk, floor = memory.add_many(
        ["The desk lamp.", "The floor lamp."], tags=["lamp"], metadata={"price": 40}
    )
    wall = memory.add("The wall lamp.", tags=["lamp"], metadata={"price": 30})
    assert texts(memory, where=where) == ["The floor lamp.", "The desk lamp."]
    memory.update(wall.id, metadata={"price": 50})
    assert texts(memory, where=where) == ["The wall lamp.", "The floor lamp.", "The desk lamp."]
    memory.erase(floor.id)
    assert texts(memory, where=where) == ["The wall lamp.", "The desk lamp."]
    memory.delete(desk.id)
    assert texts(memory, where=where) == ["The wall lamp."]
    memory.add("The red lamp.", tags=["lamp"], metadata={"price": 60})
    assert texts(memory, where=where) == ["The red lamp.", "The wall lamp."]
    assert [hit.text for hit in memory.search("red lamp", where=where, limit=1)] == ["The red lamp."]


def test_recall_returns_the_block_for_a_prompt(make: Make) -> None:
    memory = make(user="ana")
    memory.add_many(["I'm allergic to peanuts.", "Our staging database is called heron."])
    block = memory.recall("Which staging database do we have?")
    # What could harm the user is in every prompt.
    assert "heron" in block
    assert "peanuts" in block
    assert "untrusted" in block
    assert "heron" not in memory.recall("What is the capital of France?")
    assert memory.recall("Which staging database do we have?", user="ben") == ""
    assert memory.recall("") == memory.recall(" \n ") == ""
    assert "heron" in memory.recall("x" * 100_000 + " Which staging database do we have?")
