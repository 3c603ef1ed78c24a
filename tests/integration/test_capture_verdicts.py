"""What is said through the plugin, what the relayer keeps of it, and what it says about it."""

from __future__ import annotations

import pytest
from typed_commands import machine, run_gateway

from gateway_plugin.client import RelayerClient
from memrelay import AsyncMemoryPlugin, HostTurn

MOVED = "I moved to Graz last week, my new address is Sackstrasse 12."


@pytest.fixture
def answers(monkeypatch):
    """What the relayer answers to deliveries."""
    heard = []
    analyze = RelayerClient.analyze

    async def listening(*args, **kwargs):
        heard.append(await analyze(*args, **kwargs))
        return heard[-1]

    monkeypatch.setattr(RelayerClient, "analyze", listening)
    return heard


@pytest.fixture
def say(plain_relayer, secret, tmp_path):
    """Says texts in one turn of a plugin, and has them delivered."""

    async def said(*texts):
        messages = [{"role": "user", "content": text} for text in texts]
        environ = {"HOME": str(tmp_path)}
        async with AsyncMemoryPlugin(plain_relayer.url, secret=secret, environ=environ) as plugin:
            await plugin.after_turn(messages, session_key="agent:main:chat")
            assert await plugin.flush(60)

    return said


@pytest.mark.parametrize(
    "text",
    [
        "ich bin krankenpfleger",
        "cats:\n- plum (grey)\n- tess (shy)",
        "عندي حساسية من السمسم",
        "ich heiße Jonas y vivo en Málaga, 花生过敏",
        "how much is left of 2,100, the rent went up to 880",
    ],
)
async def test_a_short_fact_is_kept_and_the_answer_says_so(text, answers, say):
    await say(text)
    (answer,) = answers
    (verdict,) = answer.verdicts
    assert (verdict.turn, verdict.kept, verdict.reason) == (0, True, "kept")
    assert 0 <= verdict.start < verdict.end


async def test_what_is_left_is_said_with_a_reason_and_without_its_text(answers, say):
    await say("ich bin krankenpfleger", "stell einen wecker auf zehn minuten")
    (answer,) = answers
    assert [(one.kept, one.reason) for one in answer.verdicts] == [(True, "kept"), (False, "one_off")]
    assert "wecker" not in answer.model_dump_json()


@pytest.mark.parametrize(
    "unit", ["I moved to Bergen in May. ", "我对花生过敏。", "x", "\u202eعندي حساسية. ", "a\n"]
)
async def test_a_paste_of_100_kb_is_no_flood(unit, answers, say, thorough):
    said = "The boiler was serviced by Ketil on 3 May 2024.\n"
    size = 100_000 if thorough else 30_000
    await say(said + unit * (size // len(unit.encode())))
    (answer,) = answers
    assert 1 <= len(answer.memories) <= 20


@pytest.mark.parametrize("text", ["😀", "😀😀😀😀😀😀", "?", "a", "\u202e", "١٢٣"])
async def test_next_to_nothing_breaks_nothing(text, answers, say):
    await say(text)
    assert not any(verdict.kept for answer in answers for verdict in answer.verdicts)


async def test_the_command_line_tells_what_became_of_each_message_of_the_last_captured_turn(
    shared_relayer, tmp_path, secret
):
    environment = machine(tmp_path, shared_relayer, secret)
    said = ["ich bin krankenpfleger", "stell einen wecker auf zehn minuten"]
    async with AsyncMemoryPlugin(shared_relayer, secret=secret, environ=dict(environment)) as plugin:
        await plugin.after_turn([{"role": "user", "content": text} for text in said], session_key="chat")
        assert await plugin.flush(60)
    shown = run_gateway(environment, "why", "--capture")
    assert shown.returncode == 0, shown.stderr
    assert "message 1, user: kept, by characters 0 to 22" in shown.stdout
    assert "message 2, user: left out: one_off" in shown.stdout
    assert "wecker" not in shown.stdout


def test_what_was_said_in_runs_that_failed_before_one_succeeded_is_stored_once(site):
    plugin, said = site.plugin(), [{"role": "user", "content": MOVED}]
    for more in ({"success": False}, {"host": HostTurn(stop_reason="error")}, {}):
        assert plugin.after_turn(said, session_key="agent:main:chat", **more).queued == 1
    assert plugin.flush(60)
    assert [memory["text"] for memory in site.memories()] == [MOVED]
