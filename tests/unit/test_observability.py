"""Logs say what happened and where, never what was said."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from relayer import telemetry as observability
from relayer.errors import StoreUnavailable
from relayer.wire.sealing import SealingKey

CANARY = "the canary sings at dawn"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    sink = io.StringIO()
    observability.configure("json", "info", sink)
    yield sink
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _fail() -> None:
    try:
        int(CANARY)
    except ValueError as error:
        raise KeyError(CANARY) from error


def test_an_exception_is_logged_by_type_cause_and_frames_and_without_its_words(stream: io.StringIO) -> None:
    try:
        _fail()
    except KeyError as error:
        observability.log.error("failed", **observability.describe(error))
    (line,) = _lines(stream)
    assert line["error"] == "KeyError"
    assert line["causes"] == ["ValueError"]
    assert any("_fail" in frame for frame in line["frames"])
    assert CANARY not in stream.getvalue()


def test_of_what_is_no_json_a_line_tells_the_type_alone_and_no_text_keeps_a_line_from_being_written(
    stream: io.StringIO,
) -> None:
    key = SealingKey(b"an id", CANARY.encode())
    observability.log.info("odd", secret=CANARY.encode(), key=key, path="half a pair: \udc80")
    assert _lines(stream)[0] | {"secret": "bytes", "key": "SealingKey"} == _lines(stream)[0]
    assert CANARY not in stream.getvalue()
    assert base64.b64encode(CANARY.encode()).decode() not in stream.getvalue()


def test_what_the_system_refused_is_told_in_its_words_with_the_path_and_not_in_the_error_s(
    stream: io.StringIO, tmp_path: Path
) -> None:
    try:
        try:
            (tmp_path / "objects").mkdir()
            (tmp_path / "objects").mkdir()
        except FileExistsError as error:
            error.strerror = CANARY
            raise ValueError(CANARY) from error
    except ValueError as error:
        observability.log.error("failed", **observability.describe(error))
    (line,) = _lines(stream)
    assert (line["error"], line["cause"], line["path"]) == (
        "ValueError",
        "File exists",
        str(tmp_path / "objects"),
    )
    assert CANARY not in stream.getvalue()


def test_of_a_store_the_sentence_for_its_operator_is_told(stream: io.StringIO) -> None:
    observability.log.error("failed", **observability.describe(StoreUnavailable("the store sleeps")))
    (line,) = _lines(stream)
    assert line["cause"] == "the store sleeps"


def test_a_group_s_members_are_described_one_by_one(stream: io.StringIO) -> None:
    group = ExceptionGroup(CANARY, [ValueError(CANARY), OSError(CANARY)])
    described = observability.describe(group)
    assert [inner["error"] for inner in described["inner"]] == ["ValueError", "OSError"]
    assert CANARY not in json.dumps(described)


def test_other_libraries_are_cut_to_their_template(stream: io.StringIO) -> None:
    logger = logging.getLogger("some.library")
    logger.warning("refused %r", CANARY)
    built = f"first line\n{CANARY}"
    logger.error(built)
    try:
        _fail()
    except KeyError:
        logger.exception("crashed")
    lines = _lines(stream)
    assert [line["what"] for line in lines] == ["refused %r", "first line", "crashed"]
    assert lines[2]["error"] == "KeyError"
    assert CANARY not in stream.getvalue()


def test_what_is_below_the_level_is_not_written(stream: io.StringIO) -> None:
    observability.log.debug("quiet")
    logging.getLogger("some.library").info("quiet")
    assert stream.getvalue() == ""


async def test_a_lost_task_s_exception_is_logged_without_its_words(stream: io.StringIO) -> None:
    loop = asyncio.get_running_loop()
    observability.loop_error(
        loop, {"message": "Task exception was never retrieved", "exception": ValueError(CANARY)}
    )
    (line,) = _lines(stream)
    assert (line["event"], line["error"]) == ("event_loop", "ValueError")
    assert CANARY not in stream.getvalue()


def test_request_ids_reach_every_line(stream: io.StringIO) -> None:
    def request() -> None:
        observability.name_request("r-1")
        observability.log.info("event")

    contextvars.copy_context().run(request)
    observability.log.info("event")
    assert [line.get("request_id") for line in _lines(stream)] == ["r-1", None]


def test_by_default_a_terminal_gets_words_and_a_file_gets_json(stream: io.StringIO) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for sink, is_json in ((io.StringIO(), True), (Terminal(), False)):
        observability.configure("auto", "info", sink)
        observability.log.info("a line")
        assert sink.getvalue().startswith("{") is is_json
