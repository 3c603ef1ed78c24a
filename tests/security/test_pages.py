"""However long memories are, one answer holds a bounded number of bytes, and the cursor leads to all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from border import Border, border

# Escaped in JSON, each of these takes two bytes.
LONG = '"' * 60_000
MOST_BYTES = 1024 * 1024 + 8192
COUNT = 30


@pytest.fixture
async def at() -> AsyncIterator[Border]:
    async with border(rate_limits="off") as running:
        for start in range(0, COUNT, 10):
            items = [{"text": f"{number} {LONG}"} for number in range(start, start + 10)]
            stored = await running.call("POST", "/v1/memories", {"items": items})
            assert stored.status_code == 200, stored.text
        yield running


def numbers(memories: list[dict[str, str]]) -> list[int]:
    return [int(memory["text"].partition(" ")[0]) for memory in memories]


async def test_a_list_is_cut_by_bytes_and_goes_on(at: Border) -> None:
    seen: list[int] = []
    cursor = ""
    while True:
        answer = await at.call("GET", f"/v1/memories?limit=100{cursor}")
        assert len(answer.content) < MOST_BYTES
        page = answer.json()
        seen += numbers(page["memories"])
        if page.get("next_cursor") is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == list(reversed(range(COUNT)))


async def test_changes_are_cut_by_bytes_and_go_on(at: Border) -> None:
    seen: list[int] = []
    after, more = "0", True
    while more:
        answer = await at.call("GET", f"/v1/changes?limit=100&after={after}")
        assert len(answer.content) < MOST_BYTES
        page = answer.json()
        seen += numbers([change["memory"] for change in page["changes"]])
        after, more = page["next"], page["more"]
    assert seen == list(range(COUNT))


async def test_a_recall_and_a_context_hold_the_best_and_the_newest_that_fit(at: Border) -> None:
    body = {"query": "0", "limit": 100, "floor": 0}
    found = await at.call("POST", "/v1/recall", body)
    assert len(found.content) < MOST_BYTES
    assert numbers(found.json()["memories"])[0] == 0
    newest = await at.call("GET", "/v1/context?items=200")
    assert len(newest.content) < MOST_BYTES
    shown = [memory for day in newest.json()["days"] for memory in day["memories"]]
    assert numbers(shown)[-1] == COUNT - 1
    assert newest.json()["total"] == COUNT


async def test_a_history_is_cut_at_its_oldest_versions_and_says_so(at: Border) -> None:
    memory = (await at.call("GET", "/v1/memories?limit=1")).json()["memories"][0]["id"]
    for number in range(100, 112):
        body = {"text": f"{number} {LONG}"}
        changed = await at.call("POST", f"/v1/memories/{memory}/supersede", body)
        assert changed.status_code == 200, changed.text
        memory = changed.json()["id"]
    answer = await at.call("GET", f"/v1/memories/{memory}")
    # The memory itself, and its page of versions.
    assert len(answer.content) < MOST_BYTES + 2 * len(LONG) + 8192
    shown = answer.json()
    assert numbers(shown["history"])[-1] == 111
    assert shown["omitted"] == 13 - len(shown["history"]) > 0
