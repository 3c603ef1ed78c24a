"""No sink of the plugin or its command line ever shows a key, whatever goes wrong; an id at most in short (MW-30)."""

from __future__ import annotations

import base64
import logging
import os

import pytest
from nacl.signing import SigningKey
from typer.testing import CliRunner
from wire_relayer import TURN, answer

from gateway_plugin import MemoryPlugin
from gateway_plugin.cli import app
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys import gateway_secret
from gateway_plugin.settings.model import load_settings
from relayer.wire.sealing import RootKeys

SECRET = bytes.fromhex("e21d" + "5a" * 28 + "ed9b")
KEY = "agent:researcher:main"


def _forms(secret: bytes) -> set[str]:
    encoded = {base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode()}
    return {secret.hex(), secret.hex().upper(), repr(secret), *encoded, *(one.rstrip("=") for one in encoded)}


def _keys() -> set[str]:
    root = RootKeys(SECRET)
    agent = root.agent("researcher")
    secrets = (
        SECRET,
        agent.secret,
        agent.outbox_key,
        agent.namespace_secret("researcher", 1),
        bytes(agent.identity),
        bytes(root.account_identity),
    )
    return {form for secret in secrets for form in _forms(secret)}


@pytest.fixture
def sinks(caplog, capfd):
    """Everything that was printed or logged, at its most talkative."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []

    def read() -> str:
        printed = capfd.readouterr()
        return "\n".join([*said, printed.out, printed.err, caplog.text])

    read.say = said.append
    return read


@pytest.mark.row("MW-30", level="e2e")
def test_a_plugin_shows_no_key_through_success_and_every_failure(wire, environ, sinks):
    settings = {"recall": {"logging": True, "logQueries": True}, "key": SECRET.hex()}
    with MemoryPlugin(wire.url, settings=settings, environ=environ) as plugin:
        for scripted in (
            None,
            answer(401, "unauthorized"),
            answer(409, "wrong_namespace_key"),
            answer(500, "x"),
        ):
            wire.script = [scripted] if scripted else []
            sinks.say(repr(plugin.after_turn(TURN, session_key=KEY)))
            sinks.say(repr(plugin.before_turn("How do I take my coffee?", session_key=KEY, deadline=2)))
        plugin.flush(2)
        sinks.say(repr([plugin.status(), plugin.why(), plugin.settings, plugin._inner._book.holder]))
        wire.identity = SigningKey.generate()
        plugin._inner._client._fleet.drop()
        sinks.say(repr(plugin.before_turn("Which coffee do I take at sea?", session_key=KEY)))
    with MemoryPlugin("http://127.0.0.1:9", settings=settings, environ=environ) as lost:
        sinks.say(repr(lost.before_turn("How do I take my coffee?", session_key=KEY)))
    everything = sinks()
    assert "untrusted" in everything
    assert not [key for key in _keys() if key in everything]


@pytest.mark.row("MW-30")
@pytest.mark.parametrize(
    "config",
    [
        {"key": SECRET.hex() + "00"},
        {"privateKey": SECRET.hex(), "key": "0" * 64},
        {"keyy": SECRET.hex()},
        {"recall": SECRET.hex()},
        {"accountId": SECRET.hex()},
        {"url": f"https://{SECRET.hex()}:x@relayer.example.org"},
        {"namespace": {"default": SECRET.hex() * 3}},
    ],
)
def test_a_configuration_with_a_key_in_the_wrong_place_is_refused_without_it(config):
    with pytest.raises(GatewayError) as refused:
        load_settings(config, {})
    assert SECRET.hex() not in f"{refused.value!r} {refused.value}"


@pytest.mark.row("MW-30", level="e2e")
def test_the_command_line_shows_a_key_only_where_it_is_asked_for_one(wire, environ, monkeypatch, sinks):
    for name in [name for name in os.environ if name.startswith(("MEMRELAY_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name, value in {**environ, "MEMRELAY_URL": wire.url}.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(gateway_secret, "_taken", {})
        monkeypatch.setenv("MEMRELAY_SECRET", SECRET.hex())
        return CliRunner().invoke(app, arguments).output

    for command in (
        ("remember", "The deploy window is Tuesday"), ("search", "deploy"), ("list",), ("status",), ("doctor",),
        ("keys", "show"), ("keys", "revoke", "--agent", "researcher"), ("keys", "revoke", "--certificate", SECRET.hex()),
        ("outbox", "status"), ("outbox", "list"), ("why",), ("init", "--host", "openclaw"),
        ("list", "--url", "http://127.0.0.1:9"), ("keys", "recovery", "--verify", SECRET.hex()),
    ):  # fmt: skip
        shown = run(*command)
        # What a person typed stands in no answer either, except the name of a file.
        kept = shown.replace(SECRET.hex(), "") if command[-2:-1] == ("--verify",) else shown
        assert not [key for key in _keys() if key in kept], command
        sinks.say(kept)
    assert not [key for key in _keys() if key in sinks()]
    # The two commands that hand out keys do so: the test above could see one.
    assert RootKeys(SECRET).agent("researcher").secret.hex() in run("keys", "export", "--agent", "researcher")
