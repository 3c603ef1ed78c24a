"""``memrelay-gateway init``: blocks that work, files that are changed only on a person's word, and no empty promises."""

from __future__ import annotations

import json
import os
import stat

import pytest
from typer.testing import CliRunner
from wire_relayer import SECRET

from gateway_plugin.cli import app
from gateway_plugin.hosts.openclaw.config import core_config
from gateway_plugin.keys import gateway_secret
from gateway_plugin.settings.model import load_settings

YES = "--allow-conversation-access"
HELD = {"agents": {"defaults": {"model": "x"}}, "plugins": {"entries": {"weather": {"enabled": True}}}}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    return path


@pytest.fixture
def run(environ, config, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("MEMRELAY_", "XDG_", "OPENCLAW_"))]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    def invoke(*arguments, code=0):
        monkeypatch.setattr(gateway_secret, "_taken", {})
        monkeypatch.setenv("MEMRELAY_SECRET", SECRET)
        done = CliRunner().invoke(app, ["init", *arguments])
        assert done.exit_code == code, done.output
        return done

    return invoke


def entry(config):
    return json.loads(config.read_text())["plugins"]["entries"]["memrelay"]


@pytest.mark.row("MS-26", level="e2e")
@pytest.mark.parametrize("host", ["openclaw", "openclaw-active"])
def test_a_block_is_written_beside_what_was_there_and_a_copy_kept(run, config, host):
    config.write_text(json.dumps(HELD))
    config.chmod(0o600)
    shown = run("--host", host, "--write", YES, "--url", "https://relayer.example.org").stdout
    steps = (
        "openclaw plugins install",
        "openclaw gateway restart",
        "memrelay-gateway doctor --host openclaw",
    )
    assert [step for step in steps if step in shown] == list(steps)
    written = json.loads(config.read_text())
    assert written["agents"] == HELD["agents"]
    assert written["plugins"]["entries"]["weather"] == {"enabled": True}
    assert written["plugins"]["slots"]["memory"] == "memrelay"
    assert entry(config)["hooks"]["allowConversationAccess"] is True
    settings = load_settings(core_config(entry(config)["config"], {}), {})
    assert (settings.url, settings.recall.mode) == (
        "https://relayer.example.org",
        "active" if host == "openclaw-active" else "direct",
    )
    (copy,) = config.parent.glob("openclaw.json.before-memrelay-*")
    assert json.loads(copy.read_text()) == HELD
    assert str(copy) in shown
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert SECRET not in config.read_text() + shown


def test_writing_again_changes_nothing_and_keeps_what_a_person_set(run, config):
    run("--host", "openclaw", "--write", YES, "--url", "https://relayer.example.org")
    before = config.read_text()
    assert "nothing to change" in run("--host", "openclaw", "--write", YES).stdout
    assert config.read_text() == before
    assert not [*config.parent.glob("*.before-memrelay-*")]


def test_consent_is_asked_for_and_never_taken(run, config):
    refused = run("--host", "openclaw", "--write", code=2)
    assert "--allow-conversation-access" in refused.stderr
    assert not config.exists()
    shown = run("--host", "openclaw", "--write", "--no-conversation-access").stdout
    assert entry(config)["hooks"] == {"allowConversationAccess": False}
    assert "through its tools alone" in shown


def test_a_configuration_with_comments_is_left_as_it_is(run, config):
    config.write_text("{\n  // mine\n}\n")
    refused = run("--host", "openclaw", "--write", YES, code=2)
    assert "comments" in refused.stderr
    assert config.read_text() == "{\n  // mine\n}\n"


@pytest.mark.parametrize("host", ["hermes", "nanobot"])
def test_a_host_without_an_adapter_is_told_so_plainly(run, host):
    refused = run("--host", host, code=1)
    assert "there is no adapter" in refused.stderr
    assert refused.stdout == ""


def test_mcp_clients_are_named_the_command_that_prints_their_blocks(run):
    assert "memrelay-gateway mcp config --for" in run("--host", "mcp", code=2).stderr


@pytest.mark.parametrize(
    ("host", "near"), [("opencalw", "openclaw"), ("pyton", "python"), ("???", "openclaw")]
)
def test_an_unknown_host_is_refused_with_the_nearest_known_one(run, host, near):
    assert f"did you mean {near}?" in run("--host", host, code=2).stderr


def test_a_program_has_no_file_to_write(run):
    assert "--write" in run("--host", "python", "--write", code=2).stderr


def test_a_block_to_paste_comes_with_what_to_do_with_it_beside_it(run):
    shown = run("--host", "openclaw")
    json.loads(shown.stdout)
    for command in (
        "--write",
        "memrelay-gateway openclaw settings",
        "memrelay-gateway doctor --host openclaw",
    ):
        assert command in shown.stderr
