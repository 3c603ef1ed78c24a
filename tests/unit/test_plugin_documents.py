"""What the documents of the plugin claim is what its settings, gates and commands do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from gateway_plugin.cli import app
from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.identity import SessionRef, parse_session_key
from gateway_plugin.settings.model import PluginSettings, QueryMode, RecallMode, load_settings
from gateway_plugin.turn.gates import HostTurn, Purpose, Turn, gate

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLUGIN = (DOCS / "plugin.md").read_text("utf-8")
COMMANDS = (DOCS / "commands.md").read_text("utf-8")
SETTINGS = PluginSettings()


def _asking(session: SessionRef, *, trigger: str = "user", interactive: bool = True) -> Turn:
    host = HostTurn(trigger=trigger, interactive=interactive)
    nobody = IdentityError("no gate asks whose turn it is")
    return Turn(session=session, query="Where did I park the car?", host=host, whose=nobody)


def _commands(group: typer.Typer, prefix: str = "") -> set[str]:
    found = {
        f"{prefix}{command.name or getattr(command.callback, '__name__', '')}"
        for command in group.registered_commands
        if not command.hidden
    }
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        found |= _commands(inner.typer_instance, f"{prefix}{inner.name} ")
    return found


def test_every_command_has_a_row_with_an_example_of_it() -> None:
    rows = re.findall(r"^\| ((?:`[a-z]+(?:[ -][a-z]+)*`(?:, )?)+) \| (.+) \|$", COMMANDS, re.MULTILINE)
    listed = {
        name: example for names, example in rows for name in re.findall(r"`([a-z]+(?:[ -][a-z]+)*)`", names)
    }
    assert set(listed) == _commands(app)
    assert not [name for name, example in listed.items() if f"memrelay-gateway {name}" not in example]


def test_every_option_of_an_example_is_one_of_its_command() -> None:
    group = typer.main.get_command(app)
    for line in re.findall(r"`memrelay-gateway ([^`]+)`", COMMANDS):
        command, words = group, line.split()
        while words and (inner := getattr(command, "commands", {}).get(words[0])) is not None:
            command, words = inner, words[1:]
        known = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert known >= {word for word in words if re.fullmatch(r"-k|--[a-z-]+", word)}, line


@pytest.mark.row("AR-27", level="e2e")
@pytest.mark.parametrize(
    "claim",
    [
        "there is one service, the relayer",
        f"`recall.maxTokens` ({SETTINGS.recall.max_tokens}, estimated)",
        f"`recall.deadlineMs` ({SETTINGS.recall.deadline_ms} ms)",
        f"`active.timeoutMs` ({SETTINGS.active.timeout_ms} ms)",
        "true in direct mode, the default",
    ],
)
def test_what_it_costs_is_said_with_the_numbers_of_the_settings(claim: str) -> None:
    assert claim in PLUGIN
    assert SETTINGS.recall.mode is RecallMode.DIRECT


@pytest.mark.row("AM-13", level="e2e")
def test_a_timeout_is_recommended_for_each_query_mode_and_each_is_accepted() -> None:
    rows = re.findall(r"^\| `(\w+)`( \(default\))? \| [^|]+ \| ([^|]+) \|$", PLUGIN, re.MULTILINE)
    assert [mode for mode, _, _ in rows] == [mode.value for mode in QueryMode]
    times = {mode: [int(number) for number in re.findall(r"\d+", text)] for mode, _, text in rows}
    assert times == {"message": [3000, 5000], "recent": [15000], "full": [15000, 120000]}
    for mode, values in times.items():
        for value in values:
            settings = PluginSettings.model_validate({"active": {"queryMode": mode, "timeoutMs": value}})
            assert settings.active.timeout_ms == value
    (usual,) = [mode for mode, default, _ in rows if default]
    assert (SETTINGS.active.query_mode.value, [SETTINGS.active.timeout_ms]) == (usual, times[usual])


@pytest.mark.row("AM-31", level="e2e")
def test_each_advice_on_tuning_names_settings_that_are_accepted_and_change_something() -> None:
    (table,) = re.findall(r"### When it is too much.*?\n\n(\|.*?)\n\n", PLUGIN, re.DOTALL)
    advice = [
        re.findall(r"`((?:active|recall)\.\w+)(?:: ([\w.-]+))?`", row) for row in table.splitlines()[2:]
    ]
    assert len(advice) == 8
    assert all(advice)
    for given in advice:
        for name, value in given:
            group, key = name.split(".")
            before = getattr(SETTINGS, group).model_dump(by_alias=True)
            assert key in before
            if value:
                settings = load_settings({name: yaml_like(value)}, {})
                assert getattr(settings, group).model_dump(by_alias=True, mode="json")[key] == yaml_like(
                    value
                )
                assert before[key] != yaml_like(value)
    # What makes it less noisy makes less, and what makes it faster waits less.
    named = {name: yaml_like(value) for row in advice[:5] for name, value in row if value}
    for name in (
        "active.maxSummaryChars",
        "recall.maxResults",
        "recall.maxTokens",
        "active.timeoutMs",
        "recall.deadlineMs",
    ):
        group, key = name.split(".")
        assert named[name] < getattr(SETTINGS, group).model_dump(by_alias=True)[key]


def yaml_like(value: str) -> float | int | str:
    """Read a value as a configuration has it."""
    return value if value.replace("-", "").isalpha() else float(value) if "." in value else int(value)


@pytest.mark.row("AM-28")
def test_the_poor_fits_are_named_and_left_alone_as_the_page_says() -> None:
    for name in (
        "Automation",
        "Internal workers",
        "One-shot calls of an API",
        "Where remembering would surprise",
    ):
        assert f"- **{name}**" in PLUGIN
    listed = re.findall(r"`recall\.skipTriggers`: ([a-z, \n]+)\)", PLUGIN)[0]
    assert tuple(re.split(r",\s+", listed)) == SETTINGS.recall.skip_triggers
    session = parse_session_key("agent:main:main")
    for trigger in SETTINGS.recall.skip_triggers:
        turn = _asking(session, trigger=trigger)
        for purpose in Purpose:
            assert not gate(turn, SETTINGS, purpose).allowed
    active = PluginSettings.model_validate({"recall": {"mode": "active"}, "active": {"agents": ["main"]}})
    waited_for = _asking(session)
    one_shot = _asking(session, interactive=False)
    assert gate(waited_for, active, Purpose.ACTIVE).allowed
    assert not gate(one_shot, active, Purpose.ACTIVE).allowed
    assert not gate(waited_for, SETTINGS, Purpose.ACTIVE).allowed
