"""No two agents meet by a name: the default agent, one that is called like its namespace, and whoever types a command.

The host is OpenClaw's bridge, a process of its own; commands are processes, too. Every gateway here has an account of its own
at one relayer.
"""

from __future__ import annotations

import copy
import json
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridge_process import BridgeProcess
from processes import CLEAN, wait_until

from demo.relayer_process import RelayerProcess
from gateway_plugin import MemoryPlugin

MAINS = "The spare key of my boathouse hangs behind the third oar."
OTHERS = "The archive of the rowing club is kept in the yellow cabinet."
MAINS_QUESTION = "Where does the spare key of my boathouse hang?"
OTHERS_QUESTION = "Where is the archive of the rowing club kept?"
PATIENCE = 20.0


class Gateway:
    """A machine with a host, its configuration of the plugin, and a person at a terminal."""

    def __init__(self, place: Path, relayer: RelayerProcess, **config: Any) -> None:
        place.mkdir()
        self.place = place
        self._bridge: BridgeProcess | None = None
        self._profiles: list[Gateway] = []
        self.config = {"url": relayer.url, "recall": {"deadlineMs": 20_000}, **config}
        self.environment = CLEAN | {
            "HOME": str(place),
            "COLUMNS": "200",
            "XDG_CONFIG_HOME": str(place / "config"),
            "MEMRELAY_URL": relayer.url,
            "MEMRELAY_SECRET": secrets.token_hex(32),
        }

    def profile(self, name: str, **config: Any) -> Gateway:
        """Return the host of another profile of the same home: the same secret and relayer, a configuration of its own."""
        other = copy.copy(self)
        other._profiles = []
        other._bridge = None
        self._profiles.append(other)
        other.config = self.config | config
        other.environment = self.environment | {"OPENCLAW_PROFILE": name}
        return other

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run ``openclaw memrelay ...``, which is ``memrelay-gateway ...`` with the settings of the host's plugin."""
        command = [sys.executable, "-m", "gateway_plugin", "openclaw", "run", "--", *arguments]
        environment = self.environment | {"MEMRELAY_OPENCLAW_CONFIG": json.dumps(self.config)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def home(self) -> str:
        """The namespace of the default agent."""
        return "default/namespace-research" if "defaultNamespace" in self.config else "default"

    @property
    def bridge(self) -> BridgeProcess:
        if self._bridge is None:
            self._bridge = BridgeProcess(self.place, self.config, self.environment)
            self._bridge.initialize()
        return self._bridge

    def ends(self) -> None:
        """End the host, so that the next turn is asked of one that remembers nothing."""
        for profile in self._profiles:
            profile.ends()
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.close()
            bridge.__exit__()

    def hears(self, session: str, said: str) -> None:
        """Have the host say something to an agent, and wait until the relayer has it."""
        turn = [
            {"role": "user", "content": said},
            {"role": "assistant", "content": "I will keep it in mind."},
        ]
        context = {"sessionKey": session, "trigger": "user", "runId": secrets.token_hex(4)}
        delivered = self.bridge.call("status")["delivered"]
        report = self.bridge.call("turn.after", messages=turn, historyLength=2, success=True, context=context)
        assert report["status"] == "queued"
        wait_until(lambda: self.bridge.call("status")["delivered"] == delivered + 1)

    def recalls(self, session: str, question: str) -> str:
        """Return what the host's agent is told of a question: what enters the prompt, and what a tool answers."""
        context = {"sessionKey": session, "trigger": "user", "runId": secrets.token_hex(4)}
        turn = self.bridge.call("turn.before", prompt=question, messages=[], historyLength=0, context=context)
        assert turn["status"] in {"ok", "empty"}, turn
        found = self.bridge.call(
            "tool.call", name="memory_search", arguments={"query": question}, context=context
        )
        return json.dumps(turn["result"]) + found["text"]


@pytest.fixture
def gateway(relayer: RelayerProcess, tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    made: list[Gateway] = []

    def make(**config: Any) -> Gateway:
        made.append(Gateway(tmp_path / str(len(made)), relayer, **config))
        return made[-1]

    yield make
    for one in made:
        one.ends()


CLASHES = [({}, "default"), ({"defaultNamespace": "research"}, "research"), ({"defaultNamespace": "research"}, "default")]  # fmt: skip


@pytest.mark.row("MW-05")
@pytest.mark.parametrize(("config", "name"), CLASHES)
def test_an_agent_called_like_the_default_namespace_is_another_than_the_default_agent(gateway, config, name):
    host = gateway(**config)
    host.hears("agent:main:main", MAINS)
    host.hears(f"agent:{name}:main", OTHERS)
    assert MAINS in host.recalls("agent:main:main", MAINS_QUESTION)
    assert OTHERS in host.recalls(f"agent:{name}:main", OTHERS_QUESTION)
    assert OTHERS not in host.recalls("agent:main:main", OTHERS_QUESTION)
    assert MAINS not in host.recalls(f"agent:{name}:main", MAINS_QUESTION)


@pytest.mark.parametrize(("config", "name"), CLASHES)
def test_what_a_person_does_for_one_of_them_does_nothing_to_the_other(gateway, config, name):
    host = gateway(**config)
    host.hears("agent:main:main", MAINS)
    host.hears(f"agent:{name}:main", OTHERS)
    for agent, own, foreign in (("main", MAINS, OTHERS), (name, OTHERS, MAINS)):
        listed = host.run("list", "--agent", agent)
        assert own in listed
        assert foreign not in listed
    assert "destroyed: namespace" in host.run("erase", "--namespace", "--agent", name, "--yes")
    assert MAINS in host.run("list")
    assert OTHERS not in host.run("list", "--agent", name)


@pytest.mark.parametrize("config", [{}, {"defaultNamespace": "research"}])
def test_the_default_agent_of_a_command_is_the_host_s(gateway, config):
    host = gateway(**config)
    host.run("remember", MAINS, "--agent", "main")
    assert MAINS in host.recalls("agent:main:main", MAINS_QUESTION)
    assert MAINS in host.recalls("main:one", MAINS_QUESTION)
    host.hears("agent:Main:telegram:direct:7", OTHERS)
    assert OTHERS in host.run("list", "--agent", "MAIN")
    assert OTHERS in host.run("list")
    host.run("erase", "--namespace", "--agent", "main", "--yes")
    host.ends()
    assert OTHERS not in host.recalls("agent:main:main", OTHERS_QUESTION)
    assert MAINS not in host.recalls("agent:main:main", MAINS_QUESTION)


def test_a_program_that_names_its_agent_meets_no_other_agent_of_the_host(gateway):
    host = gateway()
    options = {"secret": host.environment["MEMRELAY_SECRET"], "environ": dict(host.environment)}
    with MemoryPlugin(settings=host.config, agent="default", **options) as memory:
        memory.after_turn([{"role": "user", "content": OTHERS}])
        assert memory.flush(PATIENCE)
        assert memory.before_turn(OTHERS_QUESTION, deadline=PATIENCE).status == "ok"
        told = memory.before_turn(OTHERS_QUESTION, session_key="agent:main:main", deadline=PATIENCE)
        assert (told.status, told.text) == ("empty", "")
    assert OTHERS in host.recalls("agent:default:main", OTHERS_QUESTION)
    assert OTHERS not in host.recalls("agent:main:main", OTHERS_QUESTION)


@pytest.mark.parametrize(
    ("before", "after"), [({}, "research"), ({"defaultNamespace": "research"}, "default")]
)
def test_another_default_namespace_later_makes_nobody_meet(gateway, before, after):
    host = gateway(**before)
    host.hears("agent:main:main", MAINS)
    host.hears("agent:research:main", OTHERS)
    host.config["defaultNamespace"] = after
    host.ends()
    assert OTHERS not in host.recalls("agent:main:main", OTHERS_QUESTION)
    assert MAINS not in host.recalls("agent:research:main", MAINS_QUESTION)
    assert OTHERS in host.recalls("agent:research:main", OTHERS_QUESTION)


@pytest.mark.row("MW-05")
@pytest.mark.parametrize(("agent", "config"), [("coder", {}), ("main", {"defaultNamespace": "research"})])
def test_a_profile_of_the_host_hears_nothing_of_another_profile(gateway, agent, config):
    usual, session = gateway(**config), f"agent:{agent}:main"
    usual.hears(session, MAINS)
    usual.ends()
    dev = usual.profile("dev")
    assert MAINS not in dev.recalls(session, MAINS_QUESTION)
    dev.hears(session, OTHERS)
    assert OTHERS in dev.recalls(session, OTHERS_QUESTION)
    dev.ends()
    assert OTHERS not in usual.recalls(session, OTHERS_QUESTION)
    assert MAINS in usual.recalls(session, MAINS_QUESTION)
    # A command of the host finds what the host's own profile keeps.
    for host, own, foreign in ((usual, MAINS, OTHERS), (dev, OTHERS, MAINS)):
        listed = host.run("list", "--agent", agent)
        assert own in listed
        assert foreign not in listed


def test_the_profile_called_default_is_the_host_without_one(gateway):
    usual = gateway()
    usual.hears("agent:main:main", MAINS)
    usual.ends()
    same = usual.profile("Default")
    assert MAINS in same.recalls("agent:main:main", MAINS_QUESTION)
    same.ends()


@pytest.mark.parametrize("spelled", [{"namespace.legacy": True}, {"namespace": {"profile": "default"}}])
def test_a_profile_reads_what_it_shared_with_the_others_where_it_is_told_to(gateway, spelled):
    usual = gateway()
    usual.hears("agent:main:main", MAINS)
    usual.ends()
    dev = usual.profile("dev", **spelled)
    assert MAINS in dev.recalls("agent:main:main", MAINS_QUESTION)
    dev.hears("agent:main:main", OTHERS)
    dev.ends()
    shares = "profile" in spelled.get("namespace", {})
    assert (OTHERS in usual.recalls("agent:main:main", OTHERS_QUESTION)) is shares


def test_doctor_tells_where_the_memories_of_the_default_agent_are(gateway):
    host = gateway()
    host.run("remember", MAINS)
    assert MAINS in host.recalls("agent:main:main", MAINS_QUESTION)
    assert "ok    default agent: main's memories are in namespace default\n" in host.run("doctor")


def test_what_a_chat_asks_of_memory_is_answered_of_its_own_session(gateway):
    host = gateway(namespace={"scope": "agent+sender"})
    mine = {"sessionKey": "agent:main:main", "senderId": "ana", "trigger": "user", "runId": "r1"}
    turn = [{"role": "user", "content": MAINS}]
    host.bridge.call("turn.after", messages=turn, historyLength=1, success=True, context=mine)
    wait_until(lambda: host.bridge.call("status")["delivered"] == 1)
    asked = mine | {"runId": "r2"}
    host.bridge.call("turn.before", prompt=MAINS_QUESTION, messages=[], historyLength=0, context=asked)
    own = host.bridge.call("command", args="why", context=mine)["text"]
    assert "last turn: ok" in own
    assert "injected" in own
    for foreign in (
        {"sessionKey": "agent:research:telegram:group:-100", "senderId": "ana"},
        {"sessionKey": "agent:main:telegram:group:-100", "senderId": "ana"},
        {"sessionKey": "agent:main:main", "senderId": "bob"},
        {"agentId": "main", "senderId": "ana"},
    ):
        said = host.bridge.call("command", args="why", context=foreign)["text"]
        assert said == "No turn of this session was looked at yet."
        assert "last recall: none yet" in host.bridge.call("command", args="status", context=foreign)["text"]
    assert host.bridge.call("command", args="why", context=mine)["text"] == own
