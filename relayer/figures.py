"""Which figures of a relayer its metrics show, and under which names."""

from __future__ import annotations

from functools import partial

from relayer.config import RelayerSettings
from relayer.extraction.llm.extractor import DROPPED
from relayer.http.front import Front
from relayer.http.metrics import Metrics
from relayer.process import free_bytes
from relayer.services.context import Context
from relayer.services.erasing import Erasures
from relayer.services.idle_collection import IdleCollection
from relayer.services.index_keeping import IndexKeeper
from relayer.services.job_queue import JobQueue
from relayer.services.upkeep import Upkeep
from relayer.wire.schemas import VersionResponse

__all__ = ["publish", "publish_erasures", "publish_idle", "publish_indexes", "publish_upkeep"]


def publish(
    metrics: Metrics, settings: RelayerSettings, context: Context, front: Front, version: VersionResponse
) -> None:
    """What is open, what is under way, and how much room is left."""
    namespaces = context.namespaces
    metrics.build(version=version.version, model=version.model, extractor=version.extractor)
    metrics.gauge("open_namespaces", "Namespaces open in this process.", lambda: float(len(namespaces)))
    metrics.counter(
        "namespace_openings", "Namespaces opened, each by reading its log.", lambda: namespaces.openings
    )
    metrics.gauge(
        "open_namespaces_bytes", "About what they take in memory.", lambda: float(namespaces.nbytes)
    )
    metrics.counter("namespace_evictions", "Namespaces dropped to make room.", lambda: namespaces.evictions)
    metrics.counter(
        "indexes_read", "Openings that began with a stored index.", lambda: namespaces.from_indexes
    )
    metrics.counter(
        "indexes_ignored", "Stored indexes that could not be used.", lambda: namespaces.ignored_indexes
    )
    metrics.gauge(
        "memories_without_vector",
        "Memories of open namespaces that have no vector of the embedding model yet.",
        lambda: float(sum(len(opened.view.lacking) for opened in namespaces.all())),
    )
    metrics.gauge(
        "namespaces_converting",
        "Open namespaces that are searched by the former embedding model.",
        lambda: float(sum(opened.view.converting for opened in namespaces.all())),
    )
    metrics.counter(
        "memories_embedded_later",
        "Memories that got a vector after they were stored.",
        lambda: namespaces.embedded,
    )
    metrics.gauge("connections", "Connections that are open.", lambda: float(len(front.connections)))
    metrics.counter(
        "connections_ended",
        "Connections broken off: to make room, or because no request came.",
        lambda: front.connections.ended,
    )
    metrics.gauge(
        "answers_waiting_bytes",
        "Answers of more than 64 KiB that are being sent.",
        lambda: float(front.unread.nbytes),
    )
    metrics.gauge("http_requests_under_way", "Requests being answered now.", lambda: float(front.under_way))
    if context.facts is not None:
        _publish_facts(metrics, context.facts.queue)
    if settings.store is None:
        # A bucket's room is the bucket's operator's to watch.
        metrics.gauge(
            "store_free_bytes",
            "Room left on the data directory's file system.",
            lambda: float(free_bytes(settings.data)),
        )


def publish_indexes(metrics: Metrics, indexes: IndexKeeper) -> None:
    """How many indexes this process stored."""
    metrics.counter("indexes_written", "Indexes stored for later openings.", lambda: indexes.written)
    metrics.counter(
        "indexes_lost",
        "Indexes stored in vain: somebody was quicker, or erased a memory.",
        lambda: indexes.lost,
    )
    metrics.counter("index_bytes_written", "Bytes of both.", lambda: indexes.bytes_written)


def publish_upkeep(metrics: Metrics, upkeep: Upkeep) -> None:
    """What compaction and collection did."""
    for name, help_text in (
        ("segments", "Tails of logs that were compacted to a segment."),
        ("merges", "Segments that were made of several others."),
        ("lost", "Segments that another relayer was faster with."),
        ("bytes", "Bytes of segments written."),
        ("slots", "Slots deleted because segments cover them."),
        ("objects", "Segments and indexes deleted because nothing names them."),
        ("failures", "Compactions and collections that failed and are tried again."),
    ):
        metrics.counter(f"upkeep_{name}", help_text, partial(upkeep.counts.__getitem__, name))


def publish_idle(metrics: Metrics, idle: IdleCollection) -> None:
    """What was collected of logs that nobody has open."""
    for name, help_text in (
        ("walks", "Walks over all namespaces that came to their end."),
        ("namespaces", "Namespaces looked at on them."),
        ("slots", "Slots deleted on them."),
        ("objects", "Segments and indexes deleted on them."),
        ("failures", "Failures on them; the walk goes on."),
    ):
        metrics.counter(f"idle_{name}", help_text, partial(idle.counts.__getitem__, name))


def publish_erasures(metrics: Metrics, erasures: Erasures) -> None:
    """How far erasures came."""
    for name, help_text in (
        ("destroyed", "Erasures of which the store shows nothing any more."),
        ("confirmed", "Erasures of which a sweep found nothing left."),
        ("failures", "Steps of erasures that failed and are tried again."),
    ):
        metrics.counter(f"erasures_{name}", help_text, partial(erasures.counts.__getitem__, name))


def _publish_facts(metrics: Metrics, queue: JobQueue) -> None:
    counts = queue.counts
    metrics.gauge("jobs_running", "Extractions that run here now.", lambda: float(len(queue.running)))
    metrics.counter("jobs_done", "Extractions that ended here.", lambda: counts["done"])
    metrics.counter("jobs_failed", "Extractions that failed for good.", lambda: counts["failed"])
    metrics.counter("jobs_put_off", "Attempts that will be made again.", lambda: counts["put_off"])
    metrics.counter("facts_found", "Facts that the conversation proves.", lambda: counts["facts"])
    for name in DROPPED:
        count = partial(counts.__getitem__, f"dropped_{name}")
        metrics.counter(f"facts_dropped_{name}", "Facts that were dropped.", count)
