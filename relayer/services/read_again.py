"""After an erasure: what was derived from several memories went with one of them, and is made again from the others.

Nothing of it is kept meanwhile, because it may say what was erased. The promise is a job like any other; its id follows from
the erasure's, so that several relayers promise it once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from relayer.domain.erasures import Erasure
from relayer.domain.operations import JobAccepted, Origin
from relayer.domain.outcomes import Refusal
from relayer.domain.record import Record
from relayer.services.context import Context
from relayer.services.job_inputs import EXTRACT, SUMMARISE, input_of, seal_input
from relayer.services.open_namespace import OpenNamespace
from relayer.services.summary_jobs import promise_summary
from relayer.wire.lp import lp

__all__ = ["read_again"]

_ID_SIZE = 16

_Place = tuple[str, str]


async def read_again(ctx: Context, opened: OpenNamespace) -> None:
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
