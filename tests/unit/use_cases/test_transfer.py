"""What is exported is imported as it was, once, and nothing that was hidden comes back."""

from __future__ import annotations

import json

import pytest

from relayer.errors import Refused
from relayer.use_cases.memories import export, forget_memory
from relayer.use_cases.recall import recall
from relayer.use_cases.remember import import_memories, remember
from relayer.wire.schemas import RecallRequest, RememberRequest
from relayer.wire.service import ExportRequest, ImportRequest

OWN = ("text", "kind", "audience", "trust", "suspect", "pinned", "importance", "lang", "created_at", "occurred_at",
       "valid_from", "valid_to", "expires_at", "source")  # fmt: skip


async def put(house, *items, agent="researcher"):
    request = RememberRequest(items=items)
    return [one.id for one in (await house.call(remember, request, agent=agent)).memories]


async def lines(house, agent="researcher", **fields):
    chunks = await house.call(export, ExportRequest(**fields), agent=agent)
    return [json.loads(line) for line in b"".join([chunk async for chunk in chunks]).splitlines()]


async def texts(house, **fields):
    return [line["memory"]["text"] for line in (await lines(house, **fields))[1:-1]]


async def bring(house, memories, *, agent="researcher", key=None, body=b"", **fields):
    request = ImportRequest(memories=memories, idempotency_key=key, **fields)
    return await house.call(import_memories, request, access=house.access(agent, body=body))


async def test_an_export_begins_with_a_head_and_ends_with_an_end(house):
    await put(house, {"text": "one"}, {"text": "two"})
    head, first, second, end = await lines(house)
    assert (head["memrelay_export"], head["namespace"], head["memories"]) == (1, "researcher", 2)
    assert [first["memory"]["text"], second["memory"]["text"]] == ["one", "two"]
    assert end == {"end": True, "memories": 2, "turns": 0}


async def test_an_export_of_nothing_is_whole(house):
    head, end = await lines(house)
    assert (head["memories"], end["memories"]) == (0, 0)


async def test_only_live_memories_are_exported_unless_more_is_asked_for(house):
    gone, _ = await put(house, {"text": "forgotten"}, {"text": "kept"})
    await put(house, {"text": "short-lived", "ttl_seconds": 60})
    await house.call(forget_memory, gone)
    await house.clock.advance(61)
    assert await texts(house) == ["kept"]
    assert await texts(house, states=["forgotten"]) == ["forgotten"]
    assert await texts(house, kinds=["task"]) == []


async def test_what_was_exported_is_imported_as_it_was_into_another_namespace(house):
    await put(
        house,
        {
            "text": "The deploy window is Tuesday.", "kind": "decision", "audience": "group", "pinned": True,
            "importance": 0.9, "lang": "en", "occurred_at": "2023-05-08T10:00:00Z",
            "source": {"host": "openclaw", "session": "s1", "speaker": "Ana", "message_ids": ["m1"]},
        },
        {"text": "Ana likes tea.", "suspect": True, "trust": "assistant"},
    )  # fmt: skip
    given = [line["memory"] for line in (await lines(house))[1:-1]]
    await house.clock.advance(3600)
    answer = await bring(house, given, agent="coder", as_backup=True)
    assert [one.status for one in answer.memories] == ["stored", "stored"]
    taken = [line["memory"] for line in (await lines(house, "coder"))[1:-1]]
    assert [{name: one.get(name) for name in OWN} for one in taken] == [
        {name: one.get(name) for name in OWN} for one in given
    ]
    assert {one["id"] for one in taken}.isdisjoint({one["id"] for one in given})


async def test_what_is_no_backup_claims_nothing_of_itself(house):
    claims = {"trust": "user", "pinned": True, "importance": 0.9}
    modest = {"trust": "tool", "importance": 0.2}
    await bring(house, [{"text": "one", **claims}, {"text": "two", **modest}])
    rows = [line["memory"] for line in (await lines(house))[1:-1]]
    assert [(row["trust"], row["pinned"], row["importance"]) for row in rows] == [
        ("imported", False, 0.5), ("tool", False, 0.2)
    ]  # fmt: skip


async def test_what_the_user_is_known_to_have_said_is_a_repetition_however_it_comes_again(house):
    said, gone = await put(house, {"text": "Ana likes tea."}, {"text": "Ana likes rye."})
    await house.call(forget_memory, gone)
    claims = [{"text": text, "trust": "user"} for text in ("Ana likes tea.", "Ana likes rye.")]
    first, second = (await bring(house, claims)).memories
    assert ((first.status, first.id), second.status) == (("duplicate", said), "stored")
    assert [line["memory"]["trust"] for line in (await lines(house))[1:-1]] == ["user", "imported"]


async def test_what_was_said_before_is_still_known_after_an_import(house):
    (first,) = await put(house, {"text": "We talked about the boat."})
    await put(house, {"text": "It is blue.", "context_of": first})
    given = [line["memory"] for line in (await lines(house))[1:-1]]
    await bring(house, given, agent="coder")
    before, after = [line["memory"] for line in (await lines(house, "coder"))[1:-1]]
    assert after["context_of"] == before["id"]


async def test_importing_twice_stores_once_and_a_key_answers_alike(house):
    page = [{"text": "one"}, {"text": "two"}]
    first = await bring(house, page, key="k", body=b"page")
    again = await bring(house, page, key="k", body=b"page")
    assert [one.id for one in first.memories] == [one.id for one in again.memories]
    assert [one.status for one in (await bring(house, page)).memories] == ["duplicate", "duplicate"]
    assert len(await texts(house)) == 2
    with pytest.raises(Refused) as caught:
        await bring(house, page, key="k", body=b"another page")
    assert caught.value.code == "idempotency_conflict"


async def test_what_was_not_live_where_it_comes_from_does_not_come_to_life(house):
    page = [
        {"text": "old version", "state": "superseded"},
        {"text": "forgotten", "state": "forgotten"},
        {"text": "over", "expires_at": "2001-01-01T00:00:00Z"},
        {"text": "live"},
    ]
    answer = await bring(house, page)
    assert [(one.status, one.code) for one in answer.memories] == [
        ("skipped", "is_superseded"), ("skipped", "is_forgotten"), ("skipped", "is_expired"), ("stored", None)
    ]  # fmt: skip
    assert await texts(house) == ["live"]
    assert [one.status for one in (await bring(house, page[:2])).memories] == ["skipped", "skipped"]


async def test_an_import_is_recallable_when_it_answers_and_holds_no_secrets(house):
    token = "gh" + "p_" + "Z9" * 18
    await bring(house, [{"text": f"the harbour mirror takes {token}"}])
    query = RecallRequest(query="what does the harbour mirror take", floor=0)
    (hit,) = (await house.call(recall, query)).memories
    assert token not in hit.text
    assert (hit.kind, hit.trust) == ("imported", "imported")


@pytest.mark.parametrize(("fields", "stays"), [({"as_backup": True}, False), ({"keep_secrets": True}, True)])
async def test_a_secret_stays_in_an_import_only_if_it_is_to_be_kept(house, fields, stays):
    await bring(house, [{"text": "My locker password is hunter2secret"}], **fields)
    (text,) = await texts(house)
    assert ("hunter2secret" in text) is stays


async def test_nothing_is_older_than_it_can_be(house):
    await bring(house, [{"text": "from the future", "created_at": "2199-01-01T00:00:00Z"}])
    (memory,) = await house.listed()
    assert memory.created_at == house.clock.now_ms()


async def test_a_long_export_comes_in_pieces(house):
    await put(house, *({"text": f"note {number} " + "word " * 800} for number in range(50)))
    chunks = await house.call(export, ExportRequest())
    sizes = [len(chunk) async for chunk in chunks]
    assert len(sizes) > 2
    assert max(sizes) < 80_000


async def test_an_imported_wish_not_to_be_reminded_is_about_the_same_as_before(house):
    await put(house, {"text": "please never mention Leyla"}, {"text": "Leyla's birthday is on May 4."})
    exported = [line["memory"] for line in (await lines(house))[1:-1]]
    # What "her" is about is in the field alone.
    exported = [line | {"text": line["text"].replace("mention Leyla", "mention her")} for line in exported]
    await bring(house, exported, agent="writer")
    listed = await house.listed(agent="writer")
    assert {one.text: one.unmentioned for one in listed} == {
        "please never mention her": ("leyla",),
        "Leyla's birthday is on May 4.": (),
    }
