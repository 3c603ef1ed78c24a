"""A model server that does as it is told: OpenAI-compatible, on loopback, keeping every request it was sent.

A message ``CALL name {json}`` makes the model call that tool and then repeat what came back; any other message is
answered with ``Noted.``, or by what `answer_with` was given.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

REFUSES = "\0refused"
"""An answer that makes the server refuse the request, as a provider does."""
Answer = Callable[[dict[str, Any]], str | None]
ToolCall = Callable[[dict[str, Any]], tuple[str, dict[str, Any]] | None]
_HOSTS_OWN = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_CALL = re.compile(r"CALL (\w+) (\{.*\})")


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [])


class StubModel:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.given_up: list[dict[str, Any]] = []
        """The requests whose answers nobody waited for."""
        self._answer: Answer = lambda _request: None
        self._call: ToolCall = lambda _request: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer_with(self, answer: Answer) -> None:
        """Have requests answered by a function first; None leaves it to the rules above."""
        self._answer = answer

    def call_with(self, call: ToolCall) -> None:
        """Have a function decide first which tool is called; None leaves it to the rules above."""
        self._call = call

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The requests of runs of an agent: what a plugin asks of the host's model beside them comes without tools."""
        return [request for request in self.requests if request.get("tools")]

    def asked(self, needle: str) -> list[dict[str, Any]]:
        """Return the runs' requests whose latest messages of the user hold a text."""
        return [request for request in self.turns if needle in said(request)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the assistant's message."""
        told = self._answer(request)
        last = latest(request)
        if told is not None:
            return {"role": "assistant", "content": told}
        if last["role"] == "tool":
            return {"role": "assistant", "content": f"TOOL SAID: {text_of(last)}"}
        written = _CALL.search(said(request))
        wanted = self._call(request)
        if wanted is not None:
            function = {"name": wanted[0], "arguments": json.dumps(wanted[1])}
        elif written is not None:
            function = {"name": written[1], "arguments": written[2]}
        else:
            return {"role": "assistant", "content": "Noted."}
        calls = [{"index": 0, "id": f"call_{len(self.requests)}", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(json.dumps({"object": "list", "data": [{"id": "stub-model"}]}).encode())

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.requests.append(request)
                message = model.reply(request)
                line = self.connection
                # One that was closed is readable, and holds nothing.
                if select.select([line], [], [], 0)[0] and not line.recv(1, socket.MSG_PEEK):
                    model.given_up.append(request)
                elif message["content"] == REFUSES:
                    body = {"error": {"message": "the request is refused", "type": "invalid_request_error"}}
                    self._send(json.dumps(body).encode(), status=400)
                elif request.get("stream"):
                    self._send(b"".join(_events(message)), "text/event-stream")
                else:
                    choice = {"index": 0, "message": message, "finish_reason": _reason(message)}
                    body = _frame("chat.completion") | {"choices": [choice], "usage": _USAGE}
                    self._send(json.dumps(body).encode())

            def _send(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def latest(request: dict[str, Any]) -> dict[str, Any]:
    """Return the latest message that is not the host's own context, which it sends behind prompts and tools' answers."""
    return next(one for one in reversed(request["messages"]) if not text_of(one).startswith(_HOSTS_OWN))


def said(request: dict[str, Any]) -> str:
    """Return the messages of the user at the end of a request: the host adds context of its own behind the prompt."""
    trailing: list[str] = []
    for message in reversed(request["messages"]):
        if message["role"] != "user":
            break
        trailing.insert(0, text_of(message))
    return "\n".join(trailing)


def system(request: dict[str, Any]) -> str:
    """Return the system prompt of a request."""
    return "\n".join(
        text_of(message) for message in request["messages"] if message["role"] in {"system", "developer"}
    )


_USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}


def _frame(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-stub", "object": kind, "created": 1_790_000_000, "model": "stub-model"}


def _reason(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _events(message: dict[str, Any]) -> Iterator[bytes]:
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": _reason(message)}]},
        {"choices": [], "usage": _USAGE},
    ]
    for chunk in chunks:
        yield b"data: " + json.dumps(_frame("chat.completion.chunk") | chunk).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
