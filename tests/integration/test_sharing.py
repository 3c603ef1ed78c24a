"""A person shares a namespace with an agent: it is recalled with the agent's own, labelled, until that is taken back."""

from __future__ import annotations

import html
import json
from dataclasses import replace

import pytest
from border import border
from typed_commands import machine, run_gateway

from gateway_plugin import MemoryPlugin
from gateway_plugin.turn.gates import HostTurn
from relayer.wire.sealing import FIRST_GENERATION
from relayer.wire.signing import Right

BOILER = "The boiler in the cellar of the mill is serviced by Margarethe every October."
KETTLE = "The kettle in the kitchen of the mill has a cracked lid."
QUESTION = "Who services the boiler in the cellar of the mill?"
CODER, RESEARCHER, STRANGER = (f"agent:{name}:main" for name in ("coder", "researcher", "stranger"))


@pytest.fixture
def place(relayer, secret, tmp_path):
    return machine(tmp_path, relayer.url, secret)


@pytest.fixture
def plugin(place):
    with MemoryPlugin(environ=dict(place), secret=place["MEMRELAY_SECRET"]) as one:
        for key, text in ((RESEARCHER, BOILER), (CODER, KETTLE)):
            one.after_turn([{"role": "user", "content": text}], session_key=key)
        assert one.flush(90)
        yield one


def recalled(plugin, key, question=QUESTION, **more):
    return html.unescape(plugin.before_turn(question, session_key=key, deadline=30, **more).text)


def done(place, *arguments):
    ended = run_gateway(place, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.row("MW-51", level="e2e")
def test_a_shared_namespace_is_recalled_with_where_it_is_from_until_it_is_unshared(plugin, place):
    assert BOILER not in recalled(plugin, CODER)
    assert "coder reads researcher" in done(place, "share", "researcher", "--with", "coder")
    merged = recalled(plugin, CODER)
    assert BOILER in merged
    assert "shared from researcher" in merged
    assert BOILER not in recalled(plugin, STRANGER)
    assert KETTLE not in recalled(plugin, RESEARCHER, "Which lid in the kitchen of the mill is cracked?")
    done(place, "unshare", "researcher", "--with", "coder")
    assert BOILER not in recalled(plugin, CODER)
    assert BOILER in recalled(plugin, RESEARCHER)


@pytest.mark.row("MW-51", level="e2e")
def test_the_search_tool_ranks_own_and_shared_memories_as_one_list(plugin, place):
    done(place, "share", "researcher", "--with", "coder")
    answer = plugin.tool("memory_search", {"query": QUESTION, "minScore": 0}, session_key=CODER)
    found = answer.details["memories"]
    assert [html.unescape(one["text"]) for one in found] == [BOILER, KETTLE]
    assert [one.get("shared_from", "") for one in found] == ["researcher", ""]
    assert found[0]["relevance"] >= found[1]["relevance"]
    assert "relevance, shared from researcher)" in answer.text
    alone = {"query": QUESTION, "minScore": 0, "namespace": "researcher"}
    named = plugin.tool("memory_search", alone, session_key=CODER)
    assert [html.unescape(one["text"]) for one in named.details["memories"]] == [BOILER]


def test_what_is_shared_for_reading_is_not_written_to_and_nobody_else_may_name_it(plugin, place):
    done(place, "share", "researcher", "--with", "coder")
    store = {"text": "The boiler was painted green.", "namespace": "researcher"}
    refused = plugin.tool("memory_store", store, session_key=CODER)
    assert refused.failed
    assert "shared read-only" in refused.text
    stranger = plugin.tool(
        "memory_search", {"query": QUESTION, "namespace": "researcher"}, session_key=STRANGER
    )
    assert stranger.failed
    assert "belongs to another agent" in stranger.text


def test_agents_meet_in_a_namespace_that_is_nobodys_own(plugin, place):
    done(place, "share", "shared/mill", "--with", "coder", "--write")
    done(place, "share", "shared/mill", "--with", "researcher")
    text = "The key of the mill hangs behind the third beam."
    stored = plugin.tool("memory_store", {"text": text, "namespace": "shared/mill"}, session_key=CODER)
    assert not stored.failed, stored.text
    question = "Where does the key of the mill hang?"
    assert text in recalled(plugin, RESEARCHER, question)
    assert text in recalled(plugin, CODER, question)
    assert text not in recalled(plugin, STRANGER, question)
    listed = json.loads(done(place, "share", "--json"))["shares"]
    assert {"namespace": "shared/mill", "agent": "coder", "writes": True} in listed
    assert {"namespace": "shared/mill", "agent": "researcher", "writes": False} in listed


def test_what_was_said_to_one_person_stays_out_of_groups_when_it_is_shared(plugin, place):
    done(place, "share", "researcher", "--with", "coder")
    group = "agent:coder:telegram:group:-100"
    assert BOILER not in recalled(plugin, group, host=HostTurn())


def test_a_shared_namespace_that_cannot_be_had_costs_an_agent_nothing_of_its_own(plugin, place, tmp_path):
    done(place, "share", "researcher", "--with", "coder")
    (tmp_path / "config/memrelay/shares.json").write_text("{")
    assert KETTLE in recalled(plugin, CODER, "Which lid in the kitchen of the mill is cracked?")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("share", "researcher"), "give both NAMESPACE and --with AGENT"),
        (("share", "researcher", "--with", "researcher"), "belongs to researcher"),
        (("unshare", "researcher", "--with", "coder"), "is not shared with coder"),
        (("share", "a/b/c/d/e", "--with", "coder"), "NAMESPACE"),
    ],
)
def test_what_cannot_be_shared_is_refused_with_the_reason(place, arguments, sentence):
    ended = run_gateway(place, *arguments)
    assert ended.returncode != 0
    assert sentence in ended.stderr


# Applications of one account read one another's namespaces where the account grants it, and nowhere else.
TEXT = "I only drink oat milk coffee before noon"
ASKED = {"query": "Which coffee do I drink?", "floor": 0, "namespace": "researcher"}


@pytest.mark.row("MW-51")
async def test_what_one_application_stored_is_read_by_another_one_that_was_granted_it():
    async with border() as at:
        await at.call("POST", "/v1/memories", {"items": [{"text": TEXT}]})
        secret = at.gateway.root.agent("researcher").namespace_secret("researcher", FIRST_GENERATION)
        key = at.memory_key()
        chatbot = replace(
            at.gateway, agent="chatbot", namespaces=("chatbot", "researcher"), rights=(Right.READ,)
        )
        shared = chatbot.memory_key(at.fleet_key, namespace="researcher", secret=secret)
        found = await at.call("POST", "/v1/recall", ASKED, key=shared, gateway=chatbot)
        assert found.status_code == 200, found.text
        assert [hit["text"] for hit in found.json()["memories"]] == [TEXT]
        written = {"items": [{"text": "I drink tea"}], "namespace": "researcher"}
        refused = await at.call("POST", "/v1/memories", written, key=shared, gateway=chatbot)
        assert refused.status_code in {401, 403, 404}
        stranger = replace(at.gateway, agent="stranger", namespaces=("stranger",))
        for sealed in (stranger.memory_key(at.fleet_key, namespace="researcher", secret=secret), key):
            refused = await at.call("POST", "/v1/recall", ASKED, key=sealed, gateway=stranger)
            assert refused.status_code in {401, 404}
            assert TEXT not in refused.text
