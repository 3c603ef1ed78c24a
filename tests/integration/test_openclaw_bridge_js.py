"""The plugin's line to its bridge, in Node.js without a host: what it says when there is no bridge, and that turns go on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from openclaw_node import NODE, REAL_BRIDGE, PluginInNode

from gateway_plugin.hosts.openclaw.manifest import FOLDER

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
# Without what a plugin asks of a bridge that is up.
ASKING = """{
bridge().up = () => {};
const asked = async (method, params, ms, signal) => {
  const begun = performance.now();
  const said = await bridge().ask(method, params, ms, signal).catch((error) => ({ error: error.message }));
  return { ...said, ms: performance.now() - begun };
};
BODY
answers.pending = bridge().pending.size;
await bridge().stop();
}"""
# A bridge that writes down the turn that it is told of.
ECHO = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "turn.after":
        pathlib.Path(sys.argv[1]).write_text(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id"), "result": {"protocol": 1, "status": "ok"}}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def ask(tmp_path: Path):
    """Runs statements against the bridge of a plugin that no host starts; returns what was logged and answered."""

    def run(body: str, *, command: list[str] = REAL_BRIDGE, config: dict[str, object] | None = None):
        program = ASKING.replace("BODY", body).replace("COMMAND", json.dumps(command))
        return PluginInNode(tmp_path)(program, command=command, config=config, start=False)

    return run


def test_a_missing_program_is_named_once_with_what_to_run_and_later_turns_do_not_wait(ask):
    log, answers = ask(
        "answers.first = await asked('turn.before', {}, 5000); answers.second = await asked('turn.before', {}, 5000);",
        command=["/nowhere/memrelay-gateway", "bridge"],
    )
    said = [line for line in log if "python3 -m pip install ." in line]
    assert len(said) == 1
    assert "plugins.entries.memrelay.config.command" in said[0]
    assert answers["second"]["error"]
    assert answers["second"]["ms"] < 500


def test_a_program_that_ends_at_once_is_reported_and_turns_go_on(ask):
    log, answers = ask(
        "answers.turn = await asked('turn.before', {}, 5000);", command=[sys.executable, "-c", "exit(3)"]
    )
    assert any("the bridge ended with code 3" in line for line in log)
    assert answers["turn"]["error"]


def test_the_first_turn_waits_for_a_bridge_that_is_starting(ask):
    _, answers = ask("answers.turn = await asked('turn.before', { prompt: 'where is my bicycle?' }, 60000);")
    assert answers["turn"]["status"] == "unavailable"


def test_a_killed_bridge_is_started_again(ask):
    _, answers = ask(
        """
        await asked('status', {}, 60000);
        const first = bridge().child.pid;
        process.kill(first, 'SIGKILL');
        await until(() => bridge().child?.pid !== first && bridge().info);
        answers.again = { ...(await asked('status', {}, 60000)), other: bridge().child.pid !== first };
        """
    )
    assert (answers["again"]["status"], answers["again"]["other"]) == ("ok", True)


def test_an_abort_ends_a_request_at_once_and_nothing_stays_pending(ask):
    _, answers = ask(
        """
        await asked('status', {}, 60000);
        const stop = new AbortController();
        setTimeout(() => stop.abort(), 20);
        answers.turn = await asked('tool.call', { name: 'memory_search', arguments: { query: 'x y z' } }, 60000, stop.signal);
        """
    )
    assert answers["turn"]["error"] == "aborted"
    assert answers["pending"] == 0


def test_wrong_settings_are_said_once_with_their_fix(ask):
    log, answers = ask(
        "answers.turn = await asked('turn.before', { prompt: 'hello there my friend' }, 60000);",
        config={"autoRecal": False},
    )
    assert len([line for line in log if "did you mean autoRecall?" in line]) == 1
    assert answers["turn"]["status"] == "failed"


def test_a_thousand_requests_leave_nothing_pending(ask):
    _, answers = ask(
        """
        await asked('status', {}, 60000);
        for (let n = 0; n < 1000; n++) await asked('ping', {}, 60000);
        """
    )
    assert answers["pending"] == 0


def test_a_bridge_that_has_more_to_deliver_does_not_hold_up_a_host_that_stops(ask):
    # The host gives a service five seconds, and takes no new settings over when they were not enough.
    _, answers = ask(
        """
        bridge().start();
        const begun = performance.now();
        await bridge().stop();
        answers.stop = { ms: performance.now() - begun };
        """,
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
    )
    assert 2900 < answers["stop"]["ms"] < 4900


@pytest.mark.row("MS-11", level="e2e")
def test_a_name_that_comes_with_a_message_goes_with_the_turn_of_its_author_in_its_session(ask, tmp_path):
    body = """
    const { default: plugin } = await import("FOLDER/index.js");
    const hooks = {};
    const ignored = () => undefined;
    const api = new Proxy(
      { pluginConfig: { ...CONFIG, command: COMMAND }, logger, on: (name, hook) => { hooks[name] = hook; } },
      { get: (target, name) => target[name] ?? (String(name).startsWith("register") ? ignored : undefined) },
    );
    plugin.register(api);
    const sessionKey = "agent:main:telegram:group:-1001";
    const hears = (senderId, senderName, at = sessionKey) =>
      hooks.message_received({ senderId, sessionKey: at, content: "hi", metadata: { senderId, senderName } }, {});
    hears("111", "Alice"); hears("222", "Bob"); hears("333"); hears("333", "Carol", "agent:main:main");
    hooks.message_received({}, undefined);
    for (const senderId of ["111", "222", "333"])
      await hooks.agent_end({ success: true, messages: [{ role: "user", content: "ok" }] }, { sessionKey, senderId });
    for (let id = 0; id < 2500; id++) hears(`m${id}`, "Somebody");
    answers.kept = globalThis[Symbol.for("memrelay.names")].size;
    """.replace("FOLDER", str(FOLDER))
    program, heard = tmp_path / "bridge.py", tmp_path / "heard.json"
    program.write_text(ECHO.replace(".write_text(line)", '.open("a").write(line)'))
    _, answers = ask(body, command=[sys.executable, str(program), str(heard)])
    told = [json.loads(line)["params"]["context"] for line in heard.read_text().splitlines()]
    assert {one["senderId"]: one.get("senderName") for one in told} == {
        "111": "Alice",
        "222": "Bob",
        "333": None,
    }
    assert answers["kept"] == 2000


def test_of_a_message_the_bridge_is_told_what_was_said_and_which_tools_were_called(ask, tmp_path):
    body = """
    const content = [
      { type: "thinking", thinking: "hm" }, { type: "text", text: "I look." }, { type: "toolCall", name: "look_up", arguments: { of: 1 } },
    ];
    await hooks.agent_end({ success: true, messages: [{ role: "assistant", content }, { role: "user", content: "ok" }] }, {});
    """
    program, heard = tmp_path / "bridge.py", tmp_path / "heard.json"
    program.write_text(ECHO)
    ask(body, command=[sys.executable, str(program), str(heard)])
    told, answer = json.loads(heard.read_text())["params"]["messages"]
    assert told["content"] == ["I look.", {"type": "toolCall", "name": "look_up"}]
    assert answer["content"] == ["ok"]
