"""Consolidation from outside: commands, a relayer over HTTP, and what the border says to requests that are wrong."""

from __future__ import annotations

import asyncio
import json

import pytest
from signed_calls import Gateway
from typed_commands import run_gateway

from gateway_plugin.commands.run import used
from gateway_plugin.keys.identity import identify, parse_session_key
from gateway_plugin.setup import holder_for, settings_from
from relayer.wire.schemas import AnalyzeRequest
from relayer.wire.signing import Right

FIRST, AGAIN = "The staging database is called heron.", "Our staging database is called heron."
JENKINS, SWITCHED = "We use Jenkins for our builds.", "We switched from Jenkins to Buildkite."
PROPOSAL = "0" * 26 + "-" + "0" * 26


@pytest.fixture
def command(environment):
    def run(*arguments, agent="ops"):
        return run_gateway(environment, *arguments, "--agent", agent)

    return run


def capture(environment, text):
    own = dict(environment)  # the secret is taken out of it
    settings = settings_from(None, own, url=None)
    identity = identify(holder_for(settings, own), parse_session_key(""), default_agent="ops")
    request = AnalyzeRequest.model_validate({"turns": [{"role": "user", "text": text}]})
    asyncio.run(used(settings, lambda client: client.analyze(identity, request)))


def listed(command):
    return {row["text"] for row in json.loads(command("list", "--json").stdout)["memories"]}


@pytest.fixture
def known(monkeypatch, environment, command):
    """A repetition, a replacement and a conflict."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for text in (FIRST, JENKINS, "I report to Petra."):
        capture(environment, text)
    for text in (AGAIN, SWITCHED, "I report to Ravi."):
        assert command("remember", text).returncode == 0


@pytest.mark.row("CP-49")
def test_a_difference_is_shown_first_taken_on_that_word_and_taken_back(command, known):
    shown = command("consolidate")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split(maxsplit=2) for line in shown.stdout.splitlines()]
    signs = {words[2]: words[0] for words in lines if words[0] in {"-", "+", "?"}}
    assert signs == {
        FIRST: "-", AGAIN: "+", JENKINS: "-", SWITCHED: "+",
        "I report to Petra.": "?", "I report to Ravi.": "?",
    }  # fmt: skip
    assert "proposed for removal: 2; conflicts: 1" in shown.stdout
    assert len(listed(command)) == 6
    done = command("consolidate", "--apply")
    assert (done.returncode, "taken: 2 of 2" in done.stdout) == (0, True), done.stderr
    assert listed(command) == {AGAIN, SWITCHED, "I report to Petra.", "I report to Ravi."}
    (gone,) = [words[1] for words in lines if words[0] == "-" and words[2] == FIRST]
    assert command("restore", gone).returncode == 0
    assert FIRST in listed(command)


def test_one_proposal_is_taken_by_its_id_or_by_the_memory_that_goes(command, known):
    first, second = [
        one
        for one in json.loads(command("consolidate", "--json").stdout)["proposals"]
        if one["reason"] != "conflict"
    ]
    done = json.loads(command("consolidate", "--apply", first["id"], "--json").stdout)
    assert [(one["id"], one["status"]) for one in done["taken"]] == [(first["id"], "taken")]
    assert second["goes"]["text"] in listed(command)
    assert command("consolidate", "--apply", second["goes"]["id"]).returncode == 0
    assert "proposed for removal: 0" in command("consolidate").stdout


def test_wrong_words_take_nothing_and_say_what_to_do(command, known):
    for arguments, code, told in (
        (("consolidate", PROPOSAL), 2, "--apply"),
        (("consolidate", "--apply", PROPOSAL), 1, "memrelay-gateway consolidate"),
    ):
        answer = command(*arguments)
        assert (answer.returncode, told in answer.stderr) == (code, True), answer.stderr
    assert "0 memories examined" in command("consolidate", agent="somebody").stdout
    assert len(listed(command)) == 6


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/v1/consolidation", {"limit": 0}),
        ("/v1/consolidation", {"limit": 201}),
        ("/v1/consolidation", {"cursor": "x"}),
        ("/v1/consolidation", {"apply": True}),
        ("/v1/consolidation/take", {}),
        ("/v1/consolidation/take", {"proposals": []}),
        ("/v1/consolidation/take", {"proposals": ["../../etc"]}),
        ("/v1/consolidation/take", {"proposals": ["0" * 26]}),
        ("/v1/consolidation/take", {"proposals": [f"{PROPOSAL}-"]}),
        ("/v1/consolidation/take", {"proposals": [PROPOSAL] * 101}),
    ],
)
async def test_what_is_not_a_request_is_refused_with_its_field_and_touches_nothing(at_border, target, body):
    at_border.store.clear()
    answer = await at_border.call("POST", target, body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
    assert "../../etc" not in answer.text


async def test_whoever_may_only_read_sees_proposals_and_takes_none(at_border):
    reader = Gateway(rights=(Right.READ,), root=at_border.gateway.root)
    for target, body, status in (
        ("/v1/consolidation", {}, 200),
        ("/v1/consolidation/take", {"proposals": [PROPOSAL]}, 401),
    ):
        answer = await at_border.call("POST", target, body, gateway=reader)
        assert answer.status_code == status, answer.text
