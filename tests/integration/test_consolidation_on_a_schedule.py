"""At the time that a setting names, a gateway promotes what turns keep needing, finds what repeats, and a person can read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.stated_relations import StatedRelations
from plugin_site import PATIENCE, PluginSite, own_relayer, recall, say
from processes import wait_until
from test_profile_command import RELEASES
from test_promotions import LOCK, QUESTIONS, RARE
from typed_commands import run_gateway

from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin
from gateway_plugin.files.indexed import IndexRoot, RootKind

JENKINS, SWITCHED = (
    "We use Jenkins for our builds.",
    "We use Buildkite for our builds now instead of Jenkins.",
)
# Due once, further away than a test takes, and nearer than a relayer lets a gateway's clock be wrong.
LATER = 200.0


class Ahead:
    """This machine's clock, and as many seconds later as a test says; nobody sleeps long by it."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return time.time() + self.seconds

    async def sleep(self, seconds: float, /) -> None:
        await asyncio.sleep(min(seconds, 0.05))


@pytest.fixture
def site(secret: str, tmp_path: Path) -> Iterator[PluginSite]:
    relations = StatedRelations()
    relations.state(JENKINS, SWITCHED, "replaces", 0.999)
    with own_relayer(relations=relations) as relayer, PluginSite(tmp_path, relayer.url, secret) as made:
        yield made


def nightly(site: PluginSite, clock: Ahead, **more: Any) -> MemoryPlugin:
    minute = time.localtime(time.time() + LATER - 20).tm_min
    schedule = {"enabled": True, "schedule": f"{minute} * * * *"}
    settings = {"consolidation": schedule | more}
    return MemoryPlugin(settings=settings, environ=dict(site.environment), clock=clock)


def ran(site: PluginSite) -> bool:
    return bool(run_gateway(site.environment, "consolidate", "--last").returncode == 0)


def pinned(site: PluginSite) -> dict[str, bool]:
    return {str(memory["text"]): bool(memory["pinned"]) for memory in site.memories()}


@pytest.mark.row("CP-49", level="e2e")
def test_what_three_turns_asked_for_is_promoted_when_it_is_due_and_what_one_asked_for_is_not(
    site: PluginSite, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, told = Ahead(), [""]

    def is_told() -> bool:
        # A command that is typed meanwhile would take the sentence for itself: standard error is one for all threads.
        told[0] += capsys.readouterr().err
        return "consolidation of main: light: 2 memories were recalled in turns; REM: 2 compared" in told[0]

    with nightly(site, clock) as plugin:
        say(plugin, LOCK)
        say(plugin, RARE)
        for question in QUESTIONS:
            assert LOCK in [hit.text for hit in recall(plugin, question).hits]
        recall(plugin, "Who keeps the lighthouse and plays the bassoon?")
        assert not any(pinned(site).values())
        clock.seconds = LATER
        wait_until(is_told)
        assert pinned(site) == {LOCK: True, RARE: False}
        report = site.json("consolidate", "--last")
        (promoted,) = report["promoted"]
        assert (promoted["recalls"], promoted["questions"]) == (3, 3)
        assert (report["given"], report["examined"]) == (2, 2)
        shown = site.command("consolidate", "--last").stdout
        assert "light: 2 memories" in shown
        assert f"promoted {promoted['id']} (3 turns, 3 questions" in shown
        site.command("unpin", promoted["id"])
        assert not any(pinned(site).values())


@pytest.mark.row("CP-49", level="e2e")
@pytest.mark.parametrize("apply", [False, True])
def test_what_was_replaced_is_proposed_and_taken_only_where_a_setting_says_so(
    site: PluginSite, *, apply: bool
) -> None:
    clock = Ahead()
    with nightly(site, clock, apply=apply) as plugin:
        say(plugin, JENKINS)
        site.command("remember", SWITCHED)
        recall(plugin, "What do we use for our builds?")
        before = site.texts()
        proposed = site.json("consolidate")["proposals"]
        clock.seconds = LATER
        wait_until(lambda: ran(site))
        report = site.json("consolidate", "--last")
    assert len(before) == 2
    assert report["proposals"] == [one["id"] for one in proposed]
    assert report["proposals"]
    assert report["taken"] == (report["proposals"] if apply else [])
    assert len(site.texts()) == (1 if apply else 2)
    if apply:
        site.command("restore", report["taken"][0].partition("-")[0])
        assert sorted(site.texts()) == sorted(before)


@pytest.mark.row("CP-49", level="e2e")
def test_a_time_that_passed_while_no_gateway_ran_is_made_up_for_once(site: PluginSite) -> None:
    clock = Ahead()
    with nightly(site, clock) as plugin:
        say(plugin, LOCK)
        for question in QUESTIONS:
            recall(plugin, question)
        plugin.flush(PATIENCE)
    assert not ran(site)
    clock.seconds = LATER
    with nightly(site, clock):
        wait_until(lambda: ran(site))
    assert pinned(site) == {LOCK: True}


@pytest.mark.row("OC-20", "CP-49", level="e2e")
@pytest.mark.parametrize("wanted", [False, True])
def test_a_run_writes_into_the_workspace_once_and_only_where_a_setting_says_so(
    site: PluginSite, tmp_path: Path, *, wanted: bool
) -> None:
    clock = Ahead()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with nightly(site, clock) as plugin:
        say(plugin, LOCK)
        for question in QUESTIONS:
            recall(plugin, question)
        clock.seconds = LATER
        wait_until(lambda: ran(site))
    before = site.texts()

    async def looked_at() -> None:
        root = IndexRoot(RootKind.WORKSPACE, workspace)
        settings = {"consolidation": {"writeFiles": wanted}}
        async with AsyncMemoryPlugin(settings=settings, environ=dict(site.environment)) as plugin:
            for _ in range(2):
                await plugin.look_at_files((root,), session_key=None, notes=workspace)

    asyncio.run(looked_at())
    if wanted:
        assert (workspace / "MEMORY.md").read_text() == f"# Promoted memories\n\n- {LOCK}\n"
        assert (workspace / "DREAMS.md").read_text().count(LOCK) == 2
    else:
        assert [*workspace.iterdir()] == []
    assert site.texts() == before


@pytest.mark.row("MS-29", level="e2e")
def test_a_run_writes_skills_into_the_workspace_and_what_is_forgotten_leaves_them_at_the_next_look(
    site: PluginSite, tmp_path: Path
) -> None:
    clock = Ahead()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with nightly(site, clock) as plugin:
        for number, text in enumerate(RELEASES):
            say(plugin, text, key=f"agent:main:openai-user:{number}")
        recall(plugin, QUESTIONS[0])
        clock.seconds = LATER
        wait_until(lambda: ran(site))
    before = sorted(site.texts())

    async def look(skills: int) -> list[str]:
        root = IndexRoot(RootKind.WORKSPACE, workspace)
        settings = {"consolidation": {"skills": skills}}
        async with AsyncMemoryPlugin(settings=settings, environ=dict(site.environment)) as plugin:
            done = await plugin.look_at_files((root,), session_key=None, notes=workspace)
            assert not done.problems
        return [file.read_text() for file in workspace.glob("**/*.md")]

    assert asyncio.run(look(0)) == []
    (text,) = asyncio.run(look(3))
    assert [one in text for one in RELEASES] == [True, True, True]
    assert asyncio.run(look(3)) == [text]
    assert sorted(site.texts()) == before
    (gone,) = (memory["id"] for memory in site.memories() if memory["text"] == RELEASES[0])
    site.command("forget", gone)
    (text,) = asyncio.run(look(0))
    assert [one in text for one in RELEASES] == [False, True, True]


def test_at_default_settings_nothing_is_counted_and_nothing_runs(site: PluginSite) -> None:
    clock = Ahead()
    with MemoryPlugin(environ=dict(site.environment), clock=clock) as plugin:
        say(plugin, LOCK)
        for question in QUESTIONS:
            recall(plugin, question)
        clock.seconds = LATER
    told = run_gateway(site.environment, "consolidate", "--last")
    assert told.returncode != 0
    assert "consolidation.enabled" in told.stderr
    assert pinned(site) == {LOCK: False}
