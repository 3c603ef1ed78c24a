"""The operator's commands of ``memrelay``. `relayer.commands.deferred` imports this module when a command is run.

A command's options are the parameters of its function and the settings that name a store.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from relayer.access.accounts import Accounts, read_account
from relayer.access.quotas import Quotas
from relayer.access.store_keys import read_store_key
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.commands.deferred import GRACE_SETTINGS, STORE_SETTINGS
from relayer.crypto import RelayerKeys
from relayer.errors import ConfigurationError, RelayerError, StoreFull, StoreMisconfigured
from relayer.log.collector import CollectionStage, Collector
from relayer.log.compactor import CompactionLimits, Compactor
from relayer.log.objects import Layout, LogPorts
from relayer.log.replica import Replica
from relayer.operator import reports
from relayer.operator import restore as restoring
from relayer.operator.backup import Backup, back_up, prune
from relayer.operator.backup_store import BackupStore
from relayer.operator.catalogue import Listed, ObjectKind, Progress, at_each, kind_of, read_catalogue
from relayer.operator.inspect import (
    describe_key,
    describe_namespace,
    lines_of,
    measure,
    parse_traffic,
    row_of_facts,
)
from relayer.operator.probe import stamp
from relayer.operator.repair import repair_namespace
from relayer.operator.reports import CommandReport
from relayer.operator.verify import StoreReport, verify_namespace, verify_store
from relayer.ports import KeyProvider
from relayer.process import stop_event
from relayer.settings.config import RelayerSettings, load_settings, objects_directory, read_quotas
from relayer.settings.keys import find_relayer_key
from relayer.stores import key_provider, opened_store, ports_over
from relayer.telemetry import configure, describe, log
from relayer.wire.codec import InvalidSecret
from relayer.wire.command_line import JsonOption, span, tell
from relayer.wire.sealing import SECRET_SIZE, is_account_id, parse_secret

if sys.platform == "win32":
    _run = asyncio.run
else:
    from uvloop import run as _run

T = TypeVar("T")

# Seconds until a failed backup is retried, so that daily backups do not wait for the next day.
_RETRY_SECONDS = 600.0

# The start of the line that ``memrelay-gateway keys export`` prints.
_EXPORTED = "MEMRELAY_AGENT_SECRET="

_Name = Annotated[str | None, typer.Option(help="Only namespaces with this name.")]
_Accounts = Annotated[
    list[str] | None, typer.Option("--account", help="Id of an account whose object is missing.")
]
_Apply = Annotated[
    bool, typer.Option("--apply", help="Apply the changes; without this option, only show them.")
]
_BACKUP_ENDPOINT = "URL of the backup's S3 server, when it is not the store's."
_BACKUP_REGION = "Region of the backup's bucket."
_BackupEndpoint = Annotated[str | None, typer.Option(help=_BACKUP_ENDPOINT)]
_BackupRegion = Annotated[str | None, typer.Option(help=_BACKUP_REGION)]


@dataclass(frozen=True, slots=True)
class Site:
    """An open store, with the progress display of a command.

    Attributes:
        ports: the store; a store that may not exist yet has random keys.
        known: accounts known without listing the store: those given as options and those served.
    """

    settings: RelayerSettings
    provider: KeyProvider = field(repr=False)
    ports: LogPorts
    progress: Progress
    known: Sequence[str]

    async def namespaces(self, name: str | None) -> Sequence[Listed]:
        """List the namespaces with a name, or all. Raises `ConfigurationError` if there is none with the name."""
        catalogue = await read_catalogue(self.ports, self.known)
        found = catalogue.namespaces if name is None else catalogue.named(name)
        if not found and name is not None:
            raise ConfigurationError(f"--namespace: this store has no namespace {name}")
        return found


_Work = Callable[..., Awaitable[CommandReport]]


def store_command(
    title: str, *, accounts: bool = False, is_empty: bool = False, read_only: bool = False
) -> Callable[[_Work], Callable[..., None]]:
    """Turn a function into a command. The function takes an open store and the command's options, and returns a report.

    The command prints the report. It exits with 1 if the report needs the attention of a person. The title is that of the
    progress bar. With ``accounts`` the command has an option for ids of accounts whose own object is lost; with ``is_empty``
    the store may not exist yet; with ``read_only`` it is read, and may be on a full or read-only disk.
    """

    def made(work: _Work) -> Callable[..., None]:
        @wraps(work)
        def command(*, as_json: bool = False, accounts: Sequence[str] | None = None, **options: Any) -> None:
            place = {name: options.pop(name, None) for name in (*STORE_SETTINGS, *GRACE_SETTINGS)}

            async def at_store() -> CommandReport:
                progress = _shown(title, quiet=as_json)
                async with _site(
                    place, accounts or (), progress, is_empty=is_empty, read_only=read_only
                ) as site:
                    return await work(site, **options)

            report = _run(at_store())
            tell(report.row, report.text(), as_json=as_json)
            raise typer.Exit(0 if report.well else 1)

        own = list(signature(work, eval_str=True).parameters.values())[1:]
        if accounts:
            own.append(Parameter("accounts", Parameter.KEYWORD_ONLY, default=None, annotation=_Accounts))
        own.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption))
        vars(command)["__signature__"] = Signature(own)
        return command

    return made


@asynccontextmanager
async def _site(
    place: dict[str, Any], accounts: Sequence[str], progress: Progress, *, is_empty: bool, read_only: bool
) -> AsyncIterator[Site]:
    settings = load_settings(place, os.environ)
    configure(settings.log_format, settings.log_level)
    key = find_relayer_key(settings)
    if key is None:
        # The directory of a store that is still to be restored has no key.
        also = "" if is_empty else ", or its directory with --data"
        raise ConfigurationError(
            f"no relayer key: give the key of the store as MEMRELAY_RELAYER_KEY_FILE{also}"
        )
    if not is_empty and settings.store is None and not _is_store(settings.data):
        raise ConfigurationError(f"--data: no store in {settings.data}")
    randomness = SystemRandomness()
    provider = key_provider(key, randomness)
    clock = SystemClock()
    async with opened_store(settings, clock, read_only=read_only) as store:
        store_key = randomness.bytes(SECRET_SIZE) if is_empty else await read_store_key(store, provider)
        ports = ports_over(store, settings, store_key, clock, randomness)
        for account in accounts:
            if not is_account_id(account):
                raise ConfigurationError(
                    f"--account: {account} is not an account id: 0x and 64 lower-case hex digits"
                )
        yield Site(settings, provider, ports, progress, [*accounts, *(settings.served or ())])


def _shown(title: str, *, quiet: bool) -> Progress:
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal

    def progress(items: Sequence[T]) -> Iterable[T]:
        return track(items, title, console=console, transient=True, disable=hidden)

    return progress


@asynccontextmanager
async def opened_backup(
    site: Site, option: str, named: str, endpoint_url: str | None, region: str | None
) -> AsyncIterator[BackupStore]:
    """Open a backup in a directory or at ``s3://``, with the endpoint of the store itself unless another one is given.

    ``option`` is the name of the option with the backup's place, for error messages. The backup has the keys of the store.

    Raises:
        ConfigurationError: the place is invalid, or there is no backup in it.
        StoreError: the place cannot be used.
    """
    settings = site.settings
    bucket = named.startswith("s3://")
    if option != "to" and not bucket and not _is_store(Path(named)):
        raise ConfigurationError(f"--{option}: no backup in {named}")
    if option == "to":
        _check_apart(named, endpoint_url, settings)
    if named:
        place = {"store": named} if bucket else {"store": None, "data": Path(named)}
        own = {"endpoint_url": endpoint_url or settings.endpoint_url, "region": region or settings.region}
        settings = settings.model_copy(update=place | own)
    try:
        _ = settings.bucket  # checks the URL
    except ConfigurationError as error:
        raise ConfigurationError(f"--{option}: {error}") from error
    clock = SystemClock()
    async with opened_store(settings, clock, read_only=option != "to") as store:
        yield BackupStore(replace(site.ports, store=store, clock=clock))


def _check_apart(named: str, endpoint_url: str | None, settings: RelayerSettings) -> None:
    if not named:
        raise ConfigurationError("--to: give a directory, or s3://BUCKET/PREFIX")
    if settings.bucket is None and not named.startswith("s3://"):
        objects = objects_directory(settings.data).resolve()
        target = objects_directory(Path(named)).resolve()
        inside = target.is_relative_to(objects)
    elif settings.store is not None and endpoint_url in {None, settings.endpoint_url}:
        inside = f"{named.rstrip('/')}/".startswith(f"{settings.store.rstrip('/')}/")
    else:
        inside = False
    if inside:
        raise ConfigurationError(
            f"--to: {named} is inside the store; give a place that survives the loss of the store"
        )


def read_secret(file: Path) -> bytes:
    """Return the secret in a file, which only its owner may be able to read.

    Raises:
        ConfigurationError: others can read the file, or it contains no secret.
    """
    try:
        path = file.expanduser()
        if path.is_dir():
            raise ConfigurationError(f"--agent-secret-file: {file} is a directory; give the file in it")
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigurationError(f"--agent-secret-file: other users can read it: chmod 600 {file}")
        lines = path.read_text("ascii").splitlines()
        exported = [line.removeprefix(_EXPORTED) for line in lines if line.startswith(_EXPORTED)]
        return parse_secret((exported or lines or [""])[0], source=f"--agent-secret-file {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--agent-secret-file: {file} cannot be read") from error
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from error


def text_of(file: str) -> str:
    """Return the content of a file, or of standard input for ``-``.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--metrics: {file} cannot be read") from error


def _is_store(directory: Path) -> bool:
    return objects_directory(directory).is_dir()


@store_command("verifying", accounts=True, read_only=True)
async def verify(
    site: Site,
    *,
    namespace: _Name = None,
    agent_secret_file: Annotated[
        list[Path] | None,
        typer.Option(
            help="File with an agent's secret, to check the contents that are sealed with it as well."
        ),
    ] = None,
) -> CommandReport:
    """Check the integrity of a store. Exit code 1: objects are damaged or missing.

    Example: memrelay verify --namespace researcher
    """
    secrets = [read_secret(file) for file in agent_secret_file or ()]
    if namespace is None:
        return reports.verification(
            await verify_store(site.ports, known=site.known, secrets=secrets, progress=site.progress)
        )
    chosen = site.progress(await site.namespaces(namespace))
    return reports.verification(
        StoreReport([await verify_namespace(site.ports, listed, secrets) for listed in chosen])
    )


@store_command("looking", accounts=True)
async def repair(site: Site, *, namespace: _Name = None, apply: _Apply = False) -> CommandReport:
    """Repair damaged logs and report losses. Stop the relayers before --apply.

    Example: memrelay repair --namespace researcher

    Example: memrelay repair --apply
    """
    # Accounts are repaired before their namespaces, and only if no single namespace was named.
    catalogue = await read_catalogue(site.ports, site.known)
    mended = catalogue.mendable if apply and namespace is None else ()
    for account in mended:
        await Accounts(site.ports, served=frozenset(mended)).mend(account)
    if mended:
        catalogue = await read_catalogue(site.ports, site.known)
    beyond = catalogue.findings if namespace is None else ()
    chosen = catalogue.namespaces if namespace is None else await site.namespaces(namespace)
    live = site.progress([listed for listed in chosen if listed.live])
    repairs = [await repair_namespace(site.ports, listed, apply=apply) for listed in live]
    return reports.repairs(repairs, beyond, mended, apply=apply)


@store_command("looking", accounts=True, read_only=True)
async def inspect(
    site: Site, what: Annotated[str, typer.Argument(help="Name of a namespace, or key of an object.")]
) -> CommandReport:
    """Show sizes, times and counts of a namespace or an object, without its contents.

    Example: memrelay inspect researcher
    """
    catalogue = await read_catalogue(site.ports, site.known)
    found = [await describe_namespace(site.ports, listed) for listed in catalogue.named(what)]
    if not found and kind_of(what) is not ObjectKind.OTHER:
        described = await describe_key(site.ports, catalogue, what)
        found = [described] if described is not None else []
    if not found:
        raise ConfigurationError(
            f"{what}: neither a namespace of this store nor the key of an object in it; memrelay verify --json lists the "
            "namespaces"
        )
    lines = [line for facts in found for line in [("", ""), *lines_of(facts)]][1:]
    return CommandReport(lines, {"found": [row_of_facts(facts) for facts in found]})


@store_command("counting", read_only=True)
async def stats(
    site: Site,
    *,
    metrics: Annotated[
        str | None,
        typer.Option(help="File with a relayer's /metrics, or - for standard input: report store requests."),
    ] = None,
) -> CommandReport:
    """Count the objects of a store and its garbage.

    Example: memrelay stats --json
    """
    traffic = parse_traffic(text_of(metrics)) if metrics is not None else None
    measured = await measure(site.ports, site.known)
    rules = {account: (await read_account(site.ports, account))[1] for account in measured.by_account}
    quotas = Quotas(
        site.ports,
        site.settings.quota,
        read_quotas(site.settings.quotas),
        limits_of=lambda account: rules[account].limits if account in rules else None,
    )
    return reports.stats(measured, traffic, quotas.quota_of)


@store_command("compacting")
async def compact(
    site: Site,
    *,
    namespace: _Name = None,
    entries: Annotated[int, typer.Option(min=1, help="Minimum number of entries to compact.")] = 1,
) -> CommandReport:
    """Compact the newest entries of logs into segments; relayers may be running.

    Example: memrelay compact --entries 16
    """
    made = written = 0

    async def work(listed: Listed) -> None:
        nonlocal made, written
        replica = Replica(site.ports, listed.account, listed.incarnation)
        await replica.reload()
        compactor = Compactor(site.ports, replica, CompactionLimits(entries=entries))
        # Until no small segments are left to merge.
        while (compaction := await compactor.run()) is not None:
            made, written = made + compaction.won, written + compaction.written

    chosen = await site.namespaces(namespace)
    problems = await at_each(chosen, work, site.progress)
    result = f"{made} segments made in {len(chosen)} namespaces, {written:,} bytes written"
    row = {"segments": made, "namespaces": len(chosen), "written_bytes": written}
    lines = [*reports.found(problems), ("result", result)]
    return CommandReport(lines, row | {"findings": reports.row_of(problems)}, not problems)


@store_command("collecting")
async def collect(site: Site, *, namespace: _Name = None) -> CommandReport:
    """Delete compacted and replaced objects whose grace period is over; relayers may be running.

    Give --collect-after and --commit-check as all relayers of this store have them: acknowledged memories depend on it.

    Example: memrelay collect --collect-after 1h
    """
    grace = site.settings.collect_after
    slots = objects = waiting = 0

    async def work(listed: Listed) -> None:
        nonlocal slots, objects, waiting
        collector = Collector(site.ports, listed.account, listed.incarnation, int(grace * 1000))
        collected = await collector.tidy()
        slots, objects = slots + collected.slots, objects + collected.objects
        waiting += collected.stage is CollectionStage.WAIT

    problems = await at_each(await site.namespaces(namespace), work, site.progress)
    deleted = f"{slots} entries that are in segments, {objects} objects without a reference"
    lines = [*reports.found(problems), ("deleted", deleted)]
    if waiting:
        left = f"{waiting} namespaces: what they have to delete may be read until {grace:.0f} s after it was given up"
        lines.append(("waiting", f"{left}; run this command again then; relayers also do it by themselves"))
    row = {"deleted_entries": slots, "deleted_objects": objects, "waiting_namespaces": waiting}
    return CommandReport(lines, row | {"findings": reports.row_of(problems)}, not problems)


@store_command("backing up", read_only=True)
async def backup(
    site: Site,
    *,
    to: Annotated[
        str,
        typer.Option(
            envvar="MEMRELAY_BACKUP_TO", help="Directory, or s3://BUCKET/PREFIX, used by this store only."
        ),
    ],
    to_endpoint_url: Annotated[
        str | None, typer.Option(envvar="MEMRELAY_BACKUP_ENDPOINT_URL", help=_BACKUP_ENDPOINT)
    ] = None,
    to_region: Annotated[
        str | None, typer.Option(envvar="MEMRELAY_BACKUP_REGION", help=_BACKUP_REGION)
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Keep this number of runs and delete older ones.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=span("--every", least=1),
            metavar="SECONDS|12h",
            help="Run backups until SIGTERM, with this pause between them.",
        ),
    ] = None,
) -> CommandReport:
    """Copy new objects to a backup; relayers may be running. Exit code 1: some objects could not be read.

    Example: memrelay backup --to /backup/memrelay --keep 7

    Example: memrelay backup --to s3://backups/team --every 1d
    """

    async def once() -> tuple[Backup, CommandReport]:
        async with opened_backup(site, "to", to, to_endpoint_url, to_region) as target:
            done = await back_up(site.ports, target, progress=site.progress)
            dropped = await prune(target, keep) if keep is not None else 0
        if not done.findings:
            try:
                await stamp(site.ports, Layout.backed_up())
            except (StoreFull, StoreMisconfigured) as error:
                # The backup is complete. Only the metric of its time, which relayers read from the store, stays old.
                log.warning("backup_not_recorded", why=str(error))
        return done, reports.backup(done, dropped)

    return (await once())[1] if every is None else await _again_and_again(once, every)


async def _again_and_again(
    once: Callable[[], Awaitable[tuple[Backup, CommandReport]]], every: float
) -> CommandReport:
    """Back up repeatedly until SIGTERM or SIGINT: now, and ``every`` seconds after each end; earlier after a failure.

    An invalid setting ends the loop, because a retry cannot fix it.
    """
    stop, made = stop_event(asyncio.get_running_loop()), 0
    while not stop.is_set():
        pause = every
        try:
            done, _ = await once()
        except RelayerError as error:
            if isinstance(error, ConfigurationError):
                raise
            pause = min(every, _RETRY_SECONDS)
            log.error("backup_failed", why=str(error), again_in_seconds=pause, **describe(error))
        else:
            made += 1
            told = {"run": done.run, "objects": done.objects, "copied_bytes": done.copied_bytes}
            if done.findings:
                log.error("backup_not_whole", **told, problems=len(done.findings), fix="memrelay verify")
            else:
                log.info("backed_up", **told, next_in_seconds=pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()
    return CommandReport([("result", f"stopped after {made} backups")], {"backups": made})


@store_command("restoring", is_empty=True)
async def restore(
    site: Site,
    *,
    source: Annotated[str, typer.Option("--from", help="Place that was used for memrelay backup --to.")],
    from_endpoint_url: _BackupEndpoint = None,
    from_region: _BackupRegion = None,
    number: Annotated[int | None, typer.Option("--run", min=1, help="Default: the newest.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Place of a newer backup, when --from is an old copy.")
    ] = None,
) -> CommandReport:
    """Restore a backup into an empty store, without memories that were erased since.

    It needs the relayer key of the backup, in MEMRELAY_RELAYER_KEY or MEMRELAY_RELAYER_KEY_FILE.

    Example: memrelay restore --from /backup/memrelay --data ~/restored
    """
    at = from_endpoint_url, from_region
    async with AsyncExitStack() as stack:
        option, place = ("ledger", ledger) if ledger else ("from", source)
        newest = await stack.enter_async_context(opened_backup(site, option, place, *at))
        # Without a backup there is no key; `restoring.restore` says so. Another relayer key raises `WrongRelayerKey`.
        stored = await newest.stored_key()
        if stored is not None:
            keys = RelayerKeys.derive(await stored.unwrap(site.provider))
            site = replace(site, ports=replace(site.ports, keys=keys))
        newest = BackupStore(replace(newest.ports, keys=site.ports.keys))
        older = opened_backup(site, "from", source, *at)
        done = await restoring.restore(
            await stack.enter_async_context(older) if ledger else newest,
            site.ports,
            number=number,
            ledgers=newest if ledger else None,
            progress=site.progress,
        )
    return reports.restoration(done)
