"""Tending open namespaces: vectors that are missing or of an older model, and what has to be derived again.

After an erasure, what was derived from several memories went with one of them and is made again from the others. Nothing
of it is kept meanwhile, because it may say what was erased. The promise is a job like any other; its id follows from the
erasure's, so that several relayers promise it once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from relayer.domain.erasures import Erasure
from relayer.domain.operations import JobAccepted, JobFinished, Origin, VectorSet
from relayer.domain.outcomes import Refusal
from relayer.domain.record import Record
from relayer.errors import EmbedderUnavailable, NamespaceClosed, QueueFull, RelayerError
from relayer.jobs.inputs import EXTRACT, SUMMARISE, input_of, seal_input
from relayer.jobs.summaries import promise_summary
from relayer.lib.scheduler import OnError, Periodic
from relayer.namespaces.context import Context
from relayer.namespaces.namespace import OpenNamespace
from relayer.namespaces.projection import encode_vector, header_of
from relayer.search.terms import context_text
from relayer.wire import codec as ulid
from relayer.wire.codec import lp
from relayer.wire.sealing import SALT_SIZE
from relayer.writing.drafts import EMBED

_ID_SIZE = 16

_Place = tuple[str, str]


async def reextract(ctx: Context, opened: OpenNamespace) -> None:
    """Promise to read again what erasures left, where a model extracts facts, and to summarise it, where one does that.

    Raises:
        RelayerError: the log does not take it; calling this again goes on.
    """
    if ctx.facts is None:
        return
    for erasure in [known for known in opened.log.state.erasures.known.values() if known.rest]:
        promises: list[JobAccepted] = []
        if ctx.facts.extracts:
            promises += [
                _promise(ctx, opened, job, records)
                for place, records in _conversations(opened, erasure.rest).items()
                if (job := _job(erasure, place)) not in opened.log.state.jobs
            ]
        if ctx.facts.summariser is not None:
            promises += _summaries(ctx, opened, erasure)
        for outcome in await opened.log.append(promises) if promises else ():
            if outcome.refusal is None:
                ctx.facts.queue.accepted(outcome.subject)


def _summaries(ctx: Context, opened: OpenNamespace, erasure: Erasure) -> list[JobAccepted]:
    """Promise anew the summaries that went with what was erased, and those that were never made because of it."""
    state = opened.log.state
    gone = {*erasure.records, *erasure.derived}
    promises: list[JobAccepted] = []
    for job in [known for known in state.jobs.values() if known.work == SUMMARISE]:
        made = not gone.isdisjoint(job.results)
        cancelled = job.reason == Refusal.SOURCE_ERASED.value and not gone.isdisjoint(job.records)
        again = _again(erasure, job.job)
        if again in state.jobs or not (made or cancelled):
            continue
        left = [
            record
            for one in job.records
            if one in state.records and (record := opened.view.get(one)) is not None
        ]
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
        record = opened.view.get(one)
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

_Vectors = tuple[NDArray[np.float32], NDArray[np.float32] | None]


def tending(ctx: Context) -> Periodic:
    """Return the task that tends; what fails in one round is tried again in the next one."""

    async def round_(_: OnError) -> float | None:
        began, embedded = ctx.clock.monotonic(), ctx.namespaces.embedded
        await tend(ctx)
        if ctx.namespaces.embedded == embedded:
            return None
        # There may be more. As long again for whoever asks and captures, who share the embedder and the cores.
        return min(INTERVAL_SECONDS, max(_SHORTEST_PAUSE, ctx.clock.monotonic() - began))

    return Periodic("tending", round_, INTERVAL_SECONDS)


async def tend(ctx: Context) -> None:
    """Do one round over everything that is open; a namespace that fails does not keep the others from their turn.

    Raises:
        RelayerError: the first failure, after the round.
    """
    with suppress(EmbedderUnavailable, QueueFull):
        await ctx.namespaces.calibrate(ctx.embedder)
        if ctx.former is not None:
            await ctx.namespaces.calibrate(ctx.former)
    await ctx.namespaces.drop_expired()
    await ctx.namespaces.trim()
    failures: list[RelayerError] = []
    for opened in ctx.namespaces.all():
        if opened.held or opened.broken or not opened.needs_tending:
            continue
        opened.users += 1
        try:
            with suppress(EmbedderUnavailable, QueueFull):
                await embed_missing(ctx, opened)
            await _purge(opened)
            await reextract(ctx, opened)
            opened.tended()
        except NamespaceClosed:
            continue  # erased meanwhile, perhaps through another relayer: there is nothing left to tend
        except RelayerError as error:
            failures.append(error)
        finally:
            opened.users -= 1
    if failures:
        raise failures[0]


async def _purge(opened: OpenNamespace) -> None:
    """Bring the indexes up to date; what was erased leaves no vector in them."""
    view = opened.view
    purge, view.purge_due = view.purge_due, False
    try:
        for index in (view.index, view.past):
            await index.maintain(purge=purge)
    except BaseException:
        view.purge_due = purge or view.purge_due
        raise


async def embed_missing(ctx: Context, opened: OpenNamespace) -> None:
    """Compute vectors of the newest model that records lack: all that jobs promised, and some of the others.

    Raises:
        EmbedderUnavailable, QueueFull: try again in the next round.
        RelayerError: the log does not take them.
    """
    for job in [
        job for job in opened.log.state.jobs.values() if job.state == "pending" and job.work == EMBED
    ]:
        wanted = [record for record in job.records if record in opened.view.lacking]
        await opened.log.append([JobFinished(job.job, vectors=await _vector_sets(ctx, opened, wanted))])
    missing = _some(ctx, list(opened.view.lacking))
    sets = await _vector_sets(ctx, opened, missing) if missing else ()
    if sets:
        job_id = ulid.make(ctx.clock.now_ms(), ctx.randomness.bytes(10))
        promise = JobAccepted(Origin(b"", job_id), job_id, EMBED, tuple(item.record for item in sets))
        await opened.log.append([promise, JobFinished(job_id, vectors=sets)])
    await opened.settle()


def _some(ctx: Context, records: list[bytes]) -> list[bytes]:
    """Return a batch of what lacks vectors, from a random place on.

    Other relayers work on the same namespace: each sees in the log what the others did, and they hardly ever do the same.
    """
    start = int.from_bytes(ctx.randomness.bytes(8), "big") % max(1, len(records) - _BATCH + 1)
    return records[start : start + _BATCH]


async def _vector_sets(
    ctx: Context, opened: OpenNamespace, records: Sequence[bytes]
) -> tuple[VectorSet, ...]:
    vectors = await _vectors(ctx, opened, records)
    ctx.namespaces.embedded += len(vectors)
    return tuple(
        VectorSet(
            record,
            _seal(ctx, opened, record, "own", own),
            _seal(ctx, opened, record, "context", context) if context is not None else b"",
            opened.view.require(record).context_of if context is not None else b"",
            ctx.embedder.model.sha256,
        )
        for record, (own, context) in vectors.items()
        if opened.view.get(record) is not None
    )


def _seal(
    ctx: Context, opened: OpenNamespace, record: bytes, which: str, vector: NDArray[np.float32]
) -> bytes:
    return opened.keys.seal_vector(record, which, encode_vector(vector), salt=ctx.randomness.bytes(SALT_SIZE))


async def _vectors(ctx: Context, opened: OpenNamespace, records: Sequence[bytes]) -> dict[bytes, _Vectors]:
    """Embed records, each alone and with its context, in batches that leave room for queries in between.

    What is erased meanwhile has no vector.
    """
    vectors: dict[bytes, _Vectors] = {}
    for start in range(0, len(records), _BATCH):
        texts: list[str] = []
        spans: list[tuple[bytes, bool]] = []
        for record_id in records[start : start + _BATCH]:
            record = opened.view.get(record_id)
            if record is None:
                continue
            headed = header_of(record)
            neighbour = opened.view.get(record.context_of)
            texts.append(headed)
            if neighbour is not None:
                texts.append(context_text(header_of(neighbour), headed))
            spans.append((record_id, neighbour is not None))
        computed = iter(await ctx.embedder.embed(texts)) if texts else iter(())
        for record_id, has_context in spans:
            vectors[record_id] = (next(computed), next(computed) if has_context else None)
        await asyncio.sleep(0)
    return vectors
