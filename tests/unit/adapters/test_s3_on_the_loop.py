"""What is asked for on the event loop: answers in any form and cut, and connections that are used again or not."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_servers import free_ports

from relayer.adapters.s3_store.client import Credentials, Route, Timeouts
from relayer.adapters.s3_store.failures import NoSuccess
from relayer.adapters.s3_store.on_the_loop import AnswerReader, LoopClient

OK = b'HTTP/1.1 200 OK\r\nDate: now\r\nETag: "e"\r\n'
BODY = b"what is stored"
PIECES = b"5;of=it\r\nwhat \r\n9\r\nis stored\r\n0\r\nTrailer: none\r\n\r\n"
INSTEAD = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"


def _read(answer: bytes, cuts: set[int]) -> AnswerReader:
    reader, at = AnswerReader(), sorted({0, len(answer), *(cut % len(answer) for cut in cuts)})
    pieces = [answer[start:end] for start, end in pairwise(at)]
    assert [reader.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return reader


@given(cuts=st.sets(st.integers(0, 400)), before=st.sampled_from([b"", INSTEAD]))
@pytest.mark.parametrize(
    "answer",
    [OK + b"Content-Length: 14\r\n\r\n" + BODY, OK + b"Transfer-Encoding: chunked\r\n\r\n" + PIECES],
    ids=["sized", "in chunks"],
)
def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, cuts: set[int], before: bytes) -> None:
    reader = _read(before + answer, cuts)
    assert b"".join(reader.body) == BODY
    assert (reader.status, reader.headers["date"], reader.headers["etag"]) == (200, "now", '"e"')
    assert reader.reusable


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"Connection: close\r\nContent-Length: 14\r\n\r\n" + BODY, BODY),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 14\r\n\r\n" + BODY, BODY),
        (OK + b"Content-Length: 14\r\n\r\n" + BODY + b"more", BODY),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + PIECES + b"more", BODY),
    ],
)
def test_a_connection_is_used_again_only_where_the_next_answer_must_be_the_next_request_s(
    answer: bytes, body: bytes
) -> None:
    reader = AnswerReader()
    assert reader.feed(answer)
    assert b"".join(reader.body) == body
    assert not reader.reusable


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_what_has_no_body_has_none_whatever_its_length_says(status: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 " + status + b"\r\nContent-Length: 14\r\n\r\n")
    assert reader.reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 14, 14\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nwhat \r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1_4\r\n" + BODY,
        OK + b"X: a\nETag: other\r\n\r\n",
        OK + b"X: a\rb\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"its |header|chunk|base 16"):
        AnswerReader().feed(answer)


async def _asked(times: int, *answers: bytes, end: bool = False) -> tuple[list[object], int]:
    """Ask a server that gives these answers, one on each request; returns what came and how many connections there were."""
    left, connections = list(answers), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while left and await reader.readuntil(b"\r\n\r\n"):
            writer.write(left.pop(0))
            if end:
                break
        writer.close()

    [port] = free_ports(1)
    route = Route("127.0.0.1", port, f"127.0.0.1:{port}", "/b/", "r", None)
    async with await asyncio.start_server(serve, "127.0.0.1", port):
        client = LoopClient(route, Credentials("a", "b"), None, Timeouts(2.0, 2.0, 5.0))
        got: list[object] = []
        for _ in range(times):
            try:
                got.append((await client.ask("get_object", Key="k")).body)
            except NoSuccess as error:
                got.append(error.failure.status)
            await asyncio.sleep(0.01)
        client.close()
        await asyncio.sleep(0.01)
    return got, connections


async def test_one_connection_serves_one_request_after_the_other() -> None:
    whole = OK + b"Content-Length: 14\r\n\r\n" + BODY
    assert await _asked(3, *[whole] * 3, b"") == ([BODY] * 3, 1)


async def test_a_connection_that_its_server_has_ended_is_not_asked() -> None:
    whole = OK + b"Content-Length: 14\r\n\r\n" + BODY
    assert await _asked(2, *[whole] * 2, end=True) == ([BODY] * 2, 2)


async def test_a_body_may_end_with_its_connection_and_one_with_a_length_may_not() -> None:
    assert await _asked(1, OK + b"\r\n" + BODY, end=True) == ([BODY], 1)
    assert await _asked(1, OK + b"Content-Length: 20\r\n\r\n" + BODY, end=True) == ([0], 1)


async def test_what_was_not_asked_for_is_nobody_s_answer() -> None:
    more = OK + b"Content-Length: 14\r\n\r\n" + BODY + OK + b"Content-Length: 1\r\n\r\nx"
    whole = OK + b"Content-Length: 14\r\n\r\n" + BODY
    assert await _asked(2, more, whole, b"") == ([BODY] * 2, 2)
