from __future__ import annotations

import json
import re
import time

import pytest
import typer.testing
from nacl.signing import SigningKey
from typer.testing import CliRunner
from wire_relayer import answer

from gateway_plugin.cli import app
from gateway_plugin.keys import gateway_secret
from gateway_plugin.keys.identity import mint
from relayer.wire import codec as base64url
from relayer.wire.sealing import RootKeys

SECRET = bytes.fromhex("11" * 32)


pytestmark = pytest.mark.usefixtures("at_a_terminal")


def run(*arguments, text=None):
    return CliRunner().invoke(app, arguments, input=text)


def test_a_text_may_come_from_standard_input(wire):
    assert run("remember", "-", text="from a pipe\n").exit_code == 0
    assert wire.texts("default") == ["from a pipe"]


def test_a_memory_cannot_speak_to_the_terminal():
    run("remember", "red \x1b[31malert\x07 [bold]markup[/bold] memory")
    shown = run("search", "alert memory").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[bold]markup[/bold]" in shown


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["The harbour opens at six."], "Nothing relevant among the one memory of coder."),
        (["The harbour opens at six.", "Bees sleep."], "Nothing relevant among the 2 memories of coder."),
    ],
)
def test_nothing_relevant_is_said_with_whose_memories_were_searched(texts, said):
    for text in texts:
        run("remember", text, "--agent", "coder")
    done = run("search", "volcano", "--agent", "coder")
    assert (done.exit_code, done.stdout) == (0, f"{said} --floor 0 shows the nearest ones.\n")


@pytest.mark.parametrize("command", [("search", "anything at all"), ("list",)])
def test_who_has_no_memories_is_named_and_how_to_look_at_somebody_elses(command):
    done = run(*command, "--agent", "coder")
    assert done.exit_code == 0
    assert (
        done.stdout
        == "coder has no memories. Another agent's: --agent NAME, see memrelay-gateway namespaces.\n"
    )


def test_a_search_also_finds_what_is_shared_with_the_agent():
    run("remember", "The harbour opens at six.", "--agent", "ops")
    run("share", "ops", "--with", "coder")
    shown = run("search", "harbour", "--agent", "coder")
    assert "The harbour opens at six." in shown.stdout
    assert "shared from ops" in shown.stdout
    (hit,) = json.loads(run("search", "harbour", "--agent", "coder", "--json").stdout)["memories"]
    assert hit["shared_from"] == "ops"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--as-of", "2020-05-01"), "Nothing was known to coder at that time.\n"),
        (("--tag", "boats"), "No memory of coder has these tags and this metadata.\n"),
    ],
)
def test_a_search_that_is_narrowed_to_nothing_does_not_call_the_memory_empty(options, said):
    assert run("search", "harbour", "--agent", "coder", *options).stdout == said


def test_a_filter_that_nothing_passes_is_not_an_empty_memory():
    assert run("list", "--kind", "event").stdout == "No memory of default is of this kind and state.\n"


def test_no_relayer_is_exit_code_3_and_names_the_command_that_starts_one():
    done = run("list", "--url", "http://127.0.0.1:9")
    assert done.exit_code == 3
    assert "memrelay serve" in done.stderr


def test_a_refusal_is_exit_code_1_with_its_reason(wire):
    wire.script = [answer(409, "wrong_namespace_key")]
    done = run("list")
    assert done.exit_code == 1
    assert "different secret" in done.stderr


def test_no_secret_is_created_while_memory_is_switched_off(monkeypatch, tmp_path):
    monkeypatch.delenv("MEMRELAY_SECRET")
    monkeypatch.setattr(gateway_secret, "_taken", {})
    monkeypatch.setenv("MEMRELAY_DISABLE", "1")
    done = run("list")
    assert done.exit_code == 2
    assert "unset MEMRELAY_DISABLE" in done.stderr
    assert not list(tmp_path.rglob("secret"))


@pytest.mark.parametrize("secret", ["abc", "zz" * 32])
def test_a_malformed_secret_is_exit_code_2_and_not_shown(monkeypatch, secret):
    monkeypatch.setenv("MEMRELAY_SECRET", secret)
    done = run("list")
    assert done.exit_code == 2
    assert "MEMRELAY_SECRET" in done.stderr
    assert secret not in done.stderr


def test_a_first_use_pins_and_only_trust_changes_it(wire):
    assert run("list").exit_code == 0
    wire.identity = SigningKey.generate()
    refused = run("list")
    assert refused.exit_code == 1
    assert f"memrelay-gateway trust {wire.url}" in refused.stderr
    assert wire.identity.verify_key.encode().hex() in run("trust", wire.url).stdout
    assert run("list").exit_code == 0


def test_trust_says_that_the_environment_names_another_identity(wire, monkeypatch):
    monkeypatch.setenv("MEMRELAY_RELAYER_IDENTITY", "ab" * 32)
    assert "unset it" in run("trust", wire.url).stderr
    monkeypatch.setenv("MEMRELAY_RELAYER_IDENTITY", wire.identity.verify_key.encode().hex())
    assert run("trust", wire.url).stderr == ""


def test_status_says_whether_the_gateway_is_accepted(wire):
    shown = run("status").stdout
    assert RootKeys(SECRET).account in shown
    assert wire.url in shown


def test_keys_show_works_without_a_relayer():
    done = run("keys", "show", "--url", "http://127.0.0.1:9")
    assert done.exit_code == 0
    assert RootKeys(SECRET).account in done.stdout
    assert SECRET.hex() not in done.stdout


def test_an_exported_agent_works_elsewhere_and_holds_no_more(monkeypatch):
    lines = dict(line.split("=", 1) for line in run("keys", "export", "--agent", "Researcher").stdout.split())
    monkeypatch.delenv("MEMRELAY_SECRET", raising=False)
    monkeypatch.setattr(gateway_secret, "_taken", {})
    for name, value in lines.items():
        monkeypatch.setenv(name, value)
    assert run("remember", "The deploy window is Tuesday").exit_code == 0
    assert json.loads(run("keys", "show", "--json").stdout)["agent"] == "researcher"
    assert run("list", "--agent", "coder").exit_code == 2
    assert run("keys", "recovery").exit_code == 2


def test_a_recovery_sheet_is_printed_and_verified(tmp_path):
    sheet = run("keys", "recovery").stdout
    path = tmp_path / "sheet.txt"
    path.write_text(sheet)
    good = run("keys", "recovery", "--verify", str(path))
    assert (good.exit_code, "in order" in good.stdout) == (0, True)
    slipped = run("keys", "recovery", "--verify", "-", text=re.sub(r"(?m)^1   \w+", "1   slip", sheet))
    assert (slipped.exit_code, "line 1" in slipped.stderr) == (1, True)
    assert run("keys", "recovery", "--verify", str(tmp_path / "none")).exit_code == 2


def test_a_sheet_of_another_gateway_is_told_apart(monkeypatch):
    sheet = run("keys", "recovery").stdout
    monkeypatch.setenv("MEMRELAY_SECRET", "22" * 32)
    done = run("keys", "recovery", "--verify", "-", text=sheet)
    assert (done.exit_code, "it is account" in done.stderr) == (1, True)


@pytest.mark.row("MW-24")
@pytest.mark.parametrize("whose", ["--agent", "--namespace"])
def test_a_search_by_agent_is_a_json_document_of_texts_ids_and_relevance(wire, whose):
    run("remember", "The deploy window is Tuesday", "--agent", "ops")
    run("remember", "The deploy window of another agent", "--agent", "coder")
    done = run("search", "deploy window", whose, "ops", "--limit", "5", "--json")
    (found,) = json.loads(done.stdout)["memories"]
    assert (found["text"], found["relevance"]) == ("The deploy window is Tuesday", 0.9)
    assert found["id"] in run("list", "--agent", "ops").stdout
    assert wire.bodies("/v1/recall")[-1]["limit"] == 5


def test_a_search_can_go_back_in_time_and_show_what_is_hidden(wire):
    assert (
        run("search", "deploy", "--include", "forgotten", "--as-of", "2026-05-01T10:00+02:00").exit_code == 0
    )
    body = wire.bodies("/v1/recall")[-1]
    assert (body["include"], body["as_of"]) == (["forgotten"], "2026-05-01T08:00:00.000Z")


@pytest.mark.parametrize(
    "arguments",
    [
        ("erase", "01kdvdna000000000000000008"),
        ("keys", "export", "--agent", "coder"),
        ("keys", "recovery"),
        ("keys", "revoke", "--agent", "coder"),
    ],
)
def test_what_takes_the_root_secret_says_so_where_one_agents_keys_are_held(monkeypatch, arguments):
    root = RootKeys(bytes.fromhex("11" * 32))
    certificate = mint(root, "coder", now=int(time.time()))
    monkeypatch.setattr(gateway_secret, "_taken", {})
    monkeypatch.delenv("MEMRELAY_SECRET", raising=False)
    monkeypatch.setenv("MEMRELAY_AGENT_SECRET", root.agent("coder").secret.hex())
    monkeypatch.setenv(
        "MEMRELAY_AGENT_CERTIFICATE", base64url.encode(certificate.issue(root.account_identity))
    )
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "needs the gateway's root secret; this host only has the keys of one agent" in refused.stderr
    assert "MEMRELAY_SECRET" in refused.stderr


# Odd input to ``memrelay-gateway`` ends in a sentence and an exit code, never in a traceback.
def _run(*arguments: str):
    return typer.testing.CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("forget", "\udcff"), 1),
        (("list", "--agent", "\udcff"), 2),
        (("remember", "\udcff"), 2),
        (("search", "\udcff"), 2),
    ],
    ids=["id", "agent", "text", "query"],
)
def test_bytes_that_are_no_text_are_refused(arguments, code):
    answer = _run(*arguments)
    assert answer.exit_code == code
    assert isinstance(answer.exception, SystemExit)


def test_standard_input_that_is_no_text_is_refused():
    answer = typer.testing.CliRunner().invoke(app, ["remember", "-"], input=b"tea \xff tea")
    assert answer.exit_code == 2
    assert isinstance(answer.exception, SystemExit)
