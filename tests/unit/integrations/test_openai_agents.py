"""The session of the OpenAI Agents SDK: its protocol, and what its history must not do."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("agents.memory", reason="make test-integrations installs the OpenAI Agents SDK")

from agents import Agent, Runner, Session
from scripted import Script
from scripted_openai_agents import ScriptedModel

from memrelay import AsyncMemory, InvalidInput
from memrelay.integrations.openai_agents import MemrelayHooks, MemrelaySession

pytestmark = pytest.mark.filterwarnings("default")


def item(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


async def test_a_history_keeps_order_duplicates_and_every_field(memory: AsyncMemory) -> None:
    session = MemrelaySession("chat-1", memory, user="ana")
    assert isinstance(session, Session)
    items: list[Any] = [
        item("ok"),
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
        item("ok"),
    ]
    await session.add_items(items)
    await session.add_items([item('ü \n"quoted"', "assistant")])
    await session.add_items([])
    expected = [*items, item('ü \n"quoted"', "assistant")]
    assert await MemrelaySession("chat-1", memory, user="ana").get_items() == expected
    assert await session.get_items(limit=2) == expected[-2:]
    assert await session.get_items(limit=0) == []
    assert await session.pop_item() == expected[-1]
    assert await session.get_items() == items


async def test_sessions_and_users_are_apart_and_a_cleared_history_is_gone(memory: AsyncMemory) -> None:
    one, other = (MemrelaySession("chat-1", memory, user=user) for user in ("ana", "ben"))
    third = MemrelaySession("chat-2", memory, user="ana")
    for session in (one, other, third):
        await session.add_items([item("My bike is red.")])
    assert await memory.search("bike", user="ana") == ()
    await one.clear_session()
    await one.clear_session()
    assert await one.get_items() == []
    assert await one.pop_item() is None
    assert len(await other.get_items()) == len(await third.get_items()) == 1
    assert await MemrelaySession.erase_sessions(memory, "ana") == 1
    assert await third.get_items() == []
    assert len(await other.get_items()) == 1


async def test_a_secret_in_the_arguments_of_a_tool_breaks_no_history(memory: AsyncMemory) -> None:
    session = MemrelaySession("chat-1", memory, user="ana")
    arguments = json.dumps({"note": "my password is Tr0ub4dor&3x"})
    items: list[Any] = [
        item("my password is Tr0ub4dor&3x"),
        {"type": "function_call", "name": "save_note", "arguments": arguments, "call_id": "1"},
    ]
    await session.add_items(items)
    assert await session.get_items() == items
    # An item of an earlier version, from which a secret was removed.
    await memory.add('{"n":3,"item":{"arguments":"{\\"note\\":[password removed]', user=session._owner)
    await session.add_items([item("hello")])
    assert await session.get_items() == [*items, item("hello")]
    assert await session.pop_item() == item("hello")
    assert await session.pop_item() == items[1]
    assert await session.get_items() == items[:1]


async def test_a_run_continues_the_conversation(memory: AsyncMemory) -> None:
    session = MemrelaySession("chat-1", memory, user="ana")
    for message in ("First.", "Second."):
        script = Script("Noted.")
        hooks = MemrelayHooks(memory, user=lambda context: context["user"])
        agent = Agent("support", model=ScriptedModel(script))
        config = hooks.run_config(tracing_disabled=True)
        await Runner.run(
            agent, message, hooks=hooks, run_config=config, session=session, context={"user": "ana"}
        )
    assert "First." in script.shown[0]
    assert len(await session.get_items()) == 4


async def test_a_long_item_is_refused_and_a_relayer_away_leaves_the_history_empty(
    memory: AsyncMemory, away: AsyncMemory
) -> None:
    session = MemrelaySession("chat-1", memory)
    with pytest.raises(InvalidInput):
        await session.add_items([item("short"), item("x" * 70_000)])
    assert await session.get_items() == []
    gone = MemrelaySession("chat-1", away, deadline=0.3)
    await gone.add_items([item("x")])
    assert await gone.get_items() == []
