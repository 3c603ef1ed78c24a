"""The bridge's messages: what is a request, what is refused, and where one line ends."""

from __future__ import annotations

import json

import pytest

from gateway_plugin.bridge import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    BridgeError,
    LineSplitter,
    encode_result,
    parse_message,
)


def line(**message: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


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


def test_an_answer_is_one_line_whatever_is_in_it() -> None:
    answer = encode_result(1, {"text": "two\nlines \u2028 and half a pair \ud800"})
    assert answer.count(b"\n") == 1
    assert json.loads(answer)["result"]["text"].startswith("two\nlines")


def test_lines_are_found_however_the_bytes_arrive() -> None:
    whole = b'{"a":1}\n\n{"b":2}\n{"c"'
    splitter = LineSplitter()
    one_by_one = [found for byte in whole for found in splitter.feed(bytes([byte]))]
    assert one_by_one == LineSplitter().feed(whole) == [b'{"a":1}', b'{"b":2}']
