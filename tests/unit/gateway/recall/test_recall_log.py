"""The line about each recall: absent unless asked for, complete when it is, and never with a memory's text in it."""

from __future__ import annotations

import pytest
from wire_relayer import COFFEE, QUESTION, hang


@pytest.fixture
def make(make):
    def build(**settings):
        plugin = make(settings=settings)
        plugin.after_turn([{"role": "user", "content": COFFEE}])
        plugin.flush(10)
        return plugin

    return build


def outcomes(plugin, wire):
    """One turn of every kind."""
    plugin.before_turn("ok")
    plugin.before_turn(QUESTION)
    plugin.before_turn("What is the capital of France?")
    wire.script = [hang]
    plugin.before_turn("Which coffee do I like best of all?", deadline=0.3)


@pytest.mark.row("AM-22")
def test_nothing_is_logged_unasked(make, wire, capfd, caplog):
    plugin = make()
    capfd.readouterr()
    outcomes(plugin, wire)
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


@pytest.mark.row("CP-29")
@pytest.mark.row("AM-22")
@pytest.mark.parametrize("settings", [{"recall": {"logging": True}}, {"logging": True}])
def test_each_recall_that_is_to_be_logged_says_what_it_did_and_no_text(make, wire, capfd, settings):
    plugin = make(**settings)
    capfd.readouterr()
    outcomes(plugin, wire)
    plugin.before_turn(QUESTION)
    (hit,) = plugin.why().hits
    printed = capfd.readouterr().err
    lines = [line.partition(" (")[0] for line in printed.splitlines()]
    assert lines == [
        "memrelay: recall skipped",
        "memrelay: injecting 1 memories into context",
        "memrelay: recall returned 0 results",
        "memrelay: recall timeout",
        "memrelay: injecting 1 memories into context",
    ]
    assert "(prompt too short: 2 < 10)" in printed
    assert f"ms) [memory/{hit.id}.md(90%)]" in printed
    assert "query of 30 characters" in printed
    assert not [word for word in ("oat", "coffee", "capital") if word in printed]


@pytest.mark.row("CP-29")
def test_a_query_is_logged_only_where_that_was_asked_for_too_cut_and_without_secrets(make, capfd):
    plugin = make(recall={"logging": True, "logQueries": True})
    key = "ghp_" + "a1B2" * 9
    plugin.before_turn(f"What did we do with the token {key} on the way to France? " + "Really? " * 20)
    (line,) = [one for one in capfd.readouterr().err.splitlines() if "0 results" in one]
    query = line.partition("query: ")[2].removesuffix(")")
    assert query.startswith("What did we do with the token")
    assert key not in line
    assert len(query) <= 80
