"""What is known of a turn is made once, and what is done to a text is done once: counted by following the calls."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from gateway_plugin import AsyncMemoryPlugin
from gateway_plugin.capture.filters import judge_cleaned
from gateway_plugin.keys.identity import identify, named, parse_session_key
from gateway_plugin.recall import formatting
from gateway_plugin.text import injection, wrappers
from gateway_plugin.turn.gates import GATES, HostTurn, explain

KEY = "agent:researcher:uuid-456"
SAID = (
    "I only drink oat milk coffee, never after 2 pm.",
    "Coffee beans for the office come from a roaster in Porto.",
    "My coffee grinder was repaired by Kowalski in October.",
)
ANSWER = "All three remarks about coffee are understood and kept in mind."
QUESTION = "What do you know about my coffee?"
IDENTIFYING = (identify, named)
ONCE: tuple[Callable[..., Any], ...] = (
    parse_session_key,
    explain,
    *(gate for _, gate in GATES),
)


@contextmanager
def counted() -> Iterator[tuple[Counter[CodeType], Counter[tuple[str, str]]]]:
    """Count the calls on this thread: by function, and by function and text for those that are given one."""
    calls: Counter[CodeType] = Counter()
    texts: Counter[tuple[str, str]] = Counter()
    given = {
        wrappers.strip.__code__: "text",
        injection.scan.__code__: "text",
        formatting.escape.__code__: "text",
        judge_cleaned.__code__: "cleaned",
    }

    def follow(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1
            if (name := given.get(frame.f_code)) is not None:
                texts[frame.f_code.co_name, frame.f_locals[name]] += 1

    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        yield calls, texts
    finally:
        sys.setprofile(before)


@pytest.fixture
async def plugin(wire, environ):
    settings = {"url": wire.url}
    async with AsyncMemoryPlugin(settings=settings, secret="11" * 32, environ=environ) as made:
        await made.after_turn([{"role": "user", "content": text} for text in SAID], session_key=KEY)
        await made.flush(10)
        yield made


async def test_before_a_turn_everything_is_made_once_and_each_hit_formatted_and_scanned_once(plugin):
    earlier = [{"role": "user", "content": "Good morning to you"}, {"role": "assistant", "content": "Hello"}]
    with counted() as (calls, texts):
        injection = await plugin.before_turn(QUESTION, session_key=KEY, messages=earlier)
    assert sorted(hit.text for hit in injection.hits) == sorted(SAID)
    assert {function.__qualname__: calls[function.__code__] for function in ONCE} == {
        function.__qualname__: 1 for function in ONCE
    }
    assert calls[formatting._line.__code__] == len(SAID)
    assert {text: count for (name, text), count in texts.items() if name == "scan"} == dict.fromkeys(SAID, 1)
    assert {text: texts["escape", text] for text in SAID} == dict.fromkeys(SAID, 1)
    assert {text: count for (name, text), count in texts.items() if name == "strip"} == {QUESTION: 1}


async def test_after_a_turn_everything_is_made_once_and_each_message_cleaned_judged_and_scanned_once(plugin):
    said = ["The berth belongs to the harbour master of Porto.", ANSWER]
    messages = [
        {"role": role, "content": text} for role, text in zip(("user", "assistant"), said, strict=True)
    ]
    with counted() as (calls, texts):
        report = await plugin.after_turn(messages, session_key=KEY)
    assert report.queued == len(said)
    assert {function.__qualname__: calls[function.__code__] for function in ONCE} == {
        function.__qualname__: 1 for function in ONCE
    }
    assert texts == {(name, text): 1 for name in ("strip", "judge_cleaned", "scan") for text in said}


async def test_whose_the_turns_of_a_session_are_is_told_once(plugin):
    other = "agent:writer:uuid-789"
    with counted() as (calls, _):
        for host in (HostTurn(), HostTurn(sender="ana"), HostTurn(), HostTurn(sender="ana")):
            await plugin.before_turn(QUESTION, session_key=other, host=host)
            await plugin.after_turn([{"role": "user", "content": SAID[0]}], session_key=other, host=host)
    assert [calls[function.__code__] for function in IDENTIFYING] == [2, 2]  # once as each of the two


async def test_in_a_tool_a_hit_is_escaped_once(plugin):
    with counted() as (calls, texts):
        answer = await plugin.tool("memory_search", {"query": QUESTION}, session_key=KEY)
    assert answer.details["count"] == len(SAID)
    assert [calls[function.__code__] for function in (parse_session_key, *IDENTIFYING)] == [1, 0, 0]
    assert {text: texts["escape", text] for text in SAID} == dict.fromkeys(SAID, 1)
    assert {text: texts["scan", text] for text in SAID} == dict.fromkeys(SAID, 1)
