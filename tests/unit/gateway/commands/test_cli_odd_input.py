"""Odd input to ``memrelay-gateway`` ends in a sentence and an exit code, never in a traceback."""

from __future__ import annotations

import pytest
import typer.testing

from gateway_plugin.cli import app

pytestmark = pytest.mark.usefixtures("at_a_terminal")


def _run(*arguments: str):
    return typer.testing.CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("forget", "\udcff"), 1),
        (("list", "--agent", "\udcff"), 2),
        (("remember", "\udcff"), 2),
        (("search", "\udcff"), 2),
    ],
    ids=["id", "agent", "text", "query"],
)
def test_bytes_that_are_no_text_are_refused(arguments, code):
    answer = _run(*arguments)
    assert answer.exit_code == code
    assert isinstance(answer.exception, SystemExit)


@pytest.mark.parametrize("option", ["--cursor", "--kind", "--state"])
def test_what_is_for_the_relayer_to_refuse_reaches_it(option):
    assert not isinstance(_run("list", option, "\udcff").exception, UnicodeError)


def test_standard_input_that_is_no_text_is_refused():
    answer = typer.testing.CliRunner().invoke(app, ["remember", "-"], input=b"tea \xff tea")
    assert answer.exit_code == 2
    assert isinstance(answer.exception, SystemExit)
