"""What the operator's commands do; `relayer.commands.operator` imports this when one is asked for.

Each returns the command's exit code: 0 all is well, 1 something was found that needs a person. Everything else is raised.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from relayer.commands.operator_inputs import (
    Flags,
    accounts_of,
    opened_backup,
    opened_store,
    parse_prices,
    read_secret,
    text_of,
)
from relayer.commands.progress import progress_bar
from relayer.config import RelayerSettings
from relayer.errors import ConfigurationError, CorruptNamespace, NamespaceClosed, UpgradeRequired
from relayer.log.collector import Collector, Stage
from relayer.log.log_ports import LogPorts
from relayer.operator import reports
from relayer.operator.backup import back_up, prune
from relayer.operator.catalogue import Listed, read_catalogue
from relayer.operator.compaction import compact_namespace
from relayer.operator.inspect import Lines, describe_key, describe_namespace
from relayer.operator.kinds import Kind, kind_of
from relayer.operator.repair import Repair, repair_namespace
from relayer.operator.restore import restore
from relayer.operator.stats import measure, parse_traffic
from relayer.operator.upgrade import upgrade_store
from relayer.operator.verify import StoreReport, verify_namespace, verify_store
from relayer.services.accounts import Accounts
from relayer.services.quotas import Quotas
from relayer.settings.quotas import read_quotas

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
