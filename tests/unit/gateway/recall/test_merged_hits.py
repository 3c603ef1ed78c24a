"""A prompt gets of several namespaces what it would get of one, and an explicit search the best of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from wire_relayer import SECRET

from gateway_plugin.keys.identity import RootHolder
from gateway_plugin.recall.sharing import SharedHit, recall_shared
from relayer.wire.relevance import CHOSEN, LEAST_SHARE, PROBABLY_HELPS
from relayer.wire.schemas import RecallHit, RecallRequest, RecallResponse
from relayer.wire.sealing import RootKeys

SHARED = ("coder", "writer", "cook", "garden", "money")
PROMPT = RecallRequest(query="When is the team retreat?", limit=20, prompt=True)


def response(namespace: str, relevances: Sequence[float], text: str = "") -> RecallResponse:
    hits = [
        RecallHit(
            id=f"{number:026}", text=text or f"{namespace} {number}", kind="fact", audience="direct", trust="user",
            created_at=1, relevance=relevance, distance=1 - relevance,
        )
        for number, relevance in enumerate(relevances)
    ]  # fmt: skip
    return RecallResponse(memories=tuple(hits))


class Relayer:
    """Responds to recalls with a response for each namespace."""

    def __init__(self, responses: Mapping[str, RecallResponse]) -> None:
        self._responses = responses

    async def recall(self, identity: Any, request: RecallRequest, **_: object) -> RecallResponse:
        return self._responses[identity.namespace]


async def merged(
    own: RecallResponse, shared: Mapping[str, RecallResponse], request: RecallRequest = PROMPT
) -> list[RecallHit]:
    holder = RootHolder(RootKeys(bytes.fromhex(SECRET)))
    relayer: Any = Relayer({"boss": own, **shared})
    readers = [holder.reader("boss", namespace, writes=False) for namespace in shared]
    asked = relayer.recall(holder.person("boss", "boss"), request)
    return [*(await recall_shared(relayer, asked, readers, request, seconds=1)).memories]


def shares(*relevances: float) -> dict[str, RecallResponse]:
    return {namespace: response(namespace, relevances) for namespace in SHARED}


async def test_what_is_relevant_far_less_than_the_best_of_all_namespaces_is_dropped():
    least = CHOSEN + LEAST_SHARE * (0.9 - CHOSEN)
    own = response("boss", [0.9, least + 0.001, least - 0.001])
    kept = await merged(own, {"coder": response("coder", [0.6, least - 0.001])})
    assert [hit.text for hit in kept] == ["boss 0", "coder 0", "boss 1"]


async def test_of_namespaces_that_are_uncertain_three_memories_are_kept_beside_a_certain_one():
    kept = await merged(response("boss", [0.76, 0.5, 0.45]), shares(0.39, 0.34))
    assert [hit.text for hit in kept[:3]] == ["boss 0", "boss 1", "boss 2"]
    # Those of equal relevance are kept together.
    assert {hit.relevance for hit in kept[3:]} == {0.39}
    varied = {name: response(name, [0.4 - at / 100]) for at, name in enumerate(SHARED)}
    kept = await merged(response("boss", [0.76]), varied)
    assert [hit.text for hit in kept] == ["boss 0", "coder 0", "writer 0", "cook 0"]


async def test_three_memories_are_kept_if_the_best_of_all_is_uncertain():
    varied = {name: response(name, [0.4 - at / 100, 0.31]) for at, name in enumerate(SHARED)}
    kept = await merged(response("boss", [PROBABLY_HELPS - 0.01, 0.33]), varied)
    assert [hit.text for hit in kept] == ["boss 0", "coder 0", "writer 0"]


async def test_certain_memories_of_all_namespaces_are_kept():
    kept = await merged(response("boss", [0.9, 0.8]), shares(0.7, 0.6))
    assert len(kept) == 12


@pytest.mark.parametrize("change", [{"prompt": False}, {"floor": 0.1}])
async def test_a_search_and_a_low_floor_get_the_best_of_all(change):
    kept = await merged(response("boss", [0.9, 0.2]), shares(0.39, 0.31), PROMPT.model_copy(update=change))
    assert len(kept) == 12


async def test_the_agents_own_memory_of_a_text_has_the_relevance_of_the_best_one():
    own = response("boss", [0.31], "The team retreat is on 9 December.")
    shared = {"coder": response("coder", [0.9], "The team retreat is on 9 December.")}
    (hit,) = await merged(own, shared)
    assert not isinstance(hit, SharedHit)
    assert (hit.relevance, hit.distance) == (0.9, pytest.approx(0.1))


async def test_no_hits_at_all_are_none():
    assert await merged(response("boss", []), shares()) == []
