"""What a person sees of memory in the chat, and which runs are given what: one gateway, driven as its users do."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from processes import wait_until
from stub_model import StubModel, said, system

FACT = "My sailing boat lies at berth forty-two of the eastern marina."
QUESTION = "At which berth does my sailing boat lie?"


@pytest.fixture(scope="module")
def fact(running: Gateway, relayer: Relayer) -> str:
    """A fact that was told in one session and is stored by now."""
    running.reload(memrelay_plugins(relayer.url))
    running.chat(FACT, user="telling-lines")
    wait_until(lambda: FACT in relayer.memories(running))
    return FACT


@pytest.mark.row("AM-08", level="e2e")
def test_what_memory_did_is_shown_behind_the_answer_to_who_asks_to_see_it(
    gateway: Gateway, fact: str
) -> None:
    shown = gateway.said_in_chat(
        (QUESTION, "Noted."),
        ("/verbose on", "Verbose"),
        (f"{QUESTION} Please.", "🧩"),
        ("/trace on", "Trace"),
        (f"{QUESTION} Thanks.", "🧩"),
        ("hi there", "Noted."),
        ("/verbose off", "Verbose"),
        ("/trace off", "Trace"),
        (f"{QUESTION} At last.", "Noted."),
        ("/verbose on", "Verbose"),
    )
    notices = [one for one in shown if "🧩" in one or "🔎" in one]
    assert len(notices) == 2
    assert re.fullmatch(r"🧩 memory: ok \d+ms 1 memory", notices[0])
    assert notices[1].splitlines()[1:] == [f"🔎 memory debug: {fact}"]


def test_what_was_found_is_not_kept_in_the_hosts_database_unless_somebody_asks_to_see_it(
    gateway: Gateway, fact: str
) -> None:
    session = "agent:main:openai-user:lines-kept"
    gateway.chat(QUESTION, user="lines-kept")
    with closing(
        sqlite3.connect(gateway.state / "agents" / "main" / "agent" / "openclaw-agent.sqlite")
    ) as kept:
        (entry,) = kept.execute(
            "SELECT entry_json FROM session_nodes WHERE session_key = ?", (session,)
        ).fetchone()
    assert "🧩 memory: ok" in json.loads(entry)["pluginDebugEntries"][0]["lines"][0]
    assert fact not in entry


@pytest.mark.row("AM-07", "AM-30", level="e2e")
def test_the_global_state_is_shown_apart_from_the_sessions(gateway: Gateway, fact: str) -> None:
    del fact
    session = "agent:main:openai-user:lines-global"
    gateway.chat(QUESTION, user="lines-global")
    gateway.command("/memory off", session=session)
    here = gateway.command("/active-memory status", session=session)
    everywhere = gateway.command("/active-memory status --global", session=session)
    gateway.command("/memory on", session=session)
    assert here.startswith("Memory: off for this session")
    assert everywhere.startswith("Memory: on globally")
    gateway.command("/memory off --global")
    everywhere = gateway.command("/memory status --global", session=session)
    gateway.command("/memory on --global")
    assert everywhere.startswith("Memory: off globally")


def test_status_speaks_of_the_session_that_asks(gateway: Gateway, fact: str) -> None:
    del fact
    gateway.chat(QUESTION, user="lines-mine")
    session = "agent:main:openai-user:lines-mine"
    wait_until(lambda: "last capture: queued" in gateway.command("/memory status", session=session))
    mine = gateway.command("/memory status", session=session)
    other = gateway.command("/memory status", session="agent:main:openai-user:lines-unused")
    assert "last recall: ok in" in mine
    assert "last recall: none yet" in other
    assert "last capture: none yet" in other


def test_the_second_name_steps_aside_for_a_plugin_that_is_switched_on_later(
    gateway: Gateway, relayer: Relayer
) -> None:
    assert gateway.command("/active-memory status").startswith("Memory: on")
    plugins = memrelay_plugins(relayer.url)
    plugins["entries"]["active-memory"] = {"enabled": True, "config": {"agents": ["main"]}}
    gateway.reload(plugins)
    try:
        told = gateway.command("/active-memory status")
        assert told.startswith("This name is active-memory's")
        command = told.split("openclaw ")[1].split(",")[0].split()
        assert gateway.cli(*command).returncode == 0
        assert gateway.command("/active-memory status") == "Active Memory: on for this session."
        assert gateway.command("/memory status").startswith("Memory: on")
    finally:
        gateway.reload(memrelay_plugins(relayer.url))
        assert gateway.cli("plugins", "reload", "memrelay").returncode == 0


HEADING = "Recent memories (use memory_search for full search):"
BLOCKS = ("memrelay-memories", "relevant-memories", "active_memory_plugin", HEADING)


def given(model: StubModel, question: str) -> str:
    """Return what the model was sent with a question: all that a host or a plugin put around it."""
    return json.dumps(model.asked(question)[-1]["messages"], ensure_ascii=False)


def without_memory(prompt: str) -> bool:
    return FACT not in prompt and not any(block in prompt for block in BLOCKS)


@pytest.mark.row("MS-01", level="e2e")
def test_a_chat_that_begins_with_hi_is_told_what_was_said_lately_and_each_thing_once(
    gateway: Gateway, fact: str, model: StubModel
) -> None:
    gateway.chat("hi", user="lines-greeting")
    greeted = said(model.turns[-1])
    assert HEADING in greeted
    assert greeted.count(fact) == 1
    gateway.chat(QUESTION, user="lines-first")
    assert given(model, QUESTION).count(fact) == 1


@pytest.mark.row("CP-26", "CP-27", level="e2e")
def test_with_the_preset_memories_stand_before_the_message_each_with_its_path(
    gateway: Gateway, fact: str, model: StubModel, relayer: Relayer
) -> None:
    gateway.reload(
        memrelay_plugins(relayer.url, preset="memory-core-plus", recall={"coldStart": {"enabled": False}})
    )
    question = f"{QUESTION} As before."
    gateway.chat(question, user="lines-preset")
    prompt = said(model.asked(question)[-1])
    assert re.search(
        rf"<relevant-memories>\n.*\n1\. \[memory/\w{{26}}\.md\] {re.escape(fact)} \(score: \d+%\)\n", prompt
    )
    assert prompt.index("</relevant-memories>") < prompt.index(question)


@pytest.mark.row("AM-02", "AM-03", "AM-04", "AM-28", level="e2e")
def test_active_mode_leaves_groups_one_shot_commands_and_other_agents_alone(
    gateway: Gateway, fact: str, model: StubModel, relayer: Relayer
) -> None:
    gateway.reload(memrelay_plugins(relayer.url, agents=["main"]))
    # The relayer has no model: what active mode is for is given the hits.
    gateway.chat(f"{QUESTION} In a chat.", user="lines-active")
    assert fact in given(model, "In a chat.")
    group = {
        "x-openclaw-session-key": "agent:main:telegram:group:-77",
        "x-openclaw-message-channel": "telegram",
    }
    gateway.chat(f"{QUESTION} In a group.", user="", headers=group)
    gateway.chat(f"{QUESTION} As another agent.", agent="research", user="lines-active")
    one_shot = gateway.cli("agent", "--agent", "main", "-m", f"{QUESTION} Only once.", "--json")
    assert one_shot.returncode == 0, one_shot.stderr
    for where in ("In a group.", "As another agent.", "Only once."):
        assert without_memory(given(model, where)), where
    assert "STOP  interactive  this run is not interactive" in gateway.command("/memory why")


@pytest.mark.row("AM-03", level="e2e")
def test_active_mode_leaves_a_command_without_a_gateway_alone(
    gateway: Gateway, fact: str, model: StubModel, relayer: Relayer
) -> None:
    del fact
    gateway.reload(memrelay_plugins(relayer.url, agents=["main"]))
    gateway.stop()
    try:
        told = gateway.cli(
            "agent", "--local", "--agent", "main", "-m", f"{QUESTION} Locally.", "--json", patience=240
        )
    finally:
        gateway.start()
    assert told.returncode == 0, told.stderr
    assert without_memory(given(model, "Locally."))


def test_a_one_shot_command_is_served_in_direct_mode_unless_the_settings_say_no(
    gateway: Gateway, fact: str, model: StubModel, relayer: Relayer
) -> None:
    gateway.cli("agent", "--agent", "main", "-m", f"{QUESTION} Served.", "--json")
    gateway.reload(memrelay_plugins(relayer.url, recall={"oneShots": False}))
    gateway.cli("agent", "--agent", "main", "-m", f"{QUESTION} Refused.", "--json")
    assert fact in given(model, "Served.")
    assert without_memory(given(model, "Refused."))


def size_of(request: dict[str, Any]) -> int:
    """Count the characters of a request that a plugin may add to: the system prompt and the tools."""
    return len(system(request)) + len(
        json.dumps(request.get("tools", []), separators=(",", ":"), ensure_ascii=False)
    )


def test_what_every_request_carries_is_what_the_page_says_and_each_part_can_be_left_out(
    gateway: Gateway, model: StubModel, relayer: Relayer
) -> None:
    """Nothing is recalled in these turns: what differs is what the model is offered."""
    quiet = {"standing": {"enabled": False}, "coldStart": {"enabled": False}}
    sizes = {}
    for name, offer in {
        "all": {},
        "tools": {"tools": False, "section": True},
        "section": {"section": False},
        "skill": {"skill": False},
        "nothing": {"tools": False, "skill": False, "section": False},
    }.items():
        gateway.reload(memrelay_plugins(relayer.url, recall=quiet, offer=offer))
        question = f"What is the capital of the country in atlas {name}?"
        gateway.chat(question, user=f"lines-size-{name}")
        sizes[name] = size_of(model.asked(question)[-1])
    costs = {name: sizes["all"] - size for name, size in sizes.items()}
    print(costs)
    page = (Path(__file__).parents[2] / "docs" / "hosts" / "openclaw.md").read_text("utf-8")
    told = int(re.search(r"every request carries ([\d,]+) characters", page)[1].replace(",", ""))
    assert abs(costs["nothing"] - told) < 150
    assert costs["nothing"] < 4479 / 2
    assert all(costs[name] > 100 for name in ("tools", "section", "skill"))


def recorded(gateway: Gateway, needle: str) -> int:
    """Return how many rows of the host's flight recorder hold a text."""
    database = gateway.state / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    with closing(sqlite3.connect(database)) as kept:
        rows = kept.execute("SELECT event_json FROM trajectory_runtime_events").fetchall()
    return sum(needle in text for (text,) in rows)


def test_the_hosts_record_of_whole_prompts_is_told_of_and_ends_with_the_setting_that_is_named(
    gateway: Gateway, fact: str
) -> None:
    del fact
    gateway.chat(f"{QUESTION} Recorded.", user="lines-recorded")
    wait_until(lambda: recorded(gateway, "Recorded.") > 0)
    assert recorded(gateway, "memrelay-memories") > 0
    found = {check["name"]: check for check in _doctor(gateway)}["openclaw flight recorder"]
    assert "in the clear" in found["found"]
    command = found["fix"].split("openclaw ")[1].split(";")[0].split()
    try:
        assert gateway.cli(*command).returncode == 0
        gateway.restart()
        gateway.chat(f"{QUESTION} Unrecorded.", user="lines-unrecorded")
        gateway.chat(f"{QUESTION} And again.", user="lines-unrecorded")
        assert recorded(gateway, "Unrecorded.") == 0
        found = {check["name"]: check for check in _doctor(gateway)}["openclaw flight recorder"]
        assert found["found"] == "switched off"
    finally:
        # The host takes back a file that lacks what its own commands left in it: only the setting goes.
        gateway.stop()
        gateway.write_config({name: part for name, part in gateway.config().items() if name != "env"})
        gateway.start()


def _doctor(gateway: Gateway) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(
        gateway.cli("memrelay", "doctor", "--host", "openclaw", "--json").stdout
    )
    return checks
