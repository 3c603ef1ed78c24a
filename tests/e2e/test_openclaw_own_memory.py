"""What OpenClaw's own memory had, with memrelay in its place: standing intents, notes before a compaction, trigger phrases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

FLUSH = "is about to be shortened"
LASTING = "The lighthouse keeper of Borkum prefers letters to phone calls."


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway that has notes written before each turn of a chat that has any length."""
    folder = tmp_path_factory.mktemp("openclaw-own")
    plugins = memrelay_plugins(relayer.url)
    vault = {"vaultMode": "bridge", "vault": {"path": str(folder / "vault")}, "bridge": {"enabled": True}}
    plugins["entries"]["memory-wiki"] = {"enabled": True, "config": vault}
    gateway = Gateway(openclaw, folder, model.url, plugins=plugins, agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    whole = gateway.config()
    whole["agents"]["defaults"]["compaction"] = {"memoryFlush": {"forceFlushTranscriptBytes": 1}}
    gateway.write_config(whole)
    gateway.start()
    yield gateway
    gateway.stop()


def workspace_of(gateway: Gateway) -> Path:
    return gateway.folder / "ws" / "main"


def intent(gateway: Gateway, session: str, **arguments: Any) -> str:
    """Call the tool as the model does; return what it said."""
    return gateway.chat(f"CALL intent {json.dumps(arguments)}", user=session)


@pytest.mark.row("OC-08", level="e2e")
def test_a_reminder_comes_with_the_message_that_brings_it_up_and_not_with_others(
    gateway: Gateway, model: StubModel
) -> None:
    reminder = "Confirm who owns the rollback."
    armed = intent(
        gateway,
        "intents",
        action="create",
        description=reminder,
        triggerKeywords="launch checklist, rollback owner",
    )
    assert "Armed: " in armed
    name = re.search(r"Armed: (\w+) ", armed)[1]
    gateway.chat("How is the weather on Borkum today, do you know?", user="other-topic")
    assert "Standing intent" not in json.dumps(model.asked("weather on Borkum")[-1]["messages"])
    asked = "Please open the checklist for the launch of May."
    gateway.chat(asked, user="elsewhere")
    day = date.today().isoformat()  # noqa: DTZ011 - as a person reads it
    assert f"Standing intent (created {day}): {reminder}" in said(model.asked(asked)[-1])
    # It is given once a day, and a restart does not forget that.
    gateway.restart()
    gateway.chat(f"{asked} Again.", user="elsewhere-again")
    assert "Standing intent" not in said(model.asked(f"{asked} Again.")[-1])
    assert "[fired] when launch checklist, rollback owner" in intent(gateway, "intents", action="list")
    assert f"Cancelled: {name}" in intent(gateway, "intents", action="cancel", id=name)
    assert "No standing intents." in intent(gateway, "intents", action="list")


@pytest.mark.row("OC-08", level="e2e")
def test_before_a_compaction_the_agent_writes_notes_that_memory_follows(
    gateway: Gateway, relayer: Relayer, model: StubModel
) -> None:
    def write(request: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        found = re.search(r"Append to (memory/[\d-]+\.md)", said(request))
        written = any(message["role"] == "tool" for message in request["messages"][-1:])
        if FLUSH not in said(request) or found is None or written:
            return None
        return "write", {"path": found[1], "content": f"- {LASTING}\n"}

    model.call_with(write)
    try:
        gateway.chat("Good evening, here is a message of some length.", user="long")
        gateway.chat("And here is another message of about the same length.", user="long")
        wait_until(lambda: bool(model.asked(FLUSH)))
        wait_until(lambda: LASTING in relayer.memories(gateway))
    finally:
        model.call_with(lambda _request: None)
    assert [file.name for file in (workspace_of(gateway) / "memory").iterdir()] == [
        f"{date.today().isoformat()}.md"  # noqa: DTZ011 - as the host names it
    ]
    # The turn itself is nobody's words.
    assert not [text for text in relayer.memories(gateway) if "shortened" in text]


@pytest.mark.row("OC-08", level="e2e")
def test_a_line_is_found_by_its_trigger_phrases(gateway: Gateway) -> None:
    note = (
        "- Keep the tide gate shut. <!-- trigger: spring flood, harbour master --> <!-- importance: 9 -->\n"
    )
    (workspace_of(gateway) / "MEMORY.md").write_text(note)

    def found() -> list[dict[str, Any]]:
        answer = gateway.invoke(
            "memory_search", {"query": "spring flood", "where": {"importance": {"gte": 8}}}
        )
        return answer["result"]["details"].get("memories", [])

    wait_until(lambda: bool(found()))
    assert [hit["text"] for hit in found()] == ["Keep the tide gate shut. (spring flood, harbour master)"]


@pytest.mark.row("OC-08", level="e2e")
def test_a_session_is_forgotten_and_the_index_reset_by_the_hosts_own_commands(
    gateway: Gateway, relayer: Relayer
) -> None:
    fact = "The harbour dues of Emden are paid by the quarter."
    gateway.chat(fact, user="dues")
    wait_until(lambda: fact in relayer.memories(gateway))
    key = "agent:main:openai-user:dues"
    counted = gateway.cli("memory", "forget", "--session", key, "--dry-run", "--json")
    assert json.loads(counted.stdout)["matched"] == 1
    assert fact in relayer.memories(gateway)
    done = gateway.cli("memory", "forget", "--session", key)
    assert (done.returncode, fact in relayer.memories(gateway)) == (0, False), done.stderr
    before = sorted(relayer.memories(gateway))
    assert gateway.cli("memory", "reset").returncode == 2
    assert gateway.cli("memory", "reset", "--yes").returncode == 0
    assert gateway.cli("memory", "index").returncode == 0
    assert sorted(relayer.memories(gateway)) == before


@pytest.mark.row("OC-20", level="e2e")
def test_the_day_is_written_into_the_diary_and_taken_back_by_the_hosts_own_commands(
    gateway: Gateway, relayer: Relayer, tmp_path: Path
) -> None:
    fact = "The pilot boat of Norderney is painted orange."
    gateway.chat(fact, user="diary")
    wait_until(lambda: fact in relayer.memories(gateway))
    diary = workspace_of(gateway) / "DREAMS.md"
    shown = gateway.cli("memory", "rem-harness")
    assert fact in shown.stdout, shown.stderr
    assert not diary.exists()
    done = gateway.cli("memory", "rem-backfill")
    assert (done.returncode, fact in diary.read_text()) == (0, True), done.stderr
    done = gateway.cli("memory", "rem-backfill", "--rollback")
    assert (done.returncode, fact in diary.read_text()) == (0, False), done.stderr
    old = tmp_path / "2024-05-01.md"
    old.write_text("# 2024-05-01\n\n## Harbour\n\n- The crane of Emden was painted green.\n")
    told = json.loads(gateway.cli("memory", "rem-backfill", "--path", str(tmp_path), "--json").stdout)
    assert (told["days"], told["sourceFiles"]) == (1, [str(old)])
    assert (
        "2024-05-01, from daily notes\n\n- Harbour: The crane of Emden was painted green."
        in diary.read_text()
    )
    done = gateway.cli("memory", "rem-backfill", "--rollback")
    assert (done.returncode, "crane of Emden" in diary.read_text()) == (0, False), done.stderr
    done = gateway.cli("memory", "promote", "--json")
    assert (done.returncode, json.loads(done.stdout)["candidates"]) == (0, []), done.stderr


@pytest.mark.row("OC-08", level="e2e")
def test_the_wikis_bridge_is_given_the_memory_files(gateway: Gateway) -> None:
    (workspace_of(gateway) / "MEMORY.md").write_text("- The sluice of Greetsiel is opened at six.\n")
    done = gateway.cli("wiki", "bridge", "import", "--json")
    assert done.returncode == 0, done.stderr
    pages = [page.read_text() for page in (gateway.folder / "vault" / "sources").rglob("*.md")]
    assert [text for text in pages if "sluice of Greetsiel" in text], done.stdout
