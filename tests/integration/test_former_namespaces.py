"""An agent whose memories were set apart by a setting reads what it remembered before beside them, where it is told to."""

from __future__ import annotations

import html
from typing import Any

import pytest
from plugin_site import PATIENCE, PluginSite, recall, say

from gateway_plugin import MemoryPlugin
from gateway_plugin.turn.gates import HostTurn

FORMERLY = "The sluice of the lower lock is opened with a brass key."
SINCE = "The sluice of the upper lock is opened with a crank."
QUESTION = "What is the sluice of the lock opened with?"
APART: dict[str, Any] = {"default": "harbour", "legacy": True}


@pytest.fixture
def site(plain_site: PluginSite) -> PluginSite:
    say(plain_site.plugin(), FORMERLY)
    return plain_site


def told(plugin: MemoryPlugin, **more: Any) -> str:
    return html.unescape(recall(plugin, QUESTION, **more).text)


@pytest.mark.row("MW-36", level="e2e")
def test_what_was_remembered_before_a_default_namespace_was_set_is_recalled_beside_it(
    site: PluginSite,
) -> None:
    apart = site.plugin(namespace={"default": "harbour"})
    say(apart, SINCE)
    assert FORMERLY not in told(apart)
    both = site.plugin(namespace=APART)
    assert FORMERLY in told(both)
    assert SINCE in told(both)
    searched = both.tool("memory_search", {"query": QUESTION, "minScore": 0})
    found = {html.unescape(one["text"]): one for one in searched.details["memories"]}
    assert found[FORMERLY]["shared_from"] == "main"
    assert "shared_from" not in found[SINCE]
    relevances = [one["relevance"] for one in searched.details["memories"]]
    assert relevances == sorted(relevances, reverse=True)
    # What is written goes to the new place alone.
    assert site.texts() == [FORMERLY]


@pytest.mark.row("MW-36", level="e2e")
def test_a_sender_of_their_own_reads_what_the_agent_knew_before_and_never_what_another_sender_told_it(
    site: PluginSite,
) -> None:
    of_each = site.plugin(namespace={"scope": "agent+sender", "legacy": True})
    ana, bo = HostTurn(sender="ana"), HostTurn(sender="bo")
    of_each.after_turn([{"role": "user", "content": SINCE}], host=ana)
    assert of_each.flush(PATIENCE)
    assert SINCE in told(of_each, host=ana)
    assert FORMERLY in told(of_each, host=ana)
    assert FORMERLY in told(of_each, host=bo)
    assert SINCE not in told(of_each, host=bo)
    assert FORMERLY not in told(site.plugin(namespace={"scope": "agent+sender"}), host=bo)


@pytest.mark.row("MW-36", level="e2e")
def test_a_former_namespace_is_read_and_not_written_to_by_a_tool_that_names_it(site: PluginSite) -> None:
    both = site.plugin(namespace=APART)
    named = {"query": QUESTION, "minScore": 0, "namespace": "main"}
    (found,) = both.tool("memory_search", named).details["memories"]
    assert html.unescape(found["text"]) == FORMERLY
    both.tool("memory_store", {"text": SINCE, "namespace": "main"})
    assert site.texts() == [FORMERLY]
