from __future__ import annotations

import pytest

from gateway_plugin.errors import IdentityError
from gateway_plugin.keys.identity import TurnAudience, parse_session_key
from gateway_plugin.settings.model import load_settings
from gateway_plugin.turn.gates import (
    GATES,
    HostTurn,
    Purpose,
    Turn,
    effective_length,
    explain,
    gate,
    is_control_text,
    is_slash_command,
)

DIRECT = load_settings({}, {})
ACTIVE = load_settings({"recall": {"mode": "active"}, "active": {"agents": ["ops"]}}, {})
QUERY = "What did we decide about the deploy?"


def turn(key: str = "agent:ops:main", query: str = QUERY, **changes) -> Turn:
    told = {
        name: changes.pop(name) for name in list(changes) if name in HostTurn.__slots__ and name != "agent"
    }
    nobody = IdentityError("no gate asks whose turn it is")
    return Turn(session=parse_session_key(key), query=query, host=HostTurn(**told), whose=nobody, **changes)


def blocked_by(context: Turn, settings=DIRECT, purpose=Purpose.RECALL) -> str:
    return gate(context, settings, purpose).gate


@pytest.mark.parametrize(
    ("settings", "purpose"), [(DIRECT, Purpose.RECALL), (DIRECT, Purpose.CAPTURE), (ACTIVE, Purpose.ACTIVE)]
)
def test_an_ordinary_turn_of_a_person_passes_every_gate(settings, purpose):
    assert gate(turn(), settings, purpose).allowed
    assert all(decision.allowed for decision in explain(turn(), settings, purpose))


# gate, what differs from the ordinary turn, and whether recall, active mode and capture are stopped by it
TRUTH_TABLE = [
    ("host", {"searches": False}, (1, 1, 0)),
    ("outbox", {"outbox_error": "the outbox cannot be used"}, (1, 1, 1)),
    ("session_toggle", {"session_enabled": False}, (1, 1, 1)),
    ("agents", {"key": "agent:other:main"}, (0, 1, 0)),
    ("run", {"key": "agent:ops:main:active-memory:0123456789ab"}, (1, 1, 1)),
    ("run", {"key": "agent:ops:main:memory-capture:1"}, (1, 1, 1)),
    ("run", {"key": "agent:ops:subagent:1"}, (1, 1, 1)),
    ("run", {"key": "agent:ops:cron:1"}, (1, 1, 1)),
    ("run", {"key": "agent:ops:main:heartbeat"}, (1, 1, 1)),
    ("run", {"key": "agent:ops:hook:1"}, (1, 1, 1)),
    ("run", {"run_id": "active-memory-77"}, (1, 1, 1)),
    ("run", {"run_id": "announce:v1:x"}, (1, 1, 1)),
    ("run", {"inter_session": True}, (1, 1, 1)),
    ("trigger", {"trigger": "memory"}, (1, 1, 1)),
    ("trigger", {"trigger": "heartbeat"}, (1, 1, 1)),
    ("trigger", {"trigger": "Cron"}, (1, 1, 1)),
    ("trigger", {"trigger": "manual"}, (0, 1, 1)),
    ("interactive", {"interactive": False}, (0, 1, 0)),
    ("chat_type", {"key": "agent:ops:telegram:group:-1"}, (0, 1, 0)),
    ("chat_type", {"audience": TurnAudience.CHANNEL}, (0, 1, 0)),
    ("slash_command", {"query": "/status please now"}, (1, 1, 1)),
    ("control_text", {"query": "NO_REPLY"}, (1, 1, 1)),
    ("control_text", {"query": "HEARTBEAT_OK"}, (1, 1, 1)),
    ("min_length", {"query": "thanks!"}, (1, 1, 0)),
    ("min_length", {"query": ""}, (1, 1, 1)),
]


@pytest.mark.row("AM-02")
@pytest.mark.row("AM-03")
@pytest.mark.parametrize(("name", "changes", "stopped"), TRUTH_TABLE)
def test_the_truth_table_of_the_gates(name, changes, stopped):
    cases = ((DIRECT, Purpose.RECALL), (ACTIVE, Purpose.ACTIVE), (DIRECT, Purpose.CAPTURE))
    for (settings, purpose), stops in zip(cases, stopped, strict=True):
        decision = gate(turn(**changes), settings, purpose)
        assert (decision.gate, decision.allowed) == ((name, False) if stops else ("", True)), purpose
        assert bool(decision.reason) == bool(stops)


def test_every_gate_is_in_the_truth_table_or_has_its_own_test():
    own = {"switch", "enabled", "session_pattern", "skip_pattern", "chat_id"}
    assert {name for name, _ in GATES} == own | {row[0] for row in TRUTH_TABLE}


def test_a_short_sentence_in_wide_characters_is_long_enough():
    assert gate(turn(query="我对花生过敏吗"), DIRECT).allowed


@pytest.mark.parametrize(
    ("prompt", "searched"),
    [
        ("발레 몇시", True), ("chi è lea", True), ("c qui lea", True), ("who's bo", True), ("кто Маша", True),
        ("房东是谁", True), ("家賃は\uff1f", True), ("rent?", True), ("ok", False), ("ok?", False), ("thanks!", False),
        ("haha", False), ("haha \U0001f602\U0001f602", False), ("???", False), ("5?", False), ("好的", False),
    ],
)  # fmt: skip
def test_a_short_prompt_is_searched_for_if_it_may_ask_unless_the_length_is_set(prompt, searched):
    assert gate(turn(query=prompt), DIRECT).allowed is searched
    # Active mode would call a model.
    assert not gate(turn(query=prompt), ACTIVE, Purpose.ACTIVE).allowed
    for config in ({"recall": {"minPromptLength": 10}}, {"preset": "memwal"}):
        assert blocked_by(turn(query=prompt), load_settings(config, {})) == "min_length"


def test_the_whole_switchboard_of_enabled_flags():
    off = load_settings({"autoRecall": False, "autoCapture": False}, {})
    assert blocked_by(turn(), off) == "enabled"
    assert blocked_by(turn(), off, Purpose.CAPTURE) == "enabled"
    only_capture = load_settings({"autoRecall": False}, {})
    assert gate(turn(), only_capture, Purpose.CAPTURE).allowed
    assert blocked_by(turn(), DIRECT, Purpose.ACTIVE) == "enabled"
    am_off = load_settings({"recall": {"mode": "active"}, "active": {"agents": ["ops"], "mode": "off"}}, {})
    assert blocked_by(turn(), am_off, Purpose.ACTIVE) == "enabled"


@pytest.mark.row("AM-04")
def test_active_mode_is_opt_in_by_agent_and_an_empty_list_lets_nobody_in():
    nobody = load_settings({"recall": {"mode": "active"}}, {})
    assert blocked_by(turn(), nobody, Purpose.ACTIVE) == "agents"
    main = load_settings({"agents": ["main"]}, {})
    assert gate(turn("agent:main:main"), main, Purpose.ACTIVE).allowed
    assert gate(turn("agent:x:main", agent="main"), main, Purpose.ACTIVE).allowed


def test_recall_can_be_limited_to_listed_agents():
    only = load_settings({"recall": {"agents": ["Research"]}}, {})
    assert gate(turn("agent:research:main"), only).allowed
    assert blocked_by(turn("agent:ops:main"), only) == "agents"


@pytest.mark.row("AM-05")
def test_chat_ids_deny_before_they_allow_and_an_allow_list_fails_closed():
    base = {"recall": {"mode": "active"}}
    chats = {"agents": ["ops"], "allowedChatTypes": ["direct", "group"]}
    both = load_settings({**base, "active": {**chats, "allowedChatIds": ["-1"], "deniedChatIds": ["-1"]}}, {})
    allow = load_settings({**base, "active": {**chats, "allowedChatIds": ["-1"]}}, {})
    group = "agent:ops:telegram:group:-1"
    assert blocked_by(turn(group), both, Purpose.ACTIVE) == "chat_id"
    assert gate(turn(group), allow, Purpose.ACTIVE).allowed
    assert gate(turn(chat_id="-1"), allow, Purpose.ACTIVE).allowed
    assert blocked_by(turn("agent:ops:telegram:group:-2"), allow, Purpose.ACTIVE) == "chat_id"
    assert blocked_by(turn(), allow, Purpose.ACTIVE) == "chat_id"


@pytest.mark.row("AM-05")
def test_direct_chats_are_the_only_ones_of_active_mode_by_default():
    assert gate(turn("agent:ops:telegram:direct:1"), ACTIVE, Purpose.ACTIVE).allowed
    assert blocked_by(turn("agent:ops:telegram:group:1"), ACTIVE, Purpose.ACTIVE) == "chat_type"
    assert blocked_by(turn("agent:ops:discord:channel:1"), ACTIVE, Purpose.ACTIVE) == "chat_type"
    assert blocked_by(turn("agent:ops:slack:C123"), ACTIVE, Purpose.ACTIVE) == "chat_type"
    assert gate(turn("agent:ops:slack:D123", audience=TurnAudience.DIRECT), ACTIVE, Purpose.ACTIVE).allowed


def test_an_operator_may_let_subagents_recall_but_they_are_never_captured():
    read_only = load_settings({"recall": {"skipTriggers": ["memory"]}}, {})
    subagent = turn("agent:ops:subagent:1")
    assert gate(subagent, read_only).allowed
    assert blocked_by(subagent, read_only, Purpose.CAPTURE) == "run"
    assert blocked_by(turn(trigger="cron"), read_only, Purpose.CAPTURE) == "trigger"


@pytest.mark.row("AR-18")
def test_operators_patterns_skip_messages_and_sessions():
    settings = load_settings(
        {"recall": {"skipPatterns": [r"^\[cron"], "skipSessionPatterns": [":scratch:"]}}, {}
    )
    assert blocked_by(turn(query="[CRON daily] tidy up the inbox"), settings) == "skip_pattern"
    assert blocked_by(turn("agent:ops:scratch:1"), settings) == "session_pattern"
    assert blocked_by(turn("agent:ops:scratch:1"), settings, Purpose.CAPTURE) == "session_pattern"
    assert gate(turn(), settings).allowed


@pytest.mark.row("AR-17")
@pytest.mark.parametrize(
    "text",
    [
        "/status", "/model gpt", "/reset", "/new", "/new start over with this", "/approve abc123", "/stop",
        "/memory off --global", "/active-memory status", "/verbose on", "/Status@mybot", "/anything",
    ],
)  # fmt: skip
def test_slash_commands_are_recognised(text):
    assert is_slash_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "/etc/hosts is wrong", "/home/ana/notes.md", "see /status", "what does /new do?", "/ hello", "a/b",
        "/usr is full",
    ],
)  # fmt: skip
def test_paths_and_mentions_are_no_commands(text):
    assert not is_slash_command(text)


@pytest.mark.row("AR-15")
@pytest.mark.row("AR-16")
@pytest.mark.parametrize(
    "text",
    [
        "HEARTBEAT_OK", "NO_REPLY", " **NO_REPLY** ", "NO_REPLY.", "HEARTBEAT_OK all quiet",
        "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.",
        "Otherwise reply ONLY: NO_REPLY",
    ],
)  # fmt: skip
def test_the_hosts_control_words_and_the_prompts_that_ask_for_them_are_recognised(text):
    assert is_control_text(text)


@pytest.mark.parametrize(
    "text",
    ["what does HEARTBEAT_OK in the log mean?", "why NO_REPLY again", "no reply from Ana", "NO_REPLYING"],
)
def test_speech_about_control_words_is_not_one(text):
    assert not is_control_text(text)


def test_reasons_never_carry_text_of_the_turn():
    secret = "swordfish-4711"
    contexts = [
        turn(f"agent:ops:cron:{secret}"),
        turn(query=f"/status {secret}"),
        turn(query=f"NO_REPLY {secret}"),
    ]
    settings = load_settings({"recall": {"skipPatterns": ["."]}}, {})
    decisions = [d for c in [*contexts, turn(query=secret)] for p in Purpose for d in explain(c, settings, p)]
    assert any(not decision.allowed for decision in decisions)
    assert all(secret not in decision.reason for decision in decisions)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("hello", 5), ("  a \n\n b ", 3), ("\u200b\u200d\ufeff", 0), ("我对花生过敏", 12), ("e\u0301a", 3), ("", 0),
    ],
)  # fmt: skip
def test_the_effective_length_counts_what_is_seen_and_wide_characters_twice(text, length):
    assert effective_length(text) == length
