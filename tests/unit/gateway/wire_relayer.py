"""A relayer's wire contract on a real loopback server: verifies every request with `relayer.wire`, keeps texts in a list.

It has no store and no search; what it checks, it checks for real. Failures are scripted per request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from web_runners import end_runner

from gateway_plugin.client import LoopThread
from relayer.wire import codec as base64url
from relayer.wire import codec as ulid
from relayer.wire import schemas, signing
from relayer.wire.codec import WireError
from relayer.wire.fields import Position
from relayer.wire.schemas import ContextResponse
from relayer.wire.sealed_keys import (
    MAX_LIFE_SECONDS,
    FleetKey,
    FleetList,
    SealedKey,
    fleet_key_id,
    named_fleet_key,
)
from relayer.wire.service import (
    FleetKeyView,
    KeysResponse,
    NamespacesResponse,
    StandingResponse,
    VersionResponse,
)
from relayer.wire.signing import PROOF_HEADER, SEALED_TYPE, Certificate, Prover, Right, open_body

Scripted = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
RELEASED = web.AppKey("released", threading.Event)
POSITION = Position(seq=1, digest="0" * 64)

# What most tests of a plugin say and ask, with the secret of its gateway.
SECRET = "11" * 32
COFFEE = "I only drink oat milk coffee, never after 2 pm."
TURN = [{"role": "user", "content": COFFEE}]
QUESTION = "How do I take my coffee?"


def problem(status: int, code: str, **more) -> web.Response:
    headers = {"retry-after": f"{more['retry_after']}"} if "retry_after" in more else {}
    document = {
        "type": f"urn:test:{code}",
        "title": code,
        "status": status,
        "code": code,
        "detail": f"about {code}",
        "request_id": "req-1",
        **more,
    }
    return web.Response(
        status=status,
        body=json.dumps(document).encode(),
        content_type="application/problem+json",
        headers=headers,
    )


class WireRelayer:
    def __init__(self) -> None:
        self.identity = SigningKey.generate()
        self.fleet = [PrivateKey.generate()]
        self.script: list[Scripted | None] = []
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.memories: dict[tuple[str, str], list[dict]] = {}
        self.stored: set[str | None] = set()
        self.refused_captures: dict[str, tuple[int, str]] = {}
        self.issued_ago = 0
        self.clock_ahead = 0
        self.relevance = 0.9
        self.remind = lambda _: {"status": "fallback", "reason": "no_model"}
        self.degraded = False
        self.overrides: dict = {}
        self.position: Position | None = None
        self.min_client = "0.1.0"
        self.aborted = threading.Event()
        self.recalling = threading.Event()
        self.released = threading.Event()
        self._loop = LoopThread("wire-relayer")
        self.url = self._loop.call(self._start())

    def close(self) -> None:
        self.released.set()
        self._loop.call(end_runner(self._runner))
        self._loop.close()

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.seen]

    def bodies(self, path: str) -> list[dict]:
        return [json.loads(body) for _, seen, _, body in self.seen if seen == path]

    def texts(self, namespace: str) -> list[str]:
        return [m["text"] for (_, name), rows in self.memories.items() if name == namespace for m in rows]

    @property
    def authority(self) -> str:
        return self.url.removeprefix("http://")

    async def _start(self) -> str:
        app = web.Application()
        app[RELEASED] = self.released
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        return f"http://127.0.0.1:{port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body, key = await request.read(), self._opened_key(request)
        if request.content_type == SEALED_TYPE and key is not None:
            nonce = signing.RequestSignature.parse(request.headers[signing.SIGNATURE_HEADER]).nonce
            body = open_body(key.secret, nonce, body)
        response = await self._answered(request, body)
        if isinstance(response, web.Response) and signing.SIGNATURE_HEADER in request.headers:
            self._prove(request, response, key)
        return response

    def _prove(self, request: web.Request, response: web.Response, key: SealedKey | None) -> None:
        """Prove an answer, unless its script said with a header of its own that it is somebody else's."""
        prover = prover_of(request, self.identity)
        prover.accepted(b"" if key is None else key.answer_key)
        if PROOF_HEADER in response.headers:
            return
        if request.path == "/v1/export" and response.status < 300:
            response.body = prover.line(response.body)
        else:
            response.headers[PROOF_HEADER] = prover.whole(response.status, response.body or b"")

    def _opened_key(self, request: web.Request) -> SealedKey | None:
        encoded = base64url.decode(request.headers.get(signing.KEY_HEADER, ""))
        known = {fleet_key_id(bytes(key.public_key)): key for key in self.fleet}.get(named_fleet_key(encoded))
        return None if known is None else SealedKey.open(encoded, known)

    async def _answered(self, request: web.Request, body: bytes) -> web.StreamResponse:
        # Fetched beside a session's first recall, at no set moment: neither scripted nor seen.
        beside = request.path == "/v1/standing"
        if not beside:
            self.seen.append((request.method, request.raw_path, dict(request.headers), body))
        if request.path == "/v1/recall":
            self.recalling.set()
        # Keys are public and free: the script is about the calls themselves.
        if request.path == "/v1/keys":
            return self._keys()
        if self.script and not beside:
            scripted = self.script.pop(0)
            if scripted is not None:
                try:
                    answer = await scripted(request)
                except asyncio.CancelledError:
                    self.aborted.set()
                    raise
                if answer is not None:
                    return answer
        if request.path == "/version":
            return _json(
                VersionResponse(
                    version="0.1.0",
                    api_version="1",
                    min_client_version=self.min_client,
                    model="none",
                    dimension=1,
                    extractor="none",
                )
            )
        try:
            key = self._accept(request)
        except _NotIn as refusal:
            return refusal.answer
        except WireError as error:
            return problem(401, "unauthorized", title=str(error))
        return self._serve(request, body, key)

    def now(self) -> int:
        return int(time.time()) + self.clock_ahead

    def _keys(self) -> web.Response:
        end = self.now() + 86_400
        keys = tuple(FleetKey(f"day{i}", bytes(key.public_key), end - i) for i, key in enumerate(self.fleet))
        found = FleetList.issue(self.identity, self.now() - self.issued_ago, keys)
        views = tuple(
            FleetKeyView(day=key.day, public_key=base64url.encode(key.public_key), not_after=key.not_after)
            for key in found.keys
        )
        return _json(
            KeysResponse(
                identity=base64url.encode(found.identity),
                issued_at=found.issued_at,
                keys=views,
                signature=base64url.encode(found.signature),
            )
        )

    def _accept(self, request: web.Request) -> SealedKey | None:
        headers = request.headers
        assert "x-deadline-ms" in headers
        signature = signing.RequestSignature.parse(headers[signing.SIGNATURE_HEADER])
        try:
            signature.check_times(self.now())
        except WireError as error:
            raise _NotIn(problem(401, "clock_skew", server_time=self.now())) from error
        certificate = Certificate.verify(base64url.decode(headers[signing.CERTIFICATE_HEADER]))
        assert certificate.not_before - 60 <= self.now() <= certificate.not_after
        stated = signing.parse_content_digest(headers[signing.DIGEST_HEADER])
        assert stated == hashlib.sha256(request._read_bytes).digest()
        memory_key = headers.get(signing.KEY_HEADER, "")
        signing.verify(
            signature,
            certificate.agent_key,
            method=request.method,
            authority=signing.normal_authority(headers["host"], "http"),
            target=request.raw_path,
            body_sha256=stated,
            headers_sha256=(
                signing.header_digest(headers[signing.CERTIFICATE_HEADER]),
                signing.header_digest(memory_key),
            ),
        )
        if not memory_key:
            return None
        key = self._opened_key(request)
        if key is None:
            raise _NotIn(problem(401, "unknown_fleet_key"))
        assert (key.account, key.agent_key) == (certificate.account, certificate.agent_key)
        assert self.now() < key.not_after <= self.now() + MAX_LIFE_SECONDS
        reads = request.method == "GET" or request.path in {"/v1/recall", "/v1/active-recall", "/v1/ask"}
        right = Right.READ if reads else Right.WRITE
        assert certificate.allows(key.namespace, right)
        return key

    def _serve(self, request: web.Request, body: bytes, key: SealedKey | None) -> web.Response:
        if key is None:
            return _json(NamespacesResponse(namespaces=()))
        if request.path == "/v1/analyze" and key.namespace in self.refused_captures:
            return problem(*self.refused_captures[key.namespace])
        return self._work(request, body, key)

    def _work(self, request: web.Request, body: bytes, key: SealedKey) -> web.Response:  # noqa: PLR0911 - a route each
        rows = self.memories.setdefault((key.account, key.namespace), [])
        route = (request.method, request.path)
        if request.path in {"/v1/recall", "/v1/active-recall", "/v1/ask"}:
            return self._found(rows, request.path, body)
        if route == ("POST", "/v1/analyze"):
            return self._analyze(rows, schemas.AnalyzeRequest.model_validate_json(body))
        if route == ("POST", "/v1/memories"):
            return self._remember(rows, schemas.RememberRequest.model_validate_json(body))
        if route in {("GET", "/v1/memories"), ("GET", "/v1/context"), ("GET", "/v1/standing")}:
            return self._listed(rows, request.path)
        if request.path == "/v1/namespaces/erase":
            return self._erase_all(
                rows, key.namespace, schemas.EraseNamespaceRequest.model_validate_json(body)
            )
        if route == ("POST", "/v1/memories/delete"):
            return self._delete(rows, schemas.DeleteRequest.model_validate_json(body))
        return self._one(rows, *route, body)

    def _listed(self, rows: list[dict], path: str) -> web.Response:
        if path == "/v1/standing":
            return _json(StandingResponse(lines=()))
        if path == "/v1/memories":
            return _json(schemas.ListResponse.model_validate({"memories": rows, "total": len(rows)}))
        days = [{"date": "2026-01-01", "memories": rows, "total": len(rows)}] if rows else []
        return _json(ContextResponse.model_validate({"days": days, "total": len(rows)}))

    def _found(self, rows: list[dict], path: str, body: bytes) -> web.Response:
        if path == "/v1/recall":
            return self._recall(rows, schemas.RecallRequest.model_validate_json(body))
        if path == "/v1/ask":
            schemas.AskRequest.model_validate_json(body)
            cited = [{**row, "relevance": 1, "distance": 0} for row in rows]
            answered = {
                "status": "answered" if rows else "unknown",
                "answer": "So it is.",
                "citations": cited,
            }
            return _json(schemas.AskResponse.model_validate(answered))
        asked = schemas.ActiveRecallRequest.model_validate_json(body)
        return _json(
            schemas.ActiveRecallResponse.model_validate({"considered": len(rows), **self.remind(asked)})
        )

    def _recall(self, rows: list[dict], request: schemas.RecallRequest) -> web.Response:
        found = [row for row in rows if _words(request.query) & _words(row["text"])][: request.limit]
        relevance = {"relevance": self.relevance, "distance": 1 - self.relevance}
        hits = [{**row, **relevance, **self.overrides} for row in found]
        answer = {
            "memories": hits,
            "considered": len(rows),
            "degraded": self.degraded,
            "position": self.position,
        }
        return _json(schemas.RecallResponse.model_validate(answer))

    def _analyze(self, rows: list[dict], request: schemas.AnalyzeRequest) -> web.Response:
        if request.idempotency_key is None or request.idempotency_key not in self.stored:
            self.stored.add(request.idempotency_key)
            rows.extend(
                _memory(turn.text, turn.role, request.audience, place=request.place, sender=turn.sender)
                for turn in request.turns
            )
        count = len(request.turns)
        made = [row["id"] for row in rows[-count:]] if count else []
        stored = tuple(schemas.Remembered(id=one, status="stored") for one in made)
        return _json(schemas.AnalyzeResponse(state="done", memories=stored, turns=count, kept=count))

    def _remember(self, rows: list[dict], request: schemas.RememberRequest) -> web.Response:
        made = [_memory(item.text, "user", item.audience, place=item.source.place) for item in request.items]
        if request.idempotency_key not in self.stored:
            self.stored.add(request.idempotency_key)
            rows.extend(made)
        ids = tuple(schemas.Remembered(id=row["id"], status="stored") for row in made)
        return _json(schemas.RememberResponse(memories=ids, position=POSITION))

    def _erase_all(
        self, rows: list[dict], namespace: str, request: schemas.EraseNamespaceRequest
    ) -> web.Response:
        counted = len(rows)
        if not request.dry_run:
            rows.clear()
        return _json(
            schemas.EraseNamespaceResponse(
                namespace=namespace, dry_run=request.dry_run, memories=counted, confirm="0" * 26
            )
        )

    def _delete(self, rows: list[dict], request: schemas.DeleteRequest) -> web.Response:
        gone = [row for row in rows if not request.kinds or row["kind"] in request.kinds]
        if not request.dry_run:
            rows[:] = [row for row in rows if row not in gone]
        forgotten = 0 if request.dry_run else len(gone)
        return _json(
            schemas.DeleteResponse(
                matched=len(gone),
                forgotten=forgotten,
                remaining=len(gone) - forgotten,
                dry_run=request.dry_run,
            )
        )

    def _one(self, rows: list[dict], method: str, path: str, body: bytes) -> web.Response:
        one, _, verb = path.removeprefix("/v1/memories/").partition("/")
        known = [row for row in rows if row["id"] == one]
        if verb == "restore":
            return _json(schemas.RestoreResponse(id=one, state="live", position=POSITION))
        if not known:
            return problem(404, "not_found")
        if verb == "supersede":
            request = schemas.SupersedeRequest.model_validate_json(body)
            left = {"idempotency_key", "ttl_seconds", "place", "sender"}
            fields = request.model_dump(exclude_unset=True, exclude=left)
            new = {**known[0], **fields, "id": _memory("", "user", "agent")["id"]}
            rows[rows.index(known[0])] = new
            return _json(schemas.SupersedeResponse(id=new["id"], supersedes=one, position=POSITION))
        if method == "DELETE":
            rows.remove(known[0])
            return _json(schemas.ForgetResponse(id=one, state="forgotten", position=POSITION))
        return _json(schemas.MemoryResponse.model_validate({"memory": known[0]}))


class _NotIn(Exception):
    def __init__(self, answer: web.Response) -> None:
        super().__init__()
        self.answer = answer


_count = 0


def _memory(text: str, role: str, audience: str, **source: str) -> dict:
    global _count  # noqa: PLW0603 - ids must differ
    _count += 1
    return {
        "id": ulid.render(ulid.make(1_767_225_600_000, _count.to_bytes(10, "big"))),
        "text": text,
        "kind": "statement",
        "audience": audience,
        "trust": "user" if role == "user" else "assistant",
        "created_at": 1_767_225_600_000,
        "source": source,
    }


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))


def _json(model) -> web.Response:
    return web.Response(body=model.model_dump_json().encode(), content_type="application/json")


def prover_of(request: web.Request, identity: SigningKey) -> Prover:
    """Return what proves answers to a request."""
    bound = signing.answered_request(
        request.headers[signing.SIGNATURE_HEADER],
        method=request.method,
        target=request.raw_path,
        digest=request.headers.get(signing.DIGEST_HEADER, ""),
        content_type=request.headers.get("content-type", ""),
    )
    return Prover(bound, identity)


def strangers(response: web.Response) -> web.Response:
    """Return an answer as somebody gives it who is not the relayer."""
    response.headers[PROOF_HEADER] = ""
    return response


async def hang(request: web.Request) -> None:
    """Answer nothing until the test lets go."""
    released: threading.Event = request.app[RELEASED]
    await asyncio.to_thread(released.wait, 30)


def answer(status: int, code: str, **more) -> Scripted:
    async def scripted(_: web.Request) -> web.StreamResponse:
        return problem(status, code, **more)

    return scripted
