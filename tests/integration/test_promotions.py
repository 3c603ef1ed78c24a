"""What turns keep needing is written into MEMORY.md, and the day into DREAMS.md, when asked to, and taken back."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer, recall, say
from typed_commands import run_gateway

from gateway_plugin import MemoryPlugin
from relayer.wire.redaction import CLASSES

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


def today() -> str:
    """Return the date on this machine, which may change while the tests run."""
    return datetime.now(UTC).astimezone().date().isoformat()


@pytest.fixture
def site(plain_site: PluginSite) -> PluginSite:
    return plain_site


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
    before, begun = sorted(site.texts()), today()
    site.command("memory", "promote", "--apply")
    assert (workspace / "MEMORY.md").read_text() == f"{OWN}\n# Promoted memories\n\n- {LOCK}\n"
    diary = (workspace / "DREAMS.md").read_text()
    assert f"{begun}\n" in diary or f"{today()}\n" in diary
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
def test_daily_notes_from_elsewhere_are_told_in_the_diary_and_taken_back(
    site: PluginSite, workspace: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "old" / "memory"
    (notes / "deeper").mkdir(parents=True)
    (notes / "2024-05-01.md").write_text(
        "# 2024-05-01\n\n## Harbour\n\n- The crane was painted green. <!-- importance: 7 -->\n"
        "- The gate code is held in the safe: password=Kranich77!moor\n- It ends. <!-- memrelay:end -->\n"
    )
    (notes / "2024-05-01-evening.md").write_text("- The pier lamp was mended.\n")
    (notes / "2024-05-03.md").write_text("The ferry was late.\n")
    (notes / "ideas.md").write_text("- Nothing of a day.\n")
    (notes / "deeper" / "2024-05-04.md").write_text("- Too deep.\n")
    own = "# Dream Diary\n\nA dream of the host.\n"
    (workspace / "DREAMS.md").write_text(own)
    before = sorted(site.texts())
    site.command("memory", "rem-backfill")
    for _ in range(2):
        done = site.json("memory", "rem-backfill", "--path", notes)
        assert (done["days"], [Path(file).name for file in done["sourceFiles"]]) == (
            2,
            ["2024-05-01-evening.md", "2024-05-01.md", "2024-05-03.md"],
        )
    diary = (workspace / "DREAMS.md").read_text()
    told = (
        "The pier lamp was mended.",
        "Harbour: The crane was painted green.\n",
        "The ferry was late.",
        LOCK,
    )
    assert [diary.count(text) for text in told] == [1, 1, 1, 1]
    assert not any(text in diary for text in ("Kranich", "It ends", "Nothing of a day", "Too deep"))
    # It is a diary: nothing of it becomes a memory, and what memory says of its own days does not remove it.
    site.command("index")
    assert sorted(site.texts()) == before
    site.command("memory", "rem-backfill")
    assert "The ferry was late." in (workspace / "DREAMS.md").read_text()
    site.command("memory", "rem-backfill", "--rollback")
    assert (workspace / "DREAMS.md").read_text() == own
    only = site.json("memory", "rem-backfill", "--path", notes, "--from", "2024-05-02")
    assert only["days"] == 1
    assert site.json("memory", "rem-backfill", "--path", notes / "2024-05-01-evening.md")["days"] == 1


def test_a_path_without_daily_notes_is_refused_and_nothing_is_written(
    site: PluginSite, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "ideas.md").write_text("- Nothing of a day.\n")
    (tmp_path / "2024-05-02.md").write_text("- The buoy is red.\n")
    (tmp_path / "2024-05-01.md").write_bytes(b"\xff\xfe")
    for path, word in (
        (tmp_path / "none", "no daily notes"),
        (tmp_path / "ideas.md", "no daily notes"),
        (tmp_path, "UTF-8"),
    ):
        refused = run_gateway(site.environment, "memory", "rem-backfill", "--path", str(path))
        assert (refused.returncode, word in refused.stderr) == (1, True)
    assert not (workspace / "DREAMS.md").exists()
    both = run_gateway(site.environment, "memory", "rem-backfill", "--path", str(tmp_path), "--rollback")
    assert both.returncode == 2


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


@pytest.mark.parametrize(
    "content", ["---\nname: cuisine\n---\nCr\u00e8me.\n", '<memrelay-memories profile="main">\n']
)
def test_a_skill_that_cannot_be_read_keeps_nothing_in_the_files(
    site: PluginSite, workspace: Path, content: str
) -> None:
    site.command("memory", "promote", "--apply")
    [one] = [one["id"] for one in site.json("list")["memories"] if one["text"] == LOCK]
    site.command("index")
    skill = workspace / "skills" / "cuisine" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_bytes(content.encode("latin-1"))
    site.command("forget", one)
    run_gateway(site.environment, "index")
    assert (workspace / "MEMORY.md").read_text() == OWN
    assert LOCK not in (workspace / "DREAMS.md").read_text()
    assert skill.read_bytes() == content.encode("latin-1")


@pytest.mark.row("OC-20", level="e2e")
def test_the_diary_of_a_day_keeps_what_was_promoted_earlier_that_day(
    site: PluginSite, workspace: Path
) -> None:
    questions = (
        "What does the keeper of the lighthouse play on his Fridays?",
        "Does the keeper of the lighthouse play the bassoon on Fridays?",
    )
    site.command("memory", "promote", "--apply")
    with counting(site) as plugin:
        for question in questions:
            assert RARE in [hit.text for hit in recall(plugin, question).hits]
    site.command("memory", "promote", "--apply", "--min-recall-count", "2", "--min-unique-queries", "2")
    assert promoted_in_diary(workspace) == [LOCK, RARE]
    site.command("memory", "rem-backfill")
    assert promoted_in_diary(workspace) == [LOCK, RARE]
    [one] = [one["id"] for one in site.json("list")["memories"] if one["text"] == LOCK]
    site.command("memory", "promote", "--rollback", "--memory", one)
    site.command("memory", "rem-backfill")
    assert promoted_in_diary(workspace) == [RARE]


@pytest.mark.row("OC-20", level="e2e")
def test_a_secret_that_memory_was_allowed_to_keep_is_written_into_neither_file(
    secret: str, tmp_path: Path
) -> None:
    said = {
        "Kranich77!moor": "My password for the harbour office is Kranich77!moor.",
        "Reiher88!moor": "Das Passwort für das Hafenbüro ist Reiher88!moor.",
        "4711": "Die PIN meiner Bankkarte ist 4711.",
        "5822": "Le code PIN de ma carte est 5822.",
        "Garza99!mar": "La contraseña del puerto es Garza99!mar.",
        "Zhuravl66!x": "Мой пароль от почты компании это Zhuravl66!x.",
        "Baihe55!hai": "邮箱的密码是 Baihe55!hai",
        "Trana44!sjo": "Mitt lösenord till hamnkontoret är Trana44!sjo.",
        "6933": "Telefonumun PIN'i 6933.",
        "7144": "銀行カードの暗証番号は7144です。",
        "8255": "은행 카드의 비밀번호는 8255입니다.",
        "ghp_": "The token of the crane is ghp_0123456789abcdefghijABCDEFGHIJ012345.",
        "AKIA": "The key AKIAIOSFODNN7QWERTYU belongs to the crane account.",
    }
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    minute = time.localtime(time.time() - 120).tm_min
    settings = {
        "consolidation": {"enabled": True, "schedule": f"{minute} * * * *"},
        "capture": {"redaction": dict.fromkeys(CLASSES, "allow")},
    }
    with own_relayer(redaction="off") as relayer, PluginSite(tmp_path, relayer.url, secret) as site:
        site.environment["MEMRELAY_OPENCLAW_CONFIG"] = json.dumps(settings)
        site.command("index", "--workspace", workspace)
        with site.plugin(**settings) as plugin:
            say(plugin, LOCK)
            for text in said.values():
                say(plugin, text)
            for text in (LOCK, *said.values()):
                for question in (text, f"Is it so that {text}", f"I was told: {text}"):
                    recall(plugin, question)
        assert {LOCK, *said.values()} <= set(site.texts())
        least = ("--min-score", "0", "--min-recall-count", "1", "--min-unique-queries", "1")
        assert len(site.json("memory", "promote", *least)["candidates"]) >= len(said)
        site.command("memory", "promote", "--apply", *least)
        site.command("memory", "rem-backfill")
    for name in ("MEMORY.md", "DREAMS.md"):
        written = (workspace / name).read_text()
        assert LOCK in written
        assert [part for part in said if part in written] == []


def promoted_in_diary(workspace: Path) -> list[str]:
    told = (workspace / "DREAMS.md").read_text().partition("### Now in MEMORY.md\n\n")[2]
    return [line.removeprefix("- ") for line in told.splitlines() if line.startswith("- ")]
