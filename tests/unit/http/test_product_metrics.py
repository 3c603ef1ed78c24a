"""What a relayer counts of its work for users, read over HTTP; and that no count tells of whom or what it was."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from border import Border, border
from typed_commands import machine, run_gateway

from gateway_plugin import MemoryPlugin
from relayer import bootstrap
from relayer.http.limits import AGENT, RATE_CAUSES, Limits
from relayer.http.problems import HttpProblem
from relayer.log.objects import Layout
from relayer.operator.probe import stamp
from relayer.testing.fake_clock import FakeClock
from relayer.testing.hashing_embedder import HashingEmbedder

CANARY = "the canary sings at dawn"


async def _page(at: Border) -> str:
    # The page is made anew once a second.
    await asyncio.sleep(1.01)
    return (await at.http.get(f"{at.url}/metrics")).text


def _number(page: str, series: str) -> float:
    [found] = re.findall(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found)


async def test_recalls_are_counted_by_what_they_found_and_embeddings_are_timed() -> None:
    embedder = HashingEmbedder()
    async with border(embedder=embedder) as at:
        first = (await at.http.get(f"{at.url}/metrics")).text
        outcomes = ("answered", "empty", "degraded")
        assert [_number(first, f'memrelay_recalls_total{{outcome="{name}"}}') for name in outcomes] == [
            0,
            0,
            0,
        ]
        await at.call("POST", "/v1/recall", {"query": CANARY})
        await at.call("POST", "/v1/memories", {"items": [{"text": CANARY}]})
        await at.call("POST", "/v1/recall", {"query": CANARY})
        embedder.down = True
        answer = await at.call("POST", "/v1/recall", {"query": f"{CANARY} again"})
        assert answer.json()["degraded"]
        page = await _page(at)
    assert [_number(page, f'memrelay_recalls_total{{outcome="{name}"}}') for name in outcomes] == [1, 1, 1]
    assert _number(page, 'memrelay_embedding_seconds_count{of="query"}') >= 1
    assert _number(page, 'memrelay_embedding_seconds_count{of="memory"}') >= 1
    assert "canary" not in page
    assert not [name for name in (at.gateway.agent, at.gateway.root.account) if name in page]


async def test_captured_turns_are_counted_by_what_became_of_them() -> None:
    async with border() as at:
        turns = [{"role": "user", "text": text} for text in ("I moved to Lisbon in May.", "Thanks a lot!")]
        await at.call("POST", "/v1/analyze", {"turns": turns})
        page = await _page(at)
    assert _number(page, 'memrelay_capture_verdicts_total{reason="kept"}') == 1
    left = re.findall(r'^memrelay_capture_verdicts_total\{reason="(\w+)"\} 1\.0$', page, re.MULTILINE)
    assert len(left) == 2


async def test_a_429_is_counted_by_what_was_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine an agent would get more tokens back than ten for each of its calls.
    monkeypatch.setattr(bootstrap, "Limits", partial(Limits, agent=replace(AGENT, per_second=0.001)))
    async with border() as at:
        dear = {"limit": 1}
        for _ in range(1000):
            if (await at.call("POST", "/v1/export", dear)).status_code == 429:
                break
        page = await _page(at)
    for name in RATE_CAUSES:
        assert _number(page, f'memrelay_rate_limited_total{{cause="{name}"}}') == (name == "agent")


@pytest.mark.parametrize(("agents", "cause"), [(1, "agent"), (9, "account")])
def test_an_agent_that_has_used_its_own_up_is_told_apart_from_its_account(agents: int, cause: str) -> None:
    limits, refused = Limits(FakeClock()), ""
    for turn in range(9):
        try:
            limits.charge("0x1", bytes([turn % agents]), AGENT.capacity)
        except HttpProblem as problem:
            refused = problem.rule or ""
            break
    assert refused == cause


async def test_a_relayer_tells_of_a_backup_that_was_noted_meanwhile() -> None:
    clock = FakeClock()
    async with border(clock=clock) as at:
        before = (await at.http.get(f"{at.url}/metrics")).text
        await stamp(at.relayer.context.ports, Layout.backed_up())
        await clock.advance(11.0)
        after = (await at.http.get(f"{at.url}/metrics")).text
    series = "memrelay_backup_last_success_timestamp_seconds"
    assert (_number(before, series), _number(after, series) > 0) == (0, True)


def test_a_gateway_tells_for_how_long_a_captured_turn_has_waited(tmp_path: Path) -> None:
    place = machine(tmp_path, "http://127.0.0.1:9", "5b" * 32)
    empty = run_gateway(place, "outbox", "status", "--prometheus")
    assert (empty.returncode, _number(empty.stdout, "memrelay_gateway_outbox_oldest_seconds")) == (0, 0)
    with MemoryPlugin("http://127.0.0.1:9", secret="5b" * 32, environ=dict(place)) as plugin:
        plugin.after_turn([{"role": "user", "content": CANARY}, {"role": "assistant", "content": "Noted."}])
    time.sleep(1.1)
    told = run_gateway(place, "outbox", "status", "--prometheus").stdout
    assert _number(told, "memrelay_gateway_outbox_waiting") == 1
    assert 1 <= _number(told, "memrelay_gateway_outbox_oldest_seconds") < 60
    assert "canary" not in told
