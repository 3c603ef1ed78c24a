"""A secret that the owner asks to keep: the chat command says what was left out, and keeps it on request."""

from __future__ import annotations

import pytest
from bridge_process import BridgeProcess
from plugin_site import PluginSite

from gateway_plugin.turn.gates import HostTurn

OWNER = {"sessionKey": "agent:main:main", "agentId": "main", "trigger": "user", "senderIsOwner": True}
WIFI = "the wifi password is blue-otter-22"


@pytest.fixture
def bridge(tmp_path, shared_relayer, secret):
    with BridgeProcess(tmp_path, {"url": shared_relayer, "key": secret}) as process:
        process.initialize()
        yield process


def typed(bridge, arguments, **context):
    return bridge.call("command", args=arguments, context=OWNER | context)["text"]


def test_the_command_says_what_it_left_out_and_how_to_keep_it(bridge):
    told = typed(bridge, f"remember {WIFI}")
    assert told.startswith("Stored 1 fact(s): the wifi password is [password removed]")
    assert told.endswith("Stored without the password. To keep it: /memory remember --with-secrets TEXT")
    assert "blue-otter" not in typed(bridge, "list")
    assert "Stored without" not in typed(bridge, "remember my sister lives in Lyon")


@pytest.mark.parametrize("option", ["--with-secrets", "\u2014with-secrets", "--secret", "\u2014secret"])
def test_a_secret_is_kept_for_the_call_that_asks_for_it_and_for_no_other(bridge, option):
    assert typed(bridge, f"remember {option} {WIFI}") == f"Stored 1 fact(s): {WIFI}"
    assert WIFI in typed(bridge, "search wifi password")
    assert "[password removed]" in typed(bridge, "remember the router password is red-heron-31")
    assert "red-heron" not in typed(bridge, "list")
    assert typed(bridge, f"remember {option}").startswith("Something is missing: /memory remember")


def test_a_secret_is_kept_neither_in_a_group_nor_for_another_sender(bridge):
    group = typed(bridge, f"remember --secret {WIFI}", sessionKey="agent:main:discord:group:boats")
    other = typed(bridge, f"remember --secret {WIFI}", senderIsOwner=False)
    assert "direct chats only" in group
    assert "for the owner" in other
    assert "blue-otter" not in typed(bridge, "list")


@pytest.mark.parametrize(
    "given",
    [
        {"text": WIFI, "keeps_secrets": True, "secret": True, "keep_secrets": True},
        {"text": f"--secret {WIFI}"},
    ],
)
def test_a_model_cannot_keep_a_secret_and_learns_that_it_was_left_out(
    shared_relayer, secret, tmp_path, given
):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        for turn in (HostTurn(), HostTurn(keeps_secrets=True)):
            answer = site.plugin().tool("memory_store", given, session_key="agent:main:main", host=turn)
            assert "Stored without the password." in answer.text
        assert not any("blue-otter" in text for text in site.texts())


def test_the_command_line_says_what_was_left_out_and_keeps_it_on_request(shared_relayer, secret, tmp_path):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        assert "stored without the password; --secret keeps it" in site.command("remember", WIFI).stdout
        assert site.texts() == ["the wifi password is [password removed]"]
        assert "stored without" not in site.command("remember", WIFI, "--secret").stdout
        assert WIFI in site.texts()


def test_an_edit_says_what_was_left_out(shared_relayer, secret, tmp_path):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        known = site.command("remember", WIFI, "--secret").stdout.split()[-1]
        told = site.command("edit", known, f"At home, {WIFI}").stdout
        assert "stored without the password" in told
        changed = told.split()[1]
        assert "stored without" not in site.command("edit", changed, "The wifi is down.").stdout


def test_an_erasure_is_followed_with_the_agent_that_was_named(shared_relayer, secret, tmp_path):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        known = site.command("remember", "The harbour opens at six.", "--agent", "er").stdout.split()[-1]
        told = site.command("erase", known, "--agent", "er", "--yes").stdout
        assert told.endswith("--agent er\n")


@pytest.mark.parametrize("way", ["rotate", "backup"])
def test_a_copy_of_the_memories_has_the_secret_that_was_kept(shared_relayer, secret, tmp_path, way):
    with PluginSite(tmp_path, shared_relayer, secret) as site:
        site.command("remember", WIFI, "--secret", "--agent", "old")
        if way == "rotate":
            site.command("keys", "rotate", "--agent", "old", "--to", "new", "--yes")
        else:
            file = str(tmp_path / "backup.jsonl")
            site.command("export", file, "--agent", "old")
            site.command("import", "--as-backup", file, "--agent", "new")
        assert WIFI in site.command("list", "--agent", "new").stdout
