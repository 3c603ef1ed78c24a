"""What holds for every command of both programs, whoever adds the next one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

import pytest
from command_trees import Declared, declared

COMMANDS = declared()
# Commands that answer nobody with a document, each with the reason.
WITHOUT_JSON: Final[Mapping[str, str]] = {
    "memrelay serve": "runs until it is stopped; its log is JSON with --log-format json",
    "memrelay search": "is handed to memrelay-gateway with all its options",
    "memrelay list": "is handed to memrelay-gateway with all its options",
    "memrelay remember": "is handed to memrelay-gateway with all its options",
    "memrelay forget": "is handed to memrelay-gateway with all its options",
    "memrelay status": "is handed to memrelay-gateway with all its options",
    "memrelay-gateway bridge": "speaks a host's protocol on its standard streams",
    "memrelay-gateway mcp": "speaks the Model Context Protocol on its standard streams",
    "memrelay-gateway openclaw run": "runs another command, with that one's options",
}

# Their help is another command's: those that are handed over, and what MemWal's users type for `status`.
SAME = {name for name, why in WITHOUT_JSON.items() if "is handed" in why} | {"memrelay-gateway stats"}
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
