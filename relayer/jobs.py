"""The jobs of the language model, which extract facts from messages and summarise sessions, and what runs them.

The input of a job (messages, and the memories that hold them) is sealed in the log together with the pending job. When the job
runs, `begin` leaves out what is no longer live, `facts_of` or `summary_of` asks the model once, and `end` appends the result.
The messages stay stored in any case. A summary is derived from all its sources: it is deleted when one of them is erased, and
made again from the others.

`working` starts as many pending jobs at once as the queue allows, each only while its namespace has a live key. Everything can be
interrupted at any moment: a job is pending in the log until the one operation that ends it, and the next replica that has a
live key for its namespace runs it.

A relayer without a language model has its prompts completed by a gateway's. `model_work` returns the prompt of the next job to a
gateway, which sends the completion of its model with its next request. `_take` then finishes the job with it, using the same code
and checks as for the relayer's own models. Any client that may write to a namespace may do its jobs. Only the time at which a
prompt was handed out is remembered, so that two gateways do not pay for the same job; every replica accepts the completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
from msgspec.structs import replace

from relayer.access.accounts import Access
from relayer.domain import operations as ops
from relayer.domain.operations import EXTRACT, SUMMARISE, JobFinished, JobState
from relayer.errors import (
    EmbedderUnavailable,
    ModelAnswerUnusable,
    ModelUnavailable,
    QueueFull,
    Refused,
    RelayerError,
)
from relayer.extraction.llm.borrowed import BorrowedModel, ModelToBeAsked
from relayer.extraction.llm.conversation import MOST_CHARACTERS, ConversationLine
from relayer.extraction.llm.extractor import ExtractedFact, Extraction, LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.extraction.normal_text import normal_text
from relayer.extraction.words import guess_language
from relayer.lib.job_queue import DailyLimits, JobQueue, ModelBudget, PendingJob, Place
from relayer.lib.scheduler import OnError, Periodic, Scheduler
from relayer.lib.work import Deadline
from relayer.namespaces.context import Context, FactWork, no_such_job, parse_id
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import header_of
from relayer.wire import codec as ulid
from relayer.wire.codec import UnsealError
from relayer.wire.fields import (
    DAY_MS,
    NOBODY_KNOWN,
    SPOKEN_ROLES,
    Audience,
    Consistency,
    Kind,
    Role,
    Status,
    Trust,
)
from relayer.wire.questions import GivenAnswer, ModelWorkRequest, ModelWorkResponse
from relayer.wire.schemas import RecallRequest
from relayer.wire.sealing import SALT_SIZE
from relayer.writing.drafts import Draft, new_id, seal_results

_MOST_SHOWN = 48_000  # characters of one capture: about 12,000 tokens of English


class JobLine(msgspec.Struct, frozen=True, array_like=True):
    """One message of a job's input; ``record`` is the memory that holds it verbatim, empty if it was not to be stored."""

    role: Role
    text: str
    occurred_at: int | None = None
    speaker: str = ""
    message_id: str = ""
    record: bytes = b""
    sender: str = ""


class JobInput(msgspec.Struct, frozen=True, array_like=True):
    """The input of a job, sealed in the log together with the pending job."""

    lines: tuple[JobLine, ...]
    audience: Audience
    host: str
    agent: str
    session: str
    author: bytes
    place: str = ""
    tags: tuple[str, ...] = ()
    metadata: str = ""

    @property
    def heard_by(self) -> str:
        """Return the audience's filter, see `relayer.wire.fields.AudienceFilter`; a model reads only messages of one place."""
        return self.audience if self.audience is Audience.AGENT else f"{self.audience}:{self.place}"

    @property
    def sender(self) -> str:
        """Return the sender if all messages have the same one; otherwise empty, and in a group `NOBODY_KNOWN`."""
        senders = {line.sender for line in self.lines}
        anonymous = NOBODY_KNOWN if self.audience is Audience.GROUP else ""
        return senders.pop() or anonymous if len(senders) == 1 else anonymous


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(JobInput)


def input_of(records: Sequence[ops.Record]) -> JobInput:
    """Return the input of a job about memories of one session; at least one memory."""
    lines = tuple(
        JobLine(
            record.source.role,
            record.text,
            record.occurred_at,
            record.source.speaker,
            "".join(record.source.message_ids[:1]),
            record.id,
            record.source.sender,
        )
        for record in records
    )
    first = records[0]
    source = first.source
    return JobInput(
        lines, first.audience, source.host, source.agent, source.session, first.author, source.place
    )


def seal_input(ctx: Context, opened: OpenNamespace, job: bytes, given: JobInput) -> bytes:
    """Return a job's input, sealed under its id."""
    return opened.keys.seal_record(job, _ENCODER.encode(given), salt=ctx.randomness.bytes(SALT_SIZE))


# A session of fewer messages needs no summary.
_FEWEST = 3
# The number of newest memories that are scanned; those of a session are among them when it ends.
_LOOKED_BACK = 1000
_AT_ONCE = 50
_LLM = "llm"  # the extractor's name in records that a language model wrote


async def said_in(opened: OpenNamespace, session: str, audience: Audience) -> list[ops.Record]:
    """Return the live memories of a session with this audience, oldest first; without unverified memories and summaries."""
    found: list[ops.Record] = []
    newest = [one for one in opened.ids() if opened.is_memory(one)][-_LOOKED_BACK:]
    for place, one in enumerate(reversed(newest)):
        memory = opened.memory(one)
        if memory is not None and memory.is_live and _belongs(memory.record, session, audience):
            found.append(memory.record)
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return found[::-1]


def _belongs(record: ops.Record, session: str, audience: Audience) -> bool:
    return (
        record.source.session == session
        and record.audience is audience
        and not record.suspect
        # Memories that a model made of the same session are derived from its turns and no sources of their own.
        and record.source.role in SPOKEN_ROLES
        and record.kind is not Kind.SUMMARY
        and record.extractor.name != _LLM
    )


def promise_summary(
    ctx: Context, opened: OpenNamespace, origin: ops.Origin, job: bytes, said: Sequence[ops.Record]
) -> ops.JobAccepted | None:
    """Return the pending job of a summary of these memories of one session; None when they are too few for one."""
    if len(said) < _FEWEST:
        return None
    sealed = seal_input(ctx, opened, job, input_of(said))
    return ops.JobAccepted(origin, job, ops.SUMMARISE, tuple(record.id for record in said), sealed)


Shown = tuple[JobLine, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class JobTask:
    """A job that is being run.

    Attributes:
        job: its current state in the log.
        shown: the newest lines that fit one request and are still live, each with the memories that hold it.
    """

    opened: OpenNamespace
    job: ops.JobState
    given: JobInput
    shown: Sequence[Shown]

    @property
    def lines(self) -> list[ConversationLine]:
        """Return the lines for the model."""
        return [
            ConversationLine(line.role, line.text, line.occurred_at, line.speaker) for line, _ in self.shown
        ]

    @property
    def sources(self) -> tuple[bytes, ...]:
        """Return the memories that hold any of the lines, each once."""
        return tuple(dict.fromkeys(record for _, records in self.shown for record in records))

    def record(self, text: str, made_by: ops.Model, trust: Trust, occurred_at: int | None) -> ops.Record:
        """Return a text that a model made of the lines as a memory without an id, with the audience of the lines."""
        given = self.given
        return ops.Record(
            id=b"",
            namespace=self.opened.name,
            text=text,
            audience=given.audience,
            trust=trust,
            lang=guess_language(text),
            occurred_at=occurred_at,
            source=ops.Source(
                host=given.host,
                agent=given.agent,
                session=given.session,
                role=Role.ASSISTANT,
                place=given.place,
                sender=given.sender,
            ),
            extractor=made_by,
            author=given.author,
            tags=given.tags,
            metadata=given.metadata,
        )

    def summary(self, text: str, made_by: ops.Model) -> Draft:
        """Return a summary of all lines as a draft."""
        times = [line.occurred_at for line, _ in self.shown if line.occurred_at is not None]
        record = self.record(text, made_by, Trust.ASSISTANT, max(times, default=None))
        return Draft(replace(record, kind=Kind.SUMMARY), captured=True, sources=self.sources)


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a task: drafts, each with the memory that it replaces, empty for none."""

    found: Extraction
    drafts: Sequence[tuple[Draft, bytes]]


async def begin(opened: OpenNamespace, job: ops.JobState) -> JobTask | None:
    """Return the task of a job; None when the job has ended meanwhile.

    Raises:
        UnsealError, msgspec.MsgspecError: the input cannot be read.
        RelayerError: the log could not be read.
    """
    await opened.read(Consistency.STRONG)
    current = opened.job(job.job)
    if current is None or current.outcome is not None:
        return None
    given = _DECODER.decode(opened.keys.unseal_record(current.job, current.sealed))
    kept: list[Shown] = []
    room = _MOST_SHOWN
    for line, records in reversed(_live(opened, given.lines)):
        room -= min(len(line.text), MOST_CHARACTERS)
        if room < 0:
            break
        kept.append((line, records))
    return JobTask(opened, current, given, kept[::-1])


def _live(opened: OpenNamespace, lines: Sequence[JobLine]) -> list[Shown]:
    """Return the lines that are still live, each with the memories that hold it verbatim: its own, or those that it repeated."""
    repeated = {
        line.record: opened.keys.content_mac(normal_text(line.text))
        for line in lines
        if line.record and opened.state(line.record) is None
    }
    alike: dict[bytes, list[bytes]] = {mac: [] for mac in repeated.values()}
    if alike:
        for state in opened.states():
            if state.content in alike and state.status is Status.LIVE:
                alike[state.content].append(state.record)
    found: list[Shown] = []
    for line in lines:
        own = opened.state(line.record)
        records = tuple(alike[repeated[line.record]]) if line.record in repeated else ()
        if own is not None and own.status is Status.LIVE:
            records = (line.record,)
        if records or not line.record:
            found.append((line, records))
    return found


_MOST_KNOWN = 12
_LOOKED_AT = 48
_QUERY_CHARACTERS = 2000
_KNOWN_FLOOR = 0.1


async def facts_of(ctx: Context, work: FactWork, task: JobTask) -> Made | None:
    """Ask the model for facts, once; return None when no line is left.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `LlmExtractor.extract`.
    """
    if not task.sources:
        return None
    known = await _known(ctx, task)
    headers = [header_of(record) for record in known]
    found = await work.extractor.extract(task.lines, headers, seconds=work.seconds)
    drafts = [_draft_of(work, task, known, fact) for fact in found.facts if fact.relation != "duplicate"]
    if found.summary:
        drafts.append((task.summary(found.summary, _made_by(work)), b""))
    return Made(found, drafts)


async def _known(ctx: Context, task: JobTask) -> list[ops.Record]:
    """Return memories that the facts may repeat, replace or contradict, without verbatim turns."""
    opened = task.opened
    query = "\n".join(line.text for line, _ in task.shown if line.role is Role.USER)[:_QUERY_CHARACTERS]
    if not query:
        return []
    model = opened.model
    try:
        vector = (await opened.embed(ctx.embedder_of(model), [query], query=True))[0]
    except (EmbedderUnavailable, QueueFull):
        vector = None
    await opened.wait_indexed()
    if model != opened.model:
        vector = None
    among = RecallRequest(query=query, audiences=(task.given.heard_by,))
    allowed = opened.allowed(among, ctx.clock.now_ms())
    found = opened.index().search(vector, query, _LOOKED_AT, allowed=allowed, floor=_KNOWN_FLOOR)
    records = [opened.hit(hit.key).record for hit in found.hits]
    return [record for record in records if record.extractor.name != ctx.extractor.name][:_MOST_KNOWN]


def _may_replace(work: FactWork, given: JobInput, old: ops.Record) -> bool:
    """Return whether a fact may replace a memory: only one that a model made, with the same audience, and that is not pinned."""
    among_the_same = old.audience is given.audience and old.source.place == given.place
    return old.extractor.name == work.extractor.name and among_the_same and not old.pinned


def _draft_of(
    work: FactWork, task: JobTask, known: Sequence[ops.Record], fact: ExtractedFact
) -> tuple[Draft, bytes]:
    line, records = task.shown[fact.line]
    replaced = contradicted = b""
    if fact.known is not None and fact.relation != "new":
        old = known[fact.known]
        if fact.relation == "supersedes" and _may_replace(work, task.given, old):
            replaced = old.id
        else:
            contradicted = old.id
    trust = Trust.USER if line.role is Role.USER else Trust.ASSISTANT
    record = task.record(fact.text, _made_by(work), trust, fact.occurred_at_ms)
    source = replace(
        record.source,
        speaker=line.speaker,
        sender=line.sender,
        role=line.role,
        message_ids=(line.message_id,) if line.message_id else (),
        span=fact.span,
        reference=ulid.render(records[0]) if records else "",
    )
    record = replace(
        record,
        kind=fact.kind,
        importance=fact.importance,
        contradicts=(contradicted,) if contradicted else (),
        replaces=((replaced, *ops.WHOLE),) if replaced else (),
        source=source,
    )
    # A message that is no memory itself was read together with the others, so its fact depends on all of them.
    return Draft(record, captured=True, sources=records or task.sources), replaced


def _made_by(work: FactWork) -> ops.Model:
    return ops.Model(work.extractor.name, work.extractor.model, work.extractor.version)


async def summary_of(summariser: Summariser, seconds: float, task: JobTask) -> Made | None:
    """Ask the model for a summary, once; return None when too little is left for one.

    Raises:
        ModelUnavailable, ModelAnswerUnusable, QueueFull: as `Summariser.summarise`.
    """
    if len(task.shown) < _FEWEST:
        return None
    summary = await summariser.summarise(task.lines, seconds=seconds)
    made_by = ops.Model(_LLM, summariser.model, summariser.version)
    drafts = [(task.summary(summary.text, made_by), _earlier(task))] if summary.points else []
    return Made(Extraction((), summary.text, summary.tokens, summary.dropped), drafts)


def _earlier(task: JobTask) -> bytes:
    """Return the live summary of the same session that an earlier job made before the session continued."""
    earlier = (
        job for job in reversed(task.opened.jobs()) if job.work == ops.SUMMARISE and job.job != task.job.job
    )
    for one in chain.from_iterable(job.results for job in earlier):
        memory = task.opened.memory(one)
        if memory is None or not memory.is_live or memory.record.pinned:
            continue
        source, audience = memory.record.source, memory.record.audience
        if source.session == task.given.session and audience is task.given.audience:
            return one
    return b""


async def end(ctx: Context, task: JobTask, made: Made | None) -> None:
    """End a job with its result, if there is one; the second operation is a job that computes missing vectors.

    Raises:
        RelayerError: the log does not accept it.
    """
    drafts = made.drafts if made is not None else ()
    sealed = await seal_results(ctx, task.opened, [draft for draft, _ in drafts]) if drafts else []
    results = [(one, old) for one, (_, old) in zip(sealed, drafts, strict=True) if one is not None]
    stored = tuple(one for one, _ in results)
    supersedes = tuple((one.record, old) for one, old in results if old)
    operations: list[ops.Operation] = [ops.JobFinished(task.job.job, stored=stored, supersedes=supersedes)]
    missing = tuple(one.record for one in stored if not one.vector)
    if missing:
        origin = ops.Origin(author=b"", nonce=task.job.job, index=1)
        operations.append(ops.JobAccepted(origin, new_id(ctx), ops.EMBED, missing))
    await task.opened.append(operations)


INTERVAL_SECONDS = 1.0
_STEP_SECONDS = 60.0
_WORKS = frozenset({EXTRACT, SUMMARISE})


def pending_jobs(opened: OpenNamespace) -> list[JobState]:
    """Return the pending jobs of a namespace that need the language model."""
    return [job for job in opened.jobs() if job.work in _WORKS and job.outcome is None]


def check_room(ctx: Context, queue: JobQueue, opened: OpenNamespace) -> None:
    """Check that another job of this namespace may be queued; raises `QueueFull` when too many are waiting."""
    account = opened.account
    others = [one for one in ctx.namespaces.all() if one.account == account]
    queue.check_room(len(pending_jobs(opened)), sum(len(pending_jobs(one)) for one in others))


def working(ctx: Context, work: FactWork, scheduler: Scheduler) -> Periodic:
    """Return the periodic task that runs jobs; unexpected errors are reported, and the job is retried later."""
    runs: list[tuple[OpenNamespace, asyncio.Task[None]]] = []

    async def round_(on_error: OnError) -> None:
        runs[:] = [(opened, task) for opened, task in runs if not task.done()]
        now = ctx.clock.now_ms()
        live = set(map(id, ctx.namespaces.all()))
        for opened, task in runs:
            # Its last key has expired, or it was evicted.
            if id(opened) not in live or opened.key_not_after < now:
                task.cancel()
        for opened, item in _startable(ctx, work):
            run = _run(ctx, work, opened, item.job, on_error)
            runs.append((opened, scheduler.spawn(run, "job")))

    return Periodic("job", round_, INTERVAL_SECONDS, wake=work.queue.wake)


def _startable(ctx: Context, work: FactWork) -> Iterator[tuple[OpenNamespace, PendingJob]]:
    now = ctx.clock.now_ms()
    places: dict[Place, OpenNamespace] = {
        (opened.account, opened.name): opened
        for opened in ctx.namespaces.all()
        if opened.key_not_after >= now and not opened.broken
    }
    own = ctx.own_works
    waiting = [
        PendingJob(place, job)
        for place, opened in places.items()
        for job in pending_jobs(opened)
        if job.work in own
    ]
    while (item := work.queue.choose(waiting)) is not None:
        work.queue.started(item)
        yield places[item.place], item


async def _run(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState, on_error: OnError) -> None:
    opened.users += 1
    try:
        await _attempt(ctx, work, opened, job)
    except RelayerError as error:
        on_error(error)
        work.queue.put_off(job.job, "store_unavailable", getattr(error, "retry_after", 0.0))
    except Exception as error:  # noqa: BLE001 - whatever it was, the other jobs continue
        on_error(error)
        work.queue.put_off(job.job, "internal_error")
    finally:
        opened.users -= 1
        work.queue.stopped(job.job)


async def _attempt(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState) -> None:
    """Run a job once, and decide whether a failure ends it or it is retried."""
    queue, account = work.queue, opened.account
    wait = work.budget.wait_ms(account, ctx.clock.now_ms())
    if wait:
        queue.put_off(job.job, "budget_used_up", wait / 1000)
        return
    try:
        async with asyncio.timeout(work.seconds + 2 * _STEP_SECONDS):
            found = await finish(ctx, work, opened, job)
    except (ModelUnavailable, EmbedderUnavailable, QueueFull, TimeoutError) as error:
        waited = ctx.clock.now_ms() - job.accepted_at
        if waited > DAY_MS:
            await fail(work, opened, job, "model_unavailable")
        else:
            queue.put_off(job.job, "model_unavailable", getattr(error, "retry_after", 0.0))
    except ModelAnswerUnusable as error:
        work.budget.spend(account, error.tokens, ctx.clock.now_ms())
        reason = f"model_answer_{error.reason}"
        queue.counts[reason] += 1
        progress = queue.put_off(job.job, reason, bad_answer=True)
        if progress.bad_answers >= queue.limits.bad_answers:
            await fail(work, opened, job, reason)
    except (UnsealError, msgspec.MsgspecError):
        await fail(work, opened, job, "input_unreadable")
    except Refused as error:
        await fail(work, opened, job, error.code)
    else:
        queue.ended(job.job, "done")
        if found is not None:
            queue.counts["facts"] += len(found.facts)
            queue.counts.update({f"dropped_{why}": count for why, count in found.dropped.items()})


async def finish(ctx: Context, work: FactWork, opened: OpenNamespace, job: JobState) -> Extraction | None:
    """Run a job to its end, unless it has ended: one call of the model, one log entry; return None if the model was not asked."""
    task = await begin(opened, job)
    if task is None:
        return None
    if job.work == SUMMARISE and work.summariser is not None:
        made = await summary_of(work.summariser, work.seconds, task)
    else:
        made = await facts_of(ctx, work, task)
    if made is not None:
        work.budget.spend(opened.account, made.found.tokens, ctx.clock.now_ms())
    # If too little is left to ask about, the messages were forgotten or erased since.
    await end(ctx, task, made)
    return made.found if made is not None else None


async def fail(work: FactWork, opened: OpenNamespace, job: JobState, reason: str) -> None:
    """End a job permanently, with a reason that is one word."""
    await opened.append([JobFinished(job.job, failed=True, reason=reason)])
    work.queue.ended(job.job, "failed")


# For this long, a prompt that was handed out to one gateway is not handed out again. If that gateway dies, the job is delayed by
# no more than this.
_LEASE_SECONDS = 120.0


async def model_work(
    ctx: Context, access: Access, request: ModelWorkRequest, deadline: Deadline
) -> ModelWorkResponse:
    """Finish a job with the completion in the request, if there is one, and return the prompt of the next job.

    Raises:
        Refused: ``not_found``: the job's id is invalid.
    """
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return ModelWorkResponse()
        await opened.refresh(deadline)
        told = ModelWorkResponse()
        if request.job_id is not None:
            told = await _take(ctx, opened, request, request.job_id)
            if request.answer is None:
                # The gateway's model did not respond, so it does not get the next prompt now.
                return told.model_copy(update={"waiting": len(_lent(ctx, opened))})
        return await _next(ctx, opened, request, told)


async def _take(
    ctx: Context, opened: OpenNamespace, request: ModelWorkRequest, job_id: str
) -> ModelWorkResponse:
    """Finish a job with the completion of the gateway's model; without a completion, retry the job later."""
    job = opened.job(parse_id(job_id, no_such_job()))
    if job is None or job.outcome is not None or job not in _lent(ctx, opened):
        return ModelWorkResponse(outcome="stale")
    if request.answer is None:
        ctx.lent.put_off(job.job, "model_unavailable")
        return ModelWorkResponse()
    work = _work(ctx, request, request.answer)
    try:
        found = await finish(ctx, work, opened, job)
    except ModelToBeAsked:
        ctx.lent.put_off(job.job, "changed")
        return ModelWorkResponse(outcome="stale")
    except ModelAnswerUnusable as error:
        progress = ctx.lent.put_off(job.job, f"model_answer_{error.reason}", bad_answer=True)
        if progress.bad_answers < ctx.lent.limits.bad_answers:
            return ModelWorkResponse(outcome="unusable")
        await fail(work, opened, job, f"model_answer_{error.reason}")
        return ModelWorkResponse(outcome="failed")
    ctx.lent.ended(job.job, "done")
    facts, dropped = (len(found.facts), found.dropped.total()) if found is not None else (0, 0)
    ctx.lent.counts["facts"] += facts
    return ModelWorkResponse(outcome="done", facts=facts, dropped=dropped)


async def _next(
    ctx: Context, opened: OpenNamespace, request: ModelWorkRequest, told: ModelWorkResponse
) -> ModelWorkResponse:
    """Return the prompt of the oldest job that is due, and finish older jobs that turn out to need no model."""
    jobs, soonest = _lent(ctx, opened), None
    for job in jobs:
        _, _, wait = ctx.lent.look(job.job)
        if wait:
            soonest = min(wait, soonest or wait)
            continue
        ctx.lent.started(PendingJob((opened.account, opened.name), job))
        ctx.lent.put_off(job.job, "asked", _LEASE_SECONDS)
        ctx.lent.stopped(job.job)
        work = _work(ctx, request)
        try:
            await finish(ctx, work, opened, job)
        except ModelToBeAsked as asked:
            return told.model_copy(
                update={
                    "job_id": ulid.render(job.job),
                    "work": job.work,
                    "question": asked.question,
                    "waiting": len(_lent(ctx, opened)),
                }
            )
        except (UnsealError, msgspec.MsgspecError):
            await fail(work, opened, job, "input_unreadable")
        else:
            ctx.lent.ended(job.job, "done")
    retry = None if soonest is None else int(soonest * 1000)
    return told.model_copy(update={"waiting": len(_lent(ctx, opened)), "retry_in_ms": retry})


def _lent(ctx: Context, opened: OpenNamespace) -> Sequence[JobState]:
    own = ctx.own_works
    return [job for job in pending_jobs(opened) if job.work not in own]


def _work(ctx: Context, request: ModelWorkRequest, answer: GivenAnswer | None = None) -> FactWork:
    """Return the services that do a job with a gateway's model, without a budget: the gateway counts its own costs."""
    model = BorrowedModel(answer)
    return FactWork(
        extractor=LlmExtractor(model, summaries=request.turn_summaries),
        queue=ctx.lent,
        budget=ModelBudget(DailyLimits()),
        summariser=Summariser(model),
    )
