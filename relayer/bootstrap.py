"""The composition root: what a relayer is made of, in which order, and how it all ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from relayer.adapters.metered_store import MeteredStore
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.background import background
from relayer.config import RelayerSettings
from relayer.errors import EmbedderUnavailable, QueueFull
from relayer.extraction.statements import StatementExtractor
from relayer.figures import publish, publish_erasures, publish_idle, publish_indexes, publish_upkeep
from relayer.http.auth import Authenticator
from relayer.http.authorities import Authorities, accepted_authorities
from relayer.http.front import Front
from relayer.http.limits import Limits
from relayer.http.metrics import Metrics
from relayer.http.operations import OpenRoutes
from relayer.http.readiness import Readiness
from relayer.http.routing import Routes
from relayer.http.signed_routes import signed_routes
from relayer.log.compactor import CompactionLimits
from relayer.log.log_ports import LogPorts
from relayer.models import Models, fact_work
from relayer.ports import Clock, Embedder, ObjectStore, Randomness
from relayer.process import product_version
from relayer.search.calibration import Calibration, first_calibration
from relayer.search.priors import LEXICAL_PRIOR
from relayer.services.accounts import Accounts
from relayer.services.context import Context
from relayer.services.fleet import FleetKeys
from relayer.services.generation import Generation
from relayer.services.idle_collection import IdleCollection, IdleLimits
from relayer.services.index_keeping import IndexKeeper
from relayer.services.open_namespaces import CacheLimits, OpenNamespaces
from relayer.services.relayer_check import check_relayer_key
from relayer.services.upkeep import Upkeep, UpkeepLimits
from relayer.services.work_pool import WorkPool
from relayer.stores import check_promises, open_store, ports_over
from relayer.wire.schemas import VersionResponse

__all__ = ["STOP_SECONDS", "Relayer", "build"]

STOP_SECONDS = 10.0
API_VERSION = "1"
MIN_CLIENT_VERSION = "0.1.0"


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
        ports = ports_over(metered, settings, relayer_key, clock, randomness)
        await check_relayer_key(ports)
        if settings.store is not None:
            await check_promises(settings, ports)
        fleet = FleetKeys(ports)
        await fleet.start()
        readiness = Readiness(ports, fleet)
        models = Models(settings, clock, randomness, readiness, stack)
        if embedder is None:
            embedder = await models.embedder()
        former = await models.former(embedder)
        namespaces = await _namespaces(settings, ports, embedder, former)
        readiness.model_loaded()
        stack.push_async_callback(namespaces.close, STOP_SECONDS)
        chat = await models.chat()
        limits = Limits(clock, enabled=settings.rate_limits == "on")
        context = Context(
            ports=ports,
            embedder=embedder,
            extractor=StatementExtractor(),
            namespaces=namespaces,
            facts=fact_work(settings, clock, chat),
            chat=chat,
            redacts=settings.redaction == "on",
            collect_after_ms=int(settings.collect_after * 1000),
            former=former,
            texts=WorkPool(on_used=limits.charge_work),
        )
        relayer = _assemble(settings, context, fleet, readiness, limits, metrics=metrics, port=port)
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


async def _namespaces(
    settings: RelayerSettings, ports: LogPorts, embedder: Embedder, former: Embedder | None
) -> OpenNamespaces:
    return OpenNamespaces(
        ports,
        embedder.model,
        await _calibration(embedder),
        CacheLimits(bytes=settings.cache_bytes),
        former=None if former is None else Generation(former.model, await _calibration(former)),
    )


async def _calibration(embedder: Embedder) -> Calibration:
    """Return what relevance is judged by at first; without an embedder, by words alone until it is back."""
    try:
        return await first_calibration(embedder)
    except (EmbedderUnavailable, QueueFull):
        return Calibration(LEXICAL_PRIOR)


def _assemble(
    settings: RelayerSettings,
    context: Context,
    fleet: FleetKeys,
    readiness: Readiness,
    limits: Limits,
    *,
    metrics: Metrics,
    port: int,
) -> Relayer:
    accounts = Accounts(context.ports, served=settings.served)
    authenticator = _authenticator(settings, context, fleet, accounts, limits, port=port)

    async def revoked(account: str) -> None:
        authenticator.drop_keys_of(account)
        opened = [item.namespace for item in context.namespaces.all()]
        names = [item.pointer.name for item in opened if item.account == account]
        await context.namespaces.drop_agent(account, names)

    version = _version(context)
    signed = signed_routes(context, accounts, revoked)
    open_routes = OpenRoutes(version, fleet, readiness, metrics, signed).table()
    front = Front(
        Routes((*signed, *open_routes)),
        authenticator=authenticator,
        metrics=metrics,
        clock=context.clock,
        randomness=context.randomness,
        texts=context.texts,
    )
    indexes, upkeep, idle = IndexKeeper(context), _upkeep(settings, context), _idle(settings, context)
    publish(metrics, settings, context, front, version)
    publish_indexes(metrics, indexes)
    publish_upkeep(metrics, upkeep)
    if idle is not None:
        publish_idle(metrics, idle)
    publish_erasures(metrics, context.erasures)
    return Relayer(context, front, fleet, accounts, authenticator, readiness, indexes, upkeep, idle)


def _authenticator(
    settings: RelayerSettings,
    context: Context,
    fleet: FleetKeys,
    accounts: Accounts,
    limits: Limits,
    *,
    port: int,
) -> Authenticator:
    accepted = accepted_authorities(
        settings.host, port, scheme=settings.scheme, public_url=settings.public_url
    )
    return Authenticator(
        authorities=Authorities(accepted),
        accounts=accounts,
        fleet=fleet,
        keys=context.keys,
        clock=context.clock,
        limits=limits,
    )


def _version(context: Context) -> VersionResponse:
    model = context.embedder.model
    return VersionResponse(
        version=product_version(),
        api_version=API_VERSION,
        min_client_version=MIN_CLIENT_VERSION,
        model=model.name,
        dimension=model.dimension,
        extractor=_extractor_of(context),
    )


def _extractor_of(context: Context) -> str:
    facts = context.facts
    if facts is None or not facts.extracts:
        return f"{context.extractor.name} {context.extractor.version}"
    return f"{facts.extractor.name} {facts.extractor.version} {facts.extractor.model}"


def _upkeep(settings: RelayerSettings, context: Context) -> Upkeep:
    limits = UpkeepLimits(CompactionLimits(entries=settings.compact_entries), context.collect_after_ms)
    return Upkeep(context.ports, context.namespaces, limits)


def _idle(settings: RelayerSettings, context: Context) -> IdleCollection | None:
    if not settings.collect_idle_every:
        return None
    limits = IdleLimits(every=settings.collect_idle_every, collect_after_ms=context.collect_after_ms)
    return IdleCollection(context.ports, limits)
