"""The capture use case: extract memories from turns of a conversation and store them.

`analyze` extracts candidates by rules and stores them together with a pending job if a language model is to extract facts from
the same turns (`_Promise`). The model may be the relayer's or, if it has none, a gateway's. `summarise` adds a pending job for a
summary when a session ends, and `get_job` returns a job's state and can wait for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter

from relayer.access.accounts import Access
from relayer.domain.operations import EXTRACT, SUMMARISE, JobAccepted, JobState, Model, Record, Source
from relayer.errors import QueueFull
from relayer.extraction.readings import Readings
from relayer.extraction.statements import Candidate, ConversationTurn, Left, Step, Unread, is_courtesy
from relayer.extraction.wishes import wish_in
from relayer.extraction.words import clean, guess_language, is_question, split_sentences, words_of
from relayer.jobs import JobInput, JobLine, check_room, promise_summary, said_in, seal_input
from relayer.lib.work import Deadline, OpenRequestSlot, weight
from relayer.namespaces.context import Context, no_such_job, parse_id
from relayer.namespaces.namespace import OpenNamespace
from relayer.use_cases.transcripts import keep_turn
from relayer.wire import codec as ulid
from relayer.wire import schemas
from relayer.wire.fields import SPOKEN_ROLES, Kind, Role, Trust
from relayer.wire.labels import encode_metadata
from relayer.writing.drafts import (
    Draft,
    append_drafts,
    new_id,
    read_messages,
    request_origin,
    without_secrets,
)
from relayer.writing.present import position, remembered

# Operation index of a summary's job. No other operation of a capture has it, because a request has at most a hundred turns.
_INDEX = 10_000


async def summarise(
    ctx: Context, access: Access, request: schemas.AnalyzeRequest, deadline: Deadline
) -> str | None:
    """Add a pending job for the summary of a session that ends with this request, whose turns are stored already.

    Returns:
        The id of the job. None if there is none, because no model writes summaries, its budget is used up, or the session left
        too little to summarise.

    Raises:
        QueueFull: too many jobs of this account wait for the model.
    """
    work = ctx.facts
    lent = SUMMARISE not in ctx.own_works
    if not request.host_model if lent else _used_up(ctx, access):
        return None
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            return None
        await opened.refresh(deadline)
        said = await said_in(opened, request.session, request.audience)
        job = new_id(ctx)
        origin = request_origin(opened, access, _INDEX, request.idempotency_key)
        promise = promise_summary(ctx, opened, origin, job, said)
        if promise is None:
            return None
        if lent and not _has_room(ctx, opened):
            return None
        if work is not None and not lent:
            check_room(ctx, work.queue, opened)
        (outcome,) = await opened.append([promise], deadline)
        if outcome.refusal is not None:
            return None
        if work is not None:
            work.queue.accepted(outcome.subject)
        return ulid.render(outcome.subject)


def _used_up(ctx: Context, access: Access) -> bool:
    work = ctx.facts
    return work is not None and work.budget.wait_ms(access.account, ctx.clock.now_ms()) > 0


def _has_room(ctx: Context, opened: OpenNamespace) -> bool:
    """Return whether another job may wait for a gateway's model, so that jobs do not pile up if no gateway does them."""
    try:
        check_room(ctx, ctx.lent, opened)
    except QueueFull:
        return False
    return True


# Interval at which the log is checked for a job's end that another replica wrote.
_POLL_SECONDS = 1.0


async def get_job(
    ctx: Context, access: Access, job_id: str, wait_ms: int, deadline: Deadline
) -> schemas.JobResponse:
    """Return a job's state, waiting up to ``wait_ms`` for its end; raises `Refused`: ``not_found``, also for an invalid id."""
    wanted = parse_id(job_id, no_such_job())
    async with ctx.namespaces.use_if_exists(access, deadline) as opened:
        if opened is None:
            raise no_such_job()
        job = await _look(opened, wanted, deadline)
        if ctx.facts is not None:
            ctx.facts.queue.wake.set()
        if job.outcome is None and wait_ms:
            with ctx.polls.place(access.account) as place:
                job = await wait_for_end(ctx, opened, wanted, wait_ms, deadline, place=place)
        shown: dict[str, object] = {
            "id": ulid.render(job.job),
            "work": job.work,
            "state": job.state if job.outcome is not None else "queued",
            "accepted_at": job.accepted_at,
            "finished_at": job.finished_at or None,
            "memories": tuple(map(ulid.render, job.results or job.records)),
            "reason": job.reason or None,
        }
        if job.outcome is None and ctx.facts is not None:
            state, progress, wait = ctx.facts.queue.look(job.job)
            shown |= {"state": state, "attempts": progress.attempts, "reason": progress.reason or None}
            shown["retry_in_ms"] = int(wait * 1000) if wait else None
        return schemas.JobResponse.model_validate(shown)


async def wait_for_end(
    ctx: Context,
    opened: OpenNamespace,
    job_id: bytes,
    wait_ms: int,
    deadline: Deadline,
    *,
    place: OpenRequestSlot | None = None,
) -> JobState:
    """Return a job when it has ended at any relayer, or after ``wait_ms``, whichever is first.

    The wait also ends early if ``place`` is lost to another account, or if the namespace is no longer open here.
    """
    patience = Deadline.after(ctx.clock, min(wait_ms / 1000, max(0.0, deadline.remaining() - 0.5)))
    while True:
        job = await _look(opened, job_id, deadline)
        if job.outcome is not None or patience.remaining() <= 0 or (place is not None and place.lost):
            return job
        await opened.changed(min(_POLL_SECONDS, patience.remaining()))
        if not ctx.namespaces.holds(opened):
            return job


async def _look(opened: OpenNamespace, wanted: bytes, deadline: Deadline) -> JobState:
    await opened.refresh(deadline)
    job = opened.job(wanted)
    if job is None:
        raise no_such_job()
    return job


# Cost of classifying a sentence, as a multiple of the cost of scanning it for secrets.
_JUDGING = 6
# Cost of each turn in addition to that of its text, because every turn is processed separately.
_TURN_WEIGHT = 100
# The length of the end of a text in which a courtesy is looked for.
_COURTEOUS_END = 60
# Maximum number of memories of one request.
_MOST_MEMORIES = 100


async def analyze(
    ctx: Context, access: Access, request: schemas.AnalyzeRequest, deadline: Deadline
) -> schemas.AnalyzeResponse:
    """Extract memories from turns and store them.

    Raises:
        Refused: ``idempotency_conflict``.
        QueueFull: too many extractions of this account wait; the caller may repeat the request.
    """
    turns = await without_secrets(ctx, access.account, request.turns)
    request = request if turns is request.turns else request.model_copy(update={"turns": turns})
    candidates, left = await _extract(ctx, access, request, deadline)
    answer = schemas.AnalyzeResponse(state="done", memories=(), turns=len(request.turns), kept=0)
    if candidates:
        # Encoding a hundred turns takes long enough that other tasks should run before and after it.
        await asyncio.sleep(0)
        answer = await _keep(ctx, access, request, candidates, deadline)
        await asyncio.sleep(0)
    # The outcome of each turn or part of a turn, in the order of the turns.
    verdicts = [schemas.Verdict(turn=one.turn, kept=False, reason=one.reason) for one in left]
    for (turn, candidate), memory in zip(candidates, answer.memories, strict=True):
        start, end = candidate.evidence
        reason = "kept" if memory.status == "stored" else memory.status
        kept = memory.status != "refused"
        verdicts.append(schemas.Verdict(turn=turn, kept=kept, reason=reason, start=start, end=end))
    verdicts.sort(key=lambda verdict: verdict.turn)
    answer = answer.model_copy(update={"verdicts": tuple(verdicts)})
    ctx.verdicts.update(verdict.reason for verdict in verdicts)
    if request.session_end:
        job = await summarise(ctx, access, request, deadline)
        lent = job is not None and SUMMARISE not in ctx.own_works
        answer = answer.model_copy(update={"summary_job_id": job, "host_model": answer.host_model or lent})
    return answer


async def _keep(
    ctx: Context,
    access: Access,
    request: schemas.AnalyzeRequest,
    candidates: Sequence[tuple[int, Candidate]],
    deadline: Deadline,
) -> schemas.AnalyzeResponse:
    async with ctx.namespaces.use(access, deadline, create=True) as opened:
        await opened.wait_indexed()
        # A long turn may have several memories. A job refers to the first one.
        kept = {turn: number for number, (turn, _) in reversed(list(enumerate(candidates)))}
        promise = _Promise(ctx, opened, access, request, kept)
        await promise.prepare()
        drafts = _drafts(promise, candidates)
        written = await append_drafts(
            ctx,
            opened,
            access,
            drafts,
            idempotency_key=request.idempotency_key,
            deadline=deadline,
            promise=promise.make,
        )
        if request.store_transcript:
            await keep_turn(ctx, opened, access, request, outcomes=written.outcomes, deadline=deadline)
        answer = schemas.AnalyzeResponse(
            state="pending" if written.job_id else "done",
            memories=remembered(written.outcomes, written.records),
            turns=len(request.turns),
            kept=len(drafts),
            position=position(opened.position),
            degraded=written.degraded or promise.over_budget,
            job_id=written.job_id,
            extraction="over_budget" if promise.over_budget else "local",
        )
        job = opened.job(written.promised)
        if job is None:
            return answer
        if job.state == "failed":
            job = await _again(promise, job, [outcome.subject for outcome in written.outcomes], deadline)
        return await _with_facts(promise, answer, job, deadline)


@dataclass(slots=True)
class _Promise:
    """The pending job by which a model extracts facts from the turns of a request.

    Attributes:
        kept: the index of the first draft of each turn that has one, by the turn's index.
        said: the texts that the model is to read, by the turn's index; empty if there is no job.
        over_budget: whether there is no job because the account has used up its budget for the model.
        lent: whether a gateway's model does the job, because the relayer has no model for it.
    """

    ctx: Context
    opened: OpenNamespace
    access: Access
    request: schemas.AnalyzeRequest
    kept: Mapping[int, int]
    said: dict[int, str] = field(default_factory=dict)
    over_budget: bool = False
    lent: bool = False

    async def prepare(self) -> None:
        """Prepare the texts that the model is to read, before anything is stored.

        Raises:
            QueueFull: too many jobs of this account are pending; nothing was stored.
        """
        work, account = self.ctx.facts, self.access.account
        self.lent = EXTRACT not in self.ctx.own_works
        turns = {
            number: item.text
            for number, item in enumerate(self.request.turns)
            # A text that the gateway marked as suspect is never shown to a model, because it may be a prompt injection.
            if item.role in SPOKEN_ROLES and not item.suspect
        }
        if self.kept.keys().isdisjoint(turns):
            return
        if self.lent:
            wanted = self.request.host_model and _has_room(self.ctx, self.opened)
        else:
            self.over_budget = _used_up(self.ctx, self.access)
            wanted = not self.over_budget
            if wanted and work is not None:
                check_room(self.ctx, work.queue, self.opened)
        if wanted:
            said = await self.ctx.texts.make(account, map(clean, turns.values()), weight(turns.values()))
            self.said = dict(zip(turns, said, strict=True))

    def make(self, records: Sequence[bytes], failed: bytes = b"") -> JobAccepted | None:
        """Return the operation that adds a job about ``records``, or that replaces the job ``failed``; None without a job."""
        if not self.said:
            return None
        request, principal, turns = self.request, self.access.principal, self.request.turns
        key = request.idempotency_key
        if failed:
            # The key depends on the failed job, so that two concurrent retries add only one job.
            key = key and f"{key} after {ulid.render(failed)}"
        # No other operation of the request has this index, even if the entry also adds a job for vectors.
        index = 2 * len(records) + (2 if failed else 1)
        job = new_id(self.ctx)
        origin = request_origin(self.opened, self.access, index, key)
        lines = tuple(
            JobLine(
                turns[at].role,
                said,
                turns[at].occurred_at,
                turns[at].speaker or "",
                turns[at].id or "",
                records[self.kept[at]] if at in self.kept else b"",
                turns[at].sender,
            )
            for at, said in self.said.items()
        )
        given = JobInput(
            lines,
            request.audience,
            request.host,
            principal.certificate.agent,
            request.session,
            principal.author,
            request.place,
            request.tags,
            encode_metadata(request.metadata),
        )
        sealed = seal_input(self.ctx, self.opened, job, given)
        return JobAccepted(origin, job, EXTRACT, tuple(records), sealed)


async def _again(
    promise: _Promise, failed: JobState, records: Sequence[bytes], deadline: Deadline
) -> JobState:
    """Add a new job for a failed extraction whose request was repeated, and return the job that is valid now."""
    promised = promise.make(records, failed.job)
    if promised is None:
        return failed
    (outcome,) = await promise.opened.append([promised], deadline)
    again = promise.opened.job(outcome.subject)
    if again is not None and again.state == "failed":
        return await _again(promise, again, records, deadline)
    return again or failed


async def _with_facts(
    promise: _Promise, answer: schemas.AnalyzeResponse, job: JobState, deadline: Deadline
) -> schemas.AnalyzeResponse:
    """Queue the pending job, wait for its end as long as the request says, and add its state to the response."""
    ctx, opened = promise.ctx, promise.opened
    if ctx.facts is not None and job.outcome is None:
        ctx.facts.queue.accepted(job.job)
    if promise.request.wait_ms and job.outcome is None:
        job = await wait_for_end(ctx, opened, job.job, promise.request.wait_ms, deadline)
    changes: dict[str, object] = {"job_id": ulid.render(job.job), "position": position(opened.position)}
    if job.outcome is None:
        changes |= {"state": "pending", "extraction": "pending", "host_model": promise.lent}
    elif job.state == "failed":
        changes |= {"extraction": "failed"}
    else:
        changes |= {"extraction": "done", "facts": tuple(map(ulid.render, job.results))}
    return answer.model_copy(update=changes)


async def _extract(
    ctx: Context, access: Access, request: schemas.AnalyzeRequest, deadline: Deadline
) -> tuple[list[tuple[int, Candidate]], list[Left]]:
    """Return candidates, each with the index of its turn, and the turns that no memory was made from.

    If there are more than `_MOST_MEMORIES`, the less important candidates are dropped.
    """
    turns = [
        ConversationTurn(
            Role.USER if item.noted else item.role, item.text, item.occurred_at, f"{index}", item.speaker
        )
        for index, item in enumerate(request.turns)
    ]
    work = _JUDGING * weight(turn.text for turn in turns) + _TURN_WEIGHT * len(turns)
    async with deadline.step("extract"):
        steps = ctx.extractor.steps(turns)
        found = await ctx.texts.make(access.account, _up_to_unread(steps), work)
        if found and isinstance(found[-1], Unread):
            readings = await read_messages(ctx, found[-1].texts, deadline)
            found += await ctx.texts.make(access.account, _up_to_unread(steps, readings), work)
    candidates = [(int(one.turn_ids[0]), one) for one in found if isinstance(one, Candidate)]
    left = [one for one in found if isinstance(one, Left)]
    if any(item.whole for item in request.turns):
        kept = await ctx.texts.make(access.account, _whole(request, turns, candidates, left), work)
        whole = {turn for turn, _ in kept}
        candidates = sorted(
            [*kept, *(pair for pair in candidates if pair[0] not in whole)], key=itemgetter(0)
        )
        left = [one for one in left if one.turn not in whole]
    for number, (turn, one) in enumerate(candidates):
        item = request.turns[turn]
        if item.noted and item.role is not Role.USER:
            # It was classified as if the user had said it.
            candidates[number] = turn, replace(one, role=item.role, trust=Trust.ASSISTANT)
    least = sorted((one.importance for _, one in candidates), reverse=True)[:_MOST_MEMORIES][-1:]
    enough = [pair for pair in candidates if pair[1].importance >= least[0]][:_MOST_MEMORIES]
    return enough, left


def _whole(
    request: schemas.AnalyzeRequest,
    turns: Sequence[ConversationTurn],
    candidates: Sequence[tuple[int, Candidate]],
    left: Sequence[Left],
) -> Iterator[tuple[int, Candidate]]:
    """Yield the one memory of each turn that is to be kept whole, if it says something."""
    reasons = {one.turn: one.reason for one in left}
    for index, (item, turn) in enumerate(zip(request.turns, turns, strict=True)):
        text = clean(turn.text)
        parts = [one for number, one in candidates if number == index]
        nothing = not parts and _says_nothing(text, reasons.get(index, ""))
        if not item.whole or turn.role not in SPOKEN_ROLES or nothing:
            continue
        # The extractor may find nothing in a short note, such as "no sugar": it is kept because it was asked for.
        best = max(parts, key=lambda one: one.importance, default=None) or Candidate(
            text=text,
            kind=Kind.STATEMENT,
            importance=0.5,
            lang=guess_language(text),
            speaker=turn.speaker,
            role=turn.role,
            occurred_at_ms=turn.occurred_at_ms,
            turn_ids=(f"{index}",),
            evidence=(0, len(text)),
            trust=Trust.USER if turn.role is Role.USER else Trust.ASSISTANT,
        )
        wish = any(one.wish for one in parts)
        yield index, replace(best, text=text, evidence=(0, len(text)), wish=wish, essential="")


def _says_nothing(text: str, reason: str) -> bool:
    """Return whether a text only asks, or only exchanges courtesies.

    Args:
        text: the text.
        reason: why the extractor keeps nothing of it, see `Left`. The reader of messages takes short facts for courtesies, too, so the
            text must end with a known one: "ok thanks" does, "no sugar" does not.
    """
    if not any(map(str.isalnum, text)):
        return True
    words = [word.shape for word in words_of(text[-_COURTEOUS_END:])]
    if reason == "courtesy" and any(is_courtesy(" ".join(words[-count:])) for count in (1, 2, 3)):
        return True
    sentences = (text[slice(*span)] for span in split_sentences(text))
    return all(is_question(sentence) or is_courtesy(sentence) for sentence in sentences)


def _up_to_unread(
    steps: Generator[Step, Readings | None], readings: Readings | None = None
) -> Iterator[Step]:
    """Yield steps up to the one that needs readings, or after it with these."""
    with suppress(StopIteration):
        step = steps.send(readings)
        while not isinstance(step, Unread):
            yield step
            step = next(steps)
        yield step


def _drafts(promise: _Promise, candidates: Sequence[tuple[int, Candidate]]) -> list[Draft]:
    """Build drafts. The context of a draft is the statement just before it, if it is of the same turn or the one before."""
    ctx, opened, access, request = promise.ctx, promise.opened, promise.access, promise.request
    extractor = Model(ctx.extractor.name, "", ctx.extractor.version)
    drafts: list[Draft] = []
    last: dict[int, int] = {}
    wishing = {turn for turn, candidate in candidates if candidate.wish}
    for turn, candidate in candidates:
        item = request.turns[turn]
        # What was said just before: the statement before in the same turn, or the last one of the turn before.
        before = last.get(turn, last.get(turn - 1))
        earlier = (
            opened.last_of_session(request.session)
            if not turn and before is None and request.session
            else b""
        )
        last[turn] = len(drafts)
        drafts.append(
            Draft(
                Record(
                    id=b"",
                    namespace=access.namespace,
                    text=candidate.text,
                    kind=candidate.kind,
                    audience=request.audience,
                    trust=candidate.trust,
                    suspect=item.suspect,
                    importance=candidate.importance,
                    lang=candidate.lang,
                    occurred_at=candidate.occurred_at_ms,
                    context_of=earlier,
                    source=Source(
                        host=request.host,
                        agent=access.principal.certificate.agent,
                        session=request.session,
                        speaker=candidate.speaker or "",
                        role=candidate.role,
                        message_ids=(item.id,) if item.id else (),
                        span=candidate.evidence,
                        place=request.place,
                        sender=item.sender,
                    ),
                    extractor=extractor,
                    idempotency_key=request.idempotency_key or "",
                    author=access.principal.author,
                    tags=request.tags,
                    metadata=encode_metadata(request.metadata),
                    unmentioned=_unmentioned(opened, request, (turn, candidate)),
                    essential=candidate.essential,
                ),
                context_draft=before,
                # A wish is stored again though it was forgotten, because it is said again. What is said next to it, such as that
                # two people have parted, is its reason and no correction of what is known about them.
                captured=turn not in wishing,
            )
        )
    return drafts


# The most turns before a wish in which whom it is about is looked for.
_TURNS_BEFORE = 8


def _unmentioned(
    opened: OpenNamespace, request: schemas.AnalyzeRequest, said: tuple[int, Candidate]
) -> tuple[str, ...]:
    """Return the words of what a wish not to be reminded is about; "her" is the subject of what the same person said before.

    ``said`` is the index of a turn, and a candidate of it.
    """
    turn, candidate = said
    item = request.turns[turn]
    if not candidate.wish or item.suspect:
        return ()
    earlier = opened.record(opened.last_of_session(request.session)) if request.session else None
    before = [clean(item.text)[: candidate.evidence[0]]]
    before += [
        one.text
        for one in reversed(request.turns[max(0, turn - _TURNS_BEFORE) : turn])
        if one.role == "user" and (one.speaker, one.sender) == (item.speaker, item.sender)
    ]
    if earlier is not None and earlier.trust is Trust.USER and not earlier.suspect:
        said_by = earlier.source.speaker or "", earlier.source.sender or ""
        before += [earlier.text] if said_by == (item.speaker or "", item.sender or "") else []
    found = (wish_in(candidate.text, text) for text in [*filter(str.strip, before), ""])
    # A wish that names nothing keeps itself out of prompts: "he died, don't bring it up".
    return next(filter(None, found), (" ".join(candidate.text.casefold().split()),))
