from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_relayer import COFFEE

from gateway_plugin import MemoryPlugin
from gateway_plugin.capture.capturer import MAX_REMEMBERED, TurnCursor, capture_turn, fingerprint
from gateway_plugin.errors import SettingsError
from gateway_plugin.keys.identity import TurnAudience, identify, parse_session_key
from gateway_plugin.sessions import EchoFilter
from gateway_plugin.settings.model import CaptureSettings, load_settings
from gateway_plugin.turn.gates import HostTurn, Turn
from gateway_plugin.turn.query import ChatMessage, parse_messages
from relayer.wire.codec import Malformed
from relayer.wire.fields import Role

NOW_MS = 1_767_225_600_000
ANSWER = "Understood: oat milk coffee, and none of it in the afternoon."
BERLIN = "I moved from Hamburg to Berlin in the spring of this year."


def user(text, **more):
    return ChatMessage(Role.USER, text, **more)


def said(text, **more):
    return ChatMessage(Role.ASSISTANT, text, **more)


def capture(messages, identity, cursor=None, echoes=None, **more):
    session, audience = more.pop("session", "agent:researcher:s"), more.pop("audience", TurnAudience.DIRECT)
    turn = Turn(session=parse_session_key(session), host=HostTurn(audience=audience), whose=identity)
    arguments = {"settings": CaptureSettings(), "now_ms": NOW_MS} | more
    return capture_turn(
        messages, turn, cursor=cursor or TurnCursor(), echoes=echoes or EchoFilter(), **arguments
    )


def texts(captured):
    return [turn.text for turn in captured.request.turns] if captured.request else []


@pytest.mark.row("MW-13")
def test_a_turn_becomes_one_request_with_roles_times_and_audience(identity):
    captured = capture([user(COFFEE, at=NOW_MS - 5, id="m1", speaker="Ana"), said(ANSWER)], identity)
    turns = captured.request.turns
    assert [(turn.role, turn.text, turn.occurred_at) for turn in turns] == [
        ("user", COFFEE, NOW_MS - 5),
        ("assistant", ANSWER, NOW_MS),
    ]
    assert (turns[0].id, turns[0].speaker) == ("m1", "Ana")
    assert (captured.request.audience, captured.request.session) == ("direct", "agent:researcher:s")


@pytest.mark.parametrize(
    ("audience", "name"), [(None, "agent"), (TurnAudience.GROUP, "group"), (TurnAudience.CHANNEL, "group")]
)
def test_who_could_hear_it_is_kept(identity, audience, name):
    session = "agent:researcher:s" if audience else ""
    captured = capture([user(COFFEE)], identity, audience=audience, session=session)
    assert captured.request.audience == name


@pytest.mark.row("CP-34")
def test_a_growing_history_is_sent_once_each(identity):
    history = [user(COFFEE), said(ANSWER)]
    first = capture(history, identity)
    history += [user(BERLIN), said("Congratulations on the move to Berlin, I hope it went well.")]
    second = capture(history, identity, first.cursor)
    assert texts(second)[0] == BERLIN
    assert second.new == 2
    assert capture(history, identity, second.cursor).new == 0


def test_turns_given_one_by_one_are_all_sent(identity):
    first = capture([user(COFFEE)], identity)
    second = capture([user(BERLIN)], identity, first.cursor)
    assert (texts(first), texts(second)) == ([COFFEE], [BERLIN])


def test_after_a_compaction_only_what_is_new_is_sent(identity):
    history = [user(COFFEE), said(ANSWER), user(BERLIN), said("Congratulations on the move to Berlin!")]
    first = capture(history, identity)
    rewritten = [said("Summary: the user drinks oat milk coffee and moved to Berlin."), *history[-2:]]
    news = user("My sister Lena visits me in the first week of May.")
    assert texts(capture([*rewritten, news], identity, first.cursor)) == [news.text]


def test_one_word_said_again_is_not_taken_for_the_place_where_capture_stopped(identity):
    first = capture([user(COFFEE), said(ANSWER), user("yes")], identity)
    again = capture([user("Shall we go on with it?"), user("yes"), user(BERLIN)], identity, first.cursor)
    assert again.new == 3


def test_ids_decide_where_hosts_give_them(identity):
    first = capture([user(COFFEE, id="1")], identity)
    assert capture([user(COFFEE, id="1")], identity, first.cursor).new == 0
    assert capture([user(COFFEE, id="2")], identity, first.cursor).new == 1


@pytest.mark.row("CP-41")
def test_the_same_turn_has_the_same_key_and_another_has_another(identity):
    def key(messages, **more):
        return capture(messages, identity, **more).request.idempotency_key

    one = key([user(COFFEE)])
    assert key([user(COFFEE)], now_ms=NOW_MS + 999) == one
    assert key([user(BERLIN)]) != one
    assert key([user(COFFEE)], session="agent:researcher:t") != one
    assert key([user(COFFEE)], cursor=TurnCursor(1)) != one


def test_a_key_tells_nothing_to_who_lacks_the_namespace_secret(identity, holder):
    other = identify(holder, parse_session_key("agent:coder:s"), default_agent=None)
    keys = {capture([user(COFFEE)], who).request.idempotency_key for who in (identity, other)}
    assert len(keys) == 2


def test_what_is_left_out_is_not_judged_again(identity):
    captured = capture([user("ok"), said("Fine.")], identity)
    assert capture([user("ok"), said("Fine.")], identity, captured.cursor).new == 0


@pytest.mark.row("CP-15")
def test_the_newest_are_kept_when_there_are_too_many_and_the_rest_is_counted(identity):
    many = [user(f"My lucky number on day {n} was {n * 7}, as I told you.") for n in range(12)]
    captured = capture(many, identity)
    assert len(texts(captured)) == 10
    assert texts(captured)[-1] == many[-1].text
    assert captured.dropped == {"over_max_messages": 2}


MEMSEARCH = load_settings({"preset": "memsearch"}, {}).capture


@pytest.mark.row("MS-18")
@pytest.mark.parametrize(
    ("turn", "count"),
    [
        ((user("We ship the parser tomorrow."), said("Then I will tag the release tonight.")), 2),
        ((user("We ship the parser tomorrow, tell the whole harbour about it."),), 0),
        ((user("We ship it."), said("All right, noted for then.")), 0),
    ],
)
def test_a_turn_of_too_few_messages_or_characters_is_left_out_where_that_is_set(identity, turn, count):
    captured = capture(turn, identity, settings=MEMSEARCH)
    assert len(captured.request.turns if captured.request else ()) == count
    assert captured.dropped.get("turn_too_short", 0) == (0 if count else len(turn))


@pytest.mark.row("MS-18")
@pytest.mark.parametrize(("text", "reason"), [("Ship it on", "too_short"), ("Ship it now", None)])
def test_a_message_has_more_than_ten_characters_where_that_is_set(identity, text, reason):
    turn = (user(text), user("The parser goes out with the tide tomorrow morning, at six."), said(ANSWER))
    assert ([*capture(turn, identity, settings=MEMSEARCH).dropped] or [None])[0] == reason


@pytest.mark.row("MS-18")
def test_of_a_long_answer_the_end_is_kept_where_that_is_set_and_all_of_it_otherwise(identity):
    answer = "".join(f"Step {number} of the long answer is done. " for number in range(200)) + "So it works."
    turn = (user("Please explain how the release pipeline works."), said(answer))
    assert texts(capture(turn, identity))[1] == answer
    kept = texts(capture(turn, identity, settings=MEMSEARCH))[1]
    assert len(kept) <= 3000
    assert kept.endswith("So it works.")
    assert kept.split(" ")[0] in answer.split(" ")


@pytest.mark.row("MW-34")
@pytest.mark.parametrize(
    "echo",
    [
        COFFEE,
        "You only drink oat milk coffee, never after 2 PM!",
        "Noted, you only drink oat milk coffee never after 2 pm",
    ],
)
def test_what_was_injected_does_not_come_back_as_news(identity, echo):
    echoes = EchoFilter()
    echoes.injected([COFFEE])
    captured = capture([user(BERLIN), said(echo)], identity, echoes=echoes)
    assert texts(captured) == [BERLIN]
    assert captured.dropped == {"echo": 1}


@pytest.mark.parametrize(
    "news",
    [
        "I only drink oat milk coffee, never after 3 pm.",
        "I only drink soy milk coffee, never after 2 pm.",
        "She only drinks oat milk coffee, never after 2 pm.",
        "I no longer only drink oat milk coffee, never after 2 pm.",
    ],
)
def test_a_correction_is_news(identity, news):
    echoes = EchoFilter()
    echoes.injected([COFFEE])
    assert texts(capture([user(news)], identity, echoes=echoes)) == [news]


def test_word_order_is_part_of_what_is_said():
    echoes = EchoFilter()
    echoes.injected(["Ana owes Bob ten euros"])
    assert echoes.without_echoes("Bob owes Ana ten euros", origin=Role.ASSISTANT)


def test_only_the_echoing_lines_of_an_assistants_message_are_dropped():
    echoes = EchoFilter()
    echoes.injected([COFFEE])
    assert echoes.without_echoes(f"{COFFEE}\n{BERLIN}", origin=Role.ASSISTANT) == BERLIN


MEDICINES = "Le traitement de maman :\n- Ramipril 5 mg le matin\n- Eliquis 5 mg matin et soir"


@pytest.mark.parametrize(
    "news",
    [
        "Nouveau traitement de maman :\n- Ramipril 10 mg le matin\n- Eliquis 5 mg matin et soir\n- Torasémide 10 mg",
        "Le traitement de papa :\n- Ramipril 5 mg le matin\n- Eliquis 5 mg matin et soir",
        "Eliquis 5 mg matin et soir",
        f"Pour l'école :\n{COFFEE}\n{BERLIN}",
    ],
)
def test_a_line_of_a_user_is_kept_though_a_memory_has_the_same_line(news):
    echoes = EchoFilter()
    echoes.injected([MEDICINES, COFFEE])
    assert echoes.without_echoes(news, origin=Role.USER) == news


def test_a_memory_with_all_its_lines_is_dropped_from_a_users_message():
    echoes = EchoFilter()
    echoes.injected([MEDICINES, COFFEE])
    given_back = MEDICINES.replace("\n", "\n\n")
    assert echoes.without_echoes(MEDICINES, origin=Role.USER) == ""
    assert echoes.without_echoes(COFFEE, origin=Role.USER) == ""
    assert echoes.without_echoes(f"{given_back}\n\n{BERLIN}", origin=Role.USER) == BERLIN
    assert echoes.without_echoes(f"{BERLIN}\n{MEDICINES}\n{MEDICINES}", origin=Role.USER) == BERLIN


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "input_text", "text": "a"}, "b"], "a\nb"),
        ("\ud800x", "?x"),
    ],
)
def test_every_usual_shape_of_content_is_read(content, text):
    assert parse_messages([{"role": "user", "content": content}])[0].text == text


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "x"},
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "tool_result", "text": 3}]},
        {"role": "user", "content": None},
        {"content": "x"},
    ],
)
def test_what_nobody_said_is_left_out(message):
    assert parse_messages([message]) == ()


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (1_767_225_600, 1_767_225_600_000),
        (1_767_225_600_123, 1_767_225_600_123),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("yesterday", None),
        ("2026-01-01T00:00:00", None),
        (float("nan"), None),
        (1e300, None),
        (True, None),
    ],
)
def test_times_are_read_where_they_are_certain(given, ms):
    assert parse_messages([{"role": "user", "content": "x", "timestamp": given}])[0].at == ms


def test_a_message_that_is_no_mapping_is_the_callers_mistake():
    with pytest.raises(TypeError):
        parse_messages(["hello"])


@given(st.lists(st.binary(min_size=16, max_size=16), max_size=300), st.integers(0, 2**63))
def test_a_cursor_survives_storage(prints, turns):
    cursor = TurnCursor(turns).advanced(prints)
    assert TurnCursor.decode(cursor.encode()) == cursor
    assert len(cursor.seen) <= MAX_REMEMBERED


@given(st.text(max_size=60))
def test_a_stored_cursor_is_read_or_refused(text):
    with contextlib.suppress(Malformed):
        TurnCursor.decode(text)


@given(
    st.lists(st.text(min_size=1, max_size=3), min_size=2, max_size=40), st.integers(2, 40), st.integers(1, 40)
)
def test_however_a_history_is_cut_nothing_new_is_lost(words, seen_count, window):
    """With distinct ids, any window that reaches back over two known messages sends exactly the new ones."""
    prints = [fingerprint(b"k", user(word, id=f"{n}")) for n, word in enumerate(words)]
    seen_count = min(seen_count, len(prints))
    cursor = TurnCursor().advanced(prints[:seen_count])
    start = max(min(seen_count - 2, len(prints) - window), 0)
    given_prints = prints[start:]
    assert given_prints[cursor.new(given_prints) :] == prints[seen_count:]


def _secret():
    return "gh" + "p_" + "Z9" * 18


def test_a_secret_is_taken_out_of_what_is_captured(wire, environ):
    with MemoryPlugin(wire.url, secret="11" * 32, environ=environ) as plugin:
        text = f"Remember that I push to the mirror with {_secret()} every Monday."
        report = plugin.after_turn([{"role": "user", "content": text}])
        assert report.redacted == ("github_token",)
        assert plugin.flush(10)
        plugin.before_turn(f"Where do I use {_secret()} again?")
    assert wire.texts("default") == [
        "Remember that I push to the mirror with [github token removed] every Monday."
    ]
    assert not any(_secret().encode() in body for _, _, _, body in wire.seen)


def test_a_blocked_class_keeps_the_whole_message_back(wire, environ):
    settings = {"capture": {"redaction": {"github_token": "block"}}}
    with MemoryPlugin(wire.url, secret="11" * 32, environ=environ, settings=settings) as plugin:
        report = plugin.after_turn(
            [{"role": "user", "content": f"Remember that I push to the mirror with {_secret()}."}]
        )
    assert (report.status, report.dropped) == ("empty", {"secret": 1})


def test_a_class_that_does_not_exist_is_refused_with_the_nearest_one():
    with pytest.raises(SettingsError, match="github_token"):
        load_settings({"capture": {"redaction": {"github_tokens": "allow"}}}, {})
