"""Logs: one line per event, to standard error, for people or as JSON.

A log shows what happened and never what was said: no text, key, certificate, vector or namespace. Exceptions are logged
by type and place, because their messages may quote what they were given; for the same reason records of other
libraries are cut to their first line. What the system and our own errors about a store say is told in words: they quote nobody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import structlog

from relayer.errors import StoreError

LogFormat = Literal["auto", "console", "json"]
_MOST_FRAMES = 12
_MOST_CAUSES = 5
_LONGEST_FOREIGN = 200


class LogOutput:
    """Writes log lines to ``stream``, or to standard error as it is when a line is written.

    structlog writes to standard output unless it is configured, which a program with a relayer inside may not have done.
    """

    def __init__(self) -> None:
        self.stream: TextIO | None = None

    def msg(self, line: str) -> None:
        """Write one line."""
        stream = self.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()

    debug = info = warning = error = critical = msg


output = LogOutput()
log: structlog.stdlib.BoundLogger = structlog.wrap_logger(output)


def configure(log_format: LogFormat, level: str = "info", stream: TextIO | None = None) -> None:
    """Set up logging for the process.

    Args:
        log_format: for people, or one JSON object a line; ``auto`` is for people on a terminal only.
        level: debug, info, warning or error.
        stream: standard error unless a test says otherwise.
    """
    output.stream = stream
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    as_json = log_format == "json" or (log_format == "auto" and not target.isatty())
    renderer: structlog.typing.Processor = (
        _as_json if as_json else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[
            _stamped,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Foreign()]
    root.setLevel(max(number, logging.WARNING))


def name_instance(port: int, *, shared: bool = False) -> None:
    """Add machine and port to every line from now on, and the process id where several processes share the port."""
    _instance["instance"] = f"{socket.gethostname()}:{port}"
    if shared:
        _instance["process"] = os.getpid()


def name_request(request_id: str) -> None:
    """Have every line of this task from now on say which request it is about."""
    _request.set(request_id)


_instance: dict[str, str | int] = {}
_request: ContextVar[str] = ContextVar("request_id", default="")


def _stamped(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Say whose line it is, its level and its time: in one step, since every request writes one."""
    event.update(_instance)
    if request_id := _request.get():
        event["request_id"] = request_id
    event["level"] = level
    event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return event


def describe(error: BaseException) -> dict[str, Any]:
    """Return type and frames of an exception and of its causes, and nothing that it carries.

    Of an error of the system there are its cause in the system's own words and the path, if it was about one (``No space left on
    device``; names below ``objects/`` are hashes), of one about the store the sentence for its operator.
    """
    causes: list[str] = []
    words = _in_words(error)
    cause: BaseException | None = error.__cause__ or error.__context__
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(type(cause).__name__)
        words = words or _in_words(cause)
        cause = cause.__cause__ or cause.__context__
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    described: dict[str, Any] = {"error": type(error).__name__, **words, "frames": frames[-_MOST_FRAMES:]}
    if causes:
        described["causes"] = causes
    if isinstance(error, BaseExceptionGroup):
        described["inner"] = [describe(inner) for inner in error.exceptions[:_MOST_CAUSES]]
    return described


def _in_words(error: BaseException) -> dict[str, str]:
    if isinstance(error, StoreError):
        return {"cause": str(error)}
    if not isinstance(error, OSError) or error.errno is None:
        return {}
    path = {"path": os.fsdecode(error.filename)} if isinstance(error.filename, str | bytes) else {}
    # Not its own text: that is whatever it was made with.
    return {"cause": os.strerror(error.errno), **path}


def loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop reports; for ``loop.set_exception_handler``."""
    error = context.get("exception")
    log.error("event_loop", what=context.get("message", ""), **(describe(error) if error else {}))


# One encoder for all lines; of what is no JSON only the type is told.
# The strict one: msgspec's would write out bytes and dataclasses, and fail at what no encoding can hold.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=lambda value: type(value).__name__)


def _as_json(_: object, __: str, event: structlog.typing.EventDict) -> str:
    return _ENCODER.encode(event)


class _Foreign(logging.Handler):
    """Records of other libraries, in our own form."""

    def emit(self, record: logging.LogRecord) -> None:
        template = str(record.msg).partition("\n")[0][:_LONGEST_FOREIGN]
        details = describe(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        method = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(log, method)("library", logger=record.name, what=template, **details)
