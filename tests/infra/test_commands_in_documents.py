"""Every command line of ours that a document shows is one that the program takes: command, options, and no more."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer
from infra_tools import ROOT

from gateway_plugin.cli import app as gateway_app
from relayer.cli import app as relayer_app

PROGRAMS: dict[str, click.Command] = {
    "memrelay": typer.main.get_command(relayer_app),
    "memrelay-gateway": typer.main.get_command(gateway_app),
}
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "infra/README.md"]


def _lines() -> list[tuple[str, str]]:
    """Return document and command line, from code blocks and from code in a sentence."""
    found: list[tuple[str, str]] = []
    for file in DOCUMENTS:
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
        codes = re.findall(r"```[a-z]*\n.*?```|`[^`\n]+`", text, re.DOTALL)
        found += [
            (file.name, line.strip())
            for code in codes
            for line in re.findall(
                r"(?:^|`|[;|] )(memrelay(?:-gateway)? [a-z][^`\n;|#]*)", code, re.MULTILINE
            )
        ]
    return found


def _complaint(line: str) -> str:
    """Return what is wrong with a command line, or nothing."""
    program, *words = shlex.split(line)
    command = PROGRAMS[program]
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands") and not command.invoke_without_command:
        return f"no command: {' '.join(words)}" if words else ""
    if command.context_settings.get("ignore_unknown_options"):
        return ""  # handed over to the other program
    known = {
        option
        for parameter in command.get_params(typer.Context(command))
        for option in [*parameter.opts, "--help"]
    }
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    return f"unknown options: {unknown}" if unknown else ""


def test_every_command_line_in_a_document_is_taken() -> None:
    lines = _lines()
    assert len(lines) > 40
    assert not [(name, line, _complaint(line)) for name, line in lines if _complaint(line)]


@pytest.mark.parametrize(
    "line", ["memrelay serf", "memrelay serve --stores x", "memrelay-gateway keys make x"]
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert _complaint(line)
