"""What a program written for mem0 sees: its arguments, its shapes of results, and users apart."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memrelay
from memrelay.integrations.mem0 import Memory
from relayer.testing.local_relayer import LocalRelayer


@pytest.fixture
def memory(relayer: LocalRelayer, tmp_path: Path) -> Iterator[Memory]:
    environ = {"HOME": str(tmp_path)}
    with Memory(memrelay.Memory(url=relayer.url, secret=os.urandom(32).hex(), environ=environ)) as made:
        yield made


ANA = {"user_id": "ana"}


def add(memory: Memory, text: str, **more: Any) -> str:
    (one,) = memory.add(text, **{"user_id": "ana", "infer": False} | more)["results"]
    assert one["event"] == "ADD"
    assert one["memory"] == text
    return str(one["id"])


def test_a_memory_has_mem0s_shape_in_every_answer(memory: Memory) -> None:
    one = add(memory, "I'm allergic to peanuts", agent_id="cook", run_id="r1", metadata={"ticket": 4711})
    shown = memory.get(one)
    assert shown is not None
    assert (shown["id"], shown["memory"], shown["metadata"]) == (
        one,
        "I'm allergic to peanuts",
        {"ticket": 4711},
    )
    assert (shown["user_id"], shown["agent_id"], shown["run_id"]) == ("ana", "cook", "r1")
    assert shown["hash"]
    assert shown["created_at"] == shown["updated_at"]
    assert memory.get_all(filters=ANA) == {"results": [shown]}
    (hit,) = memory.search("allergic to peanuts", filters=ANA)["results"]
    assert hit.pop("score") > 0.1
    assert hit == shown


def test_messages_are_extracted(memory: Memory) -> None:
    said = [
        {"role": "user", "content": "My bike is a red Brompton from 2019."},
        {"role": "assistant", "content": "Nice."},
    ]
    (one,) = memory.add(said, user_id="ana")["results"]
    assert one["memory"] == "My bike is a red Brompton from 2019."
    assert memory.add(said, user_id="ana") == {"results": []}


def test_users_are_apart_and_an_id_leads_to_its_user(memory: Memory) -> None:
    ids = {user: add(memory, f"I am {user}.", user_id=user) for user in ("ana", "Bea:b", "ben")}
    for user, one in ids.items():
        assert [each["memory"] for each in memory.get_all(filters={"user_id": user})["results"]] == [
            f"I am {user}."
        ]
        shown = memory.get(one)
        assert shown is not None
        assert shown["user_id"] == user
    memory.delete_all(user_id="ana")
    assert memory.get(ids["ana"]) is None
    assert memory.get(ids["ben"]) is not None


@pytest.mark.parametrize("ids", [{"run_id": "r1"}, {"agent_id": "cook"}])
def test_all_memories_of_a_run_or_an_agent_are_deleted_for_every_user(
    memory: Memory, ids: dict[str, str]
) -> None:
    gone = [add(memory, f"Ticket of {user}.", user_id=user, **ids) for user in ("ana", "ben", None)]
    kept = add(memory, "I live in Bern.")
    memory.delete_all(**ids)
    assert [memory.get(one) for one in gone] == [None] * 3
    assert memory.get(kept) is not None


@pytest.mark.parametrize("infer", [True, False])
@pytest.mark.parametrize("messages", [[{"content": "x"}], [{"role": "user"}], ["x"], 5])
def test_a_malformed_message_is_a_value_error(memory: Memory, messages: Any, *, infer: bool) -> None:
    with pytest.raises(ValueError, match=r"messages\[0\]"):
        memory.add(messages, user_id="ana", infer=infer)


def test_an_update_is_found_by_every_id_and_its_history_has_all_changes(memory: Memory) -> None:
    one = add(memory, "The office is in Ulm.", metadata={"floor": 2})
    assert memory.update(one, "The office is in Bern.") == {"message": "Memory updated successfully!"}
    memory.update(one, metadata={"room": 7})
    shown = memory.get(one)
    assert shown is not None
    assert (shown["memory"], shown["metadata"]) == ("The office is in Bern.", {"floor": 2, "room": 7})
    assert memory.delete(one) == {"message": "Memory deleted successfully!"}
    changes = [
        (row["event"], row["old_memory"], row["new_memory"], row["is_deleted"]) for row in memory.history(one)
    ]
    assert changes == [
        ("ADD", None, "The office is in Ulm.", False),
        ("UPDATE", "The office is in Ulm.", "The office is in Bern.", False),
        ("UPDATE", "The office is in Bern.", "The office is in Bern.", False),
        ("DELETE", "The office is in Bern.", None, True),
    ]
    assert memory.get(one) is None
    with pytest.raises(ValueError, match="memory_id"):
        memory.delete(one)


@pytest.mark.parametrize(
    ("filters", "prices"),
    [
        ({"price": 5}, [5]),
        ({"price": {"gte": 10}}, [25, 15]),
        ({"price": {"ne": 5}}, [25, 15]),
        ({"price": {"in": [5, 15]}}, [15, 5]),
        ({"price": {"nin": [5, 15]}}, [25]),
        ({"OR": [{"price": 5}, {"price": {"gt": 20}}]}, [25, 5]),
        ({"AND": [{"price": {"gt": 5}}, {"price": {"lt": 20}}]}, [15]),
        ({"NOT": [{"price": 5}, {"price": 15}]}, [25]),
        ({"run_id": "r15"}, [15]),
        ({"agent_id": "a25"}, [25]),
    ],
)
def test_mem0s_filters_select(memory: Memory, filters: dict[str, Any], prices: list[int]) -> None:
    for price in (5, 15, 25):
        more = {"run_id": f"r{price}", "agent_id": f"a{price}", "metadata": {"price": price}}
        add(memory, f"The lamp costs {price}.", **more)
    shown = memory.get_all(filters=ANA | filters)["results"]
    assert [one["metadata"]["price"] for one in shown] == prices
    assert len(memory.get_all(filters=ANA, top_k=2)["results"]) == 2


def test_bad_arguments_are_value_errors_that_name_the_argument(memory: Memory) -> None:
    for call, name in (
        (lambda: memory.add("x"), "user_id"),
        (lambda: memory.add("", user_id="ana", infer=False), "texts"),
        (lambda: memory.search("", filters=ANA), "query"),
        (lambda: memory.search("x"), "user_id"),
        (lambda: memory.get_all(filters={"price": 1}), "user_id"),
        (memory.delete_all, "user_id"),
        (lambda: memory.search("x", filters=ANA | {"name": {"contains": "a"}}), "filters.name"),
        (lambda: memory.search("x", filters=ANA | {"name": "*"}), "filters.name"),
        (lambda: memory.search("x", filters=ANA | {"OR": [{"user_id": "ben"}]}), "filters"),
        (lambda: memory.update("0" * 26, "text"), "memory_id"),
    ):
        with pytest.raises(ValueError, match=f"^{name}"):
            call()
    assert memory.get("nothing:ana") is None
    assert memory.history("nothing:ana") == []


def test_the_arguments_are_those_of_the_real_package() -> None:
    mem0 = pytest.importorskip("mem0")
    for name in ("add", "search", "get_all", "get", "update", "delete", "delete_all", "history"):
        ours = inspect.signature(getattr(Memory, name)).parameters
        theirs = inspect.signature(getattr(mem0.Memory, name)).parameters
        assert set(ours) <= set(theirs), name
        for argument in ours.keys() & theirs.keys():
            assert ours[argument].default == theirs[argument].default, (name, argument)


# The real package asks the system for its name.
@pytest.mark.tier("all")
@pytest.mark.filterwarnings("default")
def test_the_same_calls_give_the_shapes_of_the_real_package(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mem0 = pytest.importorskip("mem0")
    from mem0.embeddings.mock import MockEmbeddings

    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    # With embeddings that are all equal, it stores and finds without a service.
    store = {"provider": "qdrant", "config": {"path": str(tmp_path / "qdrant"), "embedding_model_dims": 10}}
    real = mem0.Memory.from_config({"vector_store": store, "history_db_path": str(tmp_path / "history.db")})
    real.embedding_model = MockEmbeddings()

    ours, theirs = _shapes(memory), _shapes(real)
    assert ours.keys() == theirs.keys()
    for call in theirs:
        assert ours[call] == theirs[call], call


def _shapes(memory: Any) -> dict[str, Any]:
    """Return the fields and their types in the result of each call."""
    where = {"user_id": "ana", "agent_id": "cook", "run_id": "r1"}
    said = [
        {"role": "user", "content": "I'm allergic to peanuts"},
        {"role": "assistant", "content": "Noted: no peanuts"},
    ]
    shapes: dict[str, Any] = {}

    def see(call: str, result: Any) -> Any:
        shapes[call] = _shape(result)
        return result

    one = see("add", memory.add(said, **where, metadata={"ticket": 4711}, infer=False))["results"][0]["id"]
    see("get", {name: value for name, value in memory.get(one).items() if name != "score"})
    see("get_all", memory.get_all(filters=ANA))
    see("search", memory.search("allergic to peanuts", filters=ANA, top_k=1, threshold=0.0))
    see("search nothing", memory.search("peanuts", filters={"user_id": "ben"}))
    see("update", memory.update(one, "I'm allergic to nuts"))
    see("history", memory.history(one))
    see("delete", memory.delete(one))
    see("history of a deleted one", memory.history(one))
    see("get a deleted one", memory.get(one))
    see("delete_all", memory.delete_all(user_id="ana"))
    see("get_all after that", memory.get_all(filters=ANA))
    return shapes


def _shape(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: _shape(value) for name, value in sorted(result.items())}
    if isinstance(result, list):
        return [_shape(one) for one in result]
    return type(result).__name__ if not isinstance(result, bool) else result
