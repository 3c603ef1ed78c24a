"""What holds for every command of both programs, whoever adds the next one."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from command_trees import Declared, declared
from processes import CLEAN

from gateway_plugin.commands.run import PLACE
from relayer.cli import _PLUGIN_COMMANDS

COMMANDS = declared()
# Commands that answer nobody with a document, each with the reason.
HANDED_OVER = "is handed to memrelay-gateway with all its options"
WITHOUT_JSON: Final[Mapping[str, str]] = {
    **{f"memrelay {name}": HANDED_OVER for name in _PLUGIN_COMMANDS},
    "memrelay serve": "runs until it is stopped; its log is JSON with --log-format json",
    "memrelay-gateway bridge": "speaks a host's protocol on its standard streams",
    "memrelay-gateway mcp": "speaks the Model Context Protocol on its standard streams",
    "memrelay-gateway openclaw run": "runs another command, with that one's options",
}

# Their help is another command's: those that are handed over, and what MemWal's users type for `status`.
SAME = {name for name, why in WITHOUT_JSON.items() if why == HANDED_OVER} | {"memrelay-gateway stats"}
ANSWERING = [one for one in COMMANDS if one.typed not in SAME]


def _name(one: Declared) -> str:
    return one.typed


def test_the_exceptions_are_commands() -> None:
    assert {one.typed for one in COMMANDS} >= WITHOUT_JSON.keys()


@pytest.mark.parametrize("one", COMMANDS, ids=_name)
def test_every_command_answers_as_json_where_it_answers(one: Declared) -> None:
    assert ("--json" in one.options()) is (one.typed not in WITHOUT_JSON)


@pytest.mark.parametrize("one", ANSWERING, ids=_name)
def test_every_command_says_in_a_line_what_it_is_for(one: Declared) -> None:
    purpose = one.command.help.split("\n\n")[0]
    assert purpose.endswith((".", ")."))
    assert "\n" not in purpose.strip()


@pytest.mark.parametrize("one", ANSWERING, ids=_name)
def test_every_command_has_an_example_that_it_takes(one: Declared) -> None:
    one.parameters()  # imports the command, whose help is only a summary until then
    examples = [
        line.removeprefix("Example: ")
        for line in one.command.help.splitlines()
        if line.startswith("Example: ")
    ]
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" < ")[0])
        own = one.typed.split()
        assert words[: len(own)] == own
        context = one.command.make_context(one.typed, words[len(own) :])
        assert context.params


@pytest.mark.parametrize("one", ANSWERING, ids=_name)
def test_every_option_is_explained_and_stands_in_its_group(one: Declared) -> None:
    options = one.options()
    assert [name for name, option in options.items() if not option.help] == []
    groups = {"--agent": PLACE, "--url": PLACE, "--json": "Form of the answer"}
    placed = {name: options[name].rich_help_panel for name in groups.keys() & options.keys()}
    if one.typed.startswith("memrelay ") or one.typed == "memrelay-gateway version":
        placed.pop("--url", None)
    about_keys = {"keys export", "keys revoke", "keys rotate", "mcp approve"}
    if one.typed.removeprefix("memrelay-gateway ") in about_keys:
        placed.pop("--agent")  # what is done is done to it
    assert placed == {name: groups[name] for name in placed}


@pytest.mark.parametrize(
    ("program", "typed", "completed"),
    [
        ("memrelay", "memrelay ke", ["keys"]),
        ("memrelay", "memrelay serve --cache", ["--cache-bytes"]),
        ("memrelay-gateway", "memrelay-gateway rem", ["remember"]),
        ("memrelay-gateway", "memrelay-gateway outbox ", ["status", "list", "deliver", "retry", "drop"]),
    ],
)
def test_a_shell_completes_names(program: str, typed: str, completed: list[str], tmp_path: Path) -> None:
    script = f"""
        PATH={Path(sys.executable).parent}:$PATH
        eval "$({program} --show-completion)"
        COMP_WORDS=({typed}{' ""' if typed.endswith(" ") else ""}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        $(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/') {program}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env=CLEAN | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (completed, "")
