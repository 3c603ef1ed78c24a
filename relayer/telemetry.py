"""Logging: one line for each event to standard error, as text or as JSON.

Log lines contain no text of memories or prompts, and no key, certificate, vector or namespace. Exceptions are logged by type
and stack frames, because their messages may quote input; for the same reason only the first line of the message template of
other libraries' records is logged. The messages of the operating system and of our own errors about a store are logged in
words, because they quote no input.
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
    """Writes log lines to ``stream``, or to the `sys.stderr` of the moment if that is None.

    structlog writes to standard output unless it is configured, and a program that embeds a relayer may not have configured it.
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
        log_format: ``console`` for text, ``json`` for one JSON object on each line, ``auto`` for text on a terminal only.
        level: debug, info, warning or error.
        stream: where to write; standard error except in tests.
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
    """Add host name and port to all later lines, and the process id if several processes share the port."""
    _instance["instance"] = f"{socket.gethostname()}:{port}"
    if shared:
        _instance["process"] = os.getpid()


def name_request(request_id: str) -> None:
    """Add a request id to all later lines of the current task."""
    _request.set(request_id)


_instance: dict[str, str | int] = {}
_request: ContextVar[str] = ContextVar("request_id", default="")


def _stamped(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add instance, request id, level and time to a line; one processor for all, because every request writes a line."""
    event.update(_instance)
    if request_id := _request.get():
        event["request_id"] = request_id
    event["level"] = level
    event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return event


def describe(error: BaseException) -> dict[str, Any]:
    """Return the type and the stack frames of an exception and the types of its causes, without their messages.

    An error of the operating system is described in the system's words (``No space left on device``), with its path if it has
    one; names below ``objects/`` are hashes. For an error about the store, its message for the operator is included.
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
    # The exception's own text is not used: it may be any text that it was created with.
    return {"cause": os.strerror(error.errno), **path}


def loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop reports; for ``loop.set_exception_handler``."""
    error = context.get("exception")
    log.error("event_loop", what=context.get("message", ""), **(describe(error) if error else {}))


# Values that are not JSON are logged as their type. The encoder of the standard library is used, because that of msgspec
# would write out bytes and dataclasses, and fail for text that cannot be encoded.
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=lambda value: type(value).__name__)


def _as_json(_: object, __: str, event: structlog.typing.EventDict) -> str:
    return _ENCODER.encode(event)


class _Foreign(logging.Handler):
    """The handler that writes the records of other libraries in our own format."""

    def emit(self, record: logging.LogRecord) -> None:
        template = str(record.msg).partition("\n")[0][:_LONGEST_FOREIGN]
        details = describe(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        method = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(log, method)("library", logger=record.name, what=template, **details)
