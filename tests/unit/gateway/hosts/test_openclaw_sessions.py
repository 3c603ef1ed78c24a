"""The host's own record of a session, and turns whose answer has to settle."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import time
from base64 import b64decode
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from openclaw_sessions import SESSION, write_sessions

from gateway_plugin import AsyncMemoryPlugin
from gateway_plugin.files.indexed import read_transcript
from gateway_plugin.hosts.openclaw.files import AgentPlaces, FileWatch
from gateway_plugin.hosts.openclaw.host import HeardTurn, Settling, run_command
from gateway_plugin.hosts.openclaw.sessions import NODE_VARIABLE, Compressed, EarlierSessions, _message
from gateway_plugin.hosts.openclaw.tools import AgentSessions
from gateway_plugin.hosts.openclaw.turns import Runs, host_turn, messages_of
from gateway_plugin.keys.identity import TurnAudience
from gateway_plugin.tools.arguments import ToolError


def read(logs, path=SESSION, anchor=None, turns=20):
    return read_transcript(logs, path, anchor=anchor, turns=turns).split("\n")


@pytest.mark.row("MS-11", "MS-12")
def test_a_session_is_read_from_the_hosts_database_by_its_key(tmp_path):
    write_sessions(tmp_path)
    whole = ["[User]: Which berth is ours?", "[Assistant]: Berth seven.", "[User]: And the key?"]
    assert read(AgentSessions(tmp_path)) == whole
    assert read(AgentSessions(tmp_path), path="w1") == whole


def test_a_time_is_an_anchor_as_well_as_an_id(tmp_path):
    write_sessions(tmp_path)
    logs = AgentSessions(tmp_path)
    assert read(logs, anchor="m1", turns=1) == ["[Assistant]: Berth seven."]
    assert read(logs, anchor="2026-11-22T02:01:30+00:00", turns=1) == ["[Assistant]: Berth seven."]
    with pytest.raises(ToolError, match="anchor"):
        read(logs, anchor="2020-01-01T00:00:00Z")


@pytest.mark.parametrize("agent", ["research", "../main", "main/../main"])
def test_another_agents_sessions_are_not_found(tmp_path, agent):
    write_sessions(tmp_path / "state")
    write_sessions(tmp_path / "other", agent="main")
    with pytest.raises(ToolError) as refused:
        read(AgentSessions(tmp_path / "state", agent), path="agent:main:openai-user:two")
    assert "berth" not in str(refused.value).casefold()


def test_in_a_group_only_the_groups_own_session_is_read(tmp_path):
    write_sessions(tmp_path)
    with pytest.raises(ToolError, match="own session"):
        read(AgentSessions(tmp_path, only="agent:main:telegram:group:-1"))
    assert len(read(AgentSessions(tmp_path, only=SESSION))) == 3


def test_a_file_that_is_no_database_is_an_answer_and_no_crash(tmp_path):
    folder = tmp_path / "agents/main/agent"
    folder.mkdir(parents=True)
    (folder / "openclaw-agent.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(ToolError, match="cannot be read just now"):
        read(AgentSessions(tmp_path))


class Captures:
    def __init__(self):
        self.turns = []
        self.came = asyncio.Event()

    async def __call__(self, turn):
        self.turns.append(turn)
        self.came.set()


def heard(session, *answers):
    said = [{"role": "assistant", "content": answer} for answer in answers]
    return HeardTurn(session, {}, ({"role": "user", "content": "q"}, *said))


@pytest.mark.row("MS-04")
async def test_a_turn_is_captured_once_its_output_has_settled_and_as_it_was_last():
    captures = Captures()
    settling = Settling(0.02, captures)
    for turn in (heard("s", "a"), heard("s", "a", "b")):
        await settling.heard(turn)
    await asyncio.wait_for(captures.came.wait(), 10)
    await settling.aclose()
    assert captures.turns == [heard("s", "a", "b")]


@pytest.mark.row("MS-04")
async def test_a_session_that_goes_on_has_its_turn_captured_at_once():
    captures = Captures()
    settling = Settling(600, captures)
    await settling.heard(heard("s", "a"))
    await settling.heard(heard("other", "b"))
    await settling.flush("s")
    await settling.flush("s")
    assert captures.turns == [heard("s", "a")]
    settling.drop("other")
    await settling.aclose()
    assert len(captures.turns) == 1


async def test_what_has_not_settled_is_captured_at_the_end_and_never_piles_up():
    captures = Captures()
    settling = Settling(600, captures, limit=2)
    for session in "abc":
        await settling.heard(heard(session, "x"))
    assert [turn.session for turn in captures.turns] == ["a"]
    await settling.aclose()
    assert [turn.session for turn in captures.turns] == ["a", "b", "c"]


EARLIER = [
    ("user", "My boat is called Wilhelmine and lies in Greetsiel."),
    ("assistant", "A fine name for a boat in Greetsiel."),
    ("user", "My sister Ilse repairs clocks in Emden."),
    ("assistant", "Clocks are patient work."),
]


async def captured(tmp_path, account="one", **wanted):
    """Look at the earlier sessions until none is left; return how many turns wait in the outbox of this machine."""
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    # Nothing listens there, so that what was captured waits.
    async with AsyncMemoryPlugin("http://127.0.0.1:9", environ=environ) as plugin:
        before = plugin.status().waiting
        earlier = EarlierSessions(tmp_path / "state", "main", account, **wanted)
        while await earlier.look(plugin, tmp_path):
            pass
        return plugin.status().waiting - before


async def test_earlier_turns_are_captured_once_and_for_each_account(tmp_path):
    write_sessions(tmp_path / "state", said=EARLIER)
    assert await captured(tmp_path) == 2
    assert await captured(tmp_path) == 0
    marks = list((tmp_path / "state" / "memrelay").iterdir())
    assert all("Greetsiel" not in mark.read_text() for mark in marks)
    await captured(tmp_path, account="another")
    assert len(list((tmp_path / "state" / "memrelay").iterdir())) == 2


@pytest.mark.parametrize(
    "session",
    ["agent:main:telegram:group:-1", "agent:main:subagent:5", "cron:daily", "agent:main:discord:channel:7"],
)
async def test_without_groups_they_and_runs_that_no_person_began_are_left_out(tmp_path, session):
    write_sessions(tmp_path / "state", session=session, said=EARLIER)
    assert await captured(tmp_path) == 0


GROUP = "agent:main:telegram:group:-1"
NOTED = {"__openclaw": {"senderId": "222", "senderName": "Kim", "senderIsOwner": False}}


async def test_groups_come_when_the_host_is_set_to_cover_them_though_all_else_was_looked_at(tmp_path):
    write_sessions(tmp_path / "state", session=GROUP, said=EARLIER)
    assert [await captured(tmp_path), await captured(tmp_path, groups=True)] == [0, 2]
    assert await captured(tmp_path, groups=True) == 0


async def test_of_a_member_who_said_much_before_nothing_is_left_out(tmp_path):
    # A member of a live group may add forty messages in an hour.
    said = [
        ("user", f"Crate {number} of the flea market holds {number + 100} plates.") for number in range(45)
    ]
    write_sessions(tmp_path / "state", session=GROUP, said=said, noted=NOTED)
    assert await captured(tmp_path, groups=True) == 45


@pytest.mark.parametrize("session", ["agent:main:telegram:-1", "agent:main:telegram:group:-1:subagent:5"])
async def test_a_chat_that_may_be_a_group_and_runs_in_a_group_are_left_out(tmp_path, session):
    write_sessions(tmp_path / "state", session=session, said=EARLIER)
    assert await captured(tmp_path, groups=True) == 0


@pytest.mark.parametrize(
    ("session", "noted", "turns"),
    [
        ("agent:main:main", NOTED, 0),
        ("agent:main:main", {"__openclaw": {"senderId": "777", "senderIsOwner": True}}, 2),
        ("agent:main:main", {}, 2),
        ("agent:main:telegram:direct:222", NOTED, 2),
        ("agent:main:telegram:direct:222", {"provenance": {"kind": "external_user"}}, 2),
        ("agent:main:telegram:direct:222", {"provenance": {"kind": "inter_session"}}, 0),
    ],
)
async def test_where_people_are_kept_apart_only_the_owners_words_in_a_session_of_all_are_captured(
    tmp_path, session, noted, turns
):
    write_sessions(tmp_path / "state", session=session, said=EARLIER, noted=noted)
    assert await captured(tmp_path, apart=True) == turns


async def test_a_session_that_the_host_was_told_to_forget_is_left_out(tmp_path):
    write_sessions(tmp_path / "state", said=EARLIER)
    database = tmp_path / "state/agents/main/agent/openclaw-agent.sqlite"
    with closing(sqlite3.connect(database)) as log:
        log.execute("CREATE TABLE memory_session_tombstones (session_id TEXT)")
        log.execute("INSERT INTO memory_session_tombstones VALUES ('w1')")
        log.commit()
    assert await captured(tmp_path) == 0


async def test_what_was_said_since_the_plugin_was_there_is_not_earlier_when_sessions_are_covered_later(
    tmp_path,
):
    write_sessions(tmp_path / "state", session=GROUP, said=EARLIER)
    environ = {"HOME": str(tmp_path / "home"), "OPENCLAW_STATE_DIR": str(tmp_path / "state")}
    async with AsyncMemoryPlugin("http://127.0.0.1:9", environ=environ) as plugin:
        places = AgentPlaces("main", tmp_path, ())
        await FileWatch(plugin, environ)._look_at_sessions(places)
        database = tmp_path / "state/agents/main/agent/openclaw-agent.sqlite"
        with closing(sqlite3.connect(database)) as log:
            now = int(time.time() * 1000)
            log.execute("UPDATE transcript_events SET created_at = ? WHERE seq > 2", (now,))
            log.commit()
        await asyncio.sleep(0.01)
        watch = FileWatch(plugin, environ)
        while await watch._look_at_sessions(replace(places, sessions=True, groups=True)):
            pass
        assert plugin.status().waiting == 1


@pytest.mark.parametrize(
    "told", [{"model": "delivery-mirror"}, {"model": "gateway-injected"}, {"stopReason": "error"}]
)
def test_what_the_host_wrote_for_the_model_and_answers_that_failed_are_left_out(told):
    message = {"role": "assistant", "content": "The request failed, the model did not respond."}
    assert _message(json.dumps({"type": "message", "message": message})) is not None
    assert _message(json.dumps({"type": "message", "message": message | told})) is None


async def test_a_host_without_a_database_has_no_earlier_sessions(tmp_path):
    assert await captured(tmp_path) == 0


# An event of forty sentences, as OpenClaw 2026.9.6 with Node.js 24 compressed it.
PACKED = b64decode(
    "KLUv/WRZBjUIAJJPLB9gZ5wDqDB2B/anDPVIrP8k8CxSExEhMon3OiRrGHgFiwUe2RLTdVVXdU1Xver1V199zR95ezv78pev/OQn"
    "X+3btm2nVUtGNLUzJ0vrQpZqCHtaSlVLviYfHQw5+16igJqH3h7Qo6CEUZxkQWt4aKBBRobnLAEdPmYf0xTQQGefBDrcQ+OgwhkY"
    "kJlHpnu6J8A/sAfreXSIWJL37KI8NPALOhRQ0MAlSJ5nF3S4iIKHik+oEXD2/n8GkDNLBxEoBBxc+P9J+9x1bd46Xd42vd3rdlws"
    "nrh/OFi4KLgIMP1VvqRX89JdpUtzFdwmptvUKk8M8iNb2A9taea+hqBoqA4eQVUraMoI"
)
LAST = "Berth 40 of the marina is let to cutter 280."


def compress(state):
    """Have the database's third event compressed, the fourth damaged, and a result of a tool behind them."""
    with closing(sqlite3.connect(state / "agents/main/agent/openclaw-agent.sqlite")) as log:
        log.execute("ALTER TABLE transcript_events ADD COLUMN event_zstd BLOB")
        log.execute("ALTER TABLE transcript_events ADD COLUMN navigation_json TEXT")
        tool = '{"navigation":{"message":{"role":"toolResult"}}}'
        log.execute("INSERT INTO transcript_events VALUES ('w1', 5, NULL, 5, ?, ?)", (PACKED, tool))
        told = "UPDATE transcript_events SET event_json = NULL, event_zstd = ? WHERE seq = ?"
        log.executemany(told, [(PACKED, 3), (PACKED[:-9], 4)])
        log.commit()


def node_with_zstd():
    # That of the tests with the real host is newer than that of many machines.
    of_host = Path.home() / ".cache/memrelay-e2e/node24/node_modules/node/bin/node"
    for node in filter(None, (shutil.which("node"), shutil.which(str(of_host)))):
        asked = [node, "-e", "process.exit(require('node:zlib').zstdDecompressSync ? 0 : 1)"]
        if subprocess.run(asked, check=False).returncode == 0:
            return node
    return None


@pytest.fixture
def node(monkeypatch):
    if (found := node_with_zstd()) is None:
        pytest.skip("needs Node.js 22.15 or newer")
    monkeypatch.setenv(NODE_VARIABLE, found)


@pytest.mark.row("OC-07")
@pytest.mark.usefixtures("node")
async def test_messages_that_the_host_compressed_are_captured_and_read_as_others_are(tmp_path):
    write_sessions(tmp_path / "state", said=EARLIER)
    compress(tmp_path / "state")
    earlier = EarlierSessions(tmp_path / "state", "main", "one")
    said = [one["content"] for turn in earlier.all() for one in turn.messages]
    assert (said[0], said[-1][-len(LAST) :], len(said)) == (EARLIER[0][1], LAST, 3)
    assert len(read(AgentSessions(tmp_path / "state"))) == 3
    assert await captured(tmp_path) == 2


@pytest.mark.row("OC-07")
async def test_without_a_program_that_reads_compressed_messages_they_wait_for_one(tmp_path, monkeypatch):
    write_sessions(tmp_path / "state", said=EARLIER)
    compress(tmp_path / "state")
    monkeypatch.setenv(NODE_VARIABLE, str(tmp_path / "no-node"))
    with pytest.raises(Compressed, match=NODE_VARIABLE):
        await captured(tmp_path)
    with pytest.raises(ToolError, match=NODE_VARIABLE):
        read(AgentSessions(tmp_path / "state"))
    if (found := node_with_zstd()) is not None:
        monkeypatch.setenv(NODE_VARIABLE, found)
        assert await captured(tmp_path) == 2


# From OpenClaw's events to turns: identity, who wrote, and which messages a run added.
RUN = {"runId": "r1", "sessionKey": "agent:main:main"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


OLD = [user("first"), assistant("one")]


def test_a_run_added_what_came_after_its_beginning():
    runs = Runs()
    runs.began(RUN, before=2)
    # A message that came in while the run went on belongs to it, too.
    new = [user("a"), assistant("..."), user("b"), assistant("done")]
    assert runs.ended(RUN, OLD + new, total=6) == (tuple(new), False)


def test_a_run_whose_beginning_nobody_saw_added_its_latest_question_and_answer():
    assert Runs().ended(RUN, [*OLD, user("a"), assistant("b")], total=4)[0] == (user("a"), assistant("b"))


def test_a_history_that_was_compacted_on_the_way_begins_at_its_latest_question():
    runs = Runs()
    runs.began(RUN, before=50)
    assert runs.ended(RUN, [assistant("summary"), user("a"), assistant("b")], total=3)[0][0] == user("a")


def test_a_window_of_a_long_history_is_counted_from_its_end():
    runs = Runs()
    runs.began(RUN, before=100)
    window = [assistant("old"), user("a"), assistant("b")]
    assert runs.ended(RUN, window, total=102)[0] == (user("a"), assistant("b"))


def test_who_wrote_is_remembered_from_the_beginning_of_a_run_to_its_end():
    runs = Runs()
    runs.began({**RUN, "inputProvenance": {"kind": "inter_session"}}, before=0)
    assert runs.ended(RUN, [user("a")], total=1)[1] is True


def test_runs_that_never_end_do_not_pile_up():
    runs = Runs(limit=2)
    for number in range(5):
        runs.began({"runId": f"r{number}"}, before=1)
    assert runs.ended({"runId": "r0"}, [*OLD, user("x")], total=3)[0] == (user("x"),)
    assert runs.ended({"runId": "r4"}, [*OLD, user("x")], total=3)[0] == (OLD[1], user("x"))


@pytest.mark.parametrize(
    ("context", "agent"),
    [
        ({"sessionKey": "agent:research:main", "agentId": "research"}, None),
        ({"sessionKey": "cron:nightly", "agentId": "research"}, "research"),
        ({"agentId": "research"}, "research"),
        ({"agentId": "Main"}, None),
        ({}, None),
    ],
)
def test_the_agent_is_named_only_where_the_session_key_does_not(context, agent):
    assert host_turn(context).agent == agent


def test_a_turn_carries_sender_workspace_trigger_and_chat():
    told = {"senderId": "7", "workspaceDir": "/w", "trigger": "cron", "channelId": "c", "runId": "r"}
    turn = host_turn(told | {"chatType": "group"})
    carried = (turn.sender, turn.workspace, turn.trigger, turn.chat_id, turn.run_id)
    assert carried == tuple(told.values())
    assert (turn.audience, turn.host) == (TurnAudience.GROUP, "openclaw")


@pytest.mark.parametrize("junk", [{}, {"messages": "text"}, {"messages": [1, None, "x"]}, {"messages": None}])
def test_what_is_no_message_is_left_out(junk):
    assert messages_of(junk) == ()


def test_an_unknown_word_is_answered_with_what_the_command_can_do():
    # Help needs no memory at all.
    assert run_command(None, "what?", {}).startswith("/memory status")


@pytest.mark.row("AM-15")
def test_a_turn_carries_the_model_of_its_session():
    assert host_turn({**RUN, "modelId": "stub-model"}).model == "stub-model"
    assert host_turn(RUN).model == ""
