"""What the plugin says in its host's log: each thing once, counted when it comes again, for as long as the host runs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from openclaw_node import NODE, PluginInNode
from processes import CLEAN, ran

from gateway_plugin.hosts.openclaw.manifest import FOLDER

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")


@pytest.fixture
def log(tmp_path):
    """Runs statements over a log of fifteen and more minutes that pass at once; returns what was written."""

    def run(body: str) -> list[str]:
        program = f"""
        import {{ mock }} from "node:test";
        import {{ Log }} from "{FOLDER}/log.js";
        mock.timers.enable({{ apis: ["setTimeout"] }});
        const lines = [];
        const put = (level) => (line) => lines.push(`${{level}} ${{line}}`);
        const log = new Log({{ info: put("info"), warn: put("warn"), error: put("error") }});
        const minute = () => mock.timers.tick(60_000);
        {body}
        process.stdout.write(JSON.stringify(lines));
        """
        file = Path(tmp_path / "log.mjs")
        file.write_text(program)
        assert NODE is not None
        done = ran([NODE, file], env=CLEAN)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.row("AM-22")
def test_a_line_that_comes_again_is_counted(log):
    lines = log("for (let n = 0; n < 15; n++) log.tell('warn', 'it hangs'); minute();")
    assert lines == ["warn memrelay: it hangs", "warn memrelay: it hangs (repeated 14 times)"]


def test_what_comes_again_every_minute_is_told_every_minute_and_later_as_new(log):
    lines = log(
        "for (let n = 0; n < 3; n++) { log.tell('warn', 'a'); log.tell('warn', 'a'); minute(); } minute(); log.tell('warn', 'a');"
    )
    again = "warn memrelay: a (repeated 2 times)"
    assert lines == [
        "warn memrelay: a",
        "warn memrelay: a (repeated 1 time)",
        again,
        again,
        "warn memrelay: a",
    ]


@pytest.mark.row("CP-29")
def test_no_number_of_lines_ends_the_log_and_what_is_left_out_is_counted(log):
    lines = log(
        """
        for (let of = 0; of < 20; of++) {
          for (let n = 0; n < 200; n++) log.tell("info", `recall ${of} ${n}`, { limited: true });
          log.tell("warn", `the bridge ended ${of}`);
          minute();
        }
        """
    )
    assert sum(line.startswith("info") for line in lines) == 20 * 120
    assert sum("80 more lines of the last minute were left out" in line for line in lines) == 20
    assert sum("the bridge ended" in line for line in lines) == 20


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("while True: sys.stdout.write('x' * 65536)", "prints lines without an end"),
        ("while True: sys.stderr.write('x' * 65536)", "prints lines without an end"),
        ("while True: print('hello')", "is it memrelay-gateway?"),
    ],
)
def test_a_program_that_prints_without_an_end_is_ended_and_the_gateway_lives(tmp_path, program, told):
    node = PluginInNode(tmp_path)
    said, answers = node(
        """
        await until(() => log.some((line) => line.includes("is ended") || line.includes("memrelay-gateway?")));
        answers.megabytes = process.memoryUsage().rss / 1024 / 1024;
        """,
        command=[sys.executable, "-c", f"import sys\n{program}"],
    )
    assert any(told in line for line in said)
    assert answers["megabytes"] < 400


def times(lines, needle):
    """Count how often something was said, by the lines and by what they say of repetitions."""
    again = [re.search(r"\(repeated (\d+) time", line) for line in lines if needle in line]
    return sum(1 if found is None else int(found[1]) for found in again)


@pytest.mark.row("CP-29")
@pytest.mark.row("CP-30")
def test_every_recall_is_logged_and_a_relayer_that_is_away_is_warned_of_once(tmp_path):
    node = PluginInNode(tmp_path)
    said, _ = node(
        """
        await up();
        for (let n = 0; n < 5; n++) {
          const ctx = { sessionKey: "agent:main:main", runId: `r${n}` };
          await hooks.before_prompt_build({ prompt: `Where is my bicycle number ${n} parked?`, messages: [] }, ctx);
        }
        """,
        config={"recall": {"logging": True}},
    )
    assert times(said, "info memrelay: recall ") == 5
    assert times(said, "warn memrelay: memory does not work (") == 1
    assert "bicycle" not in "".join(said)


def test_the_hosts_limit_for_a_hook_is_raised_above_the_longest_recall(tmp_path):
    node = PluginInNode(tmp_path)
    body = "answers.limit = options.before_prompt_build.timeoutMs;"
    for config, least in (
        ({}, 15_250),
        ({"active": {"timeoutMs": 90_000, "setupGraceTimeoutMs": 20_000}}, 110_250),
    ):
        assert node(body, config=config, start=False)[1]["limit"] > least


def test_the_hosts_own_switch_of_memory_is_heard_for_all_agents_and_for_one(tmp_path):
    node = PluginInNode(tmp_path)
    body = """
    await up();
    for (const agentId of ["main", "research"]) {
      const ctx = { sessionKey: `agent:${agentId}:main`, agentId, runId: agentId };
      await hooks.before_prompt_build({ prompt: "Where is my bicycle parked today?", messages: [] }, ctx);
    }
    """
    off = {"search": {"enabled": False}}
    logging = {"recall": {"logging": True}}
    skipped = "recall skipped (the host's memory.search.enabled is false)"
    everywhere = node(body, config=logging, host={"memory": off})[0]
    assert times(everywhere, skipped) == 2
    one = node(body, config=logging, host={"agents": {"entries": {"research": {"memory": off}}}})[0]
    assert times(one, skipped) == 1
    assert times(one, "info memrelay: recall ") == 2
