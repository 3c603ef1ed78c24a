"""`capture.storeTranscript`, from the host's events through a real relayer to the model's tool, and to nobody else."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from bridge_process import BridgeProcess
from openclaw_sessions import write_sessions
from processes import wait_until

from demo.relayer_process import RelayerProcess
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import RootHolder
from relayer.wire.schemas import AnalyzeRequest, TurnItem
from relayer.wire.sealing import RootKeys

pytestmark = pytest.mark.row("MS-11", level="e2e")

SESSION = "agent:main:openai-user:one"
CONTEXT = {"sessionKey": SESSION, "agentId": "main", "trigger": "user"}
FACT = "Our dinghy lies at berth seven of the old harbour, and its key is AKIAIOSFODNN7EXAMPLE."
ANSWER = "I wonder whether heliotropes grow beside the old harbour?"
TURN = [
    {"role": "user", "content": [FACT]},
    {"role": "assistant", "content": [{"type": "toolCall", "name": "look_at_the_map"}]},
    {"role": "assistant", "content": [ANSWER]},
]


@pytest.fixture
def relayer(tmp_path):
    with RelayerProcess(tmp_path / "relayer", arguments=("--accounts", "open")) as running:
        yield running


@pytest.fixture
def gateway(relayer, tmp_path):
    """Starts gateways that hold one secret, each with a folder of its own, so that their hosts know nothing of each other."""
    stack, folders = ExitStack(), count()

    def start(secret="7c" * 32, *, store=True, **capture):
        folder = tmp_path / f"gateway-{next(folders)}"
        folder.mkdir()
        config = {"url": relayer.url, "recall": {"deadlineMs": 20_000}}
        if store or capture:
            config["capture"] = {"storeTranscript": store, **capture}
        bridge = stack.enter_context(BridgeProcess(folder, config, {"MEMRELAY_SECRET": secret}))
        bridge.initialize()
        return bridge, folder

    with stack:
        yield start


def said(bridge, messages=TURN, run="r1", **context):
    context = CONTEXT | {"runId": run} | context
    bridge.call("turn.before", prompt=FACT, messages=[], historyLength=0, context=context)
    report = bridge.call("turn.after", messages=messages, historyLength=len(messages), context=context)
    wait_until(lambda: bridge.call("status")["waiting"] == 0)
    return report


def dialogue(bridge, path=SESSION, **context):
    answer = bridge.call(
        "tool.call", name="memory_transcript", arguments={"transcript_path": path}, context=CONTEXT | context
    )
    return answer["text"]


def test_the_dialogue_is_shown_when_the_hosts_file_is_gone_and_on_another_gateway(gateway):
    here, folder = gateway()
    write_sessions(folder / ".openclaw")
    said(here)
    assert "[Assistant]: Berth seven." in dialogue(here)
    shutil.rmtree(folder / ".openclaw")
    elsewhere, _ = gateway(store=False)
    for bridge in (here, elsewhere):
        heading, first, call, last = dialogue(bridge).split("\n")
        assert "Kept by the relayer" in heading
        assert first.startswith("[User]: Our dinghy lies at berth seven")
        assert call == "[Assistant]: (called look_at_the_map)"
        assert last == f"[Assistant]: {ANSWER}"


def test_nothing_is_kept_where_it_is_off_or_memory_is(gateway):
    bridge, _ = gateway(store=False)
    said(bridge)
    assert dialogue(bridge).startswith("Memory error: path: ")
    off, _ = gateway(enabled=False)
    report = off.call("turn.after", messages=TURN, historyLength=len(TURN), context=CONTEXT | {"runId": "r2"})
    assert report["status"].startswith("skipped:")
    assert dialogue(bridge).startswith("Memory error: path: ")


def test_another_agent_another_account_and_a_group_see_nothing(gateway):
    bridge, _ = gateway()
    said(bridge)
    stranger, _ = gateway("7d" * 32)
    assert "berth" not in dialogue(stranger)
    other = {"sessionKey": "agent:research:main", "agentId": "research"}
    assert "berth" not in dialogue(bridge, **other)
    assert "berth" not in dialogue(bridge, sessionKey="agent:main:telegram:group:-1")


def test_it_is_not_found_by_a_search(gateway):
    bridge, _ = gateway()
    said(bridge)
    found = bridge.call("tool.call", name="memory_search", context=CONTEXT | {"sessionKey": "agent:main:two"},
                        arguments={"query": "Do heliotropes grow beside the harbour?", "minScore": 0})  # fmt: skip
    texts = [memory["text"] for memory in found["details"]["memories"]]
    assert texts
    assert not any("look_at_the_map" in text for text in texts)
    assert len(texts) == len(set(texts)) <= 2


def test_secrets_reach_no_transcript(gateway):
    bridge, _ = gateway()
    said(bridge)
    assert "AKIA" not in dialogue(bridge)
    assert "berth seven" in dialogue(bridge)


def client_of(relayer, tmp_path):
    """A person at the command line of the same gateway."""
    person = RootHolder(RootKeys(bytes.fromhex("7c" * 32))).person("default")
    return RelayerClient(relayer.url, trust=TrustStore(tmp_path / "trust.json")), person


async def test_a_turn_whose_answer_was_lost_is_kept_once(relayer, gateway, tmp_path):
    client, identity = client_of(relayer, tmp_path)
    request = AnalyzeRequest(
        turns=(TurnItem(role="user", text=FACT.partition(",")[0] + "."),),
        session=SESSION,
        store_transcript=True,
        idempotency_key="one-turn",
    )
    try:
        await client.analyze(identity, request)
        await client.analyze(identity, request)
    finally:
        await client.aclose()
    bridge, _ = gateway()
    assert len(dialogue(bridge).split("\n")) == 2


async def test_erasing_what_was_remembered_of_a_session_leaves_no_word_of_it(relayer, gateway, tmp_path):
    bridge, _ = gateway()
    said(bridge)
    client, identity = client_of(relayer, tmp_path)
    try:
        page = await client.list_memories(identity)
        fact = next(memory for memory in page.memories if memory.text.startswith("Our dinghy"))
        await client.erase(identity, fact.id)
    finally:
        await client.aclose()
    assert dialogue(bridge).startswith("Memory error: path: ")
    again, _ = gateway()
    assert dialogue(again).startswith("Memory error: path: ")


def test_nothing_of_it_can_be_read_in_the_bucket_or_the_log(gateway, relayer, tmp_path):
    bridge, _ = gateway()
    said(bridge)
    assert "heliotropes" in dialogue(bridge)
    read = 0
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            read += len(data)
            for word in (b"heliotrope", b"look_at_the_map", b"berth seven", b"openai-user"):
                assert word not in data, Path(file).name
    assert read > 1000
