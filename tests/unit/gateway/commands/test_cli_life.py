"""The commands that change stored memories say what they did, and what was wrong."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gateway_plugin.cli import app

pytestmark = pytest.mark.usefixtures("at_a_terminal")


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def known():
    return run("remember", "The deploy window is Tuesday", "--agent", "ops").stdout.split()[-1]


def ops(*arguments):
    return run(*arguments, "--agent", "ops")


def test_a_correction_is_a_new_version_and_says_of_what(wire, known):
    done = ops("update", known, "The deploy window is Friday")
    assert done.exit_code == 0
    assert done.stdout.startswith("updated: ")
    assert known in done.stdout
    assert wire.texts("ops") == ["The deploy window is Friday"]


def test_one_edit_changes_text_mark_and_term_together(wire, known):
    done = ops("edit", known, "The deploy window is Friday", "--pin", "--expire-in", "7d")
    assert done.stdout.startswith("updated, pinned, expires in 7d: ")
    body = wire.bodies(f"/v1/memories/{known}/supersede")[-1]
    assert (body["text"], body["pinned"], body["ttl_seconds"]) == (
        "The deploy window is Friday",
        True,
        7 * 86_400,
    )


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (("pin",), {"pinned": True}),
        (("unpin",), {"pinned": False}),
        (("expire", "--in", "7d"), {"ttl_seconds": 7 * 86_400}),
        (("expire", "--in", "90m"), {"ttl_seconds": 5400}),
        (("expire", "--never"), {"ttl_seconds": 0}),
    ],
)
def test_marks_and_terms_are_sent_as_what_changes_and_nothing_else(wire, known, arguments, sent):
    command, *options = arguments
    assert ops(command, known, *options).exit_code == 0
    body = wire.bodies(f"/v1/memories/{known}/supersede")[-1]
    assert {name: value for name, value in body.items() if name != "idempotency_key"} == sent


@pytest.mark.parametrize(
    "options", [("--in", "7d", "--never"), ("--in", "soon"), ("--in", "0d"), ("--in", "9000w")]
)
def test_a_term_that_is_none_is_a_wrong_use(wire, known, options):
    refused = ops("expire", known, *options)
    assert (refused.exit_code, "--expire-in" in refused.stderr) == (2, True)
    assert not any("supersede" in path for path in wire.paths())


def test_restoring_says_what_is_back(known):
    assert ops("restore", known).stdout == f"restored: {known}\n"


def test_an_unknown_memory_is_said_to_be_none(known):
    missing = ops("pin", "0" * 26)
    assert missing.exit_code == 1
    assert "memrelay-gateway list" in missing.stderr


def test_a_dry_run_says_how_many_and_a_real_one_does_it(wire, known):
    assert "1 memory would be forgotten" in ops("delete", "--kind", "statement", "--dry-run").stdout
    assert len(wire.texts("ops")) == 1
    assert ops("delete", "--kind", "statement").stdout == "forgotten: 1 of 1 memory\n"
    assert wire.texts("ops") == []


def test_deleting_without_a_scope_is_a_wrong_use_and_asks_nobody(wire, known):
    refused = ops("delete")
    assert refused.exit_code == 2
    assert "--everything" in refused.stderr
    assert "/v1/memories/delete" not in wire.paths()


def test_a_span_becomes_a_time_in_the_past(wire, known):
    assert ops("delete", "--older-than", "90d", "--unpinned", "--dry-run").exit_code == 0
    body = wire.bodies("/v1/memories/delete")[-1]
    assert body["pinned"] is False
    assert body["created_before"] < "2200"
    assert ops("delete", "--inactive-for", "999999w").exit_code == 2


def test_an_answer_comes_with_its_memories_or_not_at_all(known):
    found = ops("ask", "When is the deploy window?")
    assert (found.exit_code, "So it is." in found.stdout, known in found.stdout) == (0, True, True)
    assert "Nothing among" in run("ask", "When is it?", "--agent", "nobody").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--sender", "222"), "give a platform and an id"),
        (("erase", "--sender", "telegram:", "--yes"), "give a platform and an id"),
        (("erase", "--sender", "telegram:222", "--namespace", "--yes"), "give either ID, --sender or"),
        (("delete", "--sender", "telegram:222", "--audience", "group"), "give either --sender or --audience"),
    ],
)
def test_a_person_is_named_by_a_whole_id_and_not_along_with_more_than_them(known, wire, arguments, said):
    refused = ops(*arguments)
    assert (refused.exit_code, said in refused.output) == (2, True)
    assert not {"/v1/memories/list", "/v1/memories/delete"} & set(wire.paths())
