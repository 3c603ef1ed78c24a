"""Chats from before the plugin was there: found in a real gateway that had OpenClaw's own memory until then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

FACT = "My sister Ilse keeps her sailing boat in the harbour of Greetsiel."
OTHER = "The roof of the allotment hut was tarred in April."
WEATHER = "What is the weather like today?"
BEES = "My cousin Tjark keeps bees behind the dyke of Norddeich."
# OpenClaw compresses such a long message in its database.
LETTER = "\n".join(
    [BEES, "", "```", *(f"berth {berth} cutter {berth * 7} paid" for berth in range(240)), "```"]
)
IN_GROUP = "The budget of the choir is nine hundred euros."
QUESTION = "Where does my sister Ilse keep her sailing boat?"
GROUP = {"x-openclaw-session-key": "agent:main:telegram:group:-7", "x-openclaw-message-channel": "telegram"}


@pytest.fixture(scope="module")
def gateway(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway in which chats took place before the plugin was installed."""
    folder = tmp_path_factory.mktemp("openclaw-earlier")
    before: dict[str, Any] = {"entries": {}}
    gateway = Gateway(openclaw, folder, model.url, plugins=before, agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    gateway.start()
    gateway.chat(FACT, user="long-ago")
    gateway.chat(WEATHER, user="long-ago")
    gateway.chat(OTHER, user="long-ago")
    gateway.chat(LETTER, user="long-ago")
    gateway.chat(IN_GROUP, user="", headers=GROUP)
    gateway.stop()
    gateway.write_config(gateway.config() | {"plugins": memrelay_plugins(relayer.url)})
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.mark.row("OC-07", "CP-45", "AR-05", level="e2e")
def test_what_was_said_before_the_plugin_was_there_is_in_search_and_prompt(
    gateway: Gateway, relayer: Relayer, model: StubModel
) -> None:
    wait_until(lambda: {FACT, OTHER, BEES} <= set(relayer.memories(gateway)))
    # Neither the question nor what a group said.
    assert sorted(relayer.memories(gateway)) == sorted([FACT, OTHER, BEES])
    gateway.chat(QUESTION, user="today")
    assert FACT in said(model.asked(QUESTION)[-1])
    answer = gateway.invoke("memory_search", {"query": QUESTION, "corpus": "sessions"})
    assert [hit["text"] for hit in answer["result"]["details"]["memories"]][:1] == [FACT]
    # They were said then, and not when the plugin was installed.
    told = json.loads(gateway.cli("memrelay", "list", "--json").stdout)["memories"]
    assert all(row["occurred_at"] < row["created_at"] for row in told)


@pytest.mark.row("OC-07", level="e2e")
def test_corpus_tells_files_from_what_was_said(gateway: Gateway, relayer: Relayer) -> None:
    workspace = gateway.folder / "ws" / "main"
    (workspace / "wiki").mkdir()
    (workspace / "MEMORY.md").write_text("- The sailing boat of Ilse is called Möwe.\n")
    (workspace / "wiki" / "boats.md").write_text("- The sailing boat of Ilse has a keel of lead.\n")
    wait_until(lambda: any("Möwe" in text for text in relayer.memories(gateway)))
    wait_until(lambda: any("keel" in text for text in relayer.memories(gateway)))

    def found(corpus: str) -> list[bool]:
        answer = gateway.invoke("memory_search", {"query": "the sailing boat of Ilse", "corpus": corpus})
        told = json.dumps(answer["result"]["details"], ensure_ascii=False)
        return [word in told for word in ("Greetsiel", "Möwe", "keel")]

    assert {corpus: found(corpus) for corpus in ("all", "memory", "sessions", "wiki")} == {
        "all": [True, True, True],
        "memory": [True, True, True],
        "sessions": [True, False, False],
        "wiki": [False, False, True],
    }


def test_earlier_chats_are_captured_once(gateway: Gateway, relayer: Relayer) -> None:
    wait_until(lambda: {FACT, OTHER} <= set(relayer.memories(gateway)))
    before = relayer.memories(gateway)
    gateway.restart()
    gateway.chat("The new gangway is made of larch wood.", user="after")
    wait_until(lambda: "The new gangway is made of larch wood." in relayer.memories(gateway))
    assert sorted(relayer.memories(gateway)) == sorted([*before, "The new gangway is made of larch wood."])


@pytest.fixture(scope="module")
def left_alone(
    openclaw: Installed, relayer: Relayer, model: StubModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway with chats from before the plugin, which leaves them alone until it is told otherwise."""
    folder = tmp_path_factory.mktemp("openclaw-backfill")
    before: dict[str, Any] = {"entries": {}}
    gateway = Gateway(openclaw, folder, model.url, plugins=before, agents=("main",))
    gateway.environment["XDG_STATE_HOME"] = str(folder / "state-of-ours")
    gateway.start()
    gateway.chat(FACT, user="long-ago")
    gateway.chat(WEATHER, user="long-ago")
    gateway.chat(OTHER, user="another")
    gateway.chat(IN_GROUP, user="", headers=GROUP)
    gateway.stop()
    plugins = memrelay_plugins(relayer.url, files={"sessions": False})
    gateway.write_config(gateway.config() | {"plugins": plugins})
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.mark.row("OC-07", level="e2e")
def test_stored_chats_are_shown_captured_and_taken_back_by_the_hosts_own_command(
    left_alone: Gateway, relayer: Relayer, tmp_path: Path
) -> None:
    since = "The ferry to Juist leaves twice a day."
    left_alone.chat(since, user="today")
    wait_until(lambda: since in relayer.memories(left_alone))

    def backfill(*arguments: str) -> dict[str, Any]:
        done = left_alone.cli("memory", "session-backfill", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    shown = backfill()
    (day,) = shown["days"]
    # Neither what the plugin captured itself, nor what a group said.
    assert sorted(day["topCandidates"]) == sorted([FACT, WEATHER, OTHER])
    assert relayer.memories(left_alone) == [since]
    assert backfill("--to", "2020-01-01")["days"] == []
    # A log of an older OpenClaw is told in the diary with the stored chats, and captured no more than they are.
    message = {"role": "user", "content": "Ilse sold the old dinghy.", "timestamp": 1714564800000}
    log = tmp_path / "old.jsonl"
    log.write_text(json.dumps({"type": "message", "id": "a1", "message": message}) + "\n")
    done = backfill("--rem", "--archive-files", str(log))
    assert (done["writtenDiaryEntries"], done["stagedEntries"]) == (2, 0)
    diary = left_alone.folder / "ws" / "main" / "DREAMS.md"
    told = diary.read_text()
    assert [told.count(text) for text in (FACT, OTHER, "Ilse sold the old dinghy.", IN_GROUP)] == [1, 1, 1, 0]
    assert relayer.memories(left_alone) == [since]
    assert backfill("--rollback")["rollback"]["removedDiaryEntries"] == 2
    done = backfill("--apply")
    assert (done["stagedEntries"] >= 2, done["applied"]) == (True, True)
    assert sorted(relayer.memories(left_alone)) == sorted([FACT, OTHER, since])
    assert [text in diary.read_text() for text in (FACT, OTHER, IN_GROUP)] == [True, True, False]
    assert not (left_alone.folder / "ws" / "main" / "MEMORY.md").exists()
    assert backfill()["candidateCount"] == 0
    gone = backfill("--rollback")["rollback"]
    assert gone == {"removedDiaryEntries": 1, "removedStagedEntries": 2}
    assert relayer.memories(left_alone) == [since]
    assert FACT not in diary.read_text()
    refused = left_alone.cli("memory", "session-backfill", "--rollback", "--apply")
    assert (refused.returncode, "--rollback" in refused.stderr) == (2, True)
