from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.errors import GatewayError, IdentityError
from gateway_plugin.keys.identity import (
    MAX_SESSION_KEY_CHARS,
    NamespaceScope,
    RunKind,
    TurnAudience,
    identify,
    parse_session_key,
)
from relayer.wire import codec as base64url
from relayer.wire import names
from relayer.wire.signing import Certificate, Right

NOW = 1_767_225_600


def of(holder, key, **more):
    return identify(holder, parse_session_key(key), **more)


@pytest.mark.row("MW-36")
def test_a_name_that_is_not_plain_gets_a_hashed_normal_form(holder):
    found = of(holder, "agent:Ünïcode Näme!:s")
    assert names.is_normal(found.agent)
    assert found.agent.startswith("_h_")
    assert names.is_normal_namespace(found.namespace)
    assert found.namespace == of(holder, "agent:ünïcode näme!:other").namespace


def test_a_scope_separates_senders_and_keeps_them_below_the_agent(holder):
    scope = NamespaceScope.AGENT_SENDER
    ana, bob = (of(holder, "agent:r:s", scope=scope, sender=sender) for sender in ("42", "43"))
    assert (ana.namespace, bob.namespace) == ("r/sender-42", "r/sender-43")
    assert ana.namespace_secret != bob.namespace_secret


def test_sender_and_workspace_of_one_name_do_not_meet(holder):
    by_sender = of(holder, "agent:r:s", scope=NamespaceScope.AGENT_SENDER, sender="x")
    by_workspace = of(holder, "agent:r:s", scope=NamespaceScope.AGENT_WORKSPACE, workspace="x")
    assert by_sender.namespace != by_workspace.namespace


@pytest.mark.parametrize("sender", [None, "", "  "])
def test_an_unknown_sender_is_no_reason_to_share(holder, sender):
    with pytest.raises(IdentityError, match="sender"):
        of(holder, "agent:r:s", scope=NamespaceScope.AGENT_SENDER, sender=sender)


def test_a_minted_certificate_grants_read_and_write_below_the_agent_for_a_day(holder):
    identity = of(holder, "agent:researcher:s")
    certificate = Certificate.verify(base64url.decode(identity.certificate_header(NOW)))
    assert certificate.account == identity.account
    assert certificate.not_after == NOW + 86_400
    assert certificate.not_before <= NOW
    assert certificate.allows("researcher", Right.WRITE)
    assert certificate.allows("researcher/sender-42", Right.READ)
    assert not certificate.allows("coder", Right.READ)
    assert not certificate.allows("researcher", Right.ADMIN)


def test_a_certificate_is_reused_until_an_hour_before_its_end(holder):
    identity = of(holder, "agent:researcher:s")
    first = identity.certificate_header(NOW)
    assert identity.certificate_header(NOW + 82_800) == first
    assert identity.certificate_header(NOW + 82_801) != first


def test_a_corrected_clock_gets_a_certificate_that_is_valid_then(holder):
    identity = of(holder, "agent:researcher:s")
    identity.certificate_header(NOW)
    earlier = Certificate.verify(base64url.decode(identity.certificate_header(NOW - 7200)))
    assert earlier.not_before <= NOW - 7200


def test_an_agent_whose_keys_were_rotated_goes_by_its_new_name(holder):
    renamed = {"researcher": "researcher-2"}
    assert of(holder, "agent:Researcher:s", renamed=renamed).namespace == "researcher-2"
    assert of(holder, "agent:coder:s", renamed=renamed).namespace == "coder"


@pytest.mark.row("MW-05")
@pytest.mark.parametrize(
    ("key", "agent"),
    [
        ("agent:researcher:uuid-456", "researcher"), ("agent:coder:uuid-789", "coder"), ("main:uuid-123", None),
        ("agent:main:main", None), ("agent:Main:uuid", None), ("agent:ops", "ops"), ("AGENT:Ops:main", "Ops"),
        ("", None), ("telegram:-100123", None), ("agent", None),
    ],
)  # fmt: skip
def test_the_agent_is_the_second_part_of_an_agent_key_and_the_default_one_otherwise(key, agent):
    assert parse_session_key(key).agent == agent


@pytest.mark.parametrize(
    ("key", "audience"),
    [
        ("agent:x:main", TurnAudience.DIRECT),
        ("agent:x:openai-user:s3810", TurnAudience.DIRECT),
        ("agent:x:telegram:group:-100123", TurnAudience.GROUP),
        ("agent:x:telegram:group:-100123:topic:7", TurnAudience.GROUP),
        ("agent:x:discord:channel:99:thread:5", TurnAudience.CHANNEL),
        ("agent:x:telegram:direct:4711", TurnAudience.DIRECT),
        ("agent:x:telegram:acct1:direct:4711", TurnAudience.DIRECT),
        ("agent:x:direct:group", TurnAudience.DIRECT),
        ("agent:x:slack:dm:U1", TurnAudience.DIRECT),
        ("agent:x:explicit:group", TurnAudience.DIRECT),
        ("agent:x:telegram:supergroup:-1:u", TurnAudience.GROUP),
        ("main:uuid-123", TurnAudience.DIRECT),
    ],
)
def test_the_audience_follows_the_first_word_that_names_a_chat_type(key, audience):
    ref = parse_session_key(key)
    assert (ref.audience, ref.said_to) == (audience, audience)


@pytest.mark.parametrize(
    "key",
    [
        "slack:C123", "telegram:-100123", "agent:x:slack:C123", "agent:x:slack:acct:C123",
        "agent:x:webchat:a:b:group:c", "agent:x:Slack:C123:active-memory:0123456789ab", "unified:default",
    ],
)  # fmt: skip
def test_a_chat_of_no_told_type_is_answered_as_a_group_and_captured_as_direct(key):
    ref = parse_session_key(key)
    assert (ref.audience, ref.said_to) == (TurnAudience.GROUP, TurnAudience.DIRECT)


@pytest.mark.parametrize(
    "key",
    [
        "", "uuid-1", "main:uuid-1", "cli:direct", "cli:uuid-1", "api:alice",
        "agent:x:main:active-memory:0123456789ab", "agent:x:cron:daily", "agent:x:subagent:1",
    ],
)  # fmt: skip
def test_a_key_that_names_no_platform_is_of_a_direct_conversation(key):
    ref = parse_session_key(key)
    assert (ref.audience, ref.said_to) == (TurnAudience.DIRECT, TurnAudience.DIRECT)


@pytest.mark.parametrize(
    ("key", "run"),
    [
        ("agent:x:main", RunKind.MAIN),
        ("agent:research:subagent:382d7a24-5e91-4fd2-b8bd-e58fcb14016f", RunKind.SUBAGENT),
        ("agent:x:main:active-memory:0123456789ab", RunKind.ACTIVE_MEMORY),
        ("agent:x:memory-capture:1", RunKind.MEMORY_CAPTURE),
        ("agent:x:dreaming-narrative-rem-1", RunKind.MEMORY_CAPTURE),
        ("cron:daily", RunKind.CRON),
        ("agent:x:cron:daily", RunKind.CRON),
        ("agent:x:main:heartbeat", RunKind.HEARTBEAT),
        ("heartbeat:1", RunKind.HEARTBEAT),
        ("agent:x:main:autonomic:1", RunKind.HEARTBEAT),
        ("hook:0e5a", RunKind.HOOK),
        ("agent:x:hook:0e5a", RunKind.HOOK),
        ("announce:v1:abc", RunKind.OTHER),
        ("", RunKind.OTHER),
        ("agent:cron:main", RunKind.MAIN),
        ("agent:x:telegram:direct:cron", RunKind.MAIN),
    ],
)
def test_the_kind_of_run_is_told_by_whole_segments_of_the_key(key, run):
    assert parse_session_key(key).run is run


def test_platform_and_chat_are_read_from_a_group_key():
    ref = parse_session_key("agent:x:telegram:group:-100123:topic:7")
    assert (ref.platform, ref.chat) == ("telegram", "-100123")


def test_a_key_at_the_limit_is_read_and_one_above_is_refused_with_the_limit_named():
    assert parse_session_key("agent:x:".ljust(MAX_SESSION_KEY_CHARS, "a")).agent == "x"
    with pytest.raises(IdentityError, match=r"at most 512"):
        parse_session_key("agent:x:".ljust(MAX_SESSION_KEY_CHARS + 1, "a"))


def test_a_key_of_a_megabyte_is_refused_and_not_repeated():
    with pytest.raises(IdentityError) as caught:
        parse_session_key("agent:secretname:" + "a" * 1_000_000)
    assert "secretname" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("char", ["\0", "\n", "\r", "\x1b", "\x7f", "\x85", "\ud800", "\u2028"])
def test_control_characters_and_half_surrogates_are_refused(char):
    with pytest.raises(IdentityError, match="control character"):
        parse_session_key(f"agent:x{char}:main")


@pytest.mark.parametrize(
    "key", ["agent::main", "agent:  :main", "agent:", "agent:rese\u200barcher:1", "agent:\u202ex:1"]
)
def test_an_empty_or_partly_invisible_agent_name_is_refused(key):
    with pytest.raises(IdentityError, match="agent"):
        parse_session_key(key)


@pytest.mark.parametrize("key", [None, 7, b"agent:x:main", ["agent"]])
def test_what_is_not_text_is_refused(key):
    with pytest.raises(IdentityError, match="not a string"):
        parse_session_key(key)


@given(st.text(max_size=600))
def test_nothing_but_our_own_error_ever_leaves_the_parser(key):
    with contextlib.suppress(GatewayError):
        parse_session_key(key)


def test_the_default_agent_is_listed_as_main():
    assert parse_session_key("agent:main:main").listed_as == "main"
    assert parse_session_key("agent:ops:main").listed_as == "ops"
