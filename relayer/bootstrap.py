"""The composition root: builds a relayer from its settings, starts its background tasks, and shuts it down.

`build` creates all parts in the order of their dependencies and yields them as a `Relayer`, whose `RequestHandler` is not
listening yet. On exit it closes them in reverse order. The remaining functions each create one part, or publish the metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from relayer.access.accounts import Access, AccountCaps, Accounts
from relayer.access.quotas import Quotas
from relayer.access.store_keys import FleetKeys, open_store_key
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.errors import ConfigurationError, EmbedderUnavailable, QueueFull, StoreError
from relayer.extraction.llm.extractor import DROPPED
from relayer.extraction.statements import StatementExtractor
from relayer.http.accept import Acceptance
from relayer.http.fronts import CreateFront, Front
from relayer.http.health import Readiness
from relayer.http.limits import Limits
from relayer.http.metrics import MeteredEmbedder, MeteredStore, Metrics, MetricsPage
from relayer.http.openapi import document
from relayer.http.routes import Services, table
from relayer.http.server import NativeFront, PageOrigins, RequestHandler
from relayer.jobs import working
from relayer.lib.n_grams import former_by_model, read_message, read_prompt
from relayer.lib.scheduler import OnError, Periodic, Scheduler
from relayer.lib.work import FairCrossEncoder, FairEmbedder, FairExecutor
from relayer.log.compactor import CompactionLimits
from relayer.log.objects import LogPorts
from relayer.maintenance.logs import (
    IdleCollection,
    IdleLimits,
    IndexMaintenance,
    LogMaintenance,
    LogMaintenanceLimits,
)
from relayer.maintenance.open_namespaces import embedding_maintenance, forgetting_inactive
from relayer.models import Models, fact_work, reader
from relayer.namespaces.cache import CacheLimits, OpenNamespaces
from relayer.namespaces.context import Context
from relayer.namespaces.projection import CalibratedModel
from relayer.operator.probe import last_backup
from relayer.ports import Clock, Embedder, ObjectStore, Randomness, RelationReader, Traces
from relayer.process import connections_within, free_bytes, product_version
from relayer.search import essentials
from relayer.search.baseline import LEXICAL_PRIOR, Calibration, first_calibration
from relayer.search.ranking import worth_reader
from relayer.settings.config import RelayerSettings, accepted_authorities, read_quotas
from relayer.settings.keys import RelayerKey, find_metrics_token
from relayer.stores import check_promises, key_provider, opened_store, ports_over
from relayer.telemetry import describe, log
from relayer.use_cases.memories import ChangeStreams
from relayer.wire.connections import ConnectionLimits, Connections
from relayer.wire.extensions import FRONTS, load_extensions
from relayer.wire.fields import Role
from relayer.wire.service import VersionResponse

STOP_SECONDS = 10.0
API_VERSION = "1"
MIN_CLIENT_VERSION = "0.1.0"
_EXPIRY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Relayer:
    """The parts of a relayer that is not listening yet."""

    context: Context
    handler: RequestHandler
    fleet: FleetKeys
    accounts: Accounts
    acceptance: Acceptance
    readiness: Readiness
    indexes: IndexMaintenance
    upkeep: LogMaintenance
    idle: IdleCollection


@asynccontextmanager
async def build(
    settings: RelayerSettings,
    relayer_key: RelayerKey,
    *,
    port: int,
    store: ObjectStore | None = None,
    embedder: Embedder | None = None,
    relations: RelationReader | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> AsyncIterator[Relayer]:
    """Build a relayer and run its background tasks while the context lasts.

    Requests are signed for the port. What is given in place of what the settings name is closed by the caller.

    Raises:
        ConfigurationError: the model is missing, or a key management service refuses.
        KeyProviderUnavailable: it does not respond.
        WrongRelayerKey: the store belongs to another key.
        StoreError: the store cannot be used, or does not have the guarantees that the log needs.
    """
    clock, randomness = clock or SystemClock(), randomness or SystemRandomness()
    async with AsyncExitStack() as stack:
        if store is None:
            store = await stack.enter_async_context(opened_store(settings, clock))
        metrics = Metrics()
        metered = MeteredStore(store, metrics.observe_store)
        provider = key_provider(relayer_key, randomness)
        store_key = await open_store_key(metered, clock, randomness, provider)
        ports = ports_over(metered, settings, store_key, clock, randomness)
        if settings.store is not None:
            await check_promises(settings, ports)
        fleet = FleetKeys(ports, lambda error: log.warning("fleet_keys_left", **describe(error)))
        await fleet.start()
        readiness = Readiness(ports, fleet)
        models = Models(settings, clock, randomness, readiness, stack)
        if embedder is None:
            embedder = await models.embedder()
        former = models.former(embedder)
        local = reader(embedder)
        shared = models.shared(MeteredEmbedder(embedder, metrics.observe_embedding))
        former = former and FairEmbedder(MeteredEmbedder(former, metrics.observe_embedding))
        hourly = AccountCaps().per_address_and_hour if settings.rate_limits == "on" else 0
        accounts = Accounts(ports, served=settings.served, caps=AccountCaps(per_address_and_hour=hourly))
        quotas = Quotas(
            ports,
            settings.quota,
            read_quotas(settings.quotas),
            limits_of=lambda account: accounts.rules_of(account).limits,
        )
        stack.push_async_callback(quotas.close)
        namespaces = await _namespaces(settings, ports, shared, former, accounts=accounts, quotas=quotas)
        readiness.model_loaded()
        stack.push_async_callback(namespaces.close, STOP_SECONDS)
        chat = await models.chat()
        limits = Limits(clock, enabled=settings.rate_limits == "on")
        context = Context(
            ports=ports,
            embedder=shared,
            extractor=StatementExtractor(),
            namespaces=namespaces,
            facts=fact_work(settings, clock, chat),
            chat=chat,
            redacts=settings.redaction == "on",
            collect_after_ms=int(settings.collect_after * 1000),
            former=former,
            relations=relations or local,
            messages=local,
            cross=FairCrossEncoder(shared, local) if local and settings.cross_encoder == "on" else None,
            texts=FairExecutor(on_used=limits.charge_work),
        )
        traces = _traces_to(settings.otlp_url, stack) if settings.otlp_url else None
        relayer = _assemble(
            settings,
            context,
            accounts,
            fleet,
            readiness,
            limits=limits,
            quotas=quotas,
            metrics=metrics,
            traces=traces,
            port=port,
        )
        scheduler = await stack.enter_async_context(Scheduler(clock, randomness, _report))
        metrics.counter(
            "background_failures",
            "Failures outside requests. The log names them, and they are tried again.",
            scheduler.failures.total,
        )
        _start_background(scheduler, relayer, settings.forget_inactive_days)
        scheduler.start(quotas.task)
        yield relayer


async def _namespaces(
    settings: RelayerSettings,
    ports: LogPorts,
    embedder: Embedder,
    former: Embedder | None,
    *,
    accounts: Accounts,
    quotas: Quotas,
) -> OpenNamespaces:
    async def making(access: Access) -> None:
        if await accounts.make(access.account, access.principal.peer):
            quotas.begin(access.account)

    await asyncio.to_thread(load_readers)
    return OpenNamespaces(
        ports,
        embedder.model,
        await _calibration(embedder),
        CacheLimits(bytes=settings.cache_bytes),
        former=None if former is None else CalibratedModel(former.model, await _calibration(former)),
        making=making,
        quotas=quotas,
    )


def load_readers() -> None:
    """Load the weights and word lists of the text classifiers, which would block the event loop for 25 ms in a request."""
    read_prompt("").reading()
    former_by_model()
    read_message("", Role.USER)
    essentials.load()
    worth_reader("")


async def _calibration(embedder: Embedder) -> Calibration:
    """Return the initial calibration of relevance; while the embedder is unavailable, that of a search by terms alone."""
    try:
        return await first_calibration(embedder)
    except (EmbedderUnavailable, QueueFull):
        return Calibration(LEXICAL_PRIOR)


def _traces_to(url: str, stack: AsyncExitStack) -> Traces:
    """Return an exporter that sends spans to a collector, closed by ``stack``.

    Raises:
        ConfigurationError: the ``otlp`` extra is not installed.
    """
    try:
        from relayer.adapters.otlp import OtlpTraces  # noqa: PLC0415 - the only user of an extra
    except ImportError as error:
        raise ConfigurationError(
            "--otlp-url needs OpenTelemetry's exporter: pip install '.[relayer,otlp]' in a clone of memrelay"
        ) from error
    traces = OtlpTraces(url, product_version())
    stack.push_async_callback(traces.close)
    return traces


def _assemble(
    settings: RelayerSettings,
    context: Context,
    accounts: Accounts,
    fleet: FleetKeys,
    readiness: Readiness,
    *,
    limits: Limits,
    quotas: Quotas,
    metrics: Metrics,
    traces: Traces | None,
    port: int,
) -> Relayer:
    async def revoked(account: str) -> None:
        acceptance.drop_keys_of(account)
        names = [opened.name for opened in context.namespaces.all() if opened.account == account]
        await context.namespaces.drop_agent(account, names)

    accounts.on_revoked = revoked
    routes, clock, model = table(), context.clock, context.embedder.model
    extractor = f"{context.extractor.name} {context.extractor.version}"
    if context.facts is not None and context.facts.extracts:
        facts = context.facts.extractor
        extractor = f"{facts.name} {facts.version} {facts.model}"
    version = VersionResponse(
        version=product_version(),
        api_version=API_VERSION,
        min_client_version=MIN_CLIENT_VERSION,
        model=model.name,
        dimension=model.dimension,
        extractor=extractor,
    )
    acceptance = Acceptance(
        routes,
        authorities=accepted_authorities(
            settings.host, port, scheme=settings.scheme, public_url=settings.public_url
        ),
        accounts=accounts,
        fleet=fleet,
        keys=context.keys,
        limits=limits,
        texts=context.texts,
        connections=Connections(
            ConnectionLimits(
                most=connections_within(settings.connections),
                per_address=settings.most_per_address,
                answer_seconds=settings.answer_timeout,
            )
        ),
        clock=clock,
        trusted=settings.trusted_proxy,
    )
    page = MetricsPage(
        metrics,
        readiness,
        clock,
        token=find_metrics_token(settings),
        proxied=settings.behind_proxy,
        backed_up=partial(last_backup, context.ports),
    )
    services = Services(
        context,
        accounts,
        quotas,
        streams=ChangeStreams(context),
        fleet=fleet,
        readiness=readiness,
        metrics=page,
        version=version,
        document=cache(partial(document, routes, version.version)),
    )
    handler = RequestHandler(
        [*_fronts(settings, services, acceptance, metrics), NativeFront(acceptance, services)],
        connections=acceptance.connections,
        unread=acceptance.unread,
        metrics=metrics,
        randomness=context.randomness,
        traces=traces,
        pages=PageOrigins(settings.page_origins),
    )
    indexes = IndexMaintenance(context)
    limits_of_logs = LogMaintenanceLimits(
        CompactionLimits(entries=settings.compact_entries), context.collect_after_ms
    )
    upkeep = LogMaintenance(context.ports, context.namespaces, limits_of_logs)
    idle = IdleCollection(context.ports, IdleLimits(collect_after_ms=context.collect_after_ms))
    relayer = Relayer(context, handler, fleet, accounts, acceptance, readiness, indexes, upkeep, idle)
    metrics.build(version=version.version, model=version.model, extractor=version.extractor)
    _publish_gauges(metrics, relayer, settings)
    _publish_counters(metrics, relayer)
    return relayer


def _fronts(
    settings: RelayerSettings, services: Services, acceptance: Acceptance, metrics: Metrics
) -> list[Front[Any]]:
    """Return the front for MemWal's clients, unless they are not served, or only by default and it is not installed.

    Raises:
        ConfigurationError: it is requested and not installed.
    """
    create: CreateFront | None = load_extensions(FRONTS).get("memwal") if settings.serves_memwal else None
    if create is not None:
        return [create(settings, services, acceptance, metrics.registry)]
    if settings.serves_memwal and (settings.compat is not None or settings.compat_legacy):
        raise ConfigurationError(
            "--compat memwal: the front for MemWal's clients is not installed; install a memrelay that has "
            "relayer.fronts.memwal, or give --compat off"
        )
    return []


def _start_background(scheduler: Scheduler, relayer: Relayer, forget_inactive_days: int) -> None:
    """Start the background tasks."""
    context = relayer.context

    async def expire(_: OnError) -> None:
        relayer.acceptance.drop_expired()
        # The embedding maintenance does this too, but a store that does not respond may delay it, and expired keys must be
        # dropped.
        await context.namespaces.drop_expired()

    tasks = [
        relayer.fleet.task,
        Periodic("expiry", expire, _EXPIRY_SECONDS),
        embedding_maintenance(context),
        relayer.indexes.task,
        relayer.upkeep.task,
        context.erasures.task,
        relayer.idle.task,
    ]
    if context.facts is not None:
        tasks.append(working(context, context.facts, scheduler))
    if forget_inactive_days:
        tasks.append(forgetting_inactive(context, forget_inactive_days))
    for task in tasks:
        scheduler.start(task)


def _report(task: str, error: BaseException) -> None:
    """Log a failure of a background task: as a warning if it is one of the store, which may pass, else as an error."""
    (log.warning if isinstance(error, StoreError) else log.error)(f"{task}_failed", **describe(error))


def _publish_gauges(metrics: Metrics, relayer: Relayer, settings: RelayerSettings) -> None:
    """Publish gauges: open namespaces and connections, requests and jobs in progress, free space."""
    gauge, namespaces, handler = metrics.gauge, relayer.context.namespaces, relayer.handler
    gauge("open_namespaces", "Namespaces open in this process.", lambda: len(namespaces))
    gauge("open_namespaces_bytes", "About what they take in memory.", lambda: namespaces.nbytes)
    gauge(
        "memories_without_vector",
        "Memories of open namespaces that have no vector of the embedding model yet.",
        lambda: sum(len(opened.lacking) for opened in namespaces.all()),
    )
    gauge(
        "namespaces_converting",
        "Open namespaces that are searched by the former embedding model.",
        lambda: sum(opened.converting for opened in namespaces.all()),
    )
    gauge("connections", "Connections that are open.", lambda: len(handler.connections))
    waiting = "Answers of more than 64 KiB that are being sent."
    gauge("answers_waiting_bytes", waiting, lambda: handler.unread.nbytes)
    gauge("http_requests_under_way", "Requests being answered now.", lambda: handler.under_way)
    facts = relayer.context.facts
    if facts is not None:
        gauge("jobs_running", "Extractions that run here now.", lambda: len(facts.queue.running))
    if settings.store is None:
        # The size of a bucket is for its operator to watch.
        room = "Room left on the data directory's file system."
        gauge("store_free_bytes", room, lambda: free_bytes(settings.data))


def _publish_counters(metrics: Metrics, relayer: Relayer) -> None:
    """Publish counters of events since the start."""
    counter, indexes, connections = metrics.counter, relayer.indexes, relayer.handler.connections
    namespaces = relayer.context.namespaces
    counter("namespace_openings", "Namespaces opened, each by reading its log.", lambda: namespaces.openings)
    counter("namespace_evictions", "Namespaces dropped to make room.", lambda: namespaces.evictions)
    counter("indexes_read", "Openings that began with a stored index.", lambda: namespaces.from_indexes)
    counter("indexes_ignored", "Stored indexes that could not be used.", lambda: namespaces.ignored_indexes)
    later = "Memories that got a vector after they were stored."
    counter("memories_embedded_later", later, lambda: namespaces.embedded)
    broken_off = "Connections broken off: to make room, or because no request came."
    counter("connections_ended", broken_off, lambda: connections.ended)
    answered = (
        "Recalls by what they found: answered, empty, or degraded, which is whatever words alone found."
    )
    metrics.counters("recalls", answered, "outcome", lambda: relayer.context.recalls)
    judged = "Turns of captures, and parts of long ones: kept, or left and why."
    metrics.counters("capture_verdicts", judged, "reason", lambda: relayer.context.verdicts)
    counter("indexes_written", "Indexes stored for later openings.", lambda: indexes.written)
    in_vain = "Indexes stored in vain, because another process was quicker or a memory was erased."
    counter("indexes_lost", in_vain, lambda: indexes.lost)
    counter("index_bytes_written", "Bytes of both.", lambda: indexes.bytes_written)
    kept = {"upkeep": relayer.upkeep.counts, "erasures": relayer.context.erasures.counts}
    kept["idle"] = relayer.idle.counts
    if relayer.context.facts is not None:
        kept["jobs"] = counts = relayer.context.facts.queue.counts
        counter("facts_found", "Facts that the conversation proves.", partial(counts.__getitem__, "facts"))
        for name in DROPPED:
            count = partial(counts.__getitem__, f"dropped_{name}")
            counter(f"facts_dropped_{name}", "Facts that were dropped.", count)
    for subject, counts in kept.items():
        for name, help_text in _COUNTS[subject].items():
            counter(f"{subject}_{name}", help_text, partial(counts.__getitem__, name))


_COUNTS = {
    "upkeep": {
        "segments": "Tails of logs that were compacted to a segment.",
        "merges": "Segments that were made of several others.",
        "lost": "Segments that another relayer was faster with.",
        "bytes": "Bytes of segments written.",
        "slots": "Slots deleted because segments cover them.",
        "objects": "Segments and indexes deleted because nothing names them.",
        "failures": "Compactions and collections that failed and are tried again.",
    },
    "erasures": {
        "destroyed": "Erasures of which the store shows nothing any more.",
        "confirmed": "Erasures of which a sweep found nothing left.",
        "failures": "Steps of erasures that failed and are tried again.",
    },
    "idle": {
        "walks": "Walks over all namespaces that came to their end.",
        "namespaces": "Namespaces looked at on them.",
        "slots": "Slots deleted on them.",
        "objects": "Segments and indexes deleted on them.",
        "failures": "Failures on them; the walk goes on.",
    },
    "jobs": {
        "done": "Extractions that ended here.",
        "failed": "Extractions that failed for good.",
        "put_off": "Attempts that will be made again.",
    },
}
