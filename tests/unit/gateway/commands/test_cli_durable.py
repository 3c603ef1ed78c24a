"""What the command line says about a gateway's outbox, its last turn, and its health."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wire_relayer import COFFEE, QUESTION, SECRET, TURN, answer

from gateway_plugin import MemoryPlugin
from gateway_plugin.cli import app
from gateway_plugin.keys import gateway_secret
from gateway_plugin.turn.gates import HostTurn
from relayer.wire.fields import Position


def test_a_refused_turn_is_listed_and_can_be_tried_again(typed, plugin, wire):
    wire.script = [answer(422, "invalid")]
    plugin.after_turn(TURN, session_key="agent:coder:s")
    plugin.flush(10)
    (row,) = json.loads(typed("outbox", "list", "--json").stdout)
    assert (row["agent"], row["state"]) == ("coder", "refused: 422 invalid")
    assert "oat milk" not in typed("outbox", "list").stdout
    assert typed("outbox", "retry", row["id"]).exit_code == 0
    assert plugin.flush(10)
    assert wire.texts("coder") == [COFFEE]


def test_a_refused_turn_can_be_destroyed(typed, plugin, wire):
    wire.script = [answer(422, "invalid")]
    plugin.after_turn(TURN, session_key="agent:coder:s")
    plugin.flush(10)
    assert json.loads(typed("outbox", "status", "--json").stdout)["dead_letters"] == 1
    assert "1 destroyed" in typed("outbox", "drop", "--all").stdout
    assert typed("outbox", "drop", "--all").exit_code == 1


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_one_turn_or_all_must_be_said(typed, command):
    refused = typed("outbox", command)
    assert refused.exit_code == 2
    assert "--all" in refused.output


@pytest.mark.row("AM-27")
def test_why_shows_each_gate_and_each_memory_of_the_last_turn(typed, wire, environ):
    assert typed("why").exit_code == 1
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        plugin.after_turn(TURN)
        plugin.before_turn("How do I take my coffee?")
    shown = typed("why")
    assert shown.exit_code == 0, shown.output
    assert "gate min_length: passed" in shown.stdout
    assert "injected, relevance 0.90" in shown.stdout
    assert "oat milk" not in shown.stdout


@pytest.mark.row("AM-27")
def test_why_names_the_gate_that_kept_memory_out_of_a_turn_in_which_a_person_asked(typed, wire, environ):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        plugin.after_turn(TURN)
        plugin.before_turn("coffee!")
    first, *gates = typed("why").stdout.splitlines()
    assert first == "skipped:min_length: prompt too short: 7 < 10"
    assert "  gate min_length: prompt too short: 7 < 10" in gates
    assert "  gate agents: passed" in gates


@pytest.mark.row("AM-27", level="e2e")
@pytest.mark.parametrize(
    ("prompt", "config", "told"),
    [
        ("coffee!", {}, "the gate min_length stopped recall: prompt too short: 7 < 10"),
        (
            QUESTION,
            {"recall": {"agents": ["coder"]}},
            "the gate agents stopped recall: recall.agents does not list the agent",
        ),
        (
            QUESTION,
            {"recall": {"mode": "active"}, "active": {"agents": ["coder"]}},
            "the gate agents stopped recall: active.agents does not list the agent",
        ),
        (QUESTION, {}, "ok"),
    ],
)
def test_a_doctor_names_the_gate_that_stopped_the_last_turn(typed, wire, environ, prompt, config, told):
    settings = {"url": wire.url, **config}
    with MemoryPlugin(settings=settings, secret=SECRET, environ=environ) as plugin:
        plugin.after_turn(TURN)
        plugin.before_turn(prompt)
    found = typed("doctor")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    number = next(number for number, line in enumerate(lines) if " last turn: " in line)
    assert lines[number].endswith(f" last turn: {told}")
    stopped = "stopped recall" in told
    assert lines[number].startswith("warn" if stopped else "ok")
    assert ("memrelay-gateway why" in lines[number + 1]) is stopped


@pytest.mark.parametrize("more", [{"prompt": "/status"}, {"trigger": "heartbeat"}])
def test_what_a_person_did_not_ask_memory_takes_the_place_of_no_trace(typed, wire, environ, more):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        plugin.after_turn(TURN)
        plugin.before_turn("How do I take my coffee?")
        plugin.before_turn(
            more.get("prompt", "How do I take my coffee?"), host=HostTurn(trigger=more.get("trigger", "user"))
        )
    assert typed("why").stdout.startswith("ok, ")


def test_without_a_noted_turn_it_says_whose_was_looked_for_and_when_there_will_be_one(typed):
    said = typed("why", "--agent", "coder").output
    assert "no recall is recorded for coder yet" in said
    assert "--agent NAME" in said


def test_a_doctor_without_complaint_ends_with_zero(typed, wire):
    found = typed("doctor")
    assert found.exit_code == 0, found.output
    assert [line.split()[1] for line in found.stdout.splitlines()] == [
        "switches:", "keys:", "outbox:", "last", "relayer:", "identity:", "accepted:", "clock:", "canary:", "default",
    ]  # fmt: skip
    assert "last turn: no turn was noted yet" in found.stdout
    assert [name for _, name in wire.memories] == ["default/memrelay-canary"]
    assert wire.texts("default/memrelay-canary") == []


def test_a_doctor_names_the_variable_or_the_file_that_the_keys_are_from(typed, monkeypatch, tmp_path):
    assert typed("doctor").stdout.splitlines()[1].endswith("; from MEMRELAY_SECRET")
    monkeypatch.setattr(gateway_secret, "_taken", {})
    file = tmp_path / "of-its-own"
    file.write_text(SECRET)
    file.chmod(0o600)
    monkeypatch.setenv("MEMRELAY_SECRET_FILE", str(file))
    monkeypatch.delenv("MEMRELAY_SECRET", raising=False)
    assert CliRunner().invoke(app, ["doctor"]).stdout.splitlines()[1].endswith(f"; from {file}")


@pytest.mark.parametrize(
    ("breakage", "check", "fix"),
    [
        (lambda wire, env: env.setenv("MEMRELAY_URL", "http://127.0.0.1:9"), "relayer", "memrelay serve"),
        (lambda wire, env: env.setenv("MEMRELAY_DISABLE", "1"), "switches", "unset"),
        (
            lambda wire, env: wire.script.extend([None, answer(401, "unauthorized")]),
            "accepted",
            "to the accounts that the relayer already serves",
        ),
        (lambda wire, env: setattr(wire, "clock_ahead", 600), "clock", "run date -u on both machines"),
    ],
)
def test_a_doctor_names_what_fails_and_the_fix(typed, wire, monkeypatch, breakage, check, fix):
    breakage(wire, monkeypatch)
    found = typed("doctor")
    assert found.exit_code == 1, found.output
    lines = found.stdout.splitlines()
    failing = next(number for number, line in enumerate(lines) if line.startswith("FAIL"))
    assert lines[failing].split()[1] == f"{check}:"
    assert fix in lines[failing + 1]


@pytest.mark.parametrize("options", [(), ("--canary",)])
def test_a_doctor_writes_no_canary_while_memory_is_switched_off(typed, wire, monkeypatch, options):
    monkeypatch.setenv("MEMRELAY_DISABLE", "1")
    assert "canary: not written: memory is switched off" in typed("doctor", *options).stdout
    assert not wire.memories


def test_a_relayer_that_needs_a_newer_gateway_names_both_versions(typed, wire):
    wire.min_client = "9.1.0"
    found = typed("doctor").stdout
    assert "it needs 9.1.0" in found
    assert "this gateway 0.1.0" in found
    assert "in a clone of memrelay 9.1.0 or newer" in found


def test_a_rollback_is_accepted_by_the_command_that_is_named(typed, wire, environ):
    from gateway_plugin.keys.identity import NamespaceRef
    from gateway_plugin.outbox.sender import Positions

    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        positions = Positions(plugin._inner._outbox)
        positions.saw(NamespaceRef("default", "default", 1), Position(seq=5, digest="0" * 64))
        positions.persist()
    assert typed("acknowledge").exit_code == 0
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        assert plugin.before_turn("How do I take my coffee?").status == "empty"


def test_a_running_gateway_follows_when_a_rollback_is_accepted(typed, wire, environ):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        wire.position = Position(seq=5, digest="0" * 64)
        assert plugin.before_turn("How do I take my coffee?").status == "empty"
        wire.position = None
        assert plugin.before_turn("Where do I drink coffee?").status == "refused:rollback_detected"
        assert typed("doctor", "--accept-rollback").exit_code == 0
        assert plugin.before_turn("Where do I drink coffee?").status == "empty"


@pytest.mark.row("AM-29", level="e2e")
@pytest.mark.parametrize("host", ["openclaw", "openclaw-active"])
def test_the_block_to_paste_is_a_configuration_that_is_accepted(typed, wire, host):
    from gateway_plugin.hosts.openclaw.config import core_config
    from gateway_plugin.settings.model import load_settings

    block = json.loads(typed("init", "--host", host).stdout)
    entry = block["plugins"]["entries"][block["plugins"]["slots"]["memory"]]
    settings = load_settings(core_config(entry["config"], {}), {})
    assert settings.url == wire.url
    assert entry["hooks"]["allowConversationAccess"]
    assert "secret" not in json.dumps(block).lower()


def test_one_memory_is_shown_with_its_text(typed):
    made = json.loads(typed("remember", COFFEE, "--json").stdout)["memories"][0]["id"]
    assert "oat milk" in typed("show", made).stdout
    start = time.monotonic()
    assert typed("show", "01kdvdna0000000000000000zz").exit_code == 1
    assert time.monotonic() - start < 10


# Memory switched off and on from the command line, while a gateway runs.
KEY = "agent:coder:main"
OTHER = "agent:coder:telegram:direct:7"


@pytest.fixture
def run(typed):
    def good(*arguments):
        done = typed(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    return good


def statuses(plugin, *keys):
    return [plugin.before_turn(QUESTION, session_key=key).status for key in keys]


def test_a_running_gateway_is_silent_until_memory_is_switched_on_again(run, plugin, wire):
    assert "for every session" in run("off")
    assert "off for every session: memrelay-gateway on" in run("status")
    seen = len(wire.seen)
    assert statuses(plugin, KEY, OTHER) == ["skipped:session_toggle"] * 2
    assert plugin.after_turn(TURN, session_key=KEY).status == "skipped:session_toggle"
    assert plugin.tool("memory_search", {"query": QUESTION}, session_key=KEY).failed
    assert len(wire.seen) == seen
    run("on")
    assert "memory            on" in run("status")
    assert statuses(plugin, KEY) == ["empty"]


def test_one_session_is_switched_alone(run, plugin):
    assert f"session {KEY} of agent coder" in run("off", "--session", KEY)
    assert statuses(plugin, KEY, OTHER) == ["skipped:session_toggle", "empty"]
    run("on", "--session", KEY)
    assert statuses(plugin, KEY) == ["empty"]


def test_the_kill_switch_is_named_where_switching_on_alone_does_not_help(run, monkeypatch):
    monkeypatch.setenv("MEMRELAY_DISABLE", "1")
    assert "MEMRELAY_DISABLE is also set" in run("on")
    assert "off: MEMRELAY_DISABLE is set" in run("status")


def _left_behind(wire, environ, secret=SECRET):
    """Capture a turn for a relayer that does not answer, and return the name of the outbox in which it waits."""
    before = set(Path(environ["HOME"]).rglob("outbox-*.db"))
    with MemoryPlugin("http://127.0.0.1:9", secret=secret, environ=environ) as plugin:
        plugin.after_turn(TURN)
    (file,) = set(Path(environ["HOME"]).rglob("outbox-*.db")) - before
    return file.name


def test_turns_that_wait_for_a_former_address_are_told_and_delivered_to_the_relayer(typed, wire, environ):
    name = _left_behind(wire, environ)
    found = typed("doctor")
    assert found.exit_code == 0, found.output
    assert (
        f"warn  other outboxes: turns wait for another relayer address or secret: 1 in {name}" in found.stdout
    )
    assert f"outbox deliver --file {name}" in found.stdout
    assert json.loads(typed("outbox", "status", "--json").stdout)["other_outboxes"] == {name: 1}
    assert "memrelay_gateway_outbox_other_waiting 1\n" in typed("outbox", "status", "--prometheus").stdout
    (row,) = json.loads(typed("outbox", "list", "--file", name, "--json").stdout)
    assert (row["agent"], row["state"]) == ("default", "waiting")
    done = typed("outbox", "deliver", "--file", name)
    assert done.exit_code == 0, done.output
    assert "1 delivered, 0 waiting" in done.stdout
    assert wire.texts("default") == [COFFEE]
    assert "other outboxes" not in typed("doctor").stdout


def test_turns_of_a_former_secret_are_delivered_with_it_or_destroyed(typed, wire, environ):
    name = _left_behind(wire, environ, secret="07" * 32)
    refused = typed("outbox", "deliver", "--file", name)
    assert refused.exit_code == 1
    assert "sealed with another secret, or damaged: 1 captured turns" in refused.output
    assert not wire.texts("default")
    assert "1 destroyed" in typed("outbox", "drop", "--all", "--waiting", "--file", name).stdout
    assert "other outboxes" not in typed("doctor").stdout


def test_what_cannot_be_delivered_now_waits_on_and_the_reason_is_told(typed, wire, environ, monkeypatch):
    name = _left_behind(wire, environ)
    monkeypatch.setenv("MEMRELAY_URL", "http://127.0.0.1:9")
    refused = typed("outbox", "deliver", "--file", name)
    assert refused.exit_code == 1
    assert "0 delivered, 1 waiting" in refused.stdout
    assert "no relayer answers at http://127.0.0.1:9" in refused.output


def test_an_outbox_that_does_not_exist_is_a_wrong_use(typed):
    assert typed("outbox", "list", "--file", "outbox-0.db").exit_code == 2


def test_a_doctor_tells_a_store_that_was_set_back(typed, wire, environ):
    with MemoryPlugin(wire.url, secret=SECRET, environ=environ) as plugin:
        wire.position = Position(seq=5, digest="0" * 64)
        assert plugin.before_turn(QUESTION).status == "empty"
    assert "ok    history: complete" in typed("doctor").stdout
    wire.position = None
    found = typed("doctor")
    assert found.exit_code == 1
    assert "FAIL  history: memories that this gateway has seen are missing" in found.stdout
    assert "doctor --accept-rollback --agent main" in found.stdout
    assert typed("doctor", "--accept-rollback", "--agent", "main").exit_code == 0
    assert typed("doctor").exit_code == 0


@pytest.fixture
def exported(typed, monkeypatch):
    """Types a command on a host that has only the keys of agent coder, which were exported for some days."""

    def on_another_host(days, *arguments):
        done = typed("keys", "export", "--agent", "coder", "--days", days)
        assert "valid until 20" in done.stderr
        monkeypatch.setattr(gateway_secret, "_taken", {})
        for line in done.stdout.splitlines():
            monkeypatch.setenv(*line.split("=", 1))
        return CliRunner().invoke(app, [*arguments, "--agent", "coder"])

    return on_another_host


def test_the_end_of_exported_keys_is_shown(exported):
    assert "valid until" in exported("30", "keys", "show").stdout


@pytest.mark.parametrize(("days", "word"), [("30", "ok  "), ("3", "warn")])
def test_a_doctor_warns_before_exported_keys_expire(exported, days, word):
    found = exported(days, "doctor")
    assert found.exit_code == 0, found.output
    (line,) = [line for line in found.stdout.splitlines() if " keys: " in line]
    assert line.startswith(word)
    assert "they expire on 20" in line


def test_a_canary_with_exported_keys_leaves_no_live_memory(exported, wire):
    found = exported("30", "doctor", "--canary")
    assert found.exit_code == 0, found.output
    assert wire.texts("coder/memrelay-canary") == []
