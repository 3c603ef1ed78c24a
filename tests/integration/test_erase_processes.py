"""Erasing as a person does it: the real command line, two real relayers over one store, one of them stopped meanwhile."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Served, wait_until
from typed_commands import machine, run_gateway

CANARY = "heliotrope"
SAID = f"My sister Ana keeps the {CANARY} in Lisbon since 3 May 2026."
SOON = ("--commit-check", "always", "--collect-after", "2", "--log-level", "debug", "--rate-limits", "off")


class Person:
    """Somebody at the command line of a gateway."""

    def __init__(self, home: Path) -> None:
        self.environment = machine(home, "", bytes(range(32)).hex()) | {"MEMRELAY_AGENT": "researcher"}
        del self.environment["MEMRELAY_URL"]

    def run(self, relayer: Served, *arguments: str, code: int = 0) -> str:
        done = run_gateway(self.environment, *arguments, "--url", relayer.url)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def json(self, relayer: Served, *arguments: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self.run(relayer, *arguments, "--json"))
        return answer

    def erasure_is(self, relayer: Served, erasure: str, state: str) -> bool:
        return self.json(relayer, "erasure", erasure)["state"] == state


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path / "home")


def test_an_erased_memory_is_gone_through_a_relayer_that_was_stopped_for_longer_than_a_collection_takes(
    serve: Callable[..., Served], person: Person
) -> None:
    first, second = serve(*SOON), serve(*SOON)
    memory = person.json(first, "remember", SAID)["memories"][0]["id"]
    person.run(first, "remember", "The bakery opens at seven.")
    assert CANARY in person.run(second, "search", f"where is the {CANARY}", "--floor", "0")
    shown = person.run(first, "erase", memory)
    assert "would be erased" in shown
    assert CANARY in person.run(first, "search", f"where is the {CANARY}", "--floor", "0")
    second.process.send_signal(signal.SIGSTOP)
    try:
        done = person.run(first, "erase", memory, "--yes")
        assert done.startswith("erased: 1 memories")
        assert f"memrelay-gateway erasure {memory}" in done
        wait_until(lambda: person.erasure_is(first, memory, "confirmed"))
    finally:
        second.process.send_signal(signal.SIGCONT)
    for relayer in (second, first):
        assert CANARY not in person.run(relayer, "search", f"where is the {CANARY}", "--floor", "0")
        listed = person.run(
            relayer, "list", "--state", "live", "--state", "superseded", "--state", "forgotten"
        )
        assert "bakery" in listed
        assert CANARY not in listed
        person.run(relayer, "show", memory, code=1)
    entries = sorted(first.data.glob("objects/ns/*/wal/*"))
    assert all(int(entry.name) > 2 for entry in entries), "the entries that held it are gone"
    for relayer in (first, second):
        relayer.stop()
        assert CANARY not in relayer.log.read_text()


def test_an_erased_namespace_leaves_nothing_and_its_name_begins_anew(
    serve: Callable[..., Served], person: Person
) -> None:
    relayer = serve(*SOON)
    person.run(relayer, "remember", SAID)
    (old,) = relayer.data.glob("objects/ns/*")
    assert "1 memories" in person.run(relayer, "erase", "--namespace")
    assert CANARY in person.run(relayer, "list")
    done = person.run(relayer, "erase", "--namespace", "--yes")
    assert done.startswith("destroyed: namespace researcher")
    assert not list(old.glob("keyring"))
    assert "has no memories" in person.run(relayer, "list")
    person.run(relayer, "remember", "A new beginning.")
    erasure = done.split()[-1]
    wait_until(lambda: person.erasure_is(relayer, erasure, "confirmed"))
    assert not [path for path in old.rglob("*") if path.is_file()]
    assert "A new beginning." in person.run(relayer, "list")


def test_a_relayer_that_is_killed_while_it_erases_goes_on_when_it_is_back(
    serve: Callable[..., Served], person: Person
) -> None:
    relayer = serve(*SOON)
    memory = person.json(relayer, "remember", SAID)["memories"][0]["id"]
    person.run(relayer, "erase", memory, "--yes")
    relayer.stop(signal.SIGKILL)
    again = serve(*SOON)
    wait_until(lambda: person.erasure_is(again, memory, "confirmed"))
    assert not list(again.data.glob("objects/erasing/*/*"))
