"""Taking keys back as a person does it: the command line, a relayer over HTTP, and a thief who has one agent's keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typed_commands import machine, run_gateway

from gateway_plugin import MemoryPlugin
from gateway_plugin.turn.gates import HostTurn

SAID = "The spare key of the boathouse hangs behind the third oar."
QUESTION = "Where does the spare key of the boathouse hang?"


class Home:
    """A machine with an environment of its own."""

    def __init__(self, place: Path, **environment: str) -> None:
        known = machine(place, "", "") | {"COLUMNS": "200"} | environment
        self.environment = {name: value for name, value in known.items() if value}

    def run(self, relayer: str, *arguments: str, code: int = 0) -> str:
        done = run_gateway(self.environment, *arguments, "--url", relayer)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def owner(tmp_path: Path, secret: str) -> Home:
    return Home(tmp_path / "owner", MEMRELAY_SECRET=secret)


@pytest.fixture
def exported(owner: Home, relayer: str) -> dict[str, str]:
    owner.run(relayer, "remember", SAID, "--agent", "researcher")
    done = run_gateway(owner.environment, "keys", "export", "--agent", "researcher", "--json")
    lines: dict[str, str] = json.loads(done.stdout)
    return lines


@pytest.fixture
def thief(tmp_path: Path, exported: dict[str, str]) -> Home:
    return Home(tmp_path / "thief", **exported)


@pytest.fixture
def relayer(shared_relayer: str) -> str:
    return shared_relayer


def test_a_revoked_agents_keys_open_nothing_any_more_and_the_others_go_on(
    relayer: str, owner: Home, thief: Home
) -> None:
    assert SAID in thief.run(relayer, "list")
    assert "do it: --yes" in owner.run(relayer, "keys", "revoke", "--agent", "researcher")
    assert SAID in thief.run(relayer, "list")
    assert "taken back at" in owner.run(relayer, "keys", "revoke", "--agent", "researcher", "--yes")
    refused = thief.run(relayer, "list", code=1)
    assert "keys revoked" in refused
    owner.run(relayer, "remember", "Another agent goes on.", "--agent", "coder")
    owner.run(relayer, "keys", "revoke", "--agent", "coder", "--yes")
    assert owner.run(relayer, "keys", "revoked").endswith(f"2 taken back at {relayer}\n")
    thief.run(relayer, "list", code=1)


def test_one_certificate_can_be_taken_back_alone(
    relayer: str, owner: Home, thief: Home, exported: dict[str, str]
) -> None:
    certificate = exported["MEMRELAY_AGENT_CERTIFICATE"]
    owner.run(relayer, "keys", "revoke", "--certificate", certificate, "--yes")
    thief.run(relayer, "list", code=1)
    assert SAID in owner.run(relayer, "list", "--agent", "researcher")


def test_a_thief_takes_back_nothing(relayer: str, thief: Home) -> None:
    assert "root secret" in thief.run(relayer, "keys", "revoke", "--agent", "researcher", "--yes", code=2)


def test_a_rotation_keeps_the_memories_and_shuts_the_old_keys_out(
    relayer: str, owner: Home, thief: Home
) -> None:
    assert "would happen" in owner.run(relayer, "keys", "rotate", "--agent", "researcher", "--to", "r-2")
    rotate = ("keys", "rotate", "--agent", "researcher", "--to", "r-2", "--yes")
    shown = owner.run(relayer, *rotate)
    assert "copied: researcher to r-2, 1 of 1 live memories" in shown
    assert '"renamed": {"researcher": "r-2"}' in shown
    thief.run(relayer, "list", code=1)
    owner.run(relayer, *rotate)
    assert "1 of 1 memories" in owner.run(relayer, "list", "--agent", "r-2")
    settings = {"url": relayer, "namespace": {"renamed": {"researcher": "r-2"}}}
    with MemoryPlugin(
        settings=settings, secret=owner.environment["MEMRELAY_SECRET"], environ=dict(owner.environment)
    ) as gateway:
        assert SAID in gateway.before_turn(QUESTION, session_key="agent:researcher:s", deadline=20).text
    assert "erased" in owner.run(relayer, "erase", "--namespace", "--agent", "researcher")
    erased = owner.run(relayer, "erase", "--namespace", "--agent", "researcher", "--yes")
    assert "namespace researcher" in erased
    assert "namespace researcher" in owner.run(
        relayer, "erasure", erased.split()[-3], "--agent", "researcher"
    )
    assert SAID in owner.run(relayer, "list", "--agent", "r-2")


def test_every_namespace_of_an_agent_is_moved_and_can_be_named(
    relayer: str, owner: Home, thief: Home
) -> None:
    owner.run(relayer, "remember", "Ana likes the morning train.", "--agent", "researcher/Sender Ana")
    owner.run(relayer, "canary", "--agent", "researcher")
    shown = owner.run(relayer, "keys", "rotate", "--agent", "researcher", "--to", "r-2", "--yes")
    assert shown.count("copied: ") == 2
    below = next(word for word in shown.split() if word.startswith("r-2/"))
    assert "morning train" in owner.run(relayer, "list", "--agent", below.strip(","))
    assert f"--agent {below.strip(',').replace('r-2', 'researcher')} --yes" in shown
    assert "morning train" not in owner.run(relayer, "list", "--agent", "r-2")


def test_turns_that_waited_under_the_old_keys_arrive_under_the_new_ones(
    relayer: str, owner: Home, thief: Home
) -> None:
    owner.run(relayer, "keys", "revoke", "--agent", "researcher", "--yes")
    environment = dict(owner.environment)
    with MemoryPlugin(relayer, secret=owner.environment["MEMRELAY_SECRET"], environ=environment) as gateway:
        later = [{"role": "user", "content": "The third oar was moved to the shed on Friday."}]
        assert gateway.after_turn(later, session_key="agent:researcher:s").status == "queued"
        assert not gateway.flush(5)
    owner.run(relayer, "keys", "rotate", "--agent", "researcher", "--to", "r-2", "--yes")
    settings = {"url": relayer, "namespace": {"renamed": {"researcher": "r-2"}}}
    with MemoryPlugin(
        settings=settings, secret=owner.environment["MEMRELAY_SECRET"], environ=environment
    ) as gateway:
        gateway.after_turn([])
        assert gateway.flush(20)
    assert "third oar was moved" in owner.run(relayer, "list", "--agent", "r-2")


def test_a_rotation_to_keys_that_were_taken_back_is_refused(relayer: str, owner: Home) -> None:
    owner.run(relayer, "keys", "revoke", "--agent", "old", "--yes")
    assert "--to" in owner.run(relayer, "keys", "rotate", "--agent", "researcher", "--to", "old", code=1)
    assert "another name" in owner.run(
        relayer, "keys", "rotate", "--agent", "Old", "--to", "old", "--yes", code=2
    )
    for arguments in (("keys", "revoke"), ("keys", "revoke", "--certificate", "nonsense")):
        owner.run(relayer, *arguments, code=2)


def test_the_default_agent_is_rotated_by_its_own_name(relayer: str, secret: str, owner: Home) -> None:
    owner.run(relayer, "remember", SAID, "--agent", "main/sender-ana")
    assert "default agent's name" in owner.run(
        relayer, "keys", "rotate", "--agent", "coder", "--to", "main", "--yes", code=2
    )
    shown = owner.run(relayer, "keys", "rotate", "--agent", "main", "--to", "main-2", "--yes")
    assert "copied: default/sender-ana to main-2/sender-ana, 1 of 1 live memories" in shown
    assert '{"namespace": {"renamed": {"default": "main-2"}}}' in shown
    assert "erase --namespace --agent main/sender-ana --yes" in shown
    renamed = {"renamed": {"default": "main-2"}, "scope": "agent+sender"}
    settings = {"url": relayer, "namespace": renamed}
    with MemoryPlugin(settings=settings, secret=secret, environ=dict(owner.environment)) as gateway:
        ana = HostTurn(sender="ana")
        assert SAID in gateway.before_turn(QUESTION, session_key="agent:main:s", host=ana, deadline=20).text
        told = gateway.before_turn(QUESTION, session_key="agent:main-2:s", host=ana, deadline=20)
        assert (told.text, "namespace.renamed" in told.detail) == ("", True)


@pytest.mark.parametrize("command", [("revoke",), ("rotate", "--to", "r-2")], ids=["revoke", "rotate"])
def test_that_others_may_go_on_writing_to_the_namespaces_is_said_with_the_command_that_ends_it(
    relayer: str, owner: Home, thief: Home, command: tuple[str, ...]
) -> None:
    run = ("keys", *command, "--agent", "researcher")
    assert "unshare" not in owner.run(relayer, *run)
    for name, more in (("coder", ["--write"]), ("reader", [])):
        done = run_gateway(owner.environment, "share", "researcher", "--with", name, *more)
        assert done.returncode == 0, done.stderr
    for more in ((), ("--yes",)):
        said = owner.run(relayer, *run, *more)
        assert "memrelay-gateway unshare researcher --with coder" in said
        assert "reader" not in said
    told = json.loads(owner.run(relayer, *run, "--json"))
    assert told["shared_for_writing"] == [{"namespace": "researcher", "agent": "coder"}]
