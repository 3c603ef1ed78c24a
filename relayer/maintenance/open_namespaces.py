"""Maintenance of open namespaces: computing missing vectors, extracting again after erasures, and forgetting by inactivity.

`embed_missing` computes vectors of the newest model for the records that lack one. `reextract` creates jobs after an
erasure: facts and summaries that were derived from several memories are erased with any one of them, because they may repeat
what was erased, and are derived again from the others. The id of such a job follows from that of the erasure, so that
several relayers create it only once.

The inactivity policy, off unless an operator sets it, forgets memories that are not pinned and were not said again for a long
time. It applies to namespaces while they are open. Forgetting can be undone, and a restored memory counts as active from
then on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from relayer.domain import operations as ops
from relayer.domain.erasures import Erasure
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.jobs import input_of, promise_summary, seal_input
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_meaning, encode_vector, headed, header_of
from relayer.search.passages import MOST_VECTORS, Meaning, is_long, passages
from relayer.search.rows import Vector
from relayer.wire.codec import lp
from relayer.wire.fields import DAY_MS
from relayer.wire.schemas import MAX_DELETED, Selection
from relayer.writing.drafts import embed_with_contexts, new_id, seal_vector


async def reextract(ctx: Context, opened: OpenNamespace) -> None:
    """Create jobs that extract facts again from the records left by erasures, and summarise their sessions again.

    Does so only for the kinds of jobs for which this relayer has a model. Raises `RelayerError`: the log cannot be written;
    calling this again continues.
    """
    if ctx.facts is None:
        return
    for erasure in [known for known in opened.erasures() if known.rest]:
        promises: list[ops.JobAccepted] = []
        if ctx.facts.extracts:
            for place, records in _conversations(opened, erasure.rest).items():
                job = _id("memrelay/v1/read-again", erasure.erasure, *place)
                if opened.job(job) is None:
                    read = tuple(record.id for record in records)
                    sealed = seal_input(ctx, opened, job, input_of(records))
                    promises.append(ops.JobAccepted(ops.Origin(b"", job), job, ops.EXTRACT, read, sealed))
        if ctx.facts.summariser is not None:
            promises += _summaries(ctx, opened, erasure)
        for outcome in await opened.append(promises) if promises else ():
            if outcome.refusal is None:
                ctx.facts.queue.accepted(outcome.subject)


def _summaries(ctx: Context, opened: OpenNamespace, erasure: Erasure) -> list[ops.JobAccepted]:
    """Return jobs for the summaries that were erased along with a source, or cancelled because of that erasure."""
    gone = {*erasure.records, *erasure.derived}
    promises: list[ops.JobAccepted] = []
    for job in [known for known in opened.jobs() if known.work == ops.SUMMARISE]:
        made = not gone.isdisjoint(job.results)
        cancelled = job.reason == ops.Refusal.SOURCE_ERASED.value and not gone.isdisjoint(job.records)
        again = _id("memrelay/v1/summarise-again", erasure.erasure, job.job)
        if opened.job(again) is not None or not (made or cancelled):
            continue
        left = [memory.record for one in job.records if (memory := opened.memory(one)) is not None]
        promise = promise_summary(ctx, opened, ops.Origin(b"", again), again, left)
        if promise is not None:
            promises.append(promise)
    return promises


def _conversations(opened: OpenNamespace, rest: Iterable[bytes]) -> dict[tuple[str, str], list[ops.Record]]:
    """Return the remaining records by audience and session, because facts of one audience must not reach another."""
    found: dict[tuple[str, str], list[ops.Record]] = defaultdict(list)
    for record in map(opened.record, rest):
        # Records that a gateway marked as suspect are never sent to a model.
        if record is not None and not record.suspect:
            found[record.audience, record.source.session].append(record)
    return found


def _id(*parts: str | bytes) -> bytes:
    return hashlib.sha256(lp(*parts)).digest()[:16]


INTERVAL_SECONDS = 1.0
_SHORTEST_PAUSE = 0.05
_BATCH = 32
# Passages that are embedded in one call: at most a tenth of a second, before other callers of the embedder get a turn.
_PASSAGES_AT_ONCE = 16


def embedding_maintenance(ctx: Context) -> Periodic:
    """Return the periodic task that runs `maintain`; a failure is retried in the next round."""

    async def round_(_: OnError) -> float | None:
        began, embedded = ctx.clock.monotonic(), ctx.namespaces.embedded
        await maintain(ctx)
        if ctx.namespaces.embedded == embedded:
            return None
        # There may be more to embed. The pause is as long as the round was, because recalls and captures share the embedder
        # and the cores.
        return min(INTERVAL_SECONDS, max(_SHORTEST_PAUSE, ctx.clock.monotonic() - began))

    return Periodic("tending", round_, INTERVAL_SECONDS)


async def maintain(ctx: Context) -> None:
    """Maintain all open namespaces once; a failure in one of them does not stop the round.

    Raises:
        RelayerError: the first failure, after the round.
    """
    with suppress(EmbedderUnavailable, QueueFull):
        await ctx.namespaces.calibrate(ctx.embedder)
        # The previous model is not even loaded unless a namespace has vectors of it.
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
    # The indexes come first, because that takes milliseconds: a long text can be found by its terms before it has vectors.
    await opened.tidy_indexes()
    with suppress(EmbedderUnavailable, QueueFull):
        await embed_missing(ctx, opened)
    await opened.tidy_indexes()
    await reextract(ctx, opened)
    opened.note_maintained()


async def embed_missing(ctx: Context, opened: OpenNamespace) -> None:
    """Compute missing vectors of the newest model: all for which there is a job, and a batch of the others.

    Raises:
        EmbedderUnavailable, QueueFull: to be retried in the next round.
        RelayerError: the log cannot be written.
    """
    for job in [job for job in opened.jobs() if job.state == "pending" and job.work == ops.EMBED]:
        wanted = [record for record in job.records if record in opened.lacking]
        await opened.append([ops.JobFinished(job.job, vectors=await _vector_sets(ctx, opened, wanted))])
    records = list(opened.lacking)
    start = int.from_bytes(ctx.randomness.bytes(8), "big") % max(1, len(records) - _BATCH + 1)
    missing = records[start : start + _BATCH]
    sets = await _vector_sets(ctx, opened, missing, whole=True) if missing else ()
    if sets:
        job_id = new_id(ctx)
        promise = ops.JobAccepted(
            ops.Origin(b"", job_id), job_id, ops.EMBED, tuple(item.record for item in sets)
        )
        await opened.append([promise, ops.JobFinished(job_id, vectors=sets)])
    await opened.wait_indexed()


async def _vector_sets(
    ctx: Context, opened: OpenNamespace, records: Sequence[bytes], *, whole: bool = False
) -> tuple[ops.VectorSet, ...]:
    """Embed and seal records; with ``whole``, also the passages of long ones, and then fewer records in one call."""
    vectors = await _vectors(ctx, opened, records, whole=whole)
    ctx.namespaces.embedded += len(vectors)
    return tuple(
        ops.VectorSet(
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
    """Embed records, each by itself and its context, in batches between which queries are embedded.

    Records that are erased meanwhile get no vector.
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
            # A record's own vector is that of its first passage.
            parts = list(passages(record.text, MOST_VECTORS))[1:] if whole and is_long(record.text) else []
            embedded += len(parts)
            if vectors and embedded > MOST_VECTORS:
                # A log entry is applied in one step of the event loop, so it must not contain more vectors.
                return vectors
            vectors[record.id] = Meaning(own, await _further(ctx, record, parts)), context
        await asyncio.sleep(0)
    return vectors


async def _further(
    ctx: Context, record: ops.Record, parts: Sequence[tuple[int, int]]
) -> tuple[tuple[int, Vector], ...]:
    found: list[tuple[int, Vector]] = []
    for at in range(0, len(parts), _PASSAGES_AT_ONCE):
        some = parts[at : at + _PASSAGES_AT_ONCE]
        vectors = await ctx.embedder.embed([headed(record, record.text[start:end]) for start, end in some])
        found += zip((start for start, _ in some), vectors, strict=True)
        await asyncio.sleep(0)
    return tuple(found)


EXPIRY_SECONDS = 600.0


def forgetting_inactive(ctx: Context, days: int) -> Periodic:
    """Return the periodic task that runs `forget_inactive` for all open namespaces; a failure is reported and retried."""

    async def round_(on_error: OnError) -> None:
        await ctx.namespaces.in_each(lambda opened: forget_inactive(ctx, opened, days), on_error)

    return Periodic("forgetting", round_, EXPIRY_SECONDS)


async def forget_inactive(ctx: Context, opened: OpenNamespace, days: int) -> int:
    """Forget memories that are not pinned and were neither stored, said again nor restored for ``days`` days.

    Returns:
        How many were forgotten.
    """
    await opened.wait_indexed()
    idle = Selection(inactive_since=ctx.clock.now_ms() - days * DAY_MS, pinned=False)
    live = (memory for memory in opened.memories(idle) if memory.is_live)
    found: list[ops.Forget] = []
    for memory in islice(live, MAX_DELETED):
        # The operation has no author, and its nonce is the same on every relayer, so that it is applied once for each time that
        # the memory became inactive.
        asked = b"inactive" + memory.id + memory.active_at.to_bytes(8, signed=True)
        found.append(ops.Forget(ops.Origin(b"", hashlib.sha256(asked).digest()[:16]), memory.id))
    outcomes = await opened.append(found) if found else ()
    return sum(outcome.result is ops.OperationResult.FORGOTTEN for outcome in outcomes)
