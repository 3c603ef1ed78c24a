"""Captured facts in the daily notes of a workspace, as they are lived: a plugin, files, and a relayer in the same process."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import UTC, datetime

import pytest

from gateway_plugin.files.bounded import named
from gateway_plugin.files.indexed import IndexRoot, RootKind
from gateway_plugin.files.markdown import read_markdown
from gateway_plugin.host_model import HostAnswer
from gateway_plugin.turn.gates import HostTurn
from memrelay import AsyncMemoryPlugin
from relayer.testing.local_relayer import local_relayer, threaded_relayer

SESSION = "agent:ops:main"
POINTS = "The user has a sailing boat that is called Wilhelmine."
BOAT = "My sailing boat is called Wilhelmine."
TODAY = datetime.now(UTC).astimezone().date().isoformat()


class World:
    """One agent with a workspace."""

    def __init__(self, relayer, home, model=None, **settings):
        self.relayer = relayer
        self.model = model
        self.settings = settings or {"capture": {"mirrorDailyLog": True}}
        self.home = home
        self.secret = os.urandom(32).hex()
        self.workspace = home / "ws"
        self.workspace.mkdir()
        self.plugin = self.restarted()

    def restarted(self):
        settings = {"url": self.relayer.url, **self.settings}
        self.plugin = AsyncMemoryPlugin(
            settings=settings, secret=self.secret, environ={"HOME": str(self.home)}, model=self.model
        )
        return self.plugin

    @property
    def notes(self):
        return self.workspace / "memory" / f"{TODAY}.md"

    async def look(self):
        self.plugin._noted.clear()  # as if a while had passed
        root = IndexRoot(RootKind.WORKSPACE, named(self.workspace))
        return await self.plugin.look_at_files((root,), session_key=SESSION, notes=named(self.workspace))

    async def said(self, text, session=SESSION):
        await self.plugin.after_turn([{"role": "user", "content": text}], session_key=session)
        assert await self.plugin.flush(10)

    async def found(self, question, **host):
        answer = await self.plugin.tool(
            "memory_search", {"query": question, "minScore": 0}, session_key=SESSION, host=HostTurn(**host)
        )
        return {one["id"]: one["text"] for one in answer.details["memories"]}


@pytest.fixture(scope="module")
def relayer():
    with threaded_relayer(lambda: local_relayer(rate_limits="off")) as running:
        yield running


@pytest.fixture
async def world(relayer, tmp_path):
    made = World(relayer, tmp_path)
    await made.look()
    yield made
    await made.plugin.aclose()


@pytest.mark.row("CP-40", level="e2e")
async def test_what_is_captured_stands_in_the_notes_of_the_day_and_is_stored_once(world):
    await world.said(BOAT)
    before = await world.found("boat")
    await world.look()
    assert world.notes.read_text() == f"# {TODAY}\n\n- {BOAT}\n"
    for _ in range(2):
        await world.look()
    assert await world.found("boat") == before
    assert world.notes.read_text().count("Wilhelmine") == 1


@pytest.mark.row("MS-19", "MS-22")
async def test_under_the_preset_of_memsearch_the_notes_name_session_and_time_of_each_line(relayer, tmp_path):
    answer = ["The sails of my boat are red as bricks.", "I rent a winter berth in Emden for the boat."]
    world = World(relayer, tmp_path, preset="memsearch", capture={"minMessages": 1, "minTurnLength": 0})
    try:
        await world.look()
        await world.said(BOAT)
        await world.said(answer[0])
        await world.look()
        await world.said(answer[1], session="agent:ops:telegram:direct:7")
        await world.look()
        await world.said("The winter cover of my boat is torn at the bow.")
        await world.look()
        text = world.notes.read_text()
        anchor = "<!-- session:{} -->".format
        assert text.startswith(f"# {TODAY}\n\n## Session ")
        sections = re.split(r"\n\n## Session \d\d:\d\d\n\n", text)[1:]
        assert len(sections) == 3
        assert re.match(r"### \d\d:\d\d\n<!-- session:agent:ops:main -->\n- ", sections[0])
        assert all(f"- {one}" in sections[0] for one in (BOAT, answer[0]))
        assert anchor("agent:ops:telegram:direct:7") in sections[1]
        assert f"- {answer[1]}" in sections[1]
        assert anchor(SESSION) in sections[2]
        assert "- The winter cover" in sections[2]
        # What the export of this layout writes is read back the same way.
        assert {(item.text, item.source.session) for item in read_markdown(text, world.notes.name, UTC)} >= {
            (BOAT, SESSION), (answer[1], "agent:ops:telegram:direct:7"),
        }  # fmt: skip
        # A second look reads what was written: nothing is stored twice, and nothing is written twice.
        before = await world.found("boat")
        for _ in range(2):
            await world.look()
        assert (await world.found("boat"), world.notes.read_text()) == (before, text)
    finally:
        await world.plugin.aclose()


class Summarising:
    """A host's model that finds no facts, and summarises each turn."""

    async def complete(self, question):
        del question
        return HostAnswer(json.dumps({"facts": [], "summary": POINTS}), tokens=1, model="stub/points")


@pytest.mark.parametrize(("layout", "written"), [("memsearch", 1), ("memory-core", 0)])
async def test_under_the_preset_of_memsearch_a_lent_model_summarises_each_turn_into_the_notes(
    relayer, tmp_path, layout, written
):
    changes = {} if layout == "memsearch" else {"dailyLogFormat": layout}
    capture = {"minMessages": 1, "minTurnLength": 0, **changes}
    world = World(relayer, tmp_path, Summarising(), preset="memsearch", capture=capture)
    try:
        await world.look()
        await world.said(BOAT)
        async with asyncio.timeout(30):
            while POINTS not in (await world.found("What is my sailing boat called?")).values():
                await world.look()
        await world.look()
        assert world.notes.read_text().count(f"- {POINTS}\n") == written
        assert world.notes.read_text().count(f"- {BOAT}") == 1
    finally:
        await world.plugin.aclose()


async def test_an_edit_of_the_notes_edits_the_memory_and_a_deletion_forgets_it(world):
    await world.said(BOAT)
    await world.look()
    await world.look()
    world.notes.write_text(world.notes.read_text().replace("Wilhelmine", "Ottilie"))
    look = await world.look()
    assert look.counts["replaced"] == 1
    assert [*(await world.found("boat")).values()] == ["My sailing boat is called Ottilie."]
    assert world.notes.read_text().count("- ") == 1
    world.notes.write_text("")
    await world.look()
    assert await world.found("boat") == {}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_line_may_be_edited_or_deleted_the_moment_it_stands_there(world, restarted):
    await world.said(BOAT)
    await world.said("The mast of the boat was varnished in May.")
    await world.look()
    text = world.notes.read_text()
    assert text.count("- ") == 2
    if restarted:
        await world.plugin.aclose()
        world.restarted()
    world.notes.write_text(f"# {TODAY}\n\n- {BOAT.replace('Wilhelmine', 'Ottilie')}\n")
    look = await world.look()
    assert (look.counts["replaced"], look.counts["forgotten"], look.counts["stored"]) == (1, 1, 0)
    assert [*(await world.found("boat")).values()] == ["My sailing boat is called Ottilie."]
    await world.look()
    assert world.notes.read_text() == f"# {TODAY}\n\n- My sailing boat is called Ottilie.\n"


async def test_what_is_forgotten_or_corrected_elsewhere_has_its_line_taken_out(world):
    await world.said(BOAT)
    await world.look()
    await world.look()
    world.notes.write_text(world.notes.read_text() + "- A line of a person's own.\n")
    await world.look()
    (memory,) = [one for one, text in (await world.found("boat")).items() if text == BOAT]
    await world.plugin.tool("memory_forget", {"ref": memory}, session_key=SESSION)
    await world.look()
    assert world.notes.read_text() == f"# {TODAY}\n\n- A line of a person's own.\n"


async def test_two_gateways_that_start_one_after_the_other_write_a_line_once(world):
    await world.said(BOAT)
    await world.look()
    await world.plugin.aclose()
    world.restarted()
    await world.look()
    await world.said("The mast of the boat was varnished in May.")
    await world.look()
    await world.look()
    assert world.notes.read_text().count("Wilhelmine") == 1
    assert world.notes.read_text().count("varnished") == 1
    assert sorted((await world.found("boat mast")).values()) == [
        BOAT,
        "The mast of the boat was varnished in May.",
    ]


async def test_a_line_that_was_written_before_the_process_ended_is_not_stored_as_another_memory(world):
    await world.said(BOAT)
    await world.look()
    # As after a kill before the feed's place was noted: the same change is told again.
    index = next((world.home / ".local/state/memrelay").glob("index-*.json"))
    kept = json.loads(index.read_text())
    index.write_text(json.dumps(kept | {"feed": "1"}))
    await world.look()
    await world.look()
    assert world.notes.read_text().count("Wilhelmine") == 1
    assert [*(await world.found("boat")).values()] == [BOAT]


async def test_notes_that_lead_elsewhere_are_not_written(world, tmp_path):
    (world.workspace / "memory").mkdir()
    world.notes.symlink_to(tmp_path / "elsewhere.md")
    await world.said(BOAT)
    look = await world.look()
    assert "link" in "".join(look.problems)
    assert not (tmp_path / "elsewhere.md").exists()
    assert [*(await world.found("boat")).values()] == [BOAT]


@pytest.mark.row("CP-46", level="e2e")
async def test_half_life_and_diversity_of_the_settings_reach_the_relayers_ranking(relayer, tmp_path):
    ranked, secret = {}, os.urandom(32).hex()
    for name, recall in (("plain", {}), ("faded", {"halfLifeDays": 1, "diversity": 0.2})):
        settings = {"url": relayer.url, "recall": recall | {"minScore": 0}}
        async with AsyncMemoryPlugin(
            settings=settings, secret=secret, environ={"HOME": str(tmp_path)}
        ) as plugin:
            if name == "plain":
                old = {"text": "The harbour office key hangs in the shed.", "occurredAt": "2020-01-01"}
                new = {"text": "The harbour office has a new key for the harbour gate since spring."}
                for told in (old, new):
                    await plugin.tool("memory_store", told, session_key=SESSION)
            found = await plugin.tool(
                "memory_search", {"query": "harbour office key hangs in the shed"}, session_key=SESSION
            )
            ranked[name] = found.details["memories"][0]["date"]
            given = await plugin.before_turn("harbour office key hangs in the shed?", session_key=SESSION)
            ranked[f"{name} turn"] = given.hits[0].text[:22]
    assert ranked["plain"] == "2020-01-01"
    assert ranked["faded"] == TODAY
    assert ranked["plain turn"] == "The harbour office key"
    assert ranked["faded turn"] == "The harbour office has"
