"""What the bridge makes of the events of a host's session: one capture, whichever event tells of a turn, and ends that are told."""

from __future__ import annotations

import json

import pytest
from bridge_process import BridgeProcess
from openclaw_sessions import write_sessions
from processes import wait_until

from demo.relayer_process import RelayerProcess

CONTEXT = {
    "sessionKey": "agent:main:openai-user:one", "agentId": "main", "trigger": "user",
    "channel": "webchat", "channelId": "webchat",
}  # fmt: skip
FACT = "Our dinghy lies at berth seven of the old harbour."
ANSWER = "I will keep in mind that your dinghy lies at berth seven."
TURN = [{"role": "user", "content": FACT}, {"role": "assistant", "content": ANSWER}]


class Gateway(BridgeProcess):
    """A bridge that is told of turns as OpenClaw tells of them."""

    def begins(self, run="r1", prompt=FACT):
        context = CONTEXT | {"runId": run}
        return self.call("turn.before", prompt=prompt, messages=[], historyLength=0, context=context)

    def answers(self, *texts, run="r1"):
        return self.call("turn.heard", assistantTexts=list(texts), context=CONTEXT | {"runId": run})["status"]

    def ends(self, run="r1"):
        return self.call(
            "turn.after", messages=TURN, historyLength=len(TURN), context=CONTEXT | {"runId": run}
        )["status"]

    def session(self, event, **more):
        return self.call("session.event", event=event, context=CONTEXT, **more)

    def has_delivered(self, turns):
        # A turn leaves the outbox a moment before it is counted.
        def settled():
            status = self.call("status")
            return status["waiting"] == 0 and status["delivered"] >= turns

        wait_until(settled)
        return self.call("status")["delivered"] == turns


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A relayer for all tests: each has a gateway of its own, and so an account."""
    with RelayerProcess(tmp_path_factory.mktemp("relayer"), arguments=("--accounts", "open")) as relayer:
        yield relayer.url


@pytest.fixture
def gateway(url, tmp_path):
    """Starts bridges over one relayer, with settings of the test's choice."""
    started = []

    def start(**config):
        settings = {"url": url, "recall": {"deadlineMs": 20_000}, **config}
        started.append(Gateway(tmp_path, settings))
        started[-1].initialize()
        return started[-1]

    yield start
    for bridge in started:
        bridge.__exit__()


def settling(seconds):
    return {"strategy": "debounce", "debounceMs": int(seconds * 1000)}


@pytest.mark.row("MS-04", level="e2e")
def test_where_a_host_needs_it_a_turn_is_captured_when_its_output_has_settled(gateway):
    bridge = gateway(capture=settling(0.1))
    bridge.begins()
    assert bridge.answers(ANSWER) == "settling"
    wait_until(lambda: bridge.call("status")["delivered"] == 1)


@pytest.mark.row("MS-04", level="e2e")
def test_the_next_question_captures_what_has_not_settled_yet(gateway):
    bridge = gateway(capture=settling(600))
    bridge.begins()
    bridge.answers(ANSWER)
    bridge.begins(run="r2", prompt="And where is the oar of our dinghy kept?")
    assert bridge.has_delivered(1)


@pytest.mark.row("MS-05", level="e2e")
def test_a_run_whose_end_comes_before_its_output_settled_is_captured_once(gateway):
    bridge = gateway(capture=settling(0.1))
    bridge.begins()
    bridge.answers(ANSWER)
    assert bridge.ends() == "queued"
    # The output of a run that has ended tells nothing new.
    assert bridge.answers(ANSWER) == "ignored"
    assert bridge.has_delivered(1)


@pytest.mark.row("MS-05", level="e2e")
def test_a_run_whose_end_comes_after_its_output_settled_is_captured_once(gateway):
    bridge = gateway(capture=settling(0.05))
    bridge.begins()
    bridge.answers(ANSWER)
    wait_until(lambda: bridge.call("status")["delivered"] == 1)
    assert bridge.ends() == "empty"
    assert bridge.has_delivered(1)


@pytest.mark.row("MS-05", level="e2e")
def test_a_one_shot_gateway_that_ends_at_once_has_its_turn_kept(gateway):
    bridge = gateway(capture=settling(600))
    bridge.begins()
    bridge.answers(ANSWER)
    assert bridge.close() == 0
    again = gateway()
    found = again.call(
        "tool.call",
        name="memory_search",
        arguments={"query": "At which berth lies the dinghy?"},
        context=CONTEXT,
    )
    assert FACT in found["text"]


def test_output_is_left_alone_where_the_end_of_a_run_captures_it(gateway):
    bridge = gateway()
    bridge.begins()
    assert bridge.answers(ANSWER) == "ignored"


@pytest.mark.row("MS-06", level="e2e")
def test_a_session_that_begins_delivers_what_an_earlier_process_left_and_opens_its_namespace(
    gateway, tmp_path
):
    with RelayerProcess(tmp_path / "coming-and-going", arguments=("--accounts", "open")) as relayer:
        relayer.stop()
        away = gateway(url=relayer.url)
        away.begins()
        assert away.ends() == "queued"
        assert away.session("session_start")["status"] == "unavailable"
        assert away.call("status")["waiting"] == 1
        away.process.kill()
        away.process.wait(30)
        relayer.start()
        bridge = gateway(url=relayer.url)
        assert bridge.session("session_start")["status"] == "ok"
        assert bridge.has_delivered(1)
        arguments = {"query": "At which berth lies our dinghy?"}
        found = bridge.call("tool.call", name="memory_search", arguments=arguments, context=CONTEXT)
    assert FACT in found["text"]


@pytest.mark.parametrize(
    ("context", "status"),
    [
        ({"sessionKey": "cron:nightly", "trigger": "cron"}, "skipped:trigger"),
        ({"sessionKey": "agent:main:subagent:1"}, "skipped:run_kind"),
    ],
)
def test_a_session_that_does_not_recall_is_not_warmed(gateway, context, status):
    bridge = gateway()
    answer = bridge.call("session.event", event="session_start", context={"agentId": "main"} | context)
    assert answer["status"].startswith("skipped:")
    assert status.partition(":")[0] in answer["status"]


@pytest.mark.row("MW-35", level="e2e")
@pytest.mark.parametrize(
    ("event", "reason", "told"),
    [
        ("session_end", "new", True),
        ("session_end", "idle", True),
        ("session_end", "shutdown", False),
        ("session_end", "compaction", False),
        ("before_reset", None, True),
        ("before_compaction", None, False),
    ],
)
def test_the_end_of_a_conversation_is_told_to_the_relayer_and_a_pause_of_it_is_not(
    gateway, event, reason, told
):
    bridge = gateway()
    bridge.begins()
    bridge.ends()
    assert bridge.session(event, **({"reason": reason} if reason else {}))["ended"] is told


@pytest.mark.row("MW-09", level="e2e")
def test_memories_and_the_namespace_instruction_stand_apart(gateway):
    bridge = gateway(preset="memwal")
    bridge.begins()
    bridge.ends()
    assert bridge.has_delivered(1)
    result = bridge.begins(run="r2", prompt="At which berth of the harbour does our dinghy lie?")["result"]
    assert FACT in result["prependContext"]
    assert 'pass namespace="default"' in result["appendSystemContext"]
    assert FACT not in result["appendSystemContext"]


@pytest.mark.row("MS-11", level="e2e")
def test_the_model_reads_the_dialogue_of_a_session_of_its_own_agent_alone(gateway, tmp_path):
    write_sessions(tmp_path / ".openclaw")
    bridge = gateway()

    def asked(context):
        arguments = {"transcript_path": "agent:main:openai-user:one"}
        return bridge.call("tool.call", name="memory_transcript", arguments=arguments, context=context)[
            "text"
        ]

    assert "[Assistant]: Berth seven." in asked(CONTEXT)
    for other in ("agent:research:main", "agent:main:telegram:group:-1"):
        refused = asked({"sessionKey": other, "agentId": other.split(":")[1]})
        assert "Berth" not in refused
        assert refused.startswith("Memory error: ")


@pytest.mark.row("MS-10", "MS-12", level="e2e")
def test_a_memory_names_the_session_and_time_at_which_its_dialogue_is_read(gateway):
    bridge = gateway()
    bridge.begins()
    bridge.ends()
    assert bridge.has_delivered(1)

    def tool(name, **arguments):
        return bridge.call("tool.call", name=name, arguments=arguments, context=CONTEXT)

    found = tool("memory_search", query="At which berth lies the dinghy?")["details"]["memories"][0]["id"]
    assert f"Said in: {CONTEXT['sessionKey']} at 20" in tool("memory_get", ref=found)["text"]


@pytest.mark.row("MW-34", level="e2e")
def test_what_a_tool_told_the_model_is_not_captured_when_the_model_repeats_it(gateway):
    bridge = gateway()
    bridge.begins()
    bridge.ends()
    assert bridge.has_delivered(1)
    question = "Please look up where my dinghy lies, and my name is Olga."
    bridge.begins(run="r2", prompt=question)
    search = {"query": "At which berth lies the dinghy?"}
    told = bridge.call("tool.call", name="memory_search", arguments=search, context=CONTEXT)["text"]
    new = [{"role": "user", "content": question}, {"role": "assistant", "content": f"Here it is:\n{told}"}]
    report = bridge.call(
        "turn.after", messages=TURN + new, historyLength=4, context=CONTEXT | {"runId": "r2"}
    )
    assert (report["status"], report["queued"]) == ("queued", 1), json.dumps(report)


def test_what_always_stands_there_is_in_the_system_prompt_with_the_same_bytes(gateway):
    bridge = gateway()
    told = [
        {"role": "user", "content": "I am severely allergic to peanuts and cashews."},
        {"role": "assistant", "content": "Noted."},
    ]
    bridge.call("turn.after", messages=told, historyLength=2, context=CONTEXT | {"runId": "r1"})
    wait_until(lambda: bridge.has_delivered(1))

    def system(prompt, **whose):
        context = CONTEXT | {"sessionKey": "agent:main:openai-user:two", "runId": prompt} | whose
        asked = bridge.call("turn.before", prompt=prompt, messages=[], historyLength=0, context=context)
        return (asked["result"] or {}).get("appendSystemContext", "")

    first = system("Plan a dinner for six, please.")
    assert "- I am severely allergic to peanuts and cashews.\n" in first
    assert system("Which wine goes with fish?") == first
    assert not system("Plan a dinner for six, please.", chatType="group")
    # A one-shot command comes through no channel: nobody waits there.
    assert not system("Plan a dinner for six, please.", channel=None, channelId=None)
