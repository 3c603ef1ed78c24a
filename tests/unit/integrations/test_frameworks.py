"""The matrix of docs/integrations: what each framework's integration does around a turn, over the framework's own classes.

A turn runs in the framework with a scripted model, which records everything that it is shown.
"""

from __future__ import annotations

import asyncio
import re
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from scripted import Script
from stoppable_relayer import StoppableRelayer

from memrelay import AsyncMemory

# The module of each framework that its integration needs.
FRAMEWORKS = {
    "langgraph": "langgraph.graph",
    "langchain": "langchain.agents",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents.models",
    "google_adk": "google.adk",
    "llama_index": "llama_index.core",
    "crewai": "crewai",
    "strands": "strands.memory",
    "agent_framework": "agent_framework",
}
BIKE = "My bike is a red Brompton from 2019."
QUESTION = "Which bike do I have?"

# Warnings of the frameworks about themselves are no faults of ours.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.enable_socket]


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Any:
    if not is_installed(FRAMEWORKS[request.param]):
        pytest.skip(f"{request.param} is not installed; make test-integrations installs it")
    return import_module(f"scripted_{request.param}")


def owner(framework: Any, user: str) -> str:
    """Return the user of `AsyncMemory` for a user of the framework."""
    return str(framework.user_of(user)) if hasattr(framework, "user_of") else user


async def texts(memory: AsyncMemory, user: str) -> list[str]:
    return [one.text async for one in memory.list(user=user)]


async def test_recall(framework: Any, memory: AsyncMemory) -> None:
    await memory.add(BIKE, user=owner(framework, "ana"))
    script = Script("A Brompton.")
    assert await framework.turn(memory, "ana", QUESTION, script) == "A Brompton."
    assert "red Brompton" in script.shown[0]
    script = Script("Paris.")
    await framework.turn(memory, "ana", "What is the capital of France?", script)
    assert "Brompton" not in script.shown[0]


async def test_capture(framework: Any, memory: AsyncMemory) -> None:
    await framework.turn(memory, "ana", BIKE, Script("Nice."))
    assert BIKE in await texts(memory, owner(framework, "ana"))


async def test_tools(framework: Any, memory: AsyncMemory) -> None:
    name = getattr(framework, "REMEMBER", "remember")
    arguments = framework.remember(BIKE) if hasattr(framework, "remember") else {"text": BIKE}
    user = owner(framework, "ana")
    script = Script((name, arguments), "Done.")
    assert await framework.turn(memory, "ana", "Please note my bike down.", script) == "Done."
    assert BIKE in await texts(memory, user)

    script = Script(("search_memory", {"query": "Brompton bike"}), "Done.")
    await framework.turn(memory, "ana", "Look it up.", script)
    assert "red Brompton" in script.shown[1]
    assert set(script.tools) >= {"search_memory", name, "forget_memory"}

    (one,) = [each.id async for each in memory.list(user=user) if each.text == BIKE]
    script = Script(("forget_memory", {"memory_id": one}), "Done.")
    await framework.turn(memory, "ana", "Forget that, please.", script)
    assert BIKE not in await texts(memory, user)


async def test_users_apart(framework: Any, memory: AsyncMemory) -> None:
    await framework.turn(memory, "ana", BIKE, Script("Nice."))
    script = Script(("search_memory", {"query": "Brompton bike"}), "No idea.")
    await framework.turn(memory, "ben", QUESTION, script)
    assert len(script.shown) == 2
    assert "Brompton" not in re.sub(r"query\W+Brompton bike", "", "\n".join(script.shown))
    assert BIKE not in await texts(memory, owner(framework, "ben"))


async def test_relayer_away(framework: Any, away: AsyncMemory) -> None:
    script = Script(("search_memory", {"query": "bike"}), "I do not know.", deadline=0.3)
    begun = time.monotonic()
    assert await framework.turn(away, "ana", QUESTION, script) == "I do not know."
    assert time.monotonic() - begun < 30
    assert len(script.shown) == 2


async def test_captured_while_the_relayer_is_away(
    framework: Any, stoppable: StoppableRelayer, tmp_path: Path
) -> None:
    environ = {"HOME": str(tmp_path)}
    async with AsyncMemory(url=stoppable.url, secret="5a" * 32, environ=dict(environ)) as memory:
        await framework.turn(memory, "ana", "Hello.", Script("Hello."))
        await stoppable.stop()
        await framework.turn(memory, "ana", BIKE, Script("Nice.", deadline=0.3))
    await stoppable.start()
    async with AsyncMemory(url=stoppable.url, secret="5a" * 32, environ=dict(environ)) as memory:
        await framework.turn(memory, "ana", "Hello again.", Script("Hello."))
        async with asyncio.timeout(20):
            while BIKE not in await texts(memory, owner(framework, "ana")):  # noqa: ASYNC110 - the relayer does not tell
                await asyncio.sleep(0.1)


async def test_erased_is_gone(framework: Any, memory: AsyncMemory) -> None:
    await framework.turn(memory, "ana", BIKE, Script("Nice."))
    await memory.erase_all(user=owner(framework, "ana"))
    script = Script("I do not know.")
    await framework.turn(memory, "ana", QUESTION, script)
    assert "Brompton" not in "\n".join(script.shown)
