"""The memory service of Google's ADK: events, explicit memories and deletion."""

from __future__ import annotations

import pytest

pytest.importorskip("google.adk.memory", reason="make test-integrations installs Google's ADK")

from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import InMemorySessionService
from google.genai import types

from memrelay import AsyncMemory, MemrelayError
from memrelay.integrations.google_adk import MemrelayMemoryService

pytestmark = pytest.mark.filterwarnings("default")
ANA = {"app_name": "shop", "user_id": "ana"}


def event(text: str, author: str = "user") -> Event:
    return Event(author=author, content=types.Content(role="user", parts=[types.Part(text=text)]))


async def found(service: MemrelayMemoryService, query: str, **whose: str) -> list[MemoryEntry]:
    return (await service.search_memory(query=query, **(ANA | whose))).memories


async def test_events_are_found_by_their_user_and_app_alone(memory: AsyncMemory) -> None:
    service = MemrelayMemoryService(memory)
    events = [event("My bike is a red Brompton from 2019."), event("Nice.", "support"), Event(author="user")]
    await service.add_events_to_memory(**ANA, events=events, session_id="s", custom_metadata={"shop": 7})
    (one,) = await found(service, "Which bike do I have?")
    assert one.content.parts is not None
    assert one.content.parts[0].text == "My bike is a red Brompton from 2019."
    assert one.custom_metadata == {"shop": 7}
    assert one.timestamp is not None
    assert not await found(service, "Which bike do I have?", user_id="ben")
    assert not await found(service, "Which bike do I have?", app_name="other")


async def test_a_session_can_be_added_again(memory: AsyncMemory) -> None:
    service, sessions = MemrelayMemoryService(memory), InMemorySessionService()
    session = await sessions.create_session(**ANA)
    await sessions.append_event(session, event("My bike is a red Brompton from 2019."))
    for _ in range(2):
        await service.add_session_to_memory(session)
    assert len(await found(service, "Which bike do I have?")) == 1


async def test_a_deleted_memory_is_gone(memory: AsyncMemory) -> None:
    service = MemrelayMemoryService(memory)
    content = types.Content(parts=[types.Part(text="My bike is a red Brompton.")])
    await service.add_memory(**ANA, memories=[MemoryEntry(content=content, custom_metadata={"kind": "bike"})])
    (one,) = await found(service, "Which bike do I have?")
    await service.delete_memory(**ANA, memory_id=one.id)
    assert not await found(service, "Which bike do I have?")
    with pytest.raises(MemrelayError, match="not_found"):
        await service.delete_memory(**ANA, memory_id=one.id)
    await service.add_memory(**ANA, memories=[MemoryEntry(content=content)])
    for _ in range(2):
        await service.delete_memory(**ANA)
    assert not await found(service, "Which bike do I have?")
