"""From OpenClaw's events to turns: identity, who wrote, and which messages a run added."""

from __future__ import annotations

import pytest

from gateway_plugin.hosts.openclaw.host import run_command
from gateway_plugin.hosts.openclaw.turns import Runs, host_turn, messages_of
from gateway_plugin.keys.identity import TurnAudience

RUN = {"runId": "r1", "sessionKey": "agent:main:main"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


OLD = [user("first"), assistant("one")]


def test_a_run_added_what_came_after_its_beginning():
    runs = Runs()
    runs.began(RUN, before=2)
    # A message that came in while the run went on belongs to it, too.
    new = [user("a"), assistant("..."), user("b"), assistant("done")]
    assert runs.ended(RUN, OLD + new, total=6) == (tuple(new), False)


def test_a_run_whose_beginning_nobody_saw_added_its_latest_question_and_answer():
    assert Runs().ended(RUN, [*OLD, user("a"), assistant("b")], total=4)[0] == (user("a"), assistant("b"))


def test_a_history_that_was_compacted_on_the_way_begins_at_its_latest_question():
    runs = Runs()
    runs.began(RUN, before=50)
    assert runs.ended(RUN, [assistant("summary"), user("a"), assistant("b")], total=3)[0][0] == user("a")


def test_a_window_of_a_long_history_is_counted_from_its_end():
    runs = Runs()
    runs.began(RUN, before=100)
    window = [assistant("old"), user("a"), assistant("b")]
    assert runs.ended(RUN, window, total=102)[0] == (user("a"), assistant("b"))


def test_who_wrote_is_remembered_from_the_beginning_of_a_run_to_its_end():
    runs = Runs()
    runs.began({**RUN, "inputProvenance": {"kind": "inter_session"}}, before=0)
    assert runs.ended(RUN, [user("a")], total=1)[1] is True


def test_runs_that_never_end_do_not_pile_up():
    runs = Runs(limit=2)
    for number in range(5):
        runs.began({"runId": f"r{number}"}, before=1)
    assert runs.ended({"runId": "r0"}, [*OLD, user("x")], total=3)[0] == (user("x"),)
    assert runs.ended({"runId": "r4"}, [*OLD, user("x")], total=3)[0] == (OLD[1], user("x"))


def test_parallel_runs_of_two_sessions_do_not_cross():
    runs = Runs()
    runs.began({"runId": "a", "sessionKey": "agent:main:1"}, before=0)
    runs.began({"runId": "b", "sessionKey": "agent:main:2"}, before=2)
    assert runs.ended({"runId": "a"}, [user("x")], total=1)[0] == (user("x"),)
    assert runs.ended({"runId": "b"}, [*OLD, user("y")], total=3)[0] == (user("y"),)


@pytest.mark.parametrize(
    ("context", "agent"),
    [
        ({"sessionKey": "agent:research:main", "agentId": "research"}, None),
        ({"sessionKey": "cron:nightly", "agentId": "research"}, "research"),
        ({"agentId": "research"}, "research"),
        ({"agentId": "Main"}, None),
        ({}, None),
    ],
)
def test_the_agent_is_named_only_where_the_session_key_does_not(context, agent):
    assert host_turn(context).agent == agent


def test_a_turn_carries_sender_workspace_trigger_and_chat():
    told = {"senderId": "7", "workspaceDir": "/w", "trigger": "cron", "channelId": "c", "runId": "r"}
    turn = host_turn(told | {"chatType": "group"})
    carried = (turn.sender, turn.workspace, turn.trigger, turn.chat_id, turn.run_id)
    assert carried == tuple(told.values())
    assert (turn.audience, turn.host) == (TurnAudience.GROUP, "openclaw")


@pytest.mark.parametrize("junk", [{}, {"messages": "text"}, {"messages": [1, None, "x"]}, {"messages": None}])
def test_what_is_no_message_is_left_out(junk):
    assert messages_of(junk) == ()


def test_an_unknown_word_is_answered_with_what_the_command_can_do():
    # Help needs no memory at all.
    assert run_command(None, "what?", {}).startswith("/memory status")


@pytest.mark.row("AM-15")
def test_a_turn_carries_the_model_of_its_session():
    assert host_turn({**RUN, "modelId": "stub-model"}).model == "stub-model"
    assert host_turn(RUN).model == ""
