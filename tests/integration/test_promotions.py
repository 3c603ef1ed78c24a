"""What turns keep needing is written into MEMORY.md, and the day into DREAMS.md, when asked to, and taken back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer, recall, say
from typed_commands import run_gateway

from gateway_plugin import MemoryPlugin

LOCK = "The lower lock of the canal is opened with a brass key."
RARE = "The keeper of the lighthouse plays the bassoon on Fridays."
QUESTIONS = (
    "What is the lower lock of the canal opened with?",
    "Which key opens the lower lock of the canal?",
    "How is the lower lock of the canal opened?",
)
OWN = "# Notes\n\n### Grandma\n- Has a pacemaker.\n"
GROUP = "agent:main:telegram:group:-100200"
PEER = "agent:main:telegram:direct:999"
TODAY = datetime.now(UTC).astimezone().date().isoformat()


@pytest.fixture
def site(secret: str, tmp_path: Path) -> Iterator[PluginSite]:
    with own_relayer() as relayer, PluginSite(tmp_path, relayer.url, secret) as made:
        yield made


@pytest.fixture
def workspace(site: PluginSite, tmp_path: Path) -> Path:
    """An agent's workspace with a note of its own, where turns needed one memory often and another one once."""
    place = tmp_path / "workspace"
    place.mkdir()
    (place / "MEMORY.md").write_text(OWN)
    site.command("index", "--workspace", place)
    with counting(site) as plugin:
        say(plugin, LOCK)
        say(plugin, RARE)
        for question in QUESTIONS:
            assert LOCK in [hit.text for hit in recall(plugin, question).hits]
        seldom = recall(plugin, "What does the keeper of the lighthouse play on Fridays?").hits
        assert RARE in [hit.text for hit in seldom]
    return place


def counting(site: PluginSite) -> MemoryPlugin:
    """Return a plugin that counts recalls, with a schedule that is not due."""
    minute = time.localtime(time.time() - 120).tm_min
    return site.plugin(consolidation={"enabled": True, "schedule": f"{minute} * * * *"})


@pytest.mark.row("OC-20", level="e2e")
def test_nothing_is_written_before_it_is_asked_for(site: PluginSite, workspace: Path) -> None:
    [shown] = site.json("memory", "promote")["candidates"]
    assert (shown["snippet"], shown["recallCount"], shown["uniqueQueries"]) == (LOCK, 3, 3)
    assert LOCK in site.command("memory", "rem-harness").stdout
    site.command("index")
    assert (workspace / "MEMORY.md").read_text() == OWN
    assert not (workspace / "DREAMS.md").exists()


@pytest.mark.row("OC-20", level="e2e")
def test_a_promoted_line_is_one_memory_and_is_taken_back_with_the_file_as_it_was(
    site: PluginSite, workspace: Path
) -> None:
    before = sorted(site.texts())
    site.command("memory", "promote", "--apply")
    assert (workspace / "MEMORY.md").read_text() == f"{OWN}\n# Promoted memories\n\n- {LOCK}\n"
    diary = (workspace / "DREAMS.md").read_text()
    assert f"{TODAY}\n" in diary
    assert diary.count(LOCK) == 2
    assert diary.count(RARE) == 1
    site.command("index")
    assert sorted(site.texts()) == before
    assert site.json("memory", "promote")["candidates"] == []
    site.command("memory", "promote", "--rollback")
    site.command("memory", "rem-backfill", "--rollback")
    assert (workspace / "MEMORY.md").read_text() == OWN
    assert (workspace / "DREAMS.md").read_text() == ""
    site.command("index")
    assert sorted(site.texts()) == before


@pytest.mark.row("OC-20", level="e2e")
def test_an_edited_line_edits_the_memory_and_is_the_users_own_from_then_on(
    site: PluginSite, workspace: Path
) -> None:
    site.command("memory", "promote", "--apply")
    file = workspace / "MEMORY.md"
    file.write_text(file.read_text().replace("brass", "silver"))
    site.command("index")
    assert LOCK.replace("brass", "silver") in site.texts()
    assert LOCK not in site.texts()


@pytest.mark.row("OC-20", level="e2e")
def test_a_diary_leaves_texts_of_others_alone_and_a_day_is_written_once(
    site: PluginSite, workspace: Path
) -> None:
    own = "# Dream Diary\n\nA dream of the host.\n"
    (workspace / "DREAMS.md").write_text(own)
    for _ in range(2):
        site.command("memory", "rem-backfill")
    diary = (workspace / "DREAMS.md").read_text()
    assert diary.startswith(own)
    assert diary.count(LOCK) == diary.count("memrelay:day") == 1
    site.command("memory", "rem-backfill", "--rollback")
    assert (workspace / "DREAMS.md").read_text() == own


@pytest.mark.row("OC-20", level="e2e")
def test_what_groups_and_other_people_said_is_never_written(site: PluginSite, workspace: Path) -> None:
    heard = "The crew of the tug meets on Thursdays at the old pier."
    told = "My locker at the harbour has the number forty-two."
    with site.plugin(owners=["telegram:1"]) as plugin:
        say(plugin, heard, key=GROUP)
        say(plugin, told, key=PEER)
    assert {heard, told} <= set(site.texts())
    site.command("memory", "rem-backfill")
    diary = (workspace / "DREAMS.md").read_text()
    assert LOCK in diary
    assert heard not in diary
    assert told not in diary


@pytest.mark.row("OC-20", level="e2e")
def test_the_reason_why_a_memory_is_not_promoted_is_told(site: PluginSite, workspace: Path) -> None:
    assert workspace.is_dir()
    told = site.command("memory", "promote-explain", "bassoon").stdout
    assert "1 of 3 different queries" in told
    assert run_gateway(site.environment, "memory", "promote-explain", "zeppelin").returncode == 1


@pytest.mark.row("OC-20", level="e2e")
@pytest.mark.parametrize("command", [("forget",), ("erase", "--yes")])
def test_what_is_forgotten_or_erased_leaves_both_files(
    site: PluginSite, workspace: Path, command: tuple[str, ...]
) -> None:
    site.command("memory", "promote", "--apply")
    [one] = [one["id"] for one in site.json("list")["memories"] if one["text"] == LOCK]
    site.command("index")
    assert LOCK in (workspace / "MEMORY.md").read_text()
    assert LOCK in (workspace / "DREAMS.md").read_text()
    site.command(*command, one)
    site.command("index")
    assert (workspace / "MEMORY.md").read_text() == OWN
    diary = (workspace / "DREAMS.md").read_text()
    assert LOCK not in diary
    assert RARE in diary
    site.command("index", "--force")
    assert LOCK not in site.texts()
