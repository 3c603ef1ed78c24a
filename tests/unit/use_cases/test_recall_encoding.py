"""A recall is answered in bytes that were made of a memory once: they say what the API's own models would say, and never what was."""

from __future__ import annotations

import json

import pytest

from relayer.use_cases.lifecycle import supersede
from relayer.use_cases.recall import recall_encoded
from relayer.use_cases.remember import remember
from relayer.wire.schemas import RecallHit, RecallRequest, RecallResponse, RememberRequest, SupersedeRequest

COFFEE = 'I "only" drink oat milk coffee \\ before noon\n\u2028 \x7f über 🫖'
FULL = {
    "text": COFFEE,
    "kind": "preference",
    "audience": "group",
    "trust": "user",
    "pinned": True,
    "importance": 1,
    "lang": "en",
    "occurred_at": "1969-12-31T23:59:59.001Z",
    "valid_from": "2020-02-29T12:00:00+02:00",
    "ttl_seconds": 100_000,
    "source": {"host": "a", "session": "s", "speaker": "Ада", "role": "user", "message_ids": ["1", "2"]},
}


async def asked(house, **fields) -> bytes:
    request = RecallRequest(**{"query": "oat milk coffee before noon", "floor": 0, **fields})
    return await house.call(recall_encoded, request)


async def put(house, *items) -> None:
    await house.call(remember, RememberRequest(items=list(items)))


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("item", [FULL, {"text": "oat milk coffee"}, {"text": "oat milk coffee " * 300}])
async def test_the_bytes_are_those_of_the_api_s_own_model(house, item, explain):
    await put(house, item, {"text": "The tram leaves at nine"})
    answer = await asked(house, explain=explain)
    said, model = json.loads(answer), RecallResponse.model_validate_json(answer)
    assert said == json.loads(model.model_dump_json())
    assert list(said) == list(RecallResponse.model_fields)
    assert all(set(hit) == set(RecallHit.model_fields) for hit in said["memories"])
    shown = {one.id: one.model_dump(mode="json") for one in await house.listed()}
    assert len(said["memories"]) == 2
    assert all(hit.items() >= shown[hit["id"]].items() for hit in said["memories"])
    assert await asked(house, explain=explain) == answer  # the second one is of what was kept


async def test_what_was_kept_of_a_memory_is_not_shown_once_the_memory_changed(house):
    await put(house, {"text": "I drink oat milk coffee"})
    first = json.loads(await asked(house))["memories"][0]
    await put(house, {"text": "I drink oat milk coffee"})
    again = json.loads(await asked(house))["memories"][0]
    assert (first["reinforced"], again["reinforced"]) == (0, 1)
    change = SupersedeRequest(text="I drink oat milk tea")
    await house.call(supersede, first["id"], change)
    answer = json.loads(await asked(house, include=["superseded"]))["memories"]
    states = {hit["id"]: (hit["state"], hit["supersedes"]) for hit in answer}
    assert states.pop(first["id"]) == ("superseded", [])
    assert list(states.values()) == [("live", [first["id"]])]
