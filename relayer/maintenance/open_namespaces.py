"""Maintenance of open namespaces: vectors that are missing or old, what has to be derived again, what nobody needs any more.

After an erasure, what was derived from several memories went with one of them and is made again from the others. Nothing
of it is kept meanwhile, because it may say what was erased. The promise is a job like any other; its id follows from the
erasure's, so that several relayers promise it once.

The inactivity policy, off unless an operator sets it, forgets what nobody pinned and nobody said again for long. It looks at
namespaces while their agents use them. Forgetting is undoable, and what is restored counts as active from then on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from relayer.domain.erasures import Erasure
from relayer.domain.operations import (
    EMBED,
    EXTRACT,
    SUMMARISE,
    Forget,
    JobAccepted,
    JobFinished,
    Origin,
    Record,
    Refusal,
    Result,
    VectorSet,
)
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.jobs.tasks import input_of, promise_summary, seal_input
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_meaning, encode_vector, headed, header_of
from relayer.namespaces.records import Memory
from relayer.search.passages import MOST_VECTORS, Meaning, is_long, passages
from relayer.search.rows import Vector
from relayer.wire.codec import lp
from relayer.wire.memories import MAX_DELETED, Selection
from relayer.writing.drafts import embed_with_contexts, new_id, seal_vector

_ID_SIZE = 16

_Place = tuple[str, str]


async def reextract(ctx: Context, opened: OpenNamespace) -> None:
    """Promise to read again what erasures left, where a model extracts facts, and to summarise it, where one does that.

    Raises:
        RelayerError: the log does not take it; calling this again goes on.
    """
    if ctx.facts is None:
        return
    for erasure in [known for known in opened.erasures() if known.rest]:
        promises: list[JobAccepted] = []
        if ctx.facts.extracts:
            promises += [
                _promise(ctx, opened, job, records)
                for place, records in _conversations(opened, erasure.rest).items()
                if opened.job(job := _job(erasure, place)) is None
            ]
        if ctx.facts.summariser is not None:
            promises += _summaries(ctx, opened, erasure)
        for outcome in await opened.append(promises) if promises else ():
            if outcome.refusal is None:
                ctx.facts.queue.accepted(outcome.subject)


def _summaries(ctx: Context, opened: OpenNamespace, erasure: Erasure) -> list[JobAccepted]:
    """Promise anew the summaries that went with what was erased, and those that were never made because of it."""
    gone = {*erasure.records, *erasure.derived}
    promises: list[JobAccepted] = []
    for job in [known for known in opened.jobs() if known.work == SUMMARISE]:
        made = not gone.isdisjoint(job.results)
        cancelled = job.reason == Refusal.SOURCE_ERASED.value and not gone.isdisjoint(job.records)
        again = _again(erasure, job.job)
        if opened.job(again) is not None or not (made or cancelled):
            continue
        left = [memory.record for one in job.records if (memory := opened.memory(one)) is not None]
        promise = promise_summary(ctx, opened, Origin(author=b"", nonce=again), again, left)
        if promise is not None:
            promises.append(promise)
    return promises


def _again(erasure: Erasure, job: bytes) -> bytes:
    return hashlib.sha256(lp("memrelay/v1/summarise-again", erasure.erasure, job)).digest()[:_ID_SIZE]


def _conversations(opened: OpenNamespace, rest: Iterable[bytes]) -> dict[_Place, list[Record]]:
    """Return what is left, by audience and session: what was said among some must not turn up among others."""
    found: dict[_Place, list[Record]] = defaultdict(list)
    for one in rest:
        record = opened.record(one)
        # What a gateway doubts is never shown to a model.
        if record is not None and not record.suspect:
            found[record.audience, record.source.session].append(record)
    return found


def _job(erasure: Erasure, place: _Place) -> bytes:
    return hashlib.sha256(lp("memrelay/v1/read-again", erasure.erasure, *place)).digest()[:_ID_SIZE]


def _promise(ctx: Context, opened: OpenNamespace, job: bytes, records: Sequence[Record]) -> JobAccepted:
    origin = Origin(author=b"", nonce=job)
    return JobAccepted(
        origin,
        job,
        EXTRACT,
        tuple(record.id for record in records),
        seal_input(ctx, opened, job, input_of(records)),
    )


INTERVAL_SECONDS = 1.0
_SHORTEST_PAUSE = 0.05
_BATCH = 32
# At most a tenth of a second, before whoever else has texts to embed gets a turn.
_PASSAGES_AT_ONCE = 16


def embedding_maintenance(ctx: Context) -> Periodic:
    """Return the task of it; what fails in one round is tried again in the next one."""

    async def round_(_: OnError) -> float | None:
        began, embedded = ctx.clock.monotonic(), ctx.namespaces.embedded
        await maintain(ctx)
        if ctx.namespaces.embedded == embedded:
            return None
        # There may be more. As long again for whoever asks and captures, who share the embedder and the cores.
        return min(INTERVAL_SECONDS, max(_SHORTEST_PAUSE, ctx.clock.monotonic() - began))

    return Periodic("tending", round_, INTERVAL_SECONDS)


async def maintain(ctx: Context) -> None:
    """Do one round over everything that is open; a namespace that fails does not keep the others from their turn.

    Raises:
        RelayerError: the first failure, after the round.
    """
    with suppress(EmbedderUnavailable, QueueFull):
        await ctx.namespaces.calibrate(ctx.embedder)
        # A former model that nothing was embedded by is not even loaded.
        if ctx.former is not None and any(it.model == ctx.former.model for it in ctx.namespaces.all()):
            await ctx.namespaces.calibrate(ctx.former)
    await ctx.namespaces.drop_expired()
    await ctx.namespaces.trim()
    failures: list[BaseException] = []
    await ctx.namespaces.in_each(partial(_maintain, ctx), failures.append)
    if failures:
        raise failures[0]


async def _maintain(ctx: Context, opened: OpenNamespace) -> None:
    if opened.being_tended or opened.broken or not opened.needs_maintenance:
        return
    # What takes milliseconds first: a long text is found by its words before its vectors are there.
    await opened.tidy_indexes()
    with suppress(EmbedderUnavailable, QueueFull):
        await embed_missing(ctx, opened)
    await opened.tidy_indexes()
    await reextract(ctx, opened)
    opened.note_maintained()


async def embed_missing(ctx: Context, opened: OpenNamespace) -> None:
    """Compute vectors of the newest model that records lack: all that jobs promised, and some of the others.

    Raises:
        EmbedderUnavailable, QueueFull: try again in the next round.
        RelayerError: the log does not take them.
    """
    for job in [job for job in opened.jobs() if job.state == "pending" and job.work == EMBED]:
        wanted = [record for record in job.records if record in opened.lacking]
        await opened.append([JobFinished(job.job, vectors=await _vector_sets(ctx, opened, wanted))])
    missing = _some(ctx, list(opened.lacking))
    sets = await _vector_sets(ctx, opened, missing, whole=True) if missing else ()
    if sets:
        job_id = new_id(ctx)
        promise = JobAccepted(Origin(b"", job_id), job_id, EMBED, tuple(item.record for item in sets))
        await opened.append([promise, JobFinished(job_id, vectors=sets)])
    await opened.wait_indexed()


def _some(ctx: Context, records: list[bytes]) -> list[bytes]:
    """Return a batch of what lacks vectors, from a random place on.

    Other relayers work on the same namespace: each sees in the log what the others did, and they hardly ever do the same.
    """
    start = int.from_bytes(ctx.randomness.bytes(8), "big") % max(1, len(records) - _BATCH + 1)
    return records[start : start + _BATCH]


async def _vector_sets(
    ctx: Context, opened: OpenNamespace, records: Sequence[bytes], *, whole: bool = False
) -> tuple[VectorSet, ...]:
    """Embed records; with the passages of long ones if they are to be ``whole``, and then fewer of them at once."""
    vectors = await _vectors(ctx, opened, records, whole=whole)
    ctx.namespaces.embedded += len(vectors)
    return tuple(
        VectorSet(
            one,
            seal_vector(ctx, opened, one, "own", encode_meaning(own)),
            seal_vector(ctx, opened, one, "context", None if context is None else encode_vector(context)),
            record.context_of if context is not None else b"",
            ctx.embedder.model.sha256,
        )
        for one, (own, context) in vectors.items()
        if (record := opened.record(one)) is not None
    )


async def _vectors(
    ctx: Context, opened: OpenNamespace, wanted: Sequence[bytes], *, whole: bool
) -> dict[bytes, tuple[Meaning, Vector | None]]:
    """Embed records, each alone and with its context, in batches that leave room for queries in between.

    What is erased meanwhile has no vector.
    """
    vectors: dict[bytes, tuple[Meaning, Vector | None]] = {}
    embedded = 0
    for start in range(0, len(wanted), _BATCH):
        records = [record for one in wanted[start : start + _BATCH] if (record := opened.record(one))]
        neighbours = [opened.record(record.context_of) for record in records]
        texts = [
            (header_of(record), None if before is None else header_of(before))
            for record, before in zip(records, neighbours, strict=True)
        ]
        computed = await embed_with_contexts(ctx.embedder.embed, texts)
        for record, (own, context) in zip(records, computed, strict=True):
            parts = _parts(record) if whole else []
            embedded += len(parts)
            if vectors and embedded > MOST_VECTORS:
                # One entry of the log is taken in in one step of the event loop.
                return vectors
            vectors[record.id] = Meaning(own, await _further(ctx, record, parts)), context
        await asyncio.sleep(0)
    return vectors


def _parts(record: Record) -> list[tuple[int, int]]:
    """Return the passages of a long record but for the first, which its own vector is of."""
    return list(passages(record.text, MOST_VECTORS))[1:] if is_long(record.text) else []


async def _further(
    ctx: Context, record: Record, parts: Sequence[tuple[int, int]]
) -> tuple[tuple[int, Vector], ...]:
    found: list[tuple[int, Vector]] = []
    for at in range(0, len(parts), _PASSAGES_AT_ONCE):
        some = parts[at : at + _PASSAGES_AT_ONCE]
        vectors = await ctx.embedder.embed([headed(record, record.text[start:end]) for start, end in some])
        found += zip((start for start, _ in some), vectors, strict=True)
        await asyncio.sleep(0)
    return tuple(found)


EXPIRY_SECONDS = 600.0
DAY_MS = 86_400_000


def forgetting_inactive(ctx: Context, days: int) -> Periodic:
    """Return the task that applies the policy to what is open, now and then; a failure is reported and tried again."""

    async def round_(on_error: OnError) -> None:
        await ctx.namespaces.in_each(lambda opened: forget_inactive(ctx, opened, days), on_error)

    return Periodic("forgetting", round_, EXPIRY_SECONDS)


async def forget_inactive(ctx: Context, opened: OpenNamespace, days: int) -> int:
    """Forget what was neither stored, said again nor restored for so many days, and is not pinned; return how many."""
    await opened.wait_indexed()
    idle = Selection(inactive_since=ctx.clock.now_ms() - days * DAY_MS, pinned=False)
    found = [_forget(memory) for memory in opened.memories(idle) if memory.is_live]
    if not found:
        return 0
    outcomes = await opened.append(found[:MAX_DELETED])
    return sum(outcome.result is Result.FORGOTTEN for outcome in outcomes)


def _forget(memory: Memory) -> Forget:
    # Nobody's request, and the same operation on every relayer: it is done once for each time the memory fell idle.
    asked = b"inactive" + memory.id + memory.active_at.to_bytes(8, signed=True)
    return Forget(Origin(author=b"", nonce=hashlib.sha256(asked).digest()[:16]), memory.id)
