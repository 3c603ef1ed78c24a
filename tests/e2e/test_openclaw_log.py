"""The gateway's own log: silent about recalls unless asked, then a line for each, however many there are."""

from __future__ import annotations

import re
import signal
import time

import pytest
from e2e_relayer import Relayer
from openclaw_gateway import Gateway, memrelay_plugins
from processes import wait_until
from stub_model import StubModel, system
from test_openclaw_bridge import signalled

FACT = "The tandem of the Okonkwo family is kept in the shed behind the bakery."
QUESTION = "Where is the tandem of the Okonkwo family kept?"
OTHER = "What is the boiling point of tungsten in kelvin?"
WAYS = (
    "Before every release, run the smoke tests, then tag the version.",
    "When we release, first run the smoke tests and then tag it.",
    "Never release without running the smoke tests.",
)
ABOUT_RECALL = re.compile(r"memrelay: (?:recall|injecting) .*")
TURNS = 215
MINUTE = 75.0


@pytest.fixture(scope="module")
def fact(running: Gateway, relayer: Relayer) -> str:
    running.reload(memrelay_plugins(relayer.url))
    running.chat(FACT, user="telling-log")
    wait_until(lambda: FACT in relayer.memories(running))
    return FACT


def said_since(gateway: Gateway, begun: int) -> list[str]:
    """Return what the log says of recalls since a point in it."""
    return ABOUT_RECALL.findall(gateway.log_text()[begun:])


@pytest.mark.row("AM-22", level="e2e")
def test_no_line_tells_of_a_recall_unless_that_was_asked_for(gateway: Gateway, fact: str) -> None:
    begun = len(gateway.log_text())
    for question in (QUESTION, OTHER, "ok"):
        gateway.chat(question, user="log-silent")
    wait_until(lambda: "last recall: " in gateway.command("/memory status"))
    assert said_since(gateway, begun) == []
    assert fact not in gateway.log_text()[begun:]


@pytest.mark.row("AM-22", "CP-29", level="e2e")
@pytest.mark.parametrize("asked", [{"recall": {"logging": True}}, {"logging": True, "mode": "direct"}])
def test_each_recall_says_what_it_did_where_that_was_asked_for_and_no_text(
    gateway: Gateway, relayer: Relayer, fact: str, asked: dict[str, object]
) -> None:
    gateway.reload(memrelay_plugins(relayer.url, **asked))
    begun = len(gateway.log_text())
    for question in (QUESTION, OTHER, "ok"):
        gateway.chat(question, user=f"log-{len(asked)}")
    wait_until(lambda: len(said_since(gateway, begun)) == 3)
    injected, nothing, skipped = said_since(gateway, begun)
    assert re.search(r"injecting 1 memories into context \(\d+ms\) \[memory/\w{26}\.md\(\d+%\)\]", injected)
    assert re.search(r"recall returned 0 results \(\d+ms, query of \d+ characters\)", nothing)
    assert skipped.endswith("recall skipped (prompt too short: 2 < 10)")
    written = gateway.log_text()[begun:]
    assert not [word for word in (fact, "tandem", "Okonkwo", "tungsten") if word in written]


@pytest.mark.row("AM-22", "CP-29", level="e2e")
def test_no_number_of_recalls_ends_the_log_or_hides_what_warns(
    gateway: Gateway, relayer: Relayer, fact: str
) -> None:
    del fact
    gateway.reload(memrelay_plugins(relayer.url, recall={"logging": True}))
    begun = len(gateway.log_text())
    for _ in range(TURNS):
        gateway.chat("ok", user="log-many")
    end = time.monotonic() + MINUTE
    while counted(said_since(gateway, begun)) < TURNS and time.monotonic() < end:
        time.sleep(0.5)
    assert counted(said_since(gateway, begun)) == TURNS
    before = len(gateway.log_text())
    wait_until(lambda: bool(gateway.bridges()))
    signalled(gateway, signal.SIGKILL)
    wait_until(lambda: "memrelay: the bridge ended with SIGKILL" in gateway.log_text()[before:])
    wait_until(lambda: bool(gateway.bridges()))
    wait_until(lambda: answered(gateway, before))


@pytest.mark.row("CP-49", level="e2e")
def test_a_consolidation_that_is_due_says_what_it_promoted_and_no_text(
    gateway: Gateway, relayer: Relayer, fact: str
) -> None:
    gateway.reload(memrelay_plugins(relayer.url, consolidation={"enabled": True, "schedule": "* * * * *"}))
    begun = len(gateway.log_text())
    for question in (
        QUESTION,
        "In which shed is the tandem of the Okonkwo family kept?",
        "Behind what is the tandem of the Okonkwo family kept?",
    ):
        gateway.chat(question, user="nightly")
    end = time.monotonic() + 2 * MINUTE
    while "1 promoted" not in gateway.log_text()[begun:] and time.monotonic() < end:
        time.sleep(0.5)
    written = gateway.log_text()[begun:]
    assert "memrelay: consolidation of main: light: 1 memories" in written
    assert "1 promoted, 0 taken" in written
    assert not [word for word in (fact, "tandem", "Okonkwo") if word in written]


@pytest.mark.row("MS-29", level="e2e")
def test_a_way_of_working_that_was_told_three_times_is_a_skill_of_the_host(
    gateway: Gateway, relayer: Relayer, model: StubModel
) -> None:
    nightly = {"enabled": True, "schedule": "* * * * *", "skills": 3}
    gateway.reload(memrelay_plugins(relayer.url, consolidation=nightly))
    for place, way in enumerate(WAYS):
        gateway.chat(way, user=f"way-{place}")
    skills, end = gateway.folder / "ws" / "main" / "skills", time.monotonic() + 2 * MINUTE
    while not [*skills.glob("*/SKILL.md")] and time.monotonic() < end:
        time.sleep(0.5)
    (file,) = skills.glob("*/SKILL.md")
    assert [way in file.read_text() for way in WAYS] == [True, True, True]
    gateway.chat("Which skills are there?", user="skills")
    assert f"<name>{file.parent.name}</name>" in system(model.asked("Which skills are there?")[-1])


def answered(gateway: Gateway, before: int) -> bool:
    gateway.chat(QUESTION, user="log-after")
    return any("injecting 1 memories" in line for line in said_since(gateway, before))


def counted(lines: list[str]) -> int:
    """Count recalls by the lines about them, and by what the lines say of repetitions."""
    again = [re.search(r"\(repeated (\d+) time", line) for line in lines]
    return sum(1 if found is None else int(found[1]) for found in again)
