"""What the operator's commands do; `relayer.operator_cli` imports this when one is asked for.

Each returns the command's exit code: 0 all is well, 1 something was found that needs a person. Everything else is raised.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.bootstrap import layout_of, open_store
from relayer.config import RelayerSettings, load_settings
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.errors import ConfigurationError, CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.log.collector import Collector, Stage
from relayer.log.log_ports import TRUST_MS, LogPorts
from relayer.observability import configure
from relayer.operator import reports
from relayer.operator.backup import back_up, prune
from relayer.operator.backup_store import BackupStore
from relayer.operator.catalogue import Listed, read_catalogue
from relayer.operator.compaction import compact_namespace
from relayer.operator.inspect import Lines, describe_key, describe_namespace
from relayer.operator.kinds import Kind, kind_of
from relayer.operator.repair import Repair, repair_namespace
from relayer.operator.restore import restore
from relayer.operator.stats import Prices, measure, parse_traffic
from relayer.operator.upgrade import upgrade_store
from relayer.operator.verify import StoreReport, verify_namespace, verify_store
from relayer.operator_progress import progress_bar
from relayer.relayer_key import find_relayer_key
from relayer.services.relayer_check import probe
from relayer.wire.errors import InvalidSecret
from relayer.wire.keys import is_account_id, parse_secret

if sys.platform == "win32":
    run = asyncio.run
else:
    from uvloop import run

__all__ = [
    "backup",
    "collect",
    "compact",
    "inspect",
    "repair",
    "restore_backup",
    "run",
    "stats",
    "upgrade",
    "verify",
]

Say = Callable[[str], None]
Flags = Mapping[str, object]
_FOUND = 1
# What ``memrelay-gateway keys export`` prints.
_EXPORTED = "MEMRELAY_AGENT_SECRET="
_PLACE_FLAGS = ("data", "store", "endpoint_url", "region", "config", "collect_after", "commit_check")


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
    secrets = [_secret(file) for file in secret_files]
    async with _opened(flags) as (settings, ports):
        known = _accounts(settings, accounts)
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
    async with _opened(flags) as (settings, ports):
        known = _accounts(settings, accounts)
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
        "namespaces": [reports.repair_row(item) for item in needed],
        "findings": [finding.row() for finding in beyond],
    }
    _print(say, row, reports.repairs(needed, beyond, apply=apply), as_json=as_json)
    hopeless = any(item.hopeless or not item.done for item in needed)
    return _FOUND if hopeless or beyond else 0


async def inspect(flags: Flags, say: Say, *, what: str, accounts: Sequence[str], as_json: bool) -> int:
    """Print what a namespace or an object is."""
    async with _opened(flags) as (settings, ports):
        catalogue = await read_catalogue(ports, _accounts(settings, accounts))
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
    table = _prices(prices)
    traffic = parse_traffic(_text_of(metrics)) if metrics is not None else None
    async with _opened(flags) as (settings, ports):
        measured = await measure(ports, tuple(_accounts(settings, ())))
    row = measured.row() | {"cost": reports.cost_row(measured, table, traffic)}
    _print(say, row, reports.stats(measured, table, traffic), as_json=as_json)
    return 0


async def compact(flags: Flags, say: Say, *, namespace: str | None, entries: int) -> int:
    """Compact namespaces and print what was written; 1 if one could not be."""
    code = 0
    async with _opened(flags) as (settings, ports):
        known = _accounts(settings, ())
        catalogue = await read_catalogue(ports, known)
        chosen = catalogue.namespaces if namespace is None else await _named(ports, namespace, known)
        made = written = 0
        with progress_bar("compacting") as progress:
            for done, listed in enumerate(chosen, 1):
                try:
                    if listed.live:
                        compacted = await compact_namespace(ports, listed, entries=entries)
                        made, written = made + compacted.segments, written + compacted.written
                except NamespaceClosed:
                    pass
                except (CorruptNamespace, UpgradeRequired) as error:
                    say(f"problem   {listed.pointer.name}: {error}")
                    code = _FOUND
                progress(done, len(chosen))
    say(f"result    {made} segments made in {len(chosen)} namespaces, {written:,} bytes written")
    return code


async def collect(flags: Flags, say: Say, *, namespace: str | None) -> int:
    """Delete what segments cover, as far as its time has come, and print what was deleted; 1 if one could not be read."""
    code, slots, objects, waiting = 0, 0, 0, 0
    async with _opened(flags) as (settings, ports):
        known = _accounts(settings, ())
        catalogue = await read_catalogue(ports, known)
        chosen = catalogue.namespaces if namespace is None else await _named(ports, namespace, known)
        with progress_bar("collecting") as progress:
            for done, listed in enumerate(chosen, 1):
                try:
                    if listed.live:
                        collector = Collector(
                            ports, listed.account, listed.incarnation, int(settings.collect_after * 1000)
                        )
                        collected = await collector.tidy()
                        slots, objects = slots + collected.slots, objects + collected.objects
                        waiting += collected.stage is Stage.WAIT
                except NamespaceClosed:
                    pass
                except (CorruptNamespace, UpgradeRequired) as error:
                    say(f"problem   {listed.pointer.name}: {error}")
                    code = _FOUND
                progress(done, len(chosen))
    say(f"deleted   {slots} entries that segments hold, {objects} objects that no manifest names")
    if waiting:
        say(
            f"waiting   {waiting} namespaces: what they have to delete may be read until {settings.collect_after:.0f} s after "
            "it was given up; run this again then, relayers do it by themselves"
        )
    return code


async def upgrade(flags: Flags, say: Say, *, apply: bool) -> int:
    """Raise the format of manifests; 1 if one could not be read."""
    async with _opened(flags) as (_, ports):
        with progress_bar("upgrading") as progress:
            done = await upgrade_store(ports, apply=apply, progress=progress)
    for line in reports.upgrade(done, apply=apply):
        say(line)
    return _FOUND if done.findings else 0


async def backup(flags: Flags, say: Say, *, place: Flags, keep: int | None, as_json: bool) -> int:
    """Back a store up; 1 if something of it could not be."""
    async with _opened(flags) as (settings, ports), _backup_at(settings, ports.keys, place, "to") as target:
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
        _opened(flags, used=False) as (settings, ports),
        _backup_at(settings, ports.keys, place, "from") as source,
        _backup_at(settings, ports.keys, {**place, "place": ledger}, "ledger") as ledgers,
    ):
        with progress_bar("restoring", quiet=as_json) as progress:
            done = await restore(
                source, ports, number=number, ledgers=ledgers if ledger else None, progress=progress
            )
    _print(say, done.row(), reports.restoration(done), as_json=as_json)
    return _FOUND if done.findings else 0


@asynccontextmanager
async def _opened(flags: Flags, *, used: bool = True) -> AsyncIterator[tuple[RelayerSettings, LogPorts]]:
    """Open the store of the settings; ``used``: it must be one that a relayer has used."""
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
        trust_ms = 0 if settings.commit_check == "always" else TRUST_MS
        keys = RelayerKeys.derive(key)
        ports = LogPorts(store, clock, SystemRandomness(), keys, layout_of(settings), trust_ms)
        if used:
            await probe(ports)
        yield settings, ports
    finally:
        await store.close()


@asynccontextmanager
async def _backup_at(
    settings: RelayerSettings, keys: RelayerKeys, place: Flags, option: str
) -> AsyncIterator[BackupStore]:
    """Open a backup: a directory or ``s3://``, at the endpoint of the store itself unless another is named."""
    named = str(place.get("place") or "")
    bucket = named.startswith("s3://")
    if option == "from" and not bucket and not _is_store(Path(named)):
        raise ConfigurationError(f"--from: there is no backup in {named}")
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


def _is_store(directory: Path) -> bool:
    return (directory.expanduser() / "objects").is_dir()


async def _named(ports: LogPorts, name: str, known: Sequence[str]) -> list[Listed]:
    found = (await read_catalogue(ports, known)).named(name)
    if not found:
        raise ConfigurationError(f"--namespace: this store has no namespace {name}")
    return found


def _accounts(settings: RelayerSettings, given: Sequence[str]) -> list[str]:
    for account in given:
        if not is_account_id(account):
            raise ConfigurationError(
                f"--account: {account} is no account id: 0x and 64 lower-case hex digits"
            )
    return [*given, *(settings.served or ())]


def _secret(file: Path) -> bytes:
    try:
        path = file.expanduser()
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigurationError(f"--agent-secret-file: others can read it: chmod 600 {file}")
        lines = path.read_text("ascii").splitlines()
        exported = [line.removeprefix(_EXPORTED) for line in lines if line.startswith(_EXPORTED)]
        return parse_secret((exported or lines or [""])[0], source=f"--agent-secret-file {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--agent-secret-file: {file} cannot be read") from error
    except InvalidSecret as error:
        raise ConfigurationError(str(error)) from error


def _prices(given: str | None) -> Prices:
    usual = Prices()
    names = {"writes": usual.writes, "reads": usual.reads, "gib-month": usual.gib_month}
    for part in (given or "").split(","):
        name, _, value = part.partition("=")
        if not part:
            continue
        try:
            names[name.strip()] = float(value) if name.strip() in names else names[name]
        except (KeyError, ValueError) as error:
            raise ConfigurationError(
                "--prices: write as in writes=5,reads=0.4,gib-month=0.023: per million writes, per million reads, per GiB "
                "and month"
            ) from error
    return Prices(names["writes"], names["reads"], names["gib-month"])


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--metrics: {file} cannot be read") from error


def _print(say: Say, row: Mapping[str, object], text: str, *, as_json: bool) -> None:
    say(json.dumps(row, indent=2) if as_json else text)
