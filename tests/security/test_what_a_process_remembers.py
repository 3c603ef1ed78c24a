"""What a relayer keeps in its memory beside what it is asked for: nothing of another namespace, and nothing that was erased."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from border import Border, border
from signed_calls import Gateway

from relayer.adapters.local_embedder import LocalEmbedder
from relayer.adapters.memory_store import MemoryStore
from relayer.adapters.system import SystemClock
from relayer.maintenance.logs import IndexLimits, IndexMaintenance
from relayer.testing.hashing_embedder import HashingEmbedder
from relayer.wire.signing import Right

# Never as one string in this process but in what is sent: it would be found in this module's constants.
CANARY = ("quon", "zarb", "tix")


def canary() -> str:
    return "".join(CANARY)


QUERY = "Is the code 4711?"


class Counted(LocalEmbedder):
    """The local model, and how often it was run for one question alone."""

    runs = 0

    def _vector(self, text: str, **kind: bool) -> Any:
        self.runs += text == QUERY
        return super()._vector(text, **kind)


async def test_the_model_is_asked_again_for_what_another_account_asked() -> None:
    """Who asks for what somebody else asked a moment ago waits as long as for anything else."""
    embedder = Counted()
    async with border(embedder=embedder, rate_limits="off") as at:
        asked: dict[str, list[int]] = {}
        for name, gateway in (("first", at.gateway), ("other account", Gateway())):
            await call(
                at, gateway, "/v1/memories", {"items": [{"text": "The vault opens with a brass key."}]}
            )
            before = embedder.runs
            for _ in range(2):
                await call(at, gateway, "/v1/recall", {"query": QUERY})
            asked.setdefault(name, []).append(embedder.runs - before)
    await embedder.close()
    # Once for each of them: the second time it is known, to that account alone.
    assert asked == {"first": [1], "other account": [1]}


async def test_what_was_asked_in_a_namespace_goes_with_its_last_key() -> None:
    embedder = HashingEmbedder()
    async with border(embedder=embedder) as at:
        await call(at, at.gateway, "/v1/memories", {"items": [{"text": "A note about the harbour."}]})
        await call(at, at.gateway, "/v1/recall", {"query": "harbour?"})
        (opened,) = at.relayer.context.namespaces.all()
        filled = len(opened._vectors)
        opened.key_not_after = 0
        await at.relayer.context.namespaces.drop_expired()
        assert at.relayer.context.namespaces.all() == []
        assert (filled > 0, len(opened._vectors)) == (True, 0)
        calls = len(embedder.calls)
        await call(at, at.gateway, "/v1/recall", {"query": "harbour?"})
        assert len(embedder.calls) == calls + 1


async def test_what_is_kept_of_questions_is_bounded_in_bytes() -> None:
    async with border(rate_limits="off") as at:
        await call(at, at.gateway, "/v1/memories", {"items": [{"text": "A note about the harbour."}]})
        (opened,) = at.relayer.context.namespaces.all()
        empty = opened.nbytes
        for number in range(2_000):
            await opened.embed(at.relayer.context.embedder, [f"question {number}"])
        assert 100 < len(opened._vectors) < 2_000
        assert empty < opened.nbytes < empty + 300 * 1024


async def call(at: Border, gateway: Gateway, path: str, body: dict[str, Any], method: str = "POST") -> Any:
    answer = await at.call(method, path, body or None, gateway=gateway, key=gateway.memory_key(at.fleet_key))
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


def found_in_memory(word: str) -> Iterator[str]:
    """Yield the kind of what holds a word, for everything that the interpreter can reach and that does."""
    raw = word.encode()
    seen: set[int] = set()
    waiting: list[tuple[list[Any], type]] = [
        (gc.get_objects(), list),
        ([module.__dict__ for module in list(sys.modules.values())], ModuleType),
    ]
    while waiting:
        batch, holder = waiting.pop()
        for each in batch:
            if id(each) in seen or each is waiting or each is seen or each is batch:
                continue
            seen.add(id(each))
            if isinstance(each, str):
                holds = word in each
            elif isinstance(each, bytes | bytearray):
                holds = raw in each
            elif isinstance(each, memoryview):
                holds = raw in bytes(each)
            elif isinstance(each, np.ndarray):
                continue
            else:
                referents = gc.get_referents(each)
                if referents:
                    waiting.append((referents, type(each)))
                continue
            if holds:
                yield f"{type(each).__name__} in {holder.__module__}.{holder.__qualname__}"


@pytest.fixture
def nothing_is_left_out() -> Iterator[None]:
    """What a test's process keeps from the garbage collector is not among its objects either."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_is_left_out")
@pytest.mark.parametrize("restarted", [False, True], ids=["as written", "opened from a stored index"])
async def test_after_an_erasure_no_word_of_it_is_left_in_the_process(restarted: bool) -> None:
    gateway = replace(Gateway(), rights=tuple(Right))
    store = MemoryStore(SystemClock())
    embedder = HashingEmbedder()
    async with border(store, embedder=embedder, rate_limits="off") as at:
        await _told(at, gateway)
        if restarted:
            (opened,) = at.relayer.context.namespaces.all()
            keeper = IndexMaintenance(at.relayer.context, IndexLimits(1, 1))
            assert await keeper.keep(opened)
            opened.key_not_after = 0
            await at.relayer.context.namespaces.drop_expired()
            del opened
            await call(at, gateway, "/v1/recall", {"query": "What do I like?"})
            assert at.relayer.context.namespaces.from_indexes == 1
        assert any(found_in_memory(canary()))
        await _erased(at, gateway)
        # What the client holds, connections that are over, and the list that this embedder keeps for tests.
        embedder.calls.clear()
        await at.http.aclose()
        await asyncio.sleep(0)
        gc.collect()
        left = list(found_in_memory(canary()))
    assert left == []


async def _told(at: Border, gateway: Gateway) -> None:
    kept = [
        {"text": f"The {canary()} stands in the cellar behind the office."},
        {"text": f"{canary().capitalize()} is what the boat in the harbour is called."},
        {"text": "I like tea in the morning, and the harbour."},
    ]
    await call(at, gateway, "/v1/memories", {"items": kept})
    await call(at, gateway, "/v1/recall", {"query": f"Where is the {canary()}?"})
    turn = {"role": "user", "text": f"We decided on 5 May that the {canary()} is sold to Ana in Porto."}
    await call(at, gateway, "/v1/analyze", {"turns": [turn], "session": "s", "store_transcript": True})


async def _erased(at: Border, gateway: Gateway) -> None:
    listed = await call(at, gateway, "/v1/memories", {}, "GET")
    for each in listed["memories"]:
        if canary() in each["text"].lower():
            done = await call(at, gateway, f"/v1/memories/{each['id']}?mode=erase", {}, "DELETE")
            assert done["state"] == "erased"
