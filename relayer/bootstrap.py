"""The composition root: which adapters, in which order, and how it all ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.adapters.metered_store import MeteredStore
from relayer.adapters.openai_compatible import Endpoint, EndpointLimits, OpenAIChat, OpenAIEmbedder
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.background import background
from relayer.config import RelayerSettings
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.errors import (
    BrokenPromise,
    ConfigurationError,
    EmbedderUnavailable,
    ModelUnavailable,
    QueueFull,
)
from relayer.extraction.llm.extractor import LlmExtractor
from relayer.extraction.llm.summariser import Summariser
from relayer.extraction.statements import StatementExtractor
from relayer.figures import publish, publish_erasures, publish_idle, publish_indexes, publish_upkeep
from relayer.http.answers import AnswerRoutes
from relayer.http.auth import Authenticator
from relayer.http.authorities import Authorities, accepted_authorities
from relayer.http.erasing import ErasureRoutes
from relayer.http.front import Front
from relayer.http.life import LifeRoutes
from relayer.http.limits import Limits
from relayer.http.metrics import Metrics
from relayer.http.native import NativeRoutes
from relayer.http.operations import OpenRoutes
from relayer.http.readiness import Readiness
from relayer.http.routing import Routes
from relayer.http.server import RelayerServer
from relayer.log.compactor import CompactionLimits
from relayer.log.layout import Layout
from relayer.log.log_ports import TRUST_MS, LogPorts
from relayer.model_keys import find_model_key
from relayer.observability import log, loop_error
from relayer.ports import Clock, Embedder, ObjectStore, Randomness
from relayer.process import (
    bind,
    product_version,
    ready_file,
    spare_the_collector,
    stop_event,
    tls_context,
    url_of,
)
from relayer.relayer_key import find_relayer_key, generated_key_file, make_relayer_key
from relayer.search.calibration import Calibration, first_calibration
from relayer.search.priors import LEXICAL_PRIOR
from relayer.services.accounts import Accounts
from relayer.services.context import ChatWork, Context, FactWork
from relayer.services.fleet import FleetKeys
from relayer.services.generation import Generation
from relayer.services.idle_collection import IdleCollection, IdleLimits
from relayer.services.index_keeping import IndexKeeper
from relayer.services.job_queue import JobLimits, JobQueue
from relayer.services.model_budget import DailyLimits, ModelBudget
from relayer.services.open_namespaces import CacheLimits, OpenNamespaces
from relayer.services.probe_record import probe_unless_known
from relayer.services.relayer_check import check_relayer_key
from relayer.services.store_probe import probe, probe_erasure
from relayer.services.upkeep import Upkeep, UpkeepLimits
from relayer.wire.schemas import VersionResponse

__all__ = ["Relayer", "build", "layout_of", "open_store", "probe_store", "serve"]

STOP_SECONDS = 10.0
API_VERSION = "1"
MIN_CLIENT_VERSION = "0.1.0"
_EMBEDDINGS_SECONDS = 20.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Relayer:
    """A relayer put together, not yet listening."""

    context: Context
    front: Front
    fleet: FleetKeys
    accounts: Accounts
    authenticator: Authenticator
    readiness: Readiness
    indexes: IndexKeeper
    upkeep: Upkeep
    idle: IdleCollection | None


@asynccontextmanager
async def build(
    settings: RelayerSettings,
    relayer_key: bytes,
    *,
    port: int,
    store: ObjectStore | None = None,
    embedder: Embedder | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> AsyncIterator[Relayer]:
    """Put a relayer together, with its background work running, and take it apart again.

    Args:
        settings: checked.
        relayer_key: 32 bytes.
        port: the one it will be reached at, which requests are signed for.
        store: instead of the data directory's; closed by the caller.
        embedder: instead of the local model; closed by the caller.
        clock: instead of the machine's.
        randomness: instead of the machine's.

    Raises:
        ConfigurationError: the model is missing.
        WrongRelayerKey: the store belongs to another key.
        StoreError: the store cannot be used, or does not keep its promises.
    """
    clock, randomness = clock or SystemClock(), randomness or SystemRandomness()
    async with AsyncExitStack() as stack:
        if store is None:
            store = await open_store(settings, clock)
            stack.push_async_callback(store.close)
        metrics = Metrics()
        metered = MeteredStore(store, metrics.observe_store)
        ports = LogPorts(
            metered,
            clock,
            randomness,
            RelayerKeys.derive(relayer_key),
            layout_of(settings),
            trust_ms=0 if settings.commit_check == "always" else TRUST_MS,
        )
        await check_relayer_key(ports)
        if settings.store is not None:
            await _check_promises(settings, ports)
        fleet = FleetKeys(ports)
        await fleet.start()
        readiness = Readiness(ports, fleet)
        if embedder is None:
            embedder = await _embedder(settings, ports, readiness, stack)
        former = await _former(settings, ports, readiness, stack)
        if former is not None and former.model == embedder.model:
            raise ConfigurationError(
                "--former-embedder: is the model of --embedder; give the one before, or none"
            )
        namespaces = await _namespaces(settings, ports, embedder, former)
        readiness.model_loaded()
        stack.push_async_callback(namespaces.close, STOP_SECONDS)
        chat = await _chat(settings, ports, readiness, stack)
        context = Context(
            ports=ports,
            embedder=embedder,
            extractor=StatementExtractor(),
            namespaces=namespaces,
            facts=_facts(settings, ports, chat),
            chat=chat,
            redacts=settings.redaction == "on",
            collect_after_ms=int(settings.collect_after * 1000),
            former=former,
        )
        relayer = _assemble(settings, context, fleet, readiness, metrics=metrics, port=port)
        await stack.enter_async_context(
            background(
                context,
                fleet=relayer.fleet,
                authenticator=relayer.authenticator,
                indexes=relayer.indexes,
                upkeep=relayer.upkeep,
                idle=relayer.idle,
                forget_inactive_days=settings.forget_inactive_days,
            )
        )
        yield relayer


async def serve(settings: RelayerSettings, say: Say) -> None:
    """Run a relayer until SIGTERM or SIGINT; a second signal ends the process at once.

    Args:
        settings: checked.
        say: prints one line for people.

    Raises:
        ConfigurationError: the port is taken, a file is missing, or as `build`.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(loop_error)
    stop = stop_event(loop)
    tls = tls_context(settings)
    listening = bind(settings)
    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        port = listening.getsockname()[1]
        key = _relayer_key(settings, say)
        relayer = await stack.enter_async_context(build(settings, key, port=port))
        runner = web.ServerRunner(RelayerServer(relayer.front), shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listening, ssl_context=tls).start()
        url = url_of(settings, port)
        model = relayer.context.embedder.model.name
        spare_the_collector()
        say(
            f"memrelay {product_version()} serves {url}, store {relayer.context.ports.store.description}, model {model}"
        )
        if settings.ready_file is not None:
            stack.enter_context(ready_file(settings.ready_file, url))
        await stop.wait()
        relayer.readiness.drain()
        log.info("stopping", within_seconds=STOP_SECONDS)


async def open_store(settings: RelayerSettings, clock: Clock) -> ObjectStore:
    """Open the store that the settings name; the caller closes it.

    Raises:
        StoreError: it cannot be used. A bucket is asked nothing yet.
    """
    address = settings.bucket
    if address is None:
        return await DirectoryStore.open(_objects(settings.data), clock=clock)
    # boto3 takes its time and memory; a relayer over a directory has no use for it.
    from relayer.adapters.s3_store import S3Store  # noqa: PLC0415 - boto3 costs 23 MiB, for buckets only

    return await S3Store.open(
        address.bucket,
        clock=clock,
        endpoint_url=settings.endpoint_url,
        region=settings.region,
        client=settings.s3_client or "direct",
    )


async def probe_store(settings: RelayerSettings, say: Say) -> None:
    """Try what the store of these settings promises, and print a table of what it keeps.

    Raises:
        BrokenPromise: it cannot hold the log.
        StoreError: it cannot be tried.
    """
    clock = SystemClock()
    store = await open_store(settings, clock)
    try:
        say(f"store   {store.description}")
        began = clock.monotonic()
        report = await probe(
            store,
            SystemRandomness(),
            prefix=layout_of(settings).at("probe"),
            kept=lambda promise: say(f"kept    {promise}"),
        )
        seconds = clock.monotonic() - began
        if report.missing is not None:
            say(f"missing erasing needs more: {report.missing}")
        say(
            f"result  this store can hold the log ({report.requests} requests in {seconds:.1f} s, "
            f"{report.undecided} without a clear answer)"
        )
    finally:
        await store.close()


def layout_of(settings: RelayerSettings) -> Layout:
    """Return where in the store this deployment's objects are."""
    address = settings.bucket
    return Layout() if address is None else Layout(address.prefix)


async def _embedder(
    settings: RelayerSettings, ports: LogPorts, readiness: Readiness, stack: AsyncExitStack
) -> Embedder:
    """Make the embedder of the settings; one that is away may come later, if its dimension is known."""
    if settings.embedder == "local":
        local = LocalEmbedder()
        stack.push_async_callback(local.close)
        await local.load()
        return local
    limits = EndpointLimits(total=_EMBEDDINGS_SECONDS, at_once=settings.model_at_once)
    key = find_model_key(settings, "embeddings")
    endpoint = Endpoint(settings.embeddings_url or "", ports.clock, ports.randomness, key, limits)
    remote = OpenAIEmbedder(endpoint, settings.embeddings_model or "", settings.embeddings_dimension)
    stack.push_async_callback(remote.close)
    readiness.watch("embeddings_endpoint", lambda: remote.trouble)
    try:
        await remote.start()
    except EmbedderUnavailable as error:
        log.warning("embeddings_endpoint_away", what=str(error))
    return remote


async def _former(
    settings: RelayerSettings, ports: LogPorts, readiness: Readiness, stack: AsyncExitStack
) -> Embedder | None:
    """Make the embedder of the model before, if the settings name one."""
    if settings.former_embedder is None:
        return None
    if settings.former_embedder == "local":
        local = LocalEmbedder()
        stack.push_async_callback(local.close)
        await local.load()
        return local
    limits = EndpointLimits(total=_EMBEDDINGS_SECONDS, at_once=settings.model_at_once)
    url = settings.former_embeddings_url or settings.embeddings_url or ""
    key = find_model_key(settings, "former_embeddings")
    remote = OpenAIEmbedder(
        Endpoint(url, ports.clock, ports.randomness, key, limits),
        settings.former_embeddings_model or "",
        settings.former_embeddings_dimension,
        setting="former-embeddings",
    )
    stack.push_async_callback(remote.close)
    readiness.watch("former_embeddings_endpoint", lambda: remote.trouble)
    try:
        await remote.start()
    except EmbedderUnavailable as error:
        log.warning("former_embeddings_endpoint_away", what=str(error))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error}. Without --former-embedder memories are found by words until they are embedded anew"
        ) from error
    return remote


async def _namespaces(
    settings: RelayerSettings, ports: LogPorts, embedder: Embedder, former: Embedder | None
) -> OpenNamespaces:
    def forget() -> None:
        embedder.forget()
        if former is not None:
            former.forget()

    return OpenNamespaces(
        ports,
        embedder.model,
        await _calibration(embedder),
        CacheLimits(bytes=settings.cache_bytes),
        forget,
        former=None if former is None else Generation(former.model, await _calibration(former)),
    )


async def _calibration(embedder: Embedder) -> Calibration:
    """Return what relevance is judged by at first; without an embedder, by words alone until it is back."""
    try:
        return await first_calibration(embedder)
    except (EmbedderUnavailable, QueueFull):
        return Calibration(LEXICAL_PRIOR)


async def _chat(
    settings: RelayerSettings, ports: LogPorts, readiness: Readiness, stack: AsyncExitStack
) -> ChatWork | None:
    """Make the language model of the settings, if they name one; one that is away may come later."""
    if settings.model_url is None:
        return None
    limits = EndpointLimits(total=settings.model_timeout, at_once=settings.model_at_once)
    key = find_model_key(settings, "model")
    endpoint = Endpoint(settings.model_url, ports.clock, ports.randomness, key, limits)
    chat = OpenAIChat(endpoint, settings.model_name or "")
    stack.push_async_callback(chat.close)
    readiness.watch("model_endpoint", lambda: chat.trouble)
    try:
        await chat.start()
    except ModelUnavailable as error:
        log.warning("model_endpoint_away", what=str(error))
    daily = DailyLimits(settings.model_calls_per_day, settings.model_tokens_per_day)
    fallback = await _fallback(settings, ports, readiness, stack)
    return ChatWork(chat, ModelBudget(daily), settings.model_timeout, fallback)


async def _fallback(
    settings: RelayerSettings, ports: LogPorts, readiness: Readiness, stack: AsyncExitStack
) -> OpenAIChat | None:
    """Make the model that is asked when the first one is away, if the settings name one."""
    if settings.fallback_model_name is None:
        return None
    limits = EndpointLimits(total=settings.model_timeout, at_once=settings.model_at_once)
    url = settings.fallback_model_url or settings.model_url or ""
    key = find_model_key(settings, "fallback_model")
    endpoint = Endpoint(url, ports.clock, ports.randomness, key, limits)
    chat = OpenAIChat(endpoint, settings.fallback_model_name, setting="fallback-model")
    stack.push_async_callback(chat.close)
    readiness.watch("fallback_model_endpoint", lambda: chat.trouble)
    try:
        await chat.start()
    except ModelUnavailable as error:
        log.warning("fallback_model_endpoint_away", what=str(error))
    return chat


def _facts(settings: RelayerSettings, ports: LogPorts, chat: ChatWork | None) -> FactWork | None:
    """Make what reads captures with the model, as far as that was asked for; it shares the model's budget."""
    extracts, summarises = settings.extractor == "llm", settings.session_summaries == "on"
    if chat is None or not (extracts or summarises):
        return None
    jobs = JobLimits(at_once=settings.model_at_once, takeover_ms=int(settings.job_takeover * 1000))
    return FactWork(
        extractor=LlmExtractor(chat.model, summaries=settings.turn_summaries),
        queue=JobQueue(ports.clock, jobs),
        budget=chat.budget,
        seconds=chat.seconds,
        extracts=extracts,
        summariser=Summariser(chat.model) if summarises else None,
    )


def _assemble(
    settings: RelayerSettings,
    context: Context,
    fleet: FleetKeys,
    readiness: Readiness,
    *,
    metrics: Metrics,
    port: int,
) -> Relayer:
    accepted = accepted_authorities(
        settings.host, port, scheme=settings.scheme, public_url=settings.public_url
    )
    accounts = Accounts(context.ports, served=settings.served)
    authenticator = Authenticator(
        authorities=Authorities(accepted),
        accounts=accounts,
        fleet=fleet,
        keys=context.keys,
        clock=context.clock,
        limits=Limits(context.clock, enabled=settings.rate_limits == "on"),
    )

    async def revoked(account: str) -> None:
        authenticator.drop_keys_of(account)
        opened = [item.namespace for item in context.namespaces.all()]
        names = [item.pointer.name for item in opened if item.account == account]
        await context.namespaces.drop_agent(account, names)

    native = (
        *NativeRoutes(context, accounts, revoked).table(),
        *LifeRoutes(context).table(),
        *ErasureRoutes(context).table(),
        *AnswerRoutes(context).table(),
    )
    model = context.embedder.model
    version = VersionResponse(
        version=product_version(),
        api_version=API_VERSION,
        min_client_version=MIN_CLIENT_VERSION,
        model=model.name,
        dimension=model.dimension,
        extractor=_extractor_of(context),
    )
    open_routes = OpenRoutes(version, fleet, readiness, metrics, native).table()
    front = Front(
        Routes((*native, *open_routes)),
        authenticator=authenticator,
        metrics=metrics,
        clock=context.clock,
        randomness=context.randomness,
    )
    publish(metrics, settings, context, front, version)
    indexes = IndexKeeper(context)
    publish_indexes(metrics, indexes)
    limits = UpkeepLimits(
        CompactionLimits(entries=settings.compact_entries), int(settings.collect_after * 1000)
    )
    upkeep = Upkeep(context.ports, context.namespaces, limits)
    publish_upkeep(metrics, upkeep)
    idle = _idle(settings, context, metrics)
    publish_erasures(metrics, context.erasures)
    return Relayer(context, front, fleet, accounts, authenticator, readiness, indexes, upkeep, idle)


def _idle(settings: RelayerSettings, context: Context, metrics: Metrics) -> IdleCollection | None:
    if not settings.collect_idle_every:
        return None
    limits = IdleLimits(
        every=settings.collect_idle_every, collect_after_ms=int(settings.collect_after * 1000)
    )
    idle = IdleCollection(context.ports, limits)
    publish_idle(metrics, idle)
    return idle


def _extractor_of(context: Context) -> str:
    facts = context.facts
    if facts is None or not facts.extracts:
        return f"{context.extractor.name} {context.extractor.version}"
    return f"{facts.extractor.name} {facts.extractor.version} {facts.extractor.model}"


async def _check_promises(settings: RelayerSettings, ports: LogPorts) -> None:
    """Probe a bucket before memories are entrusted to it; the directory store does so by itself."""
    if settings.probe == "off":
        log.warning("store_not_probed", why="probe is off")
        return
    try:
        report = await probe_unless_known(ports, product_version(), always=settings.probe == "always")
    except BrokenPromise as error:
        if not settings.single_relayer:
            raise
        log.warning("store_breaks_promises", what=str(error), why_go_on="single_relayer is set")
        return
    if report is None:
        # What was probed lately may keep versions since, or other credentials may be in use.
        missing = await probe_erasure(ports.store, ports.randomness, prefix=ports.layout.at("probe"))
    else:
        missing = report.missing
        log.info("store_probed", races=report.races, undecided=report.undecided, requests=report.requests)
    if missing is not None:
        log.warning("erasing_needs_more", what=missing)


def _objects(data: Path) -> Path:
    """Return the directory of the store: the relayer key lies beside it, not in it."""
    return data.expanduser() / "objects"


def _relayer_key(settings: RelayerSettings, say: Say) -> bytes:
    key = find_relayer_key(settings)
    if key is not None:
        return key
    if settings.store is not None:
        raise ConfigurationError(
            "MEMRELAY_RELAYER_KEY or MEMRELAY_RELAYER_KEY_FILE: a relayer over a bucket must be given its key, because "
            "the bucket cannot be read without it and this machine may not last; memrelay keys make FILE makes one"
        )
    data = settings.data.expanduser()
    if (_objects(data) / Layout.relayer()).exists():
        raise ConfigurationError(
            f"the store in {data} has a relayer key, but {generated_key_file(data)} is gone: put it back, or give it "
            "as MEMRELAY_RELAYER_KEY"
        )
    key = make_relayer_key(data)
    say(
        f"made the relayer key in {generated_key_file(data)}; without it this store cannot be read: keep a copy "
        "(memrelay keys recovery)"
    )
    return key
