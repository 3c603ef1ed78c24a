"""What a model asks to remember goes the way of a turn: judged, its facts taken out, and said so; it stays the model's word."""

from __future__ import annotations

import html
import json

import pytest
from doubles.scripted_model_server import ScriptedModelServer
from typed_commands import machine

from gateway_plugin import MemoryPlugin
from relayer.testing.local_relayer import local_relayer, threaded_relayer

KEY = "agent:coder:main"
NOTE = "Lena takes her coffee with oat milk, and Rex is her dog."


def noting(url, secret, tmp_path, **settings):
    environ = machine(tmp_path, url, secret)
    return MemoryPlugin(url, settings=settings, environ=environ, secret=secret)


@pytest.mark.row("MW-22", level="e2e")
@pytest.mark.parametrize("text", ["ok thanks", "Hello there!", "What time is it?"])
def test_where_nothing_is_memorable_the_model_is_told_and_nothing_is_kept(relayer, secret, tmp_path, text):
    with noting(relayer.url, secret, tmp_path) as plugin:
        told = plugin.tool("memory_store", {"text": text}, session_key=KEY)
        assert (told.text, told.failed) == ("No memorable facts extracted from the input.", False)
        searched = {"query": text, "minScore": 0}
        assert plugin.tool("memory_search", searched, session_key=KEY).text == "No relevant memories found."


@pytest.mark.row("MW-22", level="e2e")
def test_a_note_without_a_model_is_kept_whole_as_the_models_word(relayer, secret, tmp_path):
    with noting(relayer.url, secret, tmp_path) as plugin:
        told = plugin.tool("memory_store", {"text": NOTE}, session_key=KEY)
        assert told.text == f"Stored 1 fact(s): {NOTE}"
        found = plugin.tool("memory_search", {"query": "Lena's coffee", "minScore": 0}, session_key=KEY)
        assert [(one["text"], one["said_by"]) for one in found.details["memories"]] == [(NOTE, "assistant")]
        again = plugin.tool("memory_store", {"text": NOTE}, session_key=KEY)
        assert again.text.endswith("(known already)")


def test_a_note_that_no_turn_would_be_kept_for_is_kept_because_it_was_asked_for(relayer, secret, tmp_path):
    text = "Only the main agent knows of the copper kettle."
    with noting(relayer.url, secret, tmp_path) as plugin:
        told = plugin.tool("memory_store", {"text": text}, session_key=KEY)
    assert told.text == f"Stored 1 fact(s): {text}"


@pytest.mark.parametrize(
    "text",
    [
        "What is Bob's birthday? 4 May",
        "Which airport does Ana prefer? Heathrow.",
        "Should we use Postgres? Decided yes.",
        "Ana's rules: no nuts. no gluten. always window seats.",
        "The user takes no sugar. He drinks tea. Never call him before nine.",
        "no sugar",
        "tea, no milk",
        "gluten free",
        "Bobs Geburtstag? 4. Mai",
        "ボブの誕生日は？5月4日",  # noqa: RUF001 - as it is written
        "0151 2345678",
    ],
)
def test_a_note_is_one_memory_as_it_was_written(relayer, secret, tmp_path, text):
    with noting(relayer.url, secret, tmp_path) as plugin:
        told = plugin.tool("memory_store", {"text": text}, session_key=KEY)
        listed = plugin.tool("memory_list", {}, session_key=KEY).details["memories"]
    assert told.text == f"Stored 1 fact(s): {text}"
    assert [html.unescape(one["text"]) for one in listed] == [text]


@pytest.mark.row("MW-22", level="e2e")
def test_a_note_is_split_into_its_facts_where_the_relayer_has_a_model(secret, tmp_path):
    facts = [
        {
            "text": "Lena takes her coffee with oat milk.",
            "message": 1,
            "evidence": "Lena takes her coffee with oat milk",
        },
        {"text": "Rex is Lena's dog.", "message": 1, "evidence": "Rex is her dog"},
    ]
    answer = json.dumps({"facts": facts, "summary": ""})
    with ScriptedModelServer(chat=answer) as server:
        start = lambda: local_relayer(model_url=server.url, model_name="own", extractor="llm")  # noqa: E731
        with threaded_relayer(start) as own, noting(own.url, secret, tmp_path) as plugin:
            told = plugin.tool("memory_store", {"text": NOTE}, session_key=KEY)
    assert told.text.startswith("Stored 2 fact(s): Lena takes her coffee with oat milk.; Rex is Lena")


@pytest.mark.row("MW-16", level="e2e")
def test_what_somebody_asked_to_remember_is_kept_before_what_came_later(relayer, secret, tmp_path):
    asked = "Please remember that the safe in the office opens with the blue key."
    said = [asked, *(f"The shelf number {number} in the archive holds old maps." for number in range(4))]
    messages = [{"role": "user", "content": text} for text in said]
    with noting(relayer.url, secret, tmp_path, capture={"maxMessages": 2}) as plugin:
        report = plugin.after_turn(messages, session_key=KEY)
        assert report.dropped == {"over_max_messages": 3}
        assert plugin.flush(90)
        found = plugin.tool("memory_search", {"query": "safe and shelf", "minScore": 0}, session_key=KEY)
    assert {one["text"] for one in found.details["memories"]} == {asked, said[-1]}
