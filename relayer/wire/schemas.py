"""Request and response schemas of the routes that capture, recall, list, change, forget and erase memories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from relayer.wire.fields import (
    MAX_TTL_SECONDS,
    NOT_EMPTY,
    Answer,
    Audience,
    Audiences,
    Consistency,
    IdempotencyKey,
    Kind,
    Lang,
    MemoryId,
    NamespaceName,
    PlaceName,
    Position,
    Request,
    Role,
    Short,
    SourceInfo,
    Status,
    Text,
    Time,
    Trust,
    TurnText,
    Unit,
    Vector,
    at_most,
)
from relayer.wire.labels import Filter, Metadata, Tags
from relayer.wire.questions import GivenAnswer, ModelQuestion


class ErasureView(Answer):
    """``GET /v1/erasures/{id}``: how far an erasure is.

    ``erased``: gone from every answer. ``destroyed``: gone from what the store shows to a relayer, too. ``confirmed``: a
    sweep, later than anybody can have held on to anything, found nothing left of it, older versions included; that takes
    an hour at least. ``former`` is what a namespace was before its keys were rotated; its memories are there.

    ``memories`` are what was asked for, with every version of it, every memory of the same text, and the kept turns that
    tell it; ``derived`` is what was made from them and went with them, the turns that they came from among it. ``entries``
    and ``objects`` count what holds, or held, something of it.
    """

    id: MemoryId
    what: Literal["memory", "namespace", "former"]
    namespace: str
    state: Literal["erased", "destroyed", "confirmed"]
    memories: tuple[MemoryId, ...] = ()
    derived: tuple[MemoryId, ...] = ()
    entries: int = Field(default=0, ge=0)
    objects: int = Field(default=0, ge=0)
    asked_at: Time
    destroyed_at: Time | None = None
    confirmed_at: Time | None = None


class EraseNamespaceRequest(Request):
    """``POST /v1/namespaces/erase``: a dry run first; its answer's ``confirm`` goes into the request that erases."""

    namespace: NamespaceName | None = None
    dry_run: bool = True
    confirm: MemoryId | None = None

    @model_validator(mode="after")
    def _needs_a_dry_run_first(self) -> EraseNamespaceRequest:
        if self.dry_run == (self.confirm is not None):
            raise ValueError("begin with dry_run: true, then send its confirm with dry_run: false")
        return self


class EraseNamespaceResponse(Answer):
    """The amounts that are erased, or would be. Counts are null if the log cannot be read; it can be erased anyway."""

    namespace: str
    dry_run: bool
    memories: int | None = None
    bytes: int | None = None
    confirm: MemoryId
    erasure: ErasureView | None = None


class RotateKeysRequest(Request):
    """``POST /v1/namespaces/rotate``: ``memory_key`` is a sealed key as in the header, with the secret of the new generation."""

    namespace: NamespaceName | None = None
    memory_key: str = Field(min_length=1, max_length=1366)


class RotateKeysResponse(Answer):
    """A namespace is sealed under ``generation`` of its secret; counts are null if it was already.

    ``records`` counts memories and kept turns with their history, ``erasure`` is that of what the old secret opened.
    """

    namespace: str
    generation: int
    entries: int | None = None
    records: int | None = None
    erasure: ErasureView | None = None


MAX_ITEMS = 100
MAX_LIMIT = 100


class MemoryFields(Request):
    """The fields of a memory that a client sends, to be remembered or imported."""

    text: Text
    kind: Kind
    audience: Audience = Audience.AGENT
    trust: Trust
    suspect: bool = False
    pinned: bool = False
    importance: Unit = 0.5
    lang: Lang = ""
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    context_of: MemoryId | None = None
    source: SourceInfo = SourceInfo()
    tags: Tags = ()
    metadata: Metadata = Field(default_factory=dict)


class MemoryItem(MemoryFields):
    """One thing to remember."""

    kind: Kind = Kind.STATEMENT
    trust: Trust = Trust.USER
    vector: Vector | None = None
    ttl_seconds: Annotated[int, Field(gt=0, le=MAX_TTL_SECONDS)] | None = None


class RememberRequest(Request):
    """``POST /v1/memories``: durable and recallable when it answers.

    ``keep_secrets``: the user asked to store these texts with the secrets in them, which are removed otherwise.
    """

    items: Annotated[tuple[MemoryItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS), *NOT_EMPTY]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    keep_secrets: bool = False


class Remembered(Answer):
    """The outcome for one item; for a duplicate, ``id`` is the existing memory."""

    id: MemoryId
    status: Literal["stored", "duplicate", "refused"]
    code: str | None = None


class RememberResponse(Answer):
    """Items in the order of the request. ``job_id`` is given when vectors are still to be computed."""

    memories: tuple[Remembered, ...]
    position: Position
    degraded: bool = False
    job_id: MemoryId | None = None


NO_LONGER_SO: Final = "no longer so"
"""Marks in a prompt what was true before."""
_AROUND: Final = " \n,;:-\u2013\u2014\u060c\u061b\uff0c\uff1b\u3001"


def with_replaced(text: str, replaced: Iterable[str], before: str = "") -> str:
    """Return the text of a memory with statements of it that were replaced, marked as such, and with the text that it replaced.

    Example:
        >>> with_replaced("she is allergic to nuts", ["My aunt is coming on Friday, "])
        'she is allergic to nuts (no longer so: "My aunt is coming on Friday")'
        >>> with_replaced("Eutirox is 100 now", [], "Eutirox 75, before breakfast")
        'Eutirox is 100 now (before: "Eutirox 75, before breakfast")'
    """
    notes = [(NO_LONGER_SO, statement) for statement in replaced] + [("before", before)] * bool(before)
    return " ".join([text, *(f'({note}: "{statement.strip(_AROUND)}")' for note, statement in notes)])


class ReplacedStatement(Answer):
    """A statement of a memory that another memory replaced.

    ``followed`` says that some of the memory is left after it, which may lean on it: "she is allergic to nuts" after "my aunt is
    coming on Friday". A prompt shows such a statement as well, marked as `NO_LONGER_SO`.
    """

    text: str
    by: MemoryId
    followed: bool = False


class Memory(Answer):
    """A memory as the API shows it.

    ``text`` is without the statements in ``replaced``, which the memory ``by`` replaced; restoring the memory brings them back.
    ``follows`` names memories that it may replace, before which it is shown. ``unmentioned`` is not empty for a wish not to be reminded:
    neither it nor memories with one of these words come with a prompt that has none of them.
    """

    id: MemoryId
    text: str
    kind: Kind
    audience: Audience
    trust: Trust
    suspect: bool = False
    pinned: bool = False
    importance: float = 0.5
    lang: str = ""
    created_at: Time
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    expires_at: Time | None = None
    state: Status = Status.LIVE
    supersedes: tuple[MemoryId, ...] = ()
    superseded_by: MemoryId | None = None
    reinforced: int = 0
    context_of: MemoryId | None = None
    contradicts: tuple[MemoryId, ...] = ()
    follows: tuple[MemoryId, ...] = ()
    replaced: tuple[ReplacedStatement, ...] = ()
    searchable: bool = True
    source: SourceInfo = SourceInfo()
    extractor: str = ""
    embedding: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)
    unmentioned: tuple[str, ...] = ()


class ListRequest(Request):
    """``POST /v1/memories/list``: as ``GET /v1/memories``, for a filter, which must not be in a URL."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 20
    cursor: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    kinds: Annotated[tuple[Kind, ...], Field(max_length=9), at_most(9)] = ()
    states: Annotated[tuple[Status, ...], Field(max_length=3), at_most(3)] = ()
    audiences: Audiences = ()
    where: Filter | None = None
    namespace: NamespaceName | None = None


class ListResponse(Answer):
    """``GET /v1/memories``: newest first."""

    memories: tuple[Memory, ...]
    next_cursor: str | None = None
    total: int


class MemoryResponse(Answer):
    """``GET /v1/memories/{id}``: one memory, and the versions before and after it, oldest first.

    ``omitted`` counts the oldest ones that one answer has no room for.
    """

    memory: Memory
    history: tuple[Memory, ...] = ()
    omitted: int = 0


class ForgetResponse(Answer):
    """``DELETE /v1/memories/{id}``; ``erasure`` is the report, where ``mode`` was ``erase``."""

    id: MemoryId
    state: Literal["forgotten", "erased"]
    position: Position
    erasure: ErasureView | None = None


MAX_WAIT_MS = 30_000
MAX_CALLS = 16


class TurnItem(Request):
    """One message of a conversation; a memory of a ``suspect`` one is kept, and recalled only when asked for.

    ``calls`` names the tools that were called after it, for the transcript alone. ``noted`` is what an assistant was asked to
    keep: whether that is worth keeping is judged as if a person had said it, and it stays the assistant's word. With ``whole`` the text
    is kept as one memory, as it was written, unless it only asks or only exchanges courtesies. ``sender`` is as in `SourceInfo`.
    """

    role: Role
    text: TurnText
    occurred_at: Time | None = None
    id: Short | None = None
    speaker: Short | None = None
    suspect: bool = False
    calls: Annotated[tuple[Short, ...], Field(max_length=MAX_CALLS), at_most(MAX_CALLS)] = ()
    noted: bool = False
    whole: bool = False
    sender: PlaceName = ""


class AnalyzeRequest(Request):
    """``POST /v1/analyze``: a turn, of which the relayer keeps what is worth keeping.

    ``session_end`` says that ``session`` ends with these turns, of which there may be none left to send.
    ``store_transcript`` keeps the turns word for word next to the memories that are made of them, if any is, for
    `relayer.wire.service.TranscriptRequest`. ``host_model`` says that the gateway can have a model asked: what this relayer has
    no model for is promised all the same, and waits for `relayer.wire.questions.ModelWorkRequest`. Each memory that is made of the
    turns has the ``tags`` and the ``metadata``.
    """

    turns: Annotated[tuple[TurnItem, ...], Field(max_length=MAX_ITEMS), at_most(MAX_ITEMS)]
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    audience: Audience = Audience.AGENT
    host: Short = ""
    session: Short = ""
    session_end: bool = False
    store_transcript: bool = False
    host_model: bool = False
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0
    place: PlaceName = ""
    tags: Tags = ()
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _needs_something(self) -> AnalyzeRequest:
        if not self.turns and not self.session_end:
            raise ValueError("give at least one of turns, or session_end and the session")
        if self.session_end and not self.session:
            raise ValueError("session_end needs the session that ends")
        if self.store_transcript and not self.session:
            raise ValueError("store_transcript needs the session that the turns belong to")
        return self


class Verdict(Answer):
    """The outcome for a turn, or for a part of a long one; ``turn`` is its index in the request.

    Of what is kept, ``start`` and ``end`` are those characters of the memory that made it worth keeping, and ``reason`` is
    ``kept``, ``duplicate`` or ``refused``; of what is not, it says why: ``code``, ``echo``, ``question``, ``courtesy``, ``hedge``,
    ``unreal``, ``one_off``, ``reply``, ``empty`` or ``role``; there may be others.
    """

    turn: int
    kept: bool
    reason: str
    start: int = 0
    end: int = 0


class AnalyzeResponse(Answer):
    """The memories that were stored. ``state`` is ``done`` if the work is complete, ``pending`` while ``job_id`` runs.

    ``extraction`` says what becomes of facts: ``local`` (none are extracted by a model), ``pending``, ``done`` (then
    ``facts`` has them), ``failed`` (the same request again tries again), or ``over_budget`` (turns are kept, no model is
    asked until the next day). ``summary_job_id`` is the promise of a summary of the session that ended. ``verdicts`` say
    what became of each turn. With ``host_model``, the jobs named wait for the gateway.
    """

    state: Literal["done", "pending"]
    memories: tuple[Remembered, ...]
    turns: int
    kept: int
    position: Position | None = None
    degraded: bool = False
    job_id: MemoryId | None = None
    extraction: Literal["local", "pending", "done", "failed", "over_budget"] = "local"
    facts: tuple[MemoryId, ...] = ()
    summary_job_id: MemoryId | None = None
    verdicts: tuple[Verdict, ...] = ()
    host_model: bool = False


class JobResponse(Answer):
    """``GET /v1/jobs/{id}``: the truth about a job, as far as the replica that answers knows it.

    ``queued``: nothing is in its way; ``running``: on this replica, now; ``waiting``: it is tried again after
    ``retry_in_ms``, and ``reason`` says what it waits for; ``failed``: for good, with a ``reason``.
    """

    id: MemoryId
    work: str
    state: Literal["queued", "running", "waiting", "done", "failed"]
    accepted_at: Time
    finished_at: Time | None = None
    memories: tuple[MemoryId, ...] = ()
    reason: str | None = None
    attempts: int = 0
    retry_in_ms: int | None = None


PastName = Literal["superseded", "forgotten"]
MOST_SHOWN = 20


class SourcePenalty(Request):
    """A penalty for a source. ``match`` is a pattern with ``*`` and ``?`` over what a memory comes from.

    That is its ``source.reference``, ``transcript:`` and its transcript, ``kind:`` and its kind, or ``trust:`` and its
    trust. The largest penalty that matches counts; it moves a memory down and leaves none out.
    """

    match: Annotated[str, Field(min_length=1, max_length=200)]
    penalty: Unit = 0.15


class _Search(Request):
    """The fields of every search: where to look, which memories count, and how many of them are wanted."""

    namespace: NamespaceName | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = 8
    floor: Unit = 0.2
    kinds: Annotated[tuple[Kind, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Audiences = ()
    trusts: Annotated[tuple[Trust, ...], Field(max_length=4), at_most(4)] = ()
    include_suspect: bool = False
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    consistency: Consistency = Consistency.STRONG
    min_position: Position | None = None
    where: Filter | None = None


class RecallRequest(_Search):
    """``POST /v1/recall``: a query, a vector, or both (then the vector is taken as the query's).

    ``include`` adds memories that are superseded or forgotten; ``as_of`` answers from what held at that time, in ms,
    superseded or not. ``standing`` names memories that stand in the prompt anyway: the answer says which of them are gone. ``named``
    are further audiences, whose hits come last and count only if the query names their speaker or place: the caller decides. Those that
    it names come first among them, and of the rest there are few. With ``prompt`` the query is a prompt that did not ask for
    memories: at the default floor it gets only those that probably help, while other requests get the best ``limit``. With ``prompt``
    or ``unasked``, wishes not to be reminded are honoured: see `RecallResponse.unmentioned`. With ``former`` as well, a prompt that asks
    how something was before gets what was replaced: see `RecallResponse.former`. With ``rerank``, and a query of at most 400 bytes,
    the three best and the two likeliest are read together with it, as prompts are; that takes 50 ms of processor time more.
    """

    query: Text | None = None
    vector: Vector | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 5
    floor: Unit = 0.3
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    explain: bool = False
    penalties: Annotated[tuple[SourcePenalty, ...], Field(max_length=16), at_most(16)] | None = None
    diversity: Unit = 0.0
    half_life_days: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = None
    include: Annotated[tuple[PastName, ...], Field(max_length=2), at_most(2)] = ()
    as_of: Time | None = None
    standing: Annotated[tuple[MemoryId, ...], Field(max_length=100), at_most(100)] = ()
    named: Audiences = ()
    prompt: bool = False
    unasked: bool = False
    former: bool = False
    rerank: bool = False

    @model_validator(mode="after")
    def _needs_something(self) -> RecallRequest:
        if self.query is None and self.vector is None:
            raise ValueError("give a query, a vector, or both")
        return self


class Evidence(Answer):
    """Why a hit has its rank; only with ``explain``.

    ``covered`` is the share of the query's terms that it has, rare ones for more, ``speaker`` whether the query names
    who said it, and ``score`` what it ranks by (cosine with the query less the names of speakers, covered share, speaker,
    how much it tells, what better neighbours in the conversation lend, and what reading it adds) before its ``penalty``.
    """

    cosine: float | None = None
    bm25: float | None = None
    covered: float = 0.0
    speaker: bool = False
    score: float = 0.0
    penalty: float = 0.0


class Judgement(Answer):
    """Why a prompt was answered or met silence; only with ``explain``.

    ``best`` is the evidence of the best memory less the ``doubt`` about a name that no memory knows, ``usual`` what
    every other unrelated prompt finds here, and ``needed`` what one in a hundred of them does: relevance 0.3.
    """

    best: float | None = None
    usual: float = 0.0
    needed: float = 0.0
    doubt: float = 0.0


class RecallHit(Memory):
    """A memory found; ``relevance`` is calibrated, 0..1, and ``distance`` is 1 - relevance.

    ``passage`` is the part of a long text that has the most to say, word for word; empty where a text is searched as one. ``before``
    is the text of the memory, or the statement, that a capture replaced by this one, if it says more than what changed: "Eutirox 75, before breakfast" for
    "the doctor put the Eutirox up to 100".
    """

    relevance: float
    distance: float
    evidence: Evidence | None = None
    passage: str = ""
    before: str = ""


class Unmentioned(Answer):
    """A hit that is left out because of the wish ``by`` not to be reminded."""

    id: MemoryId
    by: MemoryId
    relevance: float = 0.0


class RecallResponse(Answer):
    """Hits, best first; an empty answer is a good one. ``considered`` counts what was searched.

    ``gone`` are those of the request's ``standing`` that were erased, never were, or that a wish keeps out of prompts.
    ``unmentioned`` has hits that such a wish keeps out, if the request is for a prompt that does not name what the wish is about.
    ``left_out`` counts the hits that had no room within ``max_tokens``, or in one answer. ``former`` says that the prompt asks how
    something was before it changed: memories that were replaced are among the hits.
    """

    memories: tuple[RecallHit, ...]
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
    judgement: Judgement | None = None
    gone: tuple[MemoryId, ...] = ()
    left_out: int = 0
    unmentioned: tuple[Unmentioned, ...] = ()
    former: bool = False


MAX_DELETED = 1000


class SupersedeRequest(Request):
    """``POST /v1/memories/{id}/supersede``: a new version; what is left out stays as it was.

    ``ttl_seconds`` counts from now, and 0 means for ever. Of the three times, null takes the time away. An empty ``contradicts`` takes
    away the mark that this memory contradicts others; nothing else can be given there.
    """

    text: Text | None = None
    vector: Vector | None = None
    kind: Kind | None = None
    audience: Audience | None = None
    trust: Trust | None = None
    suspect: bool | None = None
    pinned: bool | None = None
    importance: Unit | None = None
    lang: Lang | None = None
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    ttl_seconds: Annotated[int, Field(ge=0, le=MAX_TTL_SECONDS)] | None = None
    contradicts: Annotated[tuple[MemoryId, ...], Field(max_length=0)] | None = None
    namespace: NamespaceName | None = None
    idempotency_key: IdempotencyKey | None = None
    place: PlaceName | None = None
    sender: PlaceName | None = None
    tags: Tags | None = None
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _needs_something(self) -> SupersedeRequest:
        if not self.model_fields_set - {"namespace", "idempotency_key", "vector"}:
            raise ValueError("give at least one field that changes, such as text, pinned or ttl_seconds")
        if self.vector is not None and self.text is None:
            raise ValueError("a vector belongs to a text: give the text as well")
        return self


class SupersedeResponse(Answer):
    """The new version's id, and the one that it replaced."""

    id: MemoryId
    supersedes: MemoryId
    position: Position
    degraded: bool = False
    job_id: MemoryId | None = None


class RestoreResponse(Answer):
    """``POST /v1/memories/{id}/restore``: live again; ``replaced`` is the version that it took the place of.

    A memory that another one replaced comes back next to that one. Of a live memory that lost a statement to another one, ``id`` is a new
    version with the whole text.
    """

    id: MemoryId
    state: Literal["live"]
    replaced: MemoryId | None = None
    position: Position


class Selection(Request):
    """Which memories are meant: those that pass every filter given. Times are bounds ``[after, before)``.

    ``inactive_since`` keeps those that were neither stored, nor said again, nor brought back at or after that time.
    """

    ids: Annotated[tuple[MemoryId, ...], Field(max_length=MAX_DELETED), at_most(MAX_DELETED)] = ()
    kinds: Annotated[tuple[Kind, ...], Field(max_length=9), at_most(9)] = ()
    audiences: Audiences = ()
    trusts: Annotated[tuple[Trust, ...], Field(max_length=4), at_most(4)] = ()
    hosts: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    sessions: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    speakers: Annotated[tuple[Short, ...], Field(max_length=32), at_most(32)] = ()
    suspect: bool | None = None
    pinned: bool | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    occurred_after: Time | None = None
    occurred_before: Time | None = None
    inactive_since: Time | None = None
    where: Filter | None = None

    @property
    def filters(self) -> set[str]:
        """Return the names of the filters that are given; an empty list and null filter nothing."""
        return {name for name in Selection.model_fields if getattr(self, name) not in (None, ())}


class DeleteRequest(Selection):
    """``POST /v1/memories/delete``: forget the live memories that pass the filters, or erase all that pass, kept turns as well.

    Without any filter it takes ``everything: true``; with ``dry_run`` it only counts.
    """

    mode: Literal["forget", "erase"] = "forget"

    everything: bool = False
    dry_run: bool = False
    namespace: NamespaceName | None = None

    @model_validator(mode="after")
    def _needs_a_scope(self) -> DeleteRequest:
        if self.everything == bool(self.filters):
            raise ValueError("give at least one filter, or everything: true and no filter")
        return self


class DeleteResponse(Answer):
    """The number of memories that matched and were forgotten or erased; ``remaining`` are left for the next, equal request.

    ``ids`` are the first hundred of them, newest first.
    """

    matched: int
    forgotten: int
    remaining: int
    dry_run: bool
    ids: Annotated[tuple[MemoryId, ...], Field(max_length=100)] = ()
    position: Position | None = None
    erased: int = 0
    erasure: ErasureView | None = None


class ContextDay(Answer):
    """One day of the reader's calendar: its newest memories, oldest of them first, and how many there are in all."""

    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    memories: tuple[Memory, ...]
    total: int


class ContextResponse(Answer):
    """``GET /v1/context``: the newest days on which something was said, newest first.

    ``total`` counts live memories, but of the newest ones none that a wish not to be reminded keeps out.
    ``coming`` are memories of any age that name a day of the next four weeks, the soonest first; ``days`` may have them, too.
    """

    days: tuple[ContextDay, ...]
    total: int
    position: Position | None = None
    coming: tuple[Memory, ...] = ()


class ChangeView(Answer):
    """The last change of a memory; ``memory`` is its current state, absent for an erased one."""

    change: Literal["remembered", "superseded", "forgotten", "restored", "erased"]
    id: MemoryId
    seq: int
    memory: Memory | None = None


class ChangesResponse(Answer):
    """``GET /v1/changes``: oldest first; ``next`` is the cursor to go on with, and ``more`` says that there is more now."""

    changes: tuple[ChangeView, ...]
    next: str
    more: bool
    position: Position | None = None


MAX_CONTEXT_CHARS = 25_000

StyleName = Literal["balanced", "strict", "contextual", "recall-heavy", "precision-heavy", "preference-only"]
FallbackReason = Literal[
    "no_model", "over_budget", "model_unavailable", "model_timeout", "model_answer_unusable", "not_proved"
]


Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"]


class ActiveRecallRequest(_Search):
    """``POST /v1/active-recall``: what to remind an assistant of before it answers ``query``.

    ``context`` is the conversation as the model reads it, ``query`` what is searched for. ``prompt_override`` takes the
    place of the style's prompt, ``prompt_append`` follows whichever is used. ``thinking`` is how much a model that reasons may do
    so; ``off`` and ``adaptive`` leave that to the model. ``model`` is a wish, for when the relayer has that one; after it comes
    the relayer's own, then its fallback. With ``resolved-only`` no other model is asked than the one that is meant.

    ``host_model`` says that the gateway can have a model asked: where the relayer has none, the answer is a question for it,
    and the same request again brings its ``answer``.
    """

    query: Text
    context: Annotated[str, Field(max_length=MAX_CONTEXT_CHARS)] = ""
    style: StyleName = "balanced"
    max_chars: Annotated[int, Field(ge=40, le=1000)] = 220
    prompt_append: Annotated[str, Field(max_length=8000)] = ""
    prompt_override: Annotated[str, Field(max_length=8000)] = ""
    thinking: Thinking = "off"
    model: Annotated[str, Field(max_length=256)] = ""
    model_fallback: Literal["default-remote", "resolved-only"] = "default-remote"
    host_model: bool = False
    answer: GivenAnswer | None = None


class ActiveRecallResponse(Answer):
    """A reminder, or silence, or what a direct recall would have answered.

    ``ok``: ``summary`` is the reminder. ``empty``: nothing was found, or the model said that nothing helps. ``fallback``:
    no model decided, ``reason`` says why, and ``memories`` are the direct hits. The memories are those that were searched
    out, best first, with every status. ``ask``: ``question`` is for the gateway's model, and the memories are at hand.

    ``model`` is the one that decided, and ``model_missing`` says that this relayer has none of the name that was wished for.
    """

    status: Literal["ok", "empty", "fallback", "ask"]
    summary: str = ""
    memories: tuple[RecallHit, ...] = ()
    reason: FallbackReason | None = None
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
    question: ModelQuestion | None = None
    model: str = ""
    model_missing: bool = False


class AskRequest(_Search):
    """``POST /v1/ask``: a question to be answered from memories alone."""

    question: Text
    limit: Annotated[int, Field(ge=1, le=MOST_SHOWN)] = 12
    max_chars: Annotated[int, Field(ge=40, le=4000)] = 1000


class AskResponse(Answer):
    """``answered`` with the memories that the answer rests on, or ``unknown``: then there is no answer.

    ``reason`` says what was wrong with an answer of the model's that is not given: ``not_proved``.
    """

    status: Literal["answered", "unknown"]
    answer: str = ""
    citations: tuple[RecallHit, ...] = ()
    reason: Literal["not_proved"] | None = None
    position: Position | None = None
    degraded: bool = False
    considered: int = 0
