"""The table of all routes, and their handlers, each of which calls one use case.

`table` declares for each route its method, path, right, cost, schemas and handler, and `Routes` finds the route of a
request. A handler gets the `Services` and an `AcceptedCall`, which `relayer.http.accept` has checked completely, and
returns a `Reply`. A target is compared as it was sent: nothing is decoded or normalized, so paths with ``%2F``, ``..`` or
``//`` match no route.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from time import perf_counter
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

import msgspec
from aiohttp.web import BaseRequest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from relayer.access.accounts import Access, Accounts, Principal
from relayer.access.quotas import Quotas
from relayer.access.store_keys import FleetKeys
from relayer.errors import Refused
from relayer.http.health import Readiness
from relayer.http.metrics import CONTENT_TYPE, MetricsPage
from relayer.http.problems import HttpProblem, unauthorized
from relayer.jobs import model_work
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context
from relayer.use_cases.capture import analyze, get_job
from relayer.use_cases.consolidate import propose, take
from relayer.use_cases.erase import erase_memory, erase_namespace, get_erasure, rotate_keys
from relayer.use_cases.insight import active_recall, ask
from relayer.use_cases.lifecycle import delete, restore, supersede
from relayer.use_cases.memories import (
    ChangeStreams,
    changes,
    export,
    forget_memory,
    get_memory,
    list_memories,
)
from relayer.use_cases.overview import list_namespaces, newest_days, profile, standing
from relayer.use_cases.recall import recall_encoded
from relayer.use_cases.remember import import_memories, remember
from relayer.use_cases.transcripts import transcript
from relayer.wire import codec as base64url
from relayer.wire import questions, schemas, service
from relayer.wire.codec import Malformed, NotAccepted
from relayer.wire.fields import AUDIENCE_PATTERN, MAX_AUDIENCES, AudienceFilter, Kind, Status, Trust
from relayer.wire.schemas import MAX_LIMIT, MAX_WAIT_MS
from relayer.wire.sealed_keys import SealedKey, named_fleet_key
from relayer.wire.signing import Prover, RevocationsRequest, RevocationsResponse, RevocationsView, Right

JSON = "application/json"
JSON_LINES = "application/jsonl"
EVENTS = "text/event-stream"

RECALL_SECONDS = 14.0
ANALYZE_SECONDS = 55.0
# Callers wait while a model generates, so the deadline of the gateway decides, up to the longest that can be configured there.
MODEL_SECONDS = 120.0
# An export reads a whole namespace, and the client may be slow.
EXPORT_SECONDS = 600.0

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound="BaseRoute")


@dataclass(frozen=True, slots=True)
class BaseRoute:
    """One method of one path, as every front declares it.

    Attributes:
        path: with at most one ``{id}``.
        ends_with_caller: whether the work is cancelled when the client disconnects; never for routes that write.
        interactive: whether a user waits for the response, so that it takes precedence over background work.
        answers_head: whether HEAD is answered like GET.
    """

    method: str
    path: str
    _: KW_ONLY
    seconds: float = 30.0
    ends_with_caller: bool = False
    interactive: bool = False
    answers_head: bool = False


@dataclass(frozen=True, slots=True)
class Route(BaseRoute):
    """A route of memrelay's own API.

    Attributes:
        right: the right that the certificate must grant, on the request's namespace if it is about one; None for an open route.
        cost: in tokens of the rate limits.
        takes: schema of the body for POST and PUT, of the query for all other methods; None if the route takes neither.
        answer: schema of the response, or of each of its lines; None if the response is not JSON of this API.
        bytes_a_token: bytes of the body for one more token, because reading, parsing and searching take longer for long bodies.
        rows_a_token: rows of the requested page size for one more token, because each row is decrypted; None charges none.
        statuses: of successful responses.
        writes: whether the route changes anything. The log detects repeated writes, so they are never refused as replays.
    """

    right: Right | None
    cost: float
    takes: type[BaseModel] | None
    answer: type[BaseModel] | None
    handle: Handler
    summary: str
    namespaced: bool = True
    bytes_a_token: int = 4096
    rows_a_token: int | None = None
    media_type: str = JSON
    statuses: tuple[int, ...] = (200,)
    writes: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        writes = self.right in {Right.WRITE, Right.ADMIN} and self.method != "GET"
        object.__setattr__(self, "writes", writes)
        object.__setattr__(self, "interactive", not writes)
        # A signature covers the method; only open routes answer HEAD like GET.
        object.__setattr__(self, "answers_head", self.right is None)

    @property
    def body(self) -> type[BaseModel] | None:
        """The schema of the body."""
        return self.takes if self.method in {"POST", "PUT"} else None

    @property
    def query(self) -> type[BaseModel] | None:
        """The schema of the query."""
        return None if self.method in {"POST", "PUT"} else self.takes


def table() -> tuple[Route, ...]:
    """Return the routes: method, path, right, cost, schemas of request and response, handler, summary.

    Costs are proportional to the work: an extraction costs about five searches, and no signed request is free.
    """
    read, write, admin = Right.READ, Right.WRITE, Right.ADMIN
    # Each route takes one or two lines, so that this can be read as a table.
    # fmt: off
    return (
        Route("POST", "/v1/memories", write, 2, schemas.RememberRequest, schemas.RememberResponse, _given(remember),
              "Remember 1 to 100 items; durable and recallable when it answers."),
        Route("GET", "/v1/memories", read, 1, ListQuery, schemas.ListResponse, _given(list_memories), "List memories, newest first."),
        Route("POST", "/v1/memories/list", read, 1, schemas.ListRequest, schemas.ListResponse, _list,
              "List the memories that pass a filter, newest first."),
        Route("GET", "/v1/memories/{id}", read, 1, None, schemas.MemoryResponse, _given(get_memory), "One memory with its history."),
        Route("DELETE", "/v1/memories/{id}", write, 2, ForgetQuery, schemas.ForgetResponse, _forget,
              "Forget a memory: hidden from recall, kept in its history; or erase it with its history."),
        Route("POST", "/v1/recall", read, 1, schemas.RecallRequest, schemas.RecallResponse, _recall,
              "Find memories by a query or a vector; may return nothing.", bytes_a_token=1024, seconds=RECALL_SECONDS),
        Route("POST", "/v1/analyze", write, 5, schemas.AnalyzeRequest, schemas.AnalyzeResponse, _analyze,
              "Keep what is worth keeping of a turn.", seconds=ANALYZE_SECONDS, statuses=(200, 202)),
        Route("POST", "/v1/transcript", read, 1, service.TranscriptRequest, service.TranscriptResponse, _given(transcript),
              "The turns of a session that were kept word for word."),
        Route("POST", "/v1/model-work", write, 5, questions.ModelWorkRequest, questions.ModelWorkResponse, _given(model_work),
              "For the gateway's model: take its last answer, and return the next question of a promised job.", seconds=ANALYZE_SECONDS),
        Route("GET", "/v1/jobs/{id}", read, 1, JobQuery, schemas.JobResponse, _given(get_job),
              "The truth about a job, waiting for its end up to wait_ms."),
        # Each page decrypts up to a hundred pointers.
        Route("GET", "/v1/namespaces", read, 5, NamespacesQuery, service.NamespacesResponse, _given(list_namespaces),
              "The account's namespaces that the certificate covers.", namespaced=False, rows_a_token=2),
        Route("GET", "/v1/account", read, 5, None, service.AccountResponse, _account,
              "What the account keeps, and what it may keep.", namespaced=False),
        Route("GET", "/v1/account/revocations", admin, 1, None, RevocationsView, _revocations,
              "The account's list of revocations, as it signed it.", namespaced=False),
        Route("PUT", "/v1/account/revocations", admin, 10, RevocationsRequest, RevocationsResponse, _revoke,
              "Replace the account's list of revocations by a newer one.", namespaced=False),
        Route("GET", "/v1/context", read, 1, ContextQuery, schemas.ContextResponse, _given(newest_days),
              "The newest memories of the newest days, for a session that begins."),
        Route("GET", "/v1/profile", read, 2, ProfileQuery, service.ProfileResponse, _given(profile),
              "What is known of the user and their work, as one Markdown document that cites its memories."),
        Route("GET", "/v1/standing", read, 2, StandingQuery, service.StandingResponse, _given(standing),
              "What should stand in every prompt of a session: dangers, how to answer, who the person is."),
        Route("GET", "/v1/changes", read, 1, ChangesQuery, schemas.ChangesResponse, _changes,
              "What became of memories after a point in the log, waiting for it up to wait_ms; with the header "
              "accept: text/event-stream, as server-sent events."),
        Route("POST", "/v1/export", read, 10, service.ExportRequest, service.ExportLine, _export,
              "The memories that pass a filter, as lines of JSON: a head, one line each, an end.",
              seconds=EXPORT_SECONDS, media_type=JSON_LINES),
        Route("POST", "/v1/import", write, 5, service.ImportRequest, service.ImportResponse, _given(import_memories),
              "Store a page of what an export showed; the same page again stores nothing twice."),
        Route("POST", "/v1/memories/{id}/supersede", write, 2, schemas.SupersedeRequest, schemas.SupersedeResponse, _given(supersede),
              "Store a new version of a memory; the old one stays in its history."),
        Route("POST", "/v1/memories/{id}/restore", write, 2, None, schemas.RestoreResponse, _given(restore),
              "Bring back a forgotten memory, or an old version of one."),
        Route("POST", "/v1/memories/delete", write, 5, schemas.DeleteRequest, schemas.DeleteResponse, _delete,
              "Forget, or erase, the memories that pass a filter; dry_run counts them."),
        Route("POST", "/v1/consolidation", read, 10, service.ConsolidationRequest, service.ConsolidationResponse, _given(propose),
              "What could be tidied up: repetitions, and what later memories replaced or contradict; changes nothing."),
        Route("POST", "/v1/consolidation/take", write, 10, service.TakeRequest, service.TakeResponse, _given(take),
              "Carry out proposals of a consolidation whose memories did not change meanwhile."),
        Route("POST", "/v1/namespaces/erase", admin, 10, schemas.EraseNamespaceRequest, schemas.EraseNamespaceResponse,
              _given(erase_namespace), "Erase a namespace; a dry run says what would go."),
        Route("POST", "/v1/namespaces/rotate", admin, 10, schemas.RotateKeysRequest, schemas.RotateKeysResponse,
              _rotate, "Seal a namespace again under another secret, and erase what the old one opened.", seconds=EXPORT_SECONDS),
        Route("GET", "/v1/erasures/{id}", read, 1, None, schemas.ErasureView, _given(get_erasure),
              "How far an erasure is: erased, destroyed, confirmed.", namespaced=False),
        Route("POST", "/v1/active-recall", read, 5, schemas.ActiveRecallRequest, schemas.ActiveRecallResponse, _given(active_recall),
              "What to remind an assistant of before it answers; may be nothing.", seconds=MODEL_SECONDS, ends_with_caller=True),
        Route("POST", "/v1/ask", read, 5, schemas.AskRequest, schemas.AskResponse, _given(ask),
              "Answer a question from memories alone, with citations.", seconds=MODEL_SECONDS, ends_with_caller=True),
        Route("GET", "/health", None, 0, None, service.HealthResponse, _health, "The process answers."),
        Route("GET", "/ready", None, 0, None, service.ReadyResponse, _ready, "It can serve: each check by name.", statuses=(200, 503)),
        Route("GET", "/version", None, 0, None, service.VersionResponse, _version, "What a client needs to know."),
        Route("GET", "/metrics", None, 0, None, None, _metrics, "Prometheus metrics."),
        Route("GET", "/openapi.json", None, 0, None, None, _openapi, "This document."),
        Route("GET", "/v1/keys", None, 0, None, service.KeysResponse, _keys, "The keys to seal for, signed by the relayer."),
    )
    # fmt: on


# The form of an id in a path. The use cases know which ids exist.
SEGMENT = r"([A-Za-z0-9_-]{1,128})"


class Routes(Generic[R]):
    """Finds the route that a target names."""

    def __init__(self, routes: Iterable[R]) -> None:
        self._exact: dict[str, dict[str, R]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, R]] = {}
        for route in routes:
            before, parameter, after = route.path.partition("{id}")
            if not parameter:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            pattern = re.compile(re.escape(before) + SEGMENT + re.escape(after))
            self._patterns.setdefault(pattern, {})[route.method] = route

    def find(self, method: str, target: str) -> tuple[R, str, str]:
        """Return the route, its parameter (or the empty string) and the raw query.

        Raises:
            HttpProblem: ``not_found`` or ``method_not_allowed``.
        """
        path, _, query = target.partition("?")
        methods, parameter = self._exact.get(path), ""
        for pattern, known in self._patterns.items() if methods is None else ():
            if (match := pattern.fullmatch(path)) is not None:
                methods, parameter = known, match[1]
                break
        if methods is None:
            raise HttpProblem("not_found")
        route = methods.get(method)
        if route is None and method == "HEAD":
            route = methods.get("GET")
            route = route if route is not None and route.answers_head else None
        if route is None:
            raise HttpProblem("method_not_allowed", allow=", ".join(sorted(methods)))
        return route, parameter, query


@dataclass(slots=True)
class RequestContext:
    """The context of a request, filled in step by step, whether it is accepted or refused.

    Metrics, the log line and the proof of the response depend on it.

    Attributes:
        started: when its answer was begun, on the scale of `time.perf_counter`.
        route: the matched route; None until one has matched.
        prover: makes the proof of the response; None if the request states no signature to bind a proof to.
    """

    request: BaseRequest
    request_id: str
    started: float = field(default_factory=perf_counter)
    route: BaseRoute | None = None
    prover: Prover | None = None


class AcceptedCall(msgspec.Struct, frozen=True):
    """A request that has passed all checks: the input of a handler.

    Attributes:
        parameter: the ``{id}`` in the path; empty if the route has none.
        signer: the principal that signed the request; None on open routes.
        namespace_access: the access to the request's namespace; None unless the route is namespaced.
        events: whether a stream of server-sent events is requested.
        last_event: the id of the last event that the client received; may be empty.
        peer: the address of the client; set on open routes only.
        authorization: the ``Authorization`` header; set on open routes only.
    """

    route: Route
    deadline: Deadline
    parameter: str = ""
    query: BaseModel | None = None
    body: BaseModel | None = None
    signer: Principal | None = None
    namespace_access: Access | None = None
    events: bool = False
    last_event: str = ""
    peer: str = ""
    authorization: str = ""

    @property
    def access(self) -> Access:
        """The access to the request's namespace; for namespaced routes."""
        if self.namespace_access is None:
            raise unauthorized("no_namespace")
        return self.namespace_access

    @property
    def principal(self) -> Principal:
        """The principal that signed the request; for signed routes."""
        if self.signer is None:
            raise TypeError("the route is declared as open")
        return self.signer

    @property
    def account(self) -> str:
        """The account that the response is for; empty on open routes."""
        return self.signer.account if self.signer is not None else ""

    def body_as(self, schema: type[M]) -> M:
        """Return the body as the schema that the route declares."""
        if not isinstance(self.body, schema):
            raise TypeError(f"the route declares no body of {schema.__name__}")
        return self.body

    def query_as(self, schema: type[M]) -> M:
        """Return the query as the schema that the route declares."""
        if not isinstance(self.query, schema):
            raise TypeError(f"the route declares no query of {schema.__name__}")
        return self.query


@dataclass(frozen=True, slots=True)
class Reply:
    """An encoded response.

    Attributes:
        body: the whole body; empty with ``chunks``.
        chunks: the parts of a streamed body. If the iterator raises, the connection is broken off.
        endless: whether the chunks go on for as long as the client listens. When the relayer stops, the stream just ends.
    """

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: AsyncIterator[bytes] | None = None
    endless: bool = False

    @classmethod
    def encoded(cls, answer: BaseModel, status: int = 200) -> Reply:
        """Encode a response of the API."""
        # This calls the serializer itself, because `model_dump_json` would decode its bytes into a string first.
        return cls(answer.__pydantic_serializer__.to_json(answer), status)


@dataclass(frozen=True, slots=True)
class Services:
    """The services that handlers use; created by the composition root.

    Attributes:
        document: returns the encoded OpenAPI document; the first call takes about 0.1 s.
    """

    context: Context
    accounts: Accounts
    quotas: Quotas
    streams: ChangeStreams
    fleet: FleetKeys
    readiness: Readiness
    metrics: MetricsPage
    version: service.VersionResponse
    document: Callable[[], bytes]


Handler: TypeAlias = Callable[[Services, AcceptedCall], Awaitable[Reply]]


def _given(use_case: Callable[..., Awaitable[BaseModel]]) -> Handler:
    """Return a handler that calls a use case and encodes its result.

    The use case gets the access or, on routes without a namespace, the principal; then the id in the path and the body, if the
    route has them; and the fields of the query by name.
    """

    async def handle(to: Services, call: AcceptedCall) -> Reply:
        who = call.access if call.route.namespaced else call.principal
        given = [one for one in (call.parameter, call.body) if one]
        asked = dict(call.query) if call.query is not None else {}
        return Reply.encoded(await use_case(to.context, who, *given, **asked, deadline=call.deadline))

    return handle


async def _recall(to: Services, call: AcceptedCall) -> Reply:
    asked = call.body_as(schemas.RecallRequest)
    return Reply(await recall_encoded(to.context, call.access, asked, call.deadline))


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _split(value: object) -> object:
    return tuple(value.split(",")) if isinstance(value, str) else value


CURSOR = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"
_Cursor = Annotated[str, Field(min_length=1, max_length=1024)]


def _commas(one: str, most: int, described: str = "names joined by commas") -> WithJsonSchema:
    """Return the schema of a query's list of up to ``most`` values, each of which matches the pattern ``one``."""
    pattern = f"^({one})(,({one})){{0,{most - 1}}}$"
    return WithJsonSchema({"type": "string", "description": described, "pattern": pattern})


_Audiences = Annotated[
    tuple[AudienceFilter, ...],
    Field(max_length=MAX_AUDIENCES),
    BeforeValidator(_split),
    _commas(AUDIENCE_PATTERN, MAX_AUDIENCES, "audiences joined by commas, see AudienceFilter"),
]
_Trusts = Annotated[
    tuple[Trust, ...], Field(max_length=4), BeforeValidator(_split), _commas("|".join(Trust), 4)
]


class ListQuery(_Query):
    """``GET /v1/memories``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 20
    cursor: _Cursor | None = None
    kinds: Annotated[
        tuple[Kind, ...], Field(max_length=9), BeforeValidator(_split), _commas("|".join(Kind), 9)
    ] = ()
    states: Annotated[
        tuple[Status, ...], Field(max_length=3), BeforeValidator(_split), _commas("|".join(Status), 3)
    ] = ()


async def _list(to: Services, call: AcceptedCall) -> Reply:
    asked = dict(call.body_as(schemas.ListRequest))
    del asked["namespace"]
    return Reply.encoded(await list_memories(to.context, call.access, **asked, deadline=call.deadline))


class ForgetQuery(_Query):
    """``DELETE /v1/memories/{id}``."""

    mode: Literal["forget", "erase"] = "forget"


async def _forget(to: Services, call: AcceptedCall) -> Reply:
    if call.query_as(ForgetQuery).mode == "erase":
        _check_may_erase(call)
        return Reply.encoded(await erase_memory(to.context, call.access, call.parameter, call.deadline))
    return Reply.encoded(await forget_memory(to.context, call.access, call.parameter, call.deadline))


def _check_may_erase(call: AcceptedCall) -> None:
    """Refuse an erasure unless the certificate grants admin rights; raises `HttpProblem`."""
    if not call.access.principal.may(call.access.namespace, Right.ADMIN):
        raise unauthorized("admin_not_granted")


async def _analyze(to: Services, call: AcceptedCall) -> Reply:
    answer = await analyze(to.context, call.access, call.body_as(schemas.AnalyzeRequest), call.deadline)
    return Reply.encoded(answer, 200 if answer.state == "done" else 202)


class JobQuery(_Query):
    """``GET /v1/jobs/{id}``."""

    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


class NamespacesQuery(_Query):
    """``GET /v1/namespaces``."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    cursor: _Cursor | None = None


async def _account(to: Services, call: AcceptedCall) -> Reply:
    account = call.principal.account
    quota = to.quotas.quota_of(account)
    async with call.deadline.step("usage"):
        used = await to.quotas.used(account)
    return Reply.encoded(
        service.AccountResponse(
            account=account,
            bytes=service.QuotaView(used=used.bytes, limit=quota.bytes or None),
            namespaces=service.QuotaView(used=used.namespaces, limit=quota.namespaces or None),
            memories=service.QuotaView(used=used.memories, limit=quota.memories or None),
        )
    )


async def _revocations(to: Services, call: AcceptedCall) -> Reply:
    async with call.deadline.step("revocations"):
        encoded = await to.accounts.revocations(call.principal.account)
    return Reply.encoded(RevocationsView(revocations=base64url.encode(encoded)))


async def _revoke(to: Services, call: AcceptedCall) -> Reply:
    try:
        encoded = base64url.decode(call.body_as(RevocationsRequest).revocations)
    except Malformed as error:
        raise Refused("revocations_invalid", "revocations must be base64url of a signed list") from error
    principal = call.principal
    async with call.deadline.step("revoke"):
        revocations = await to.accounts.revoke(encoded, account=principal.account, address=principal.peer)
    return Reply.encoded(RevocationsResponse(counter=revocations.counter))


class ContextQuery(_Query):
    """``GET /v1/context``; ``offset_minutes`` is how far the reader's clock is ahead of UTC."""

    days: Annotated[int, Field(ge=1, le=31)] = 2
    items: Annotated[int, Field(ge=1, le=200)] = 15
    offset_minutes: Annotated[int, Field(ge=-24 * 60 + 1, le=24 * 60 - 1)] = 0
    audiences: _Audiences = ()
    trusts: _Trusts = ()


class ProfileQuery(_Query):
    """``GET /v1/profile``; only what the user said or had imported, unless other voices are asked for."""

    max_tokens: Annotated[int, Field(ge=1, le=20_000)] = 1000
    audiences: _Audiences = ()
    trusts: _Trusts = (Trust.USER, Trust.IMPORTED)


class StandingQuery(_Query):
    """``GET /v1/standing``; only what the user said or had imported, unless other voices are asked for."""

    lines: Annotated[int, Field(ge=1, le=100)] = 20
    audiences: _Audiences = ()
    trusts: _Trusts = (Trust.USER, Trust.IMPORTED)


class ChangesQuery(_Query):
    """``GET /v1/changes``."""

    after: Annotated[str, Field(pattern=CURSOR)] = "0"
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = MAX_LIMIT
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0


async def _changes(to: Services, call: AcceptedCall) -> Reply:
    if not call.events:
        return await _given(changes)(to, call)
    if call.last_event and re.fullmatch(CURSOR, call.last_event) is None:
        raise HttpProblem("malformed", "The header last-event-id is no id of an event of this feed.")
    after = call.last_event or call.query_as(ChangesQuery).after
    chunks = await to.streams.open(call.access, after, call.deadline)
    return Reply(b"", media_type=EVENTS, chunks=chunks, endless=True)


async def _export(to: Services, call: AcceptedCall) -> Reply:
    chunks = await export(to.context, call.access, call.body_as(service.ExportRequest), call.deadline)
    return Reply(b"", media_type=JSON_LINES, chunks=chunks)


async def _delete(to: Services, call: AcceptedCall) -> Reply:
    if call.body_as(schemas.DeleteRequest).mode == "erase":
        _check_may_erase(call)
    return await _given(delete)(to, call)


async def _rotate(to: Services, call: AcceptedCall) -> Reply:
    access, principal = call.access, call.principal
    try:
        encoded = base64url.decode(call.body_as(schemas.RotateKeysRequest).memory_key)
    except Malformed as error:
        raise HttpProblem("malformed", "memory_key is not base64url.") from error
    private = to.fleet.private(named_fleet_key(encoded))
    if private is None:
        raise HttpProblem("unknown_fleet_key")
    key = SealedKey.open(encoded, private)
    if (key.account, key.agent_key, key.namespace) != (access.account, principal.author, access.namespace):
        raise NotAccepted("namespace_mismatch")
    if not key.secret or key.not_after * 1000 <= to.context.clock.now_ms():
        raise NotAccepted("sealed_key_expired")
    return Reply.encoded(await rotate_keys(to.context, access, key, call.deadline))


async def _health(to: Services, _: AcceptedCall) -> Reply:
    return Reply.encoded(service.HealthResponse(status="ok", version=to.version.version))


async def _ready(to: Services, _: AcceptedCall) -> Reply:
    answer = await to.readiness.check()
    return Reply.encoded(answer, 200 if answer.ready else 503)


async def _version(to: Services, _: AcceptedCall) -> Reply:
    return Reply.encoded(to.version)


async def _metrics(to: Services, call: AcceptedCall) -> Reply:
    return Reply(await to.metrics.read(call.peer, call.authorization), media_type=CONTENT_TYPE)


async def _openapi(to: Services, _: AcceptedCall) -> Reply:
    # Creating the document takes a while, so it runs in a thread and does not block the event loop.
    return Reply(await asyncio.to_thread(to.document))


async def _keys(to: Services, _: AcceptedCall) -> Reply:
    current = to.fleet.current()
    views = tuple(
        service.FleetKeyView(
            day=key.day, public_key=base64url.encode(key.public_key), not_after=key.not_after
        )
        for key in current.keys
    )
    answer = service.KeysResponse(
        identity=base64url.encode(current.identity),
        issued_at=current.issued_at,
        keys=views,
        signature=base64url.encode(current.signature),
    )
    return Reply.encoded(answer)
