"""The bridge as a process: what it answers, what it survives, and that nothing in it grows."""

from __future__ import annotations

import json
import socket
import sys
import time

import pytest
from bridge_process import BridgeProcess
from processes import wait_until

from relayer.wire.sealing import RootKeys

CONTEXT = {"sessionKey": "agent:main:main", "agentId": "main", "trigger": "user"}
QUESTION = "Where do I always park my bicycle?"


@pytest.fixture
def silent():
    """A relayer's port on which connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def bridge(tmp_path, silent):
    with BridgeProcess(tmp_path, {"url": silent}) as process:
        yield process


def error_of(answer):
    return answer["error"]["code"], answer["error"]["message"]


def test_the_handshake_tells_version_deadline_and_account(bridge, silent):
    told = bridge.initialize()
    assert (told["protocol"], told["deadlineMs"], told["url"], told["problem"]) == (1, 2000, silent, "")
    assert told["account"].startswith("0x")


def test_nothing_but_a_ping_is_answered_before_the_handshake(bridge):
    assert bridge.call("ping") == {}
    with pytest.raises(RuntimeError, match="initialize"):
        bridge.call("status")


def test_a_plugin_of_another_protocol_is_told_both_versions_and_the_fix(bridge):
    with pytest.raises(RuntimeError, match=r"speaks protocol 9, .* speaks 1: install .* the same version"):
        bridge.initialize(protocol=[9])


def test_wrong_settings_are_named_with_their_fix_and_every_turn_goes_on(tmp_path):
    with BridgeProcess(tmp_path, {"autoRecal": True}) as bridge:
        assert "did you mean autoRecall?" in bridge.initialize()["problem"]
        answer = bridge.call("turn.before", prompt=QUESTION, context=CONTEXT)
    assert answer["status"] == "failed"
    assert "result" not in answer


def test_a_variable_that_is_not_set_is_named_and_never_used_as_the_secret(tmp_path):
    with BridgeProcess(tmp_path, {"key": "${NOT_SET_ANYWHERE}"}) as bridge:
        assert "NOT_SET_ANYWHERE, which is not set" in bridge.initialize()["problem"]


def test_a_turn_is_answered_within_the_deadline_that_its_host_gave(bridge):
    bridge.initialize()
    begun = time.monotonic()
    answer = bridge.call("turn.before", prompt=QUESTION, context=CONTEXT, deadlineMs=300)
    assert answer["status"] == "timeout"
    assert time.monotonic() - begun < 1.5


def test_an_abort_ends_the_request_and_what_it_was_waiting_for(bridge):
    bridge.initialize()
    asked = bridge.send("turn.before", prompt=QUESTION, context=CONTEXT, deadlineMs=60_000)
    bridge.call("ping")
    bridge.notify("cancel", id=asked)
    code, message = error_of(bridge.receive())
    assert (code, message) == (-32002, "aborted by the host")


def test_an_abort_of_nothing_is_ignored(bridge):
    bridge.initialize()
    bridge.notify("cancel", id=12345)
    bridge.notify("cancel", id=[])
    assert bridge.call("ping") == {}


def test_a_slow_turn_does_not_hold_up_another_session(bridge):
    bridge.initialize()
    slow = bridge.send("turn.before", prompt=QUESTION, context=CONTEXT, deadlineMs=60_000)
    quick = bridge.call("command", args="status", context={"sessionKey": "agent:other:main"})
    assert quick["text"].startswith("Memory: on")
    bridge.notify("cancel", id=slow)


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"nonsense\n", -32700), (b"{}\n", -32600), (b'{"jsonrpc":"2.0","id":3,"method":"nope"}\n', -32601)],
)
def test_what_it_cannot_read_it_refuses_and_goes_on(bridge, raw, code):
    bridge.initialize()
    bridge.write_bytes(raw)
    assert error_of(bridge.receive())[0] == code
    assert bridge.call("ping") == {}


def test_a_message_beyond_all_bounds_is_refused_and_does_not_stay_in_memory(bridge):
    bridge.initialize()
    before = bridge.resident_kib
    for _ in range(40):
        bridge.write_bytes(b"x" * (1 << 20))
    bridge.write_bytes(b"\n")
    assert error_of(bridge.receive())[0] == -32700
    assert bridge.resident_kib - before < 24_000


def test_more_requests_than_it_works_on_are_refused_at_once(bridge):
    bridge.initialize()
    for _ in range(257):
        bridge.send("turn.before", prompt=QUESTION, context=CONTEXT, deadlineMs=60_000)
    assert error_of(bridge.receive())[0] == -32003


def test_it_ends_when_its_host_is_gone(bridge):
    bridge.initialize()
    bridge.send("turn.before", prompt=QUESTION, context=CONTEXT, deadlineMs=60_000)
    assert bridge.close() == 0


def test_it_ends_in_order_when_told_to(bridge):
    bridge.initialize()
    bridge.process.terminate()
    assert bridge.process.wait(30) == 0


def test_a_session_switched_off_stays_off_in_the_next_process(tmp_path, silent):
    with BridgeProcess(tmp_path, {"url": silent}) as bridge:
        bridge.initialize()
        bridge.call("command", args="off", context=CONTEXT)
        bridge.close()
    with BridgeProcess(tmp_path, {"url": silent}) as bridge:
        bridge.initialize()
        answer = bridge.call("turn.before", prompt=QUESTION, context=CONTEXT)
        other = bridge.call("command", args="status", context={"sessionKey": "agent:main:other"})
    assert answer["status"] == "skipped:session_toggle"
    assert other["text"].startswith("Memory: on")


@pytest.mark.row("AM-07")
def test_switching_memory_off_for_all_takes_the_owner(bridge):
    bridge.initialize()
    refused = bridge.call("command", args="off --global", context=CONTEXT | {"senderIsOwner": False})
    client = CONTEXT | {"gatewayClientScopes": ["operator.write"], "senderIsOwner": True}
    assert "owner" in refused["text"]
    assert "operator.admin" in bridge.call("command", args="off --global", context=client)["text"]
    assert bridge.call("command", args="status", context=CONTEXT)["text"].startswith("Memory: on")


@pytest.mark.row("AM-07")
def test_the_owner_switches_memory_off_for_all(bridge):
    bridge.initialize()
    bridge.call("command", args="off --global", context=CONTEXT | {"senderIsOwner": True})
    answer = bridge.call("turn.before", prompt=QUESTION, context={"sessionKey": "agent:other:main"})
    assert answer["status"].startswith("skipped:")


def test_in_a_channel_the_owner_is_known_by_the_id_that_the_hosts_configuration_names(tmp_path, silent):
    (tmp_path / "openclaw.json").write_text(json.dumps({"commands": {"ownerAllowFrom": ["telegram:777"]}}))
    environment = {"OPENCLAW_CONFIG_PATH": str(tmp_path / "openclaw.json")}
    with BridgeProcess(tmp_path, {"url": silent}, environment) as bridge:
        bridge.initialize()
        # As OpenClaw sends it for a plugin that it does not trust: without `senderIsOwner`.
        told = [
            bridge.call("command", args="off --global", context=CONTEXT | {"channel": channel, "senderId": sender})
            for channel, sender in (("telegram", "778"), ("discord", "777"), ("telegram", "777"))
        ]  # fmt: skip
    assert [one["text"].startswith("Memory is off for every session") for one in told] == [False, False, True]


@pytest.mark.timeout(400)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_turns_leave_nothing_behind(serve, tmp_path):
    with BridgeProcess(tmp_path, {"url": serve().url, "recall": {"deadlineMs": 20_000}}) as bridge:
        bridge.initialize()

        def turn(number):
            context = CONTEXT | {"sessionKey": f"agent:main:s{number % 50}", "runId": f"run-{number}"}
            # One turn in twenty is worth keeping: what is tested is the bridge, not how fast a relayer stores.
            said = (
                f"My locker number {number} is at the north gate of the hall."
                if number % 20 == 0
                else "Which one?"
            )
            message = {"role": "user", "content": said}
            bridge.call("turn.before", prompt=said, messages=[], historyLength=0, context=context)
            bridge.call("turn.after", messages=[message], historyLength=1, context=context)

        for number in range(200):
            turn(number)
        memory, descriptors = bridge.resident_kib, bridge.descriptors
        for number in range(200, 1200):
            turn(number)
        wait_until(lambda: bridge.call("status")["waiting"] == 0)
        assert bridge.call("bridge.pending") == {"pending": 1}
        assert bridge.descriptors <= descriptors + 2
        assert bridge.resident_kib - memory < 16_000, json.dumps(
            {"before": memory, "after": bridge.resident_kib}
        )


@pytest.mark.row("AR-04")
def test_what_a_tool_stored_is_found_by_the_model_and_by_the_host_in_the_hosts_own_terms(serve, tmp_path):
    fact = "The tandem is chained to the third lamp post."
    with BridgeProcess(tmp_path, {"url": serve().url}) as bridge:
        bridge.initialize()
        bridge.call("tool.call", name="memory_store", arguments={"text": fact}, context=CONTEXT)
        search = {"query": "Where is the tandem chained?"}
        found = bridge.call("tool.call", name="memory_search", arguments=search, context=CONTEXT)
        hit = found["details"]["results"][0]
        options = {"maxResults": 3, "sessionKey": "agent:main:main"}
        hosts = bridge.call("memory.search", options=options, context={"agentId": "main"}, **search)
        read = bridge.call("memory.read", place={"relPath": hit["path"]}, context=CONTEXT)
        probed = bridge.call("health")
    assert (hit["snippet"], hit["source"], hit["startLine"]) == (fact, "memory", 1)
    assert f"1 = {found['details']['memories'][0]['id']}" in found["text"]
    assert hosts["hits"] == found["details"]["results"]
    assert (read["status"], fact in read["text"]) == ("ok", True)
    assert probed["ok"] is True


def test_a_search_by_the_host_for_no_session_hears_nothing_of_direct_messages(serve, tmp_path):
    fact = "My blood pressure is a matter between us two."
    with BridgeProcess(tmp_path, {"url": serve().url}) as bridge:
        bridge.initialize()
        direct = CONTEXT | {"sessionKey": "agent:main:telegram:direct:7"}
        bridge.call("tool.call", name="memory_store", arguments={"text": fact}, context=direct)
        mine = bridge.call("memory.search", query="blood pressure", options={}, context=direct)
        anybodys = bridge.call(
            "memory.search", query="blood pressure", options={}, context={"agentId": "main"}
        )
    assert len(mine["hits"]) == 1
    assert anybodys["hits"] == []


def test_a_tool_that_fails_says_why_where_the_host_looks_for_it(tmp_path):
    with BridgeProcess(tmp_path, {"url": "http://127.0.0.1:9"}) as bridge:
        bridge.initialize()
        told = bridge.call(
            "tool.call", name="memory_search", arguments={"query": "anything"}, context=CONTEXT
        )
    assert "no relayer answers" in told["text"]
    assert told["details"]["error"] == told["text"]
    assert "results" not in told["details"]


def test_a_search_by_the_host_that_fails_is_an_error_and_not_an_empty_answer(tmp_path):
    with BridgeProcess(tmp_path, {"url": "http://127.0.0.1:9"}) as bridge:
        bridge.initialize()
        with pytest.raises(RuntimeError, match="no relayer answers"):
            bridge.call("memory.search", query="anything", options={}, context=CONTEXT)


def test_a_reference_to_a_variable_is_resolved_where_the_host_did_not(tmp_path, silent):
    key = {"source": "env", "provider": "default", "id": "OUR_SECRET"}
    with BridgeProcess(tmp_path, {"url": silent, "key": key}, {"OUR_SECRET": "7b" * 32}) as bridge:
        told = bridge.initialize()
    assert (told["problem"], told["account"]) == ("", RootKeys(bytes.fromhex("7b" * 32)).account)


@pytest.mark.row("OC-22", level="e2e")
def test_lines_of_memory_md_for_a_project_are_told_in_the_owners_direct_chats_alone(tmp_path, silent):
    line = "Releases are signed with cosign."
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "MEMORY.md").write_text(f"- {line} <!-- project: github.com/harbour/heron -->\n")
    config = {
        "agents": {"entries": {"main": {"workspace": str(workspace)}}},
        "commands": {"ownerAllowFrom": ["telegram:777"]},
        "session": {"dmScope": "per-channel-peer"},
    }
    (tmp_path / "openclaw.json").write_text(json.dumps(config))
    environment = {"OPENCLAW_CONFIG_PATH": str(tmp_path / "openclaw.json")}
    with BridgeProcess(tmp_path, {"url": silent}, environment) as bridge:
        bridge.initialize()
        context = {"agentId": "main", "activeProjectKeys": ["github.com/harbour/heron"]}
        told = {
            peer: bridge.call(
                "memory.project", sessions=[f"agent:main:telegram:direct:{peer}"], context=context
            )["lines"]
            for peer in ("777", "778")
        }
    assert [one["snippet"] for one in told["777"]] == [line]
    assert told["778"] == []
