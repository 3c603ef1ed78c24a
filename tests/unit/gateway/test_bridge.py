"""The bridge's messages: what is a request, what is refused, and where one line ends."""

from __future__ import annotations

import json

import pytest

from gateway_plugin.bridge import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION,
    WRONG_VERSION,
    BridgeError,
    LineSplitter,
    agreed_version,
    encode_error,
    encode_result,
    parse_message,
)


def line(**message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def test_a_request_keeps_its_id_parameters_and_deadline() -> None:
    call = parse_message(line(id=7, method="turn.before", params={"prompt": "hi", "deadlineMs": 1500}))
    assert (call.id, call.method, call.params["prompt"], call.deadline) == (7, "turn.before", "hi", 1.5)


def test_a_message_without_an_id_is_a_notification() -> None:
    assert parse_message(line(method="cancel", params={"id": 1})).id is None


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"no json", PARSE_ERROR),
        (b"[" * 100_000, PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b'{"id":1,"method":"ping"}', INVALID_REQUEST),
        (line(id=True, method="ping"), INVALID_REQUEST),
        (line(id={}, method="ping"), INVALID_REQUEST),
        (line(id=1), INVALID_REQUEST),
        (line(id=1, method="ping", params=[]), INVALID_PARAMS),
        (line(id=1, method="ping", params={"deadlineMs": "soon"}), INVALID_PARAMS),
        (line(id=1, method="ping", params={"deadlineMs": 0}), INVALID_PARAMS),
        (line(id=1, method="ping", params={"deadlineMs": 1e9}), INVALID_PARAMS),
    ],
)
def test_what_is_no_request_is_refused_by_its_kind(raw: bytes, code: int) -> None:
    with pytest.raises(BridgeError) as refused:
        parse_message(raw)
    assert refused.value.code == code


def test_a_refusal_carries_the_id_of_the_request_that_it_answers() -> None:
    with pytest.raises(BridgeError) as refused:
        parse_message(line(id="a", method="ping", params=[]))
    assert json.loads(encode_error(refused.value))["id"] == "a"


def test_an_answer_is_one_line_whatever_is_in_it() -> None:
    answer = encode_result(1, {"text": "two\nlines \u2028 and half a pair \ud800"})
    assert answer.count(b"\n") == 1
    assert json.loads(answer)["result"]["text"].startswith("two\nlines")


def test_the_version_that_both_speak_is_agreed_on() -> None:
    assert agreed_version([PROTOCOL_VERSION + 1, PROTOCOL_VERSION]) == PROTOCOL_VERSION


@pytest.mark.parametrize("offered", [[PROTOCOL_VERSION + 1], [], None, "1"])
def test_no_common_version_is_refused_with_the_fix(offered: object) -> None:
    with pytest.raises(BridgeError, match="same version") as refused:
        agreed_version(offered)
    assert refused.value.code == WRONG_VERSION


def test_lines_are_found_however_the_bytes_arrive() -> None:
    whole = b'{"a":1}\n\n{"b":2}\n{"c"'
    splitter = LineSplitter()
    one_by_one = [found for byte in whole for found in splitter.feed(bytes([byte]))]
    assert one_by_one == LineSplitter().feed(whole) == [b'{"a":1}', b'{"b":2}']


def test_a_line_beyond_the_limit_is_dropped_and_the_next_one_read() -> None:
    splitter = LineSplitter(limit=10)
    found = splitter.feed(b"x" * 8) + splitter.feed(b"x" * 8) + splitter.feed(b"\nnext\n")
    assert found == [None, b"next"]
