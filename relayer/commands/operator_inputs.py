"""What the operator's commands are given: a store, a backup, accounts, secrets, prices; parsed, opened or refused."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.config import RelayerSettings, load_settings
from relayer.crypto.relayer_keys import RelayerKeys
from relayer.errors import ConfigurationError
from relayer.log.log_ports import LogPorts
from relayer.observability import configure
from relayer.operator.backup_store import BackupStore
from relayer.operator.stats import Prices
from relayer.services.relayer_check import probe
from relayer.settings.relayer_key import find_relayer_key
from relayer.settings.store_address import objects_directory
from relayer.stores import layout_of, open_store, ports_over
from relayer.wire.errors import InvalidSecret
from relayer.wire.keys import is_account_id, parse_secret

__all__ = [
    "Flags",
    "accounts_of",
    "opened_backup",
    "opened_store",
    "parse_prices",
    "read_secret",
    "text_of",
]

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
