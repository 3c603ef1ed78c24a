"""A model server on loopback that answers well, or exactly as badly as a test has written down.

It speaks real HTTP with the two routes of OpenAI-compatible servers, ``/v1/embeddings`` and ``/v1/chat/completions``:

    with ScriptedModelServer() as server:
        server.will_chat(Fault.TOO_MANY, says({"facts": [], "summary": ""}))
        ...                                 # point a relayer at server.url
        assert server.requests[-1].body["model"] == "a-model"

What is not in a script is answered well: embeddings are those of `HashingEmbedder`, chat finds nothing to say.

By hand: ``PYTHONPATH=tests python -m doubles.scripted_model_server --port 9000 --chat too_many,reset --embeddings hang``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
from aiohttp import web

from relayer.testing.hashing_embedder import HashingEmbedder

__all__ = ["Fault", "ModelRequest", "Reply", "ScriptedModelServer", "main", "says"]

RETRY_AFTER = "2"
_NOTHING = {"facts": [], "summary": ""}
_BYTES_PER_TOKEN = 4


class Fault(StrEnum):
    """What a server can do wrong. Those of one route are a plain answer on the other."""

    HANG = "hang"  # the request was read and nothing comes back
    RESET = "reset"  # the connection breaks
    CUT = "cut"  # the body ends in the middle
    SLOW = "slow"  # the body comes byte by byte, for as long as somebody reads
    TOO_MANY = "too_many"  # 429 with Retry-After
    BUSY = "busy"  # 503 with Retry-After
    SERVER_ERROR = "server_error"  # 500
    UNAUTHORIZED = "unauthorized"  # 401
    NO_MODEL = "no_model"  # 404
    REJECTED = "rejected"  # 400
    REDIRECT = "redirect"  # 307 to elsewhere
    NOT_JSON = "not_json"  # 200 with a page for people
    NO_CONTENT = "no_content"  # 200 with JSON that holds nothing asked for

    MALFORMED = "malformed"  # chat: text that is not the JSON asked for
    TRUNCATED = "truncated"  # chat: stopped by its length, in the middle of the JSON
    REFUSAL = "refusal"  # chat: the model will not
    EMPTY = "empty"  # chat: no text

    WRONG_DIMENSION = "wrong_dimension"  # embeddings: one number too many
    NOT_A_NUMBER = "not_a_number"  # embeddings: a NaN
    ZERO = "zero"  # embeddings: a vector of zeros
    WRONG_COUNT = "wrong_count"  # embeddings: one vector too few
    SHUFFLED = "shuffled"  # embeddings: right, in another order
    AS_DECIMALS = "as_decimals"  # embeddings: decimal numbers whatever was asked for


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request as it came."""

    route: str
    headers: dict[str, str]
    body: dict[str, Any]


Reply = Callable[[ModelRequest], str]
Step = Fault | Reply | str


def says(answer: object) -> str:
    """Return the text of a chat answer that holds this JSON."""
    return json.dumps(answer)


@dataclass(slots=True, eq=False)
class ScriptedModelServer:
    """See the module. For ``with``; runs on a thread and an event loop of its own, so it serves any process.

    Args:
        dimension: of the embeddings.
        port: 0 takes a free one.

    Attributes:
        requests: what came, in order.
        under_way: how many requests are being answered now.
        most_at_once: the highest that ever was.
        left: how many clients hung up before they were answered.
        chat: what chat says when its script is over: a text, or what makes one of a request.
    """

    dimension: int = 64
    port: int = 0
    chat: Reply | str = field(default=says(_NOTHING))
    requests: list[ModelRequest] = field(default_factory=list)
    under_way: int = 0
    most_at_once: int = 0
    left: int = 0
    _scripts: dict[str, deque[Step]] = field(default_factory=lambda: {"chat": deque(), "embeddings": deque()})
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _over: asyncio.Event = field(init=False)
    _gate: asyncio.Event = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _thread: threading.Thread = field(init=False)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def will_chat(self, *steps: Step) -> None:
        """Answer the next chat requests so: a fault, a text, or what makes a text of the request."""
        self._scripts["chat"].extend(steps)

    def will_embed(self, *steps: Fault) -> None:
        """Answer the next embedding requests with these faults."""
        self._scripts["embeddings"].extend(steps)

    def forget_script(self) -> None:
        """From now on answer well."""
        for script in self._scripts.values():
            script.clear()

    def hold(self) -> None:
        """Let chat requests wait until `release`."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    def release(self) -> None:
        """Answer the chat requests that wait, and those to come."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def wait_for(self, true: Callable[[], bool], seconds: float = 30.0) -> None:
        """Block until something about the requests is true; raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(true, seconds):
                raise TimeoutError("the model server was not asked as expected")

    def asked(self, route: str) -> list[ModelRequest]:
        """Return the requests of a route: ``chat`` or ``embeddings``."""
        return [request for request in self.requests if request.route == route]

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the model server did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._over, self._gate = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._gate.set()
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_post("/v1/chat/completions", partial(self._handle, "chat"))
        application.router.add_post("/v1/embeddings", partial(self._handle, "embeddings"))
        # Without cancellation on disconnect a client that hangs up would not be noticed.
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        ready.set()
        await self._over.wait()
        self._gate.set()
        await runner.cleanup()

    async def _handle(self, route: str, request: web.Request) -> web.StreamResponse:
        self._note(1)
        try:
            body = await request.json()
            headers = {name.lower(): value for name, value in request.headers.items()}
            seen = ModelRequest(route, headers, body)
            with self._changed:
                self.requests.append(seen)
                self._changed.notify_all()
            script = self._scripts[route]
            step: Step = script.popleft() if script else self.chat
            if isinstance(step, Fault) and step in _STATUSES:
                return _failure(step)
            if step in {Fault.HANG, Fault.RESET, Fault.CUT, Fault.SLOW}:
                return await self._break(request, Fault(str(step)))
            if route == "embeddings":
                return await self._embed(seen, step)
            await self._gate.wait()
            return _chat(seen, step)
        except asyncio.CancelledError:
            self.left += 1
            raise
        finally:
            self._note(-1)

    def _note(self, change: int) -> None:
        with self._changed:
            self.under_way += change
            self.most_at_once = max(self.most_at_once, self.under_way)
            self._changed.notify_all()

    async def _break(self, request: web.Request, how: Fault) -> web.StreamResponse:
        if how is Fault.HANG:
            await self._over.wait()
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Content-Length": "100000"}
        )
        if how in {Fault.CUT, Fault.SLOW}:
            await response.prepare(request)
            await response.write(b'{"data": [')
        while how is Fault.SLOW and not self._over.is_set():
            await response.write(b" ")
            await asyncio.sleep(0.02)
        if request.transport is not None:
            request.transport.abort()
        return response

    async def _embed(self, request: ModelRequest, step: Step) -> web.Response:
        texts = request.body["input"]
        rows = np.array(await HashingEmbedder(self.dimension).embed(texts), dtype=np.float32)
        if step is Fault.WRONG_DIMENSION:
            rows = np.concatenate([rows, rows[:, :1]], axis=1)
        elif step is Fault.NOT_A_NUMBER:
            rows[-1, 0] = np.nan
        elif step is Fault.ZERO:
            rows[-1] = 0
        items = [
            {"object": "embedding", "index": number, "embedding": _encoded(row, request.body, step)}
            for number, row in enumerate(rows)
        ]
        if step is Fault.WRONG_COUNT:
            items.pop()
        elif step is Fault.SHUFFLED:
            items.reverse()
        return web.json_response({"object": "list", "model": request.body["model"], "data": items})


_STATUSES = {
    Fault.TOO_MANY: 429,
    Fault.BUSY: 503,
    Fault.SERVER_ERROR: 500,
    Fault.UNAUTHORIZED: 401,
    Fault.NO_MODEL: 404,
    Fault.REJECTED: 400,
    Fault.REDIRECT: 307,
    Fault.NOT_JSON: 200,
    Fault.NO_CONTENT: 200,
}


def _failure(fault: Fault) -> web.Response:
    if fault is Fault.NOT_JSON:
        return web.Response(text="<html>Sign in to continue</html>", content_type="text/html")
    headers = {"Retry-After": RETRY_AFTER} if fault in {Fault.TOO_MANY, Fault.BUSY} else {}
    if fault is Fault.REDIRECT:
        headers["Location"] = "http://127.0.0.1:1/elsewhere"
    return web.json_response({"error": {"message": str(fault)}}, status=_STATUSES[fault], headers=headers)


def _encoded(row: np.ndarray[Any, np.dtype[np.float32]], body: dict[str, Any], step: Step) -> object:
    if body.get("encoding_format") == "base64" and step is not Fault.AS_DECIMALS:
        return base64.b64encode(struct.pack(f"<{row.size}f", *row.tolist())).decode()
    return [float(number) for number in row]


def _chat(request: ModelRequest, step: Step) -> web.Response:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    finish = "stop"
    if step is Fault.MALFORMED:
        message["content"] = '{"facts": [{"text": oh no'
    elif step is Fault.TRUNCATED:
        message["content"], finish = '{"facts": [{"text": "Kim', "length"
    elif step is Fault.REFUSAL:
        message |= {"content": None, "refusal": "I cannot help with that."}
    elif step is not Fault.EMPTY:
        message["content"] = step if isinstance(step, str) else step(request)
    tokens = (len(json.dumps(request.body)) + len(str(message["content"]))) // _BYTES_PER_TOKEN
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return web.json_response(
        {"object": "chat.completion", "model": request.body["model"], "choices": [choice], "usage": usage}
    )


def _faults(names: str) -> tuple[Fault, ...]:
    try:
        return tuple(Fault(name.strip()) for name in names.split(","))
    except ValueError:
        known = ", ".join(Fault)
        raise argparse.ArgumentTypeError(f"names joined by commas, of: {known}") from None


def main(arguments: Sequence[str]) -> None:
    """Serve until interrupted; the scripts are names of faults joined by commas."""
    parser = argparse.ArgumentParser(prog="scripted_model_server", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--dimension", type=int, default=64, help="of the embeddings")
    parser.add_argument("--chat", type=_faults, default=(), help="faults of the first chat requests")
    parser.add_argument(
        "--embeddings", type=_faults, default=(), help="faults of the first embedding requests"
    )
    parser.add_argument("--say", default=says(_NOTHING), help="what chat says after that")
    chosen = parser.parse_args(arguments)
    with ScriptedModelServer(chosen.dimension, chosen.port, chat=chosen.say) as server:
        server.will_chat(*chosen.chat)
        server.will_embed(*chosen.embeddings)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
