"""The operator's commands of ``memrelay``, as they are declared; `relayer.commands.operator_work` does them.

A command's options are its function's parameters, and its help is the function's first line. Each takes those of a store, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer

from relayer.commands.options import settings_command
from relayer.wire.command_line import JsonOption, span

_Name = Annotated[str | None, typer.Option(help="Only namespaces of this name.")]
_Accounts = Annotated[
    list[str] | None, typer.Option("--account", help="Id of an account whose own object is lost.")
]
_Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, only say what would be done.")]
_BACKUP_ENDPOINT = "URL of the backup's S3 server, when it is not the store's."
_BACKUP_REGION = "Region of the backup's bucket."
_BackupEndpoint = Annotated[str | None, typer.Option(help=_BACKUP_ENDPOINT)]
_BackupRegion = Annotated[str | None, typer.Option(help=_BACKUP_REGION)]

# The settings that name a store.
PLACE = ("data", "store", "endpoint_url", "region", "config")


def verify(
    *,
    namespace: _Name = None,
    accounts: _Accounts = None,
    agent_secret_file: Annotated[
        list[Path] | None, typer.Option(help="File with an agent's secret: opens what is sealed inside, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look whether a store is what was written. Exit code 1: something is damaged or lost.

    Example: memrelay verify --namespace researcher
    """


def inspect(
    what: Annotated[str, typer.Argument(help="Name of a namespace, or key of an object.")],
    *,
    accounts: _Accounts = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a namespace or an object is: sizes, times and counts, and nothing of what was said.

    Example: memrelay inspect researcher
    """


def stats(
    *,
    prices: Annotated[
        str | None,
        typer.Option(help="As in writes=5,reads=0.4,gib-month=0.023: per million, per million, per GiB."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="File with a relayer's /metrics, or - : cost of its requests.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count what a store holds, how much of it is garbage, and what it costs.

    Example: memrelay stats --prices writes=5,reads=0.4,gib-month=0.023
    """


def repair(
    *, namespace: _Name = None, accounts: _Accounts = None, apply: _Apply = False, as_json: JsonOption = False
) -> None:
    """Make damaged logs readable again, and say what is lost. Stop the relayers before --apply.

    Example: memrelay repair --namespace researcher

    Example: memrelay repair --apply
    """


def compact(
    *,
    namespace: _Name = None,
    entries: Annotated[int, typer.Option(min=1, help="Leave a tail shorter than this alone.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Turn the newest entries of logs into segments now; relayers may run.

    Example: memrelay compact --entries 16
    """


def collect(
    *,
    namespace: _Name = None,
    collect_after: Annotated[
        str | None, typer.Option(metavar="SECONDS|12h", help="As the relayers of this store have it.")
    ] = None,
    commit_check: Annotated[
        str | None,
        typer.Option(help="As all relayers of this store have it: acknowledged memories depend on it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Delete what was compacted or replaced, as far as its time has come; relayers may run.

    Example: memrelay collect --collect-after 1h
    """


def backup(
    *,
    to: Annotated[
        str,
        typer.Option(
            envvar="MEMRELAY_BACKUP_TO", help="Directory, or s3://BUCKET/PREFIX; of this store alone."
        ),
    ],
    to_endpoint_url: Annotated[
        str | None, typer.Option(envvar="MEMRELAY_BACKUP_ENDPOINT_URL", help=_BACKUP_ENDPOINT)
    ] = None,
    to_region: Annotated[
        str | None, typer.Option(envvar="MEMRELAY_BACKUP_REGION", help=_BACKUP_REGION)
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="Destroy all but so many of the newest runs.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            parser=span("--every", least=1),
            metavar="SECONDS|12h",
            help="Go on until SIGTERM, with so long between the ends and beginnings of backups; said in the log.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy what is new to a backup; relayers may run. Exit code 1: something could not be read.

    Example: memrelay backup --to /backup/memrelay --keep 7

    Example: memrelay backup --to s3://backups/team --every 1d
    """


def restore(
    *,
    source: Annotated[str, typer.Option("--from", help="Place that memrelay backup --to was given.")],
    from_endpoint_url: _BackupEndpoint = None,
    from_region: _BackupRegion = None,
    number: Annotated[int | None, typer.Option("--run", min=1, help="Default: the newest.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Place of a newer backup, when --from is an old copy.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring an empty store to what a backup holds, less what was erased since.

    Example: memrelay restore --from /backup/memrelay --data ~/restored
    """


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for declared in (verify, inspect, stats, repair, compact, collect, backup, restore):
        settings_command(app, *PLACE)(done(declared))


def done(declared: Callable[..., None], name: str = "") -> Callable[..., None]:
    """Return the command that has what was declared done; ``name`` is what `operator_work` has it under, if not the function's."""

    @wraps(declared)
    def run(**options: object) -> None:
        from relayer.commands import operator_work  # noqa: PLC0415 - needs the extra's packages

        raise typer.Exit(operator_work.run(name or declared.__name__, options))

    return run
