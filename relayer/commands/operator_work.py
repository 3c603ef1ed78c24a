"""What the operator's commands do; `relayer.commands.operator` imports this when one is asked for.

Each returns the command's exit code: 0 all is well, 1 something was found that needs a person. Everything else is raised.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from relayer.access.accounts import Accounts
from relayer.access.quotas import Quotas
from relayer.access.relayer_check import probe
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.admin import reports
from relayer.admin.backup import back_up, prune
from relayer.admin.backup_store import BackupStore
from relayer.admin.catalogue import Kind, Listed, kind_of, read_catalogue
from relayer.admin.inspect import Lines, describe_key, describe_namespace
from relayer.admin.repair import Repair, repair_namespace
from relayer.admin.restore import restore
from relayer.admin.stats import Prices, measure, parse_traffic
from relayer.admin.upgrade import compact_namespace, upgrade_store
from relayer.admin.verify import StoreReport, verify_namespace, verify_store
from relayer.commands.console import progress_bar
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.errors import ConfigurationError, CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.log.collector import Collector, Stage
from relayer.log.log_ports import LogPorts
from relayer.settings.config import RelayerSettings, load_settings, objects_directory, read_quotas
from relayer.settings.keys import find_relayer_key
from relayer.stores import layout_of, open_store, ports_over
from relayer.telemetry import configure
from relayer.wire.errors import InvalidSecret
from relayer.wire.keys import is_account_id, parse_secret

if sys.platform == "win32":
    run = asyncio.run
else:
    from uvloop import run as run  # noqa: PLC0414 - the commands' runner, for `relayer.commands.operator`

Flags = Mapping[str, object]
# What ``memrelay-gateway keys export`` prints.
_EXPORTED = "MEMRELAY_AGENT_SECRET="
_PLACE_FLAGS = ("data", "store", "endpoint_url", "region", "config", "collect_after", "commit_check")


@asynccontextmanager
async def opened_store(flags: Flags, *, used: bool = True) -> AsyncIterator[tuple[RelayerSettings, LogPorts]]:
    """Open the store of the settings, and close it at the end of the block.

    Args:
        flags: as the command line has them; others than those of a place are left out.
        used: it must be one that a relayer has used.

    Raises:
        ConfigurationError: a setting is wrong, there is no key, or no such store.
        WrongRelayerKey: the store belongs to another key.
        StoreError: it cannot be used.
    """
    settings = load_settings({name: flags.get(name) for name in _PLACE_FLAGS}, os.environ)
    configure(settings.log_format, settings.log_level)
    key = find_relayer_key(settings)
    if key is None:
        raise ConfigurationError(
            "there is no relayer key: give the store's as MEMRELAY_RELAYER_KEY_FILE, or name its directory with --data"
        )
    if used and settings.store is None and not _is_store(settings.data):
        raise ConfigurationError(f"--data: there is no store in {settings.data}")
    clock = SystemClock()
    store = await open_store(settings, clock)
    try:
        ports = ports_over(store, settings, key, clock, SystemRandomness())
        if used:
            await probe(ports)
        yield settings, ports
    finally:
        await store.close()


@asynccontextmanager
async def opened_backup(
    settings: RelayerSettings, keys: RelayerKeys, place: Flags, option: str
) -> AsyncIterator[BackupStore]:
    """Open a backup: a directory or ``s3://``, at the endpoint of the store itself unless another is named.

    Args:
        settings: of the store.
        keys: the store's.
        place: ``place``, and the backup's own ``endpoint_url`` and ``region``; without a place it is the store itself.
        option: the one that names the place, for messages.

    Raises:
        ConfigurationError: the place is none, or there is no backup in it.
        StoreError: it cannot be used.
    """
    named = str(place.get("place") or "")
    bucket = named.startswith("s3://")
    if option == "from" and not bucket and not _is_store(Path(named)):
        raise ConfigurationError(f"--from: there is no backup in {named}")
    if option == "to":
        _check_apart(named, settings)
    chosen = settings.model_copy(
        update={
            "store": named if bucket else None,
            "data": Path(named) if named and not bucket else settings.data,
            "endpoint_url": place.get("endpoint_url") or settings.endpoint_url,
            "region": place.get("region") or settings.region,
        }
    )
    if not named:
        chosen = settings
    try:
        layout = layout_of(chosen)
    except ConfigurationError as error:
        raise ConfigurationError(f"--{option}: {error}") from error
    clock = SystemClock()
    store = await open_store(chosen, clock)
    try:
        yield BackupStore(LogPorts(store, clock, SystemRandomness(), keys, layout))
    finally:
        await store.close()


def _check_apart(named: str, settings: RelayerSettings) -> None:
    if not named:
        raise ConfigurationError("--to: name a directory, or s3://BUCKET/PREFIX")
    if settings.store is not None or named.startswith("s3://"):
        return
    objects = objects_directory(settings.data).resolve()
    if objects in objects_directory(Path(named)).resolve().parents:
        raise ConfigurationError(f"--to: {named} is inside the store; name a place that is not lost with it")


def accounts_of(settings: RelayerSettings, given: Sequence[str]) -> list[str]:
    """Return the accounts that are known without looking: those given and those served.

    Raises:
        ConfigurationError: one is no account id.
    """
    for account in given:
        if not is_account_id(account):
            raise ConfigurationError(
                f"--account: {account} is no account id: 0x and 64 lower-case hex digits"
            )
    return [*given, *(settings.served or ())]


def read_secret(file: Path) -> bytes:
    """Return the secret in a file that nobody else can read.

    Raises:
        ConfigurationError: others can read it, or it holds none.
    """
    try:
        path = file.expanduser()
        if path.is_dir():
            raise ConfigurationError(f"--agent-secret-file: {file} is a directory; name the file in it")
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigurationError(f"--agent-secret-file: others can read it: chmod 600 {file}")
        lines = path.read_text("ascii").splitlines()
        exported = [line.removeprefix(_EXPORTED) for line in lines if line.startswith(_EXPORTED)]
        return parse_secret((exported or lines or [""])[0], source=f"--agent-secret-file {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--agent-secret-file: {file} cannot be read") from error
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from error


def parse_prices(given: str | None) -> Prices:
    """Parse ``writes=5,reads=0.4``; what is not named has its usual price.

    Raises:
        ConfigurationError: a name or a number is none.
    """
    usual = Prices()
    names = {"writes": usual.writes, "reads": usual.reads, "gib-month": usual.gib_month}
    for part in (given or "").split(","):
        name, _, value = part.partition("=")
        if not part:
            continue
        try:
            price = float(value)
        except ValueError:
            price = math.nan
        if name.strip() not in names or not 0 <= price < math.inf:
            raise ConfigurationError(
                "--prices: write as in writes=5,reads=0.4,gib-month=0.023: per million writes, per million reads, per GiB "
                "and month"
            )
        names[name.strip()] = price
    return Prices(names["writes"], names["reads"], names["gib-month"])


def text_of(file: str) -> str:
    """Return what a file holds, or standard input for ``-``.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--metrics: {file} cannot be read") from error


def _is_store(directory: Path) -> bool:
    return objects_directory(directory).is_dir()


if sys.platform == "win32":
    run = asyncio.run
else:
    pass


Say = Callable[[str], None]
_FOUND = 1


async def verify(
    flags: Flags,
    say: Say,
    *,
    namespace: str | None,
    accounts: Sequence[str],
    secret_files: Sequence[Path],
    as_json: bool,
) -> int:
    """Verify a store, or the namespaces of one name, and print what was found."""
    secrets = [read_secret(file) for file in secret_files]
    async with opened_store(flags) as (settings, ports):
        known = accounts_of(settings, accounts)
        with progress_bar("verifying", quiet=as_json) as progress:
            if namespace is None:
                report = await verify_store(ports, known=known, secrets=secrets, progress=progress)
            else:
                chosen = await _named(ports, namespace, known)
                report = StoreReport([await verify_namespace(ports, listed, secrets) for listed in chosen])
    _print(say, report.row(), reports.verification(report), as_json=as_json)
    return 0 if report.sound else _FOUND


async def repair(
    flags: Flags,
    say: Say,
    *,
    namespace: str | None,
    accounts: Sequence[str],
    apply: bool,
    as_json: bool,
) -> int:
    """Print what a repair would do, or do it; 1 while there is damage."""
    async with opened_store(flags) as (settings, ports):
        known = accounts_of(settings, accounts)
        catalogue = await read_catalogue(ports, known)
        mended = catalogue.mendable if apply and namespace is None else ()
        for account in mended:
            await Accounts(ports, served=frozenset(mended)).mend(account)
        if mended:
            catalogue = await read_catalogue(ports, known)
        chosen = catalogue.namespaces if namespace is None else await _named(ports, namespace, known)
        repairs: list[Repair] = []
        with progress_bar("looking", quiet=as_json) as progress:
            for done, listed in enumerate(chosen, 1):
                if listed.live:
                    repairs.append(await repair_namespace(ports, listed, apply=apply))
                progress(done, len(chosen))
    needed = [item for item in repairs if item.needed or item.hopeless]
    beyond = list(catalogue.findings) if namespace is None else []
    row = {
        "applied": apply,
        "accounts": list(mended),
        "namespaces": [reports.repair_row(item) for item in needed],
        "findings": [finding.row() for finding in beyond],
    }
    _print(say, row, reports.repairs(needed, beyond, mended, apply=apply), as_json=as_json)
    hopeless = any(item.hopeless or not item.done for item in needed)
    return _FOUND if hopeless or beyond else 0


async def inspect(flags: Flags, say: Say, *, what: str, accounts: Sequence[str], as_json: bool) -> int:
    """Print what a namespace or an object is."""
    async with opened_store(flags) as (settings, ports):
        catalogue = await read_catalogue(ports, accounts_of(settings, accounts))
        found: list[Lines] = [await describe_namespace(ports, listed) for listed in catalogue.named(what)]
        if not found and kind_of(what) is not Kind.OTHER:
            described = await describe_key(ports, catalogue, what)
            found = [described] if described is not None else []
    if not found:
        raise ConfigurationError(
            f"{what}: neither a namespace of this store nor the key of an object in it; memrelay verify --json lists the "
            "namespaces"
        )
    rows = [dict(lines) for lines in found]
    _print(say, {"found": rows}, "\n\n".join(map(reports.aligned, found)), as_json=as_json)
    return 0


async def stats(flags: Flags, say: Say, *, prices: str | None, metrics: str | None, as_json: bool) -> int:
    """Print how much there is and what it costs."""
    table = parse_prices(prices)
    traffic = parse_traffic(text_of(metrics)) if metrics is not None else None
    async with opened_store(flags) as (settings, ports):
        measured = await measure(ports, tuple(accounts_of(settings, ())))
        quotas = Quotas(ports, settings.quota, read_quotas(settings.quotas))
    row = measured.row() | {"cost": reports.cost_row(measured, table, traffic)}
    _print(say, row, reports.stats(measured, table, traffic, quotas.of), as_json=as_json)
    return 0


async def compact(flags: Flags, say: Say, *, namespace: str | None, entries: int) -> int:
    """Compact namespaces and print what was written; 1 if one could not be."""
    async with opened_store(flags) as (settings, ports):
        made = written = 0

        async def work(listed: Listed) -> None:
            nonlocal made, written
            compacted = await compact_namespace(ports, listed, entries=entries)
            made, written = made + compacted.segments, written + compacted.written

        chosen = await _chosen(settings, ports, namespace)
        code = await _each(chosen, work, "compacting", say)
    say(f"result    {made} segments made in {len(chosen)} namespaces, {written:,} bytes written")
    return code


async def collect(flags: Flags, say: Say, *, namespace: str | None) -> int:
    """Delete what segments cover, as far as its time has come, and print what was deleted; 1 if one could not be read."""
    async with opened_store(flags) as (settings, ports):
        collect_after_ms = int(settings.collect_after * 1000)
        slots = objects = waiting = 0

        async def work(listed: Listed) -> None:
            nonlocal slots, objects, waiting
            collected = await Collector(ports, listed.account, listed.incarnation, collect_after_ms).tidy()
            slots, objects = slots + collected.slots, objects + collected.objects
            waiting += collected.stage is Stage.WAIT

        code = await _each(await _chosen(settings, ports, namespace), work, "collecting", say)
    say(f"deleted   {slots} entries that segments hold, {objects} objects that no manifest names")
    if waiting:
        say(
            f"waiting   {waiting} namespaces: what they have to delete may be read until {settings.collect_after:.0f} s after "
            "it was given up; run this again then, relayers do it by themselves"
        )
    return code


async def upgrade(flags: Flags, say: Say, *, apply: bool) -> int:
    """Raise the format of manifests; 1 if one could not be read."""
    async with opened_store(flags) as (_, ports):
        with progress_bar("upgrading") as progress:
            done = await upgrade_store(ports, apply=apply, progress=progress)
    for line in reports.upgrade(done, apply=apply):
        say(line)
    return _FOUND if done.findings else 0


async def backup(flags: Flags, say: Say, *, place: Flags, keep: int | None, as_json: bool) -> int:
    """Back a store up; 1 if something of it could not be."""
    async with (
        opened_store(flags) as (settings, ports),
        opened_backup(settings, ports.keys, place, "to") as target,
    ):
        with progress_bar("backing up", quiet=as_json) as progress:
            done = await back_up(ports, target, progress=progress)
        dropped = await prune(target, keep) if keep is not None else 0
    _print(say, done.row() | {"dropped": dropped}, reports.backup(done, dropped), as_json=as_json)
    return _FOUND if done.findings else 0


async def restore_backup(
    flags: Flags,
    say: Say,
    *,
    place: Flags,
    ledger: str | None,
    number: int | None,
    as_json: bool,
) -> int:
    """Restore a backup into an empty store; 1 if something of it could not be."""
    async with (
        opened_store(flags, used=False) as (settings, ports),
        opened_backup(settings, ports.keys, place, "from") as source,
        opened_backup(settings, ports.keys, {**place, "place": ledger}, "ledger") as ledgers,
    ):
        with progress_bar("restoring", quiet=as_json) as progress:
            done = await restore(
                source, ports, number=number, ledgers=ledgers if ledger else None, progress=progress
            )
    _print(say, done.row(), reports.restoration(done), as_json=as_json)
    return _FOUND if done.findings else 0


async def _each(
    chosen: Sequence[Listed], work: Callable[[Listed], Awaitable[None]], title: str, say: Say
) -> int:
    """Do the work at every namespace that is live, and return the exit code: 1 if one could not be read."""
    code = 0
    with progress_bar(title) as progress:
        for done, listed in enumerate(chosen, 1):
            try:
                if listed.live:
                    await work(listed)
            except NamespaceClosed:
                pass
            except (CorruptNamespace, UpgradeRequired) as error:
                say(f"problem   {listed.pointer.name}: {error}")
                code = _FOUND
            progress(done, len(chosen))
    return code


async def _chosen(settings: RelayerSettings, ports: LogPorts, namespace: str | None) -> Sequence[Listed]:
    known = accounts_of(settings, ())
    catalogue = await read_catalogue(ports, known)
    return catalogue.namespaces if namespace is None else await _named(ports, namespace, known)


async def _named(ports: LogPorts, name: str, known: Sequence[str]) -> list[Listed]:
    found = (await read_catalogue(ports, known)).named(name)
    if not found:
        raise ConfigurationError(f"--namespace: this store has no namespace {name}")
    return found


def _print(say: Say, row: Mapping[str, object], text: str, *, as_json: bool) -> None:
    say(json.dumps(row, indent=2) if as_json else text)
