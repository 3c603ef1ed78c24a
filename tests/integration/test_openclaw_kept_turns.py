"""A captured turn is never lost at the bridge: killed, hanging, starting or missing, the plugin keeps it and hands it over once."""

from __future__ import annotations

import json
import stat
import sys

import pytest
from openclaw_node import NODE, PluginInNode

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")

# A bridge that writes down what it is told, in order, and sends no key.
ECHO = """
import json, sys
with open(sys.argv[1], "a") as file:
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["method"] in ("turn.after", "session.event"):
            print(json.dumps(asked["params"]), file=file, flush=True)
        answer = {"jsonrpc": "2.0", "id": asked.get("id"), "result": {"protocol": 1, "status": "ok"}}
        print(json.dumps(answer), flush=True)
"""
FACT = "My cello stands in the workshop of Mr Aumann."


@pytest.fixture
def node(tmp_path):
    return PluginInNode(tmp_path)


@pytest.fixture
def echo(tmp_path):
    """The command of a bridge that writes down, and a function that reads what it wrote."""
    program, heard = tmp_path / "echo.py", tmp_path / "heard.jsonl"
    program.write_text(ECHO)

    def told():
        return [json.loads(line) for line in heard.read_text().splitlines()] if heard.exists() else []

    return [sys.executable, str(program), str(heard)], told


def said(turn):
    return turn["messages"][-2]["content"][0]


def test_a_turn_whose_bridge_was_killed_waits_sealed_and_arrives_once(node):
    log, answers = node(
        f"""
        await up();
        await hooks.before_prompt_build({{ prompt: {FACT!r}, messages: [] }}, {{ sessionKey: "agent:main:main", runId: "r1" }});
        await killed();
        await ends({FACT!r});
        answers.waits = files().map((name) => [statSync(`${{kept}}/${{name}}`).mode & 0o777, readFileSync(`${{kept}}/${{name}}`, "latin1")]);
        await delivered();
        """
    )
    [[mode, content]] = answers["waits"]
    assert mode == 0o600
    assert content.startswith("MRK1")
    assert "cello" not in content
    assert answers["waiting"] == 1
    assert stat.S_IMODE(node.kept.stat().st_mode) == 0o700
    assert any("the bridge ended with SIGKILL" in line for line in log)
    assert any("a captured turn could not be handed to the bridge" in line for line in log)
    assert "cello" not in "".join(log)


def test_a_turn_that_a_hanging_bridge_took_late_is_captured_once(node):
    _, answers = node(
        f"""
        await up();
        const {"{ pid }"} = bridge().child;
        process.kill(pid, "SIGSTOP");
        const begun = Date.now();
        await ends({FACT!r});
        answers.took = Date.now() - begun;
        answers.files = files().length;
        process.kill(pid, "SIGCONT");
        await delivered();
        """
    )
    assert answers["took"] < 6000
    assert (answers["files"], answers["waiting"]) == (1, 1)


def test_what_one_gateway_left_the_next_one_delivers_in_order_and_with_the_key_of_before(node):
    left = """
    await up();
    await killed();
    const all = [];
    for (const where of ["attic", "cellar", "garden", "barn", "kitchen"]) all.push(ends(`The blue chest stands in the ${where} of our house.`));
    await Promise.all(all);
    answers.files = files().length;
    """
    _, answers = node(left)
    assert answers["files"] == 5
    _, answers = node("await delivered();")
    assert answers["waiting"] == 5


def test_a_turn_that_ends_before_the_first_bridge_ever_started_waits_in_memory(node, echo):
    command, told = echo
    slow = [sys.executable, "-c", "import os, sys, time; time.sleep(7); os.execv(sys.argv[1], sys.argv[1:])"]
    _, answers = node(
        f"""
        await ends({FACT!r});
        answers.files = files().length;
        await until(() => bridge().info);
        await until(() => existsSync({command[2]!r}));
        """,
        command=[*slow, *command],
    )
    assert answers["files"] == 0
    assert {said(turn) for turn in told()} == {FACT}
    assert len({turn["turnId"] for turn in told()}) == 1


def test_a_sessions_turns_keep_their_order_while_the_bridge_restarts(node, echo):
    command, told = echo
    _, answers = node(
        """
        await up();
        process.kill(bridge().child.pid, "SIGKILL");
        const all = [];
        for (let n = 0; n < 40; n++) {
          all.push(ends(`turn ${n} of it`, { session: `agent:main:s${n % 4}` }));
          await later(n % 7);
        }
        await hooks.session_end({ reason: "new" }, { sessionKey: "agent:main:s0" });
        await Promise.all(all);
        await later(3000);
        """,
        command=command,
    )
    assert answers == {}
    turns = [turn for turn in told() if turn["event"] == "agent_end"]
    for session in range(4):
        mine = [said(turn) for turn in turns if turn["context"]["sessionKey"].endswith(f"s{session}")]
        assert mine == [f"turn {n} of it" for n in range(session, 40, 4)]
    ended = [one["event"] for one in told() if one["context"].get("sessionKey") == "agent:main:s0"]
    assert ended[-1] == "session_end"


def test_the_end_of_a_session_that_is_told_before_that_of_its_last_run_is_told_once_more(node, echo):
    command, told = echo
    node(
        f"""
        await up();
        const one = {{ sessionKey: "agent:main:main", runId: "r1" }};
        await hooks.before_prompt_build({{ prompt: {FACT!r}, messages: [] }}, one);
        await hooks.before_compaction({{ messages: [] }}, one);
        const {{ agent_end }} = hooks;
        // The host sends what happens to sessions to another registration than what happens in runs.
        plugin.register(api);
        hooks.agent_end = agent_end;
        await hooks.session_end({{ reason: "reset" }}, {{ sessionKey: "agent:main:other" }});
        await hooks.session_end({{ reason: "reset" }}, {{ sessionKey: "agent:main:main" }});
        await ends({FACT!r});
        await until(() => readFileSync({str(command[-1])!r}, "utf8").split("reset").length > 3);
        """,
        command=command,
    )
    assert [(one["event"], one["context"]["sessionKey"].split(":")[-1]) for one in told()] == [
        ("before_compaction", "main"),
        ("session_end", "other"),
        ("session_end", "main"),
        ("agent_end", "main"),
        ("session_end", "main"),
    ]


def test_no_more_wait_than_fit_and_the_loss_is_told(node):
    node("await up();")
    log, answers = node(
        """
        for (let n = 0; n < 503; n++) hooks.agent_end({ success: true, messages: [user(`turn ${n}`)] }, { sessionKey: `agent:main:${n}` });
        await until(() => files().length === 500);
        await later(500);
        answers.files = files().length;
        """,
        command=["/nowhere/memrelay-gateway"],
    )
    assert answers["files"] == 500
    lost = [line for line in log if "a captured turn is lost" in line]
    assert lost
    assert all("the oldest goes first" in line for line in lost)


def test_what_was_kept_under_another_secret_is_set_aside_and_told(node):
    node("await up(); await killed(); await ends('x y z');")
    log, answers = node(
        """
        await until(() => !files().length);
        answers.aside = readdirSync(kept).filter((name) => name.endsWith(".refused")).length;
        """,
        config={"key": "ab" * 32},
    )
    assert answers["aside"] == 1
    assert any("another secret" in line for line in log)


def test_settings_that_are_wrong_lose_no_turn(node):
    node("await up();")
    _, answers = node(
        f"await up(); await ends({FACT!r}); answers.files = files().length;",
        config={"autoRecal": False},
    )
    assert answers["files"] == 1
    _, answers = node("await delivered();")
    assert answers["waiting"] == 1


@pytest.mark.parametrize("calls", [35, 400])
def test_a_turn_of_many_tool_calls_is_captured(node, calls):
    _, answers = node(
        f"""
        await up();
        const messages = [user("An older question."), assistant("An older answer.")];
        const ctx = {{ sessionKey: "agent:main:main", runId: "long" }};
        await hooks.before_prompt_build({{ prompt: {FACT!r}, messages }}, ctx);
        messages.push(user({FACT!r}));
        for (let n = 0; n < {calls}; n++) {{
          messages.push(assistant([{{ type: "text", text: `I look into the drawer with number ${{n}} now.` }}, {{ type: "toolCall", name: "look_up" }}]));
          messages.push({{ role: "toolResult", content: [{{ type: "text", text: "x".repeat(20_000) }}] }});
        }}
        messages.push(assistant("There is nothing in any of the drawers."));
        await hooks.agent_end({{ success: true, messages }}, ctx);
        answers.waiting = (await status()).waiting;
        """
    )
    assert answers["waiting"] == 1


def test_a_run_is_captured_from_its_beginning_although_the_bridge_was_replaced_meanwhile(node):
    _, answers = node(
        """
        await up();
        const ctx = { sessionKey: "agent:main:main", runId: "steered" };
        const asked = { prompt: "Please list my instruments.", messages: [] };
        await hooks.before_prompt_build(asked, { ...ctx, inputProvenance: { kind: "inter_session" } });
        await killed();
        await up();
        await ends("My cello stands in the workshop.");
        await hooks.agent_end({ success: true, messages: [user("Please list my instruments."), assistant("One cello.")] }, ctx);
        answers.waiting = (await status()).waiting;
        """
    )
    # Another session wrote the first one, which only its beginning told.
    assert answers["waiting"] == 1


def test_a_turn_that_the_outbox_has_no_room_for_waits_in_the_other_place_and_goes_on_from_there(node):
    # A file where the outbox's folder belongs: as on a full disk, nothing can be written there.
    blocked = node.folder / ".local" / "state" / "memrelay"
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    log, answers = node(
        f"""
        await up();
        await ends({FACT!r});
        answers.files = files().length;
        answers.told = (await status()).kept_turns;
        rmSync({json.dumps(str(blocked))});
        await delivered();
        answers.after = (await status()).kept_turns;
        """
    )
    assert (answers["files"], answers["told"]) == (1, 1)
    assert (answers["waiting"], answers["after"]) == (1, 0)
    (line,) = [line for line in log if "the outbox cannot take a captured turn" in line]
    assert "sealed in" in line
    assert "cello" not in "".join(log)
