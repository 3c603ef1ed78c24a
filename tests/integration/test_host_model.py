"""A host lends its model: facts, summaries and reminders without a model at the relayer, bounded, beside the turns, or not at all."""

from __future__ import annotations

import asyncio
import html
import json
import time

import pytest
from processes import wait_until as until

from gateway_plugin import MemoryPlugin
from gateway_plugin.host_model import HostAnswer, HostModelUnavailable
from relayer.testing.local_relayer import local_relayer, threaded_relayer

ANA = "My sister Ana moved to Lisbon on 3 May 2026."
FACT = {"text": "The user's sister Ana moved to Lisbon.", "message": 1, "evidence": "Ana moved to Lisbon"}
KEY = "agent:researcher:main"


class Hosted:
    """A host's model that says what a test tells it to, and keeps what it was asked."""

    def __init__(self, said="NONE"):
        self.said = said
        self.asked = []
        self.seconds = 0.0

    async def complete(self, question):
        self.asked.append(question)
        await asyncio.sleep(self.seconds)
        said = self.said(question) if callable(self.said) else self.said
        if isinstance(said, Exception):
            raise said
        return HostAnswer(said, tokens=50, model="stub/hosted", cost_usd=0.001)

    def purposes(self):
        return [question.purpose for question in self.asked]


@pytest.fixture
def plugin(relayer, secret, tmp_path):
    made = []

    def make(model, *, url=None, **settings):
        environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        one = MemoryPlugin(url or relayer.url, settings=settings, secret=secret, environ=environ, model=model)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def says(*facts, summary=""):
    return json.dumps({"facts": facts, "summary": summary})


def tell(plugin, *texts, key=KEY):
    for text in texts:
        plugin.after_turn([{"role": "user", "content": text}], session_key=key)
    assert plugin.flush(90)


def found(plugin, query):
    answer = plugin.tool("memory_search", {"query": query, "minScore": 0}, session_key=KEY)
    return [html.unescape(memory["text"]) for memory in answer.details.get("memories", [])]


@pytest.mark.row("CP-38", level="e2e")
def test_facts_are_extracted_by_the_hosts_model_where_the_relayer_has_none(plugin):
    model = Hosted(says(FACT))
    one = plugin(model)
    tell(one, ANA)
    until(lambda: one.status().host_model.facts == 1)
    assert set(found(one, "Where did my sister Ana move?")) == {ANA, FACT["text"]}
    (question,) = model.asked
    assert (question.purpose, question.agent) == ("extract", "researcher")
    assert ANA in question.prompt
    status = one.status().host_model
    assert (status.calls, status.tokens, status.model) == (1, 50, "stub/hosted")
    assert "1 of 60 calls this hour" in status.line
    assert "about $0.0010" in status.line


def test_what_the_hosts_model_makes_up_is_kept_out_and_counted(plugin):
    invented = {"text": "The user's sister Ana bought a boat.", "message": 1, "evidence": "bought a boat"}
    one = plugin(Hosted(says(invented)))
    tell(one, ANA)
    until(lambda: one.status().host_model.dropped == 1)
    assert found(one, "Did Ana buy a boat?") == [ANA]


def test_one_setting_ends_it(plugin):
    model = Hosted(says(FACT))
    one = plugin(model, hostModel={"enabled": False})
    tell(one, ANA)
    assert one.status().host_model is None
    assert one.flush(5)
    assert model.asked == []
    assert found(one, "Where did Ana move?") == [ANA]


def test_a_relayer_with_a_model_of_its_own_asks_that_one(plugin, tmp_path):
    from doubles.scripted_model_server import ScriptedModelServer

    with ScriptedModelServer(chat=says(FACT)) as server:
        start = lambda: local_relayer(model_url=server.url, model_name="own", extractor="llm")  # noqa: E731
        with threaded_relayer(start) as own:
            model = Hosted(says(FACT))
            one = plugin(model, url=own.url)
            tell(one, ANA)
            until(lambda: FACT["text"] in found(one, "Where did Ana move?"))
            assert model.asked == []
            one.close()


def test_a_turn_waits_for_no_model(plugin):
    model = Hosted(says(FACT))
    model.seconds = 30.0
    one = plugin(model)
    begun = time.monotonic()
    tell(one, ANA)
    injection = one.before_turn("Where did my sister Ana move?", session_key=KEY, deadline=20)
    assert ANA in injection.text
    one.close()
    assert time.monotonic() - begun < 10


def test_the_hour_has_its_bound_and_says_so(plugin):
    model = Hosted(says())
    one = plugin(model, hostModel={"callsPerHour": 1})
    tell(one, ANA)
    until(lambda: len(model.asked) == 1)
    tell(one, "My brother Ben lives in Porto since 2020.")
    time.sleep(0.5)
    assert len(model.asked) == 1
    assert "callsPerHour is used up" in one.status().host_model.line


def test_a_model_that_fails_is_spared_and_captures_go_on(plugin):
    model = Hosted(HostModelUnavailable("not_allowed", "the host does not allow it"))
    one = plugin(model)
    tell(one, ANA)
    until(lambda: len(model.asked) == 1)
    for number in range(4):
        tell(one, f"My locker has the number {number + 41}.")
    assert len(found(one, "Which number has my locker?")) >= 4
    until(lambda: "does not allow" in one.status().host_model.trouble)
    assert len(model.asked) <= 4


@pytest.mark.tier("all")  # it waits for the pauses that a relayer makes
def test_what_an_earlier_process_left_undone_is_done_by_the_next_one(plugin):
    never = Hosted(HostModelUnavailable("unavailable", "away"))
    one = plugin(never)
    tell(one, ANA)
    until(lambda: never.asked)
    # A question that is not given back is nobody else's for two minutes.
    time.sleep(1.0)
    one.close()
    model = Hosted(says(FACT))
    again = plugin(model)
    # The question was given back, and is asked for again after a pause.
    time.sleep(4.5)
    again._loop.call(again._inner.warm(session_key=KEY))
    until(lambda: again.status().host_model.facts == 1)


@pytest.mark.row("MS-19", level="e2e")
def test_a_session_that_ends_is_summarised_by_the_hosts_model(plugin):
    points = json.dumps({"points": ["Ana moved to Lisbon.", "The flat in Porto is sold."]})
    model = Hosted(lambda question: points if question.purpose == "summarise" else says())
    one = plugin(model)
    tell(one, ANA, "My sister Ana works at the harbour museum.", "My own flat in Porto is sold.")
    one.flush_session(session_key=KEY, ended=True, seconds=5)
    until(lambda: "summarise" in model.purposes())
    asked = "What about Ana and the flat in Porto?"
    until(lambda: "- Ana moved to Lisbon. - The flat in Porto is sold." in map(flat, found(one, asked)))


def flat(text):
    return " ".join(text.split())


@pytest.mark.row("AM-01", level="e2e")
def test_active_mode_asks_the_hosts_model_within_the_turn(plugin):
    heron = "Our staging database is called heron since May."
    reminder = "The staging database is called heron."
    model = Hosted(lambda question: reminder if question.purpose == "active-recall" else says())
    one = plugin(model, recall={"mode": "active"}, active={"agents": ["researcher"]})
    tell(one, heron)
    injection = one.before_turn("What is our staging database called?", session_key=KEY, deadline=10)
    assert (injection.status, injection.summary) == ("ok", reminder)
    model.said = "It is called osprey at 7 am in Helsinki."
    other = one.before_turn("What is our staging database called again?", session_key=KEY, deadline=10)
    assert other.status == "ok"
    assert heron in other.text
    assert one.why().active == "fallback:not_proved"


@pytest.mark.row("AM-01", level="e2e")
def test_active_mode_asks_again_when_a_memory_comes_between_question_and_answer(plugin):
    coffee, tea = "I only drink oat milk coffee.", "I drink oat milk coffee at the harbour on Sundays."
    other = plugin(Hosted(says()))

    def answer(question):
        if question.purpose != "active-recall":
            return says()
        if tea not in html.unescape(question.prompt):
            stored = other.tool("memory_store", {"text": tea}, session_key=KEY)
            assert not stored.failed, stored.text
        return "Oat milk coffee."

    model = Hosted(answer)
    one = plugin(model, recall={"mode": "active"}, active={"agents": ["researcher"]})
    tell(one, coffee)
    injection = one.before_turn("Which coffee do I drink, actually?", session_key=KEY, deadline=20)
    assert (injection.status, injection.summary) == ("ok", "Oat milk coffee.")
    assert model.purposes().count("active-recall") == 2


def test_active_mode_falls_back_to_the_hits_when_the_hosts_model_is_late(plugin):
    heron = "Our staging database is called heron since May."
    model = Hosted("NONE")
    one = plugin(model, recall={"mode": "active"}, active={"agents": ["researcher"]})
    tell(one, heron)
    model.seconds = 20.0
    begun = time.monotonic()
    injection = one.before_turn("What is our staging database called?", session_key=KEY, deadline=2)
    assert time.monotonic() - begun < 3
    assert heron in injection.text
    assert one.why().active == "fallback:model_timeout"


@pytest.mark.row("AM-26", level="e2e")
def test_a_late_hosts_model_is_spared_in_active_mode_after_as_many_timeouts_as_the_settings_say(plugin):
    heron = "Our staging database is called heron since May."
    model = Hosted("NONE")
    active = {"agents": ["researcher"], "circuitBreakerMaxTimeouts": 1}
    one = plugin(model, recall={"mode": "active"}, active=active)
    tell(one, heron)
    model.seconds = 20.0
    for asked in ("What is our staging database called?", "How is the staging database called?"):
        assert heron in one.before_turn(asked, session_key=KEY, deadline=2).text
    assert model.purposes().count("active-recall") == 1
    assert one.why().active == "fallback:spared"
