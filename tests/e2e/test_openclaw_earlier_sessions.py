"""Chats from before the plugin was there: found in a real gateway that had OpenClaw's own memory until then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from openclaw_install import Installed
from processes import wait_until
from stub_model import StubModel, said

FACT = "My sister Ilse keeps her sailing boat in the harbour of Greetsiel."
OTHER = "The roof of the allotment hut was tarred in April."
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
    gateway.chat("What is the weather like today?", user="long-ago")
    gateway.chat(OTHER, user="long-ago")
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
    wait_until(lambda: {FACT, OTHER} <= set(relayer.memories(gateway)))
    # Neither the question nor what a group said.
    assert sorted(relayer.memories(gateway)) == sorted([FACT, OTHER])
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
