"""The operator's commands of ``memrelay``: verify, repair, inspect, compact, stats, upgrade, backup, restore."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from relayer.commands.console import (
    ConfigOption,
    DataOption,
    EndpointOption,
    RegionOption,
    StoreOption,
    explained,
)

_Name = Annotated[str | None, typer.Option(help="Only namespaces of this name.")]
_Accounts = Annotated[
    list[str] | None, typer.Option("--account", help="Id of an account whose own object is lost.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, only say what would be done.")]
_BackupEndpoint = Annotated[
    str | None, typer.Option(help="URL of the backup's S3 server, when it is not the store's.")
]
_BackupRegion = Annotated[str | None, typer.Option(help="Region of the backup's bucket.")]

_PLACE_OPTIONS = {
    "data": DataOption,
    "store": StoreOption,
    "endpoint_url": EndpointOption,
    "region": RegionOption,
    "config": ConfigOption,
}
_Place = dict[str, object]
_P = ParamSpec("_P")

# What `relayer.commands.operator_work` has to do; the module is imported when a command runs.
_Work = Callable[[Any], Coroutine[Any, Any, int]]
_Run = Callable[[_Work], None]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""

    def run(work: _Work) -> None:
        with explained():
            from relayer.commands import operator_work  # noqa: PLC0415 - needs the extra's packages

            code = operator_work.run(work(operator_work))
        raise typer.Exit(code)

    _looking(app, run)
    _changing(app, run)
    _backups(app, run)


def _at_a_store(command: Callable[Concatenate[_Place, _P], None]) -> Callable[..., None]:
    """Give a command the options that name a store; it gets their values as its first argument.

    They stand where the command's own options begin.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    place = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in _PLACE_OPTIONS.items()
    ]
    parameters = sorted([*place, *own], key=lambda parameter: parameter.kind)

    def run(*arguments: _P.args, **options: _P.kwargs) -> None:
        command({name: options.pop(name) for name in _PLACE_OPTIONS}, *arguments, **options)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # What typer reads; a type checker knows no such attribute of a function.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def _looking(app: typer.Typer, run: _Run) -> None:
    @app.command()
    @_at_a_store
    def verify(
        place: _Place,
        *,
        namespace: _Name = None,
        accounts: _Accounts = None,
        agent_secret_file: Annotated[
            list[Path] | None,
            typer.Option(help="File with an agent's secret: opens what is sealed inside, too."),
        ] = None,
        as_json: _Json = False,
    ) -> None:
        """Look whether a store is what was written. Exit code 1: something is damaged or lost."""
        run(
            lambda commands: commands.verify(
                place,
                typer.echo,
                namespace=namespace,
                accounts=accounts or (),
                secret_files=agent_secret_file or (),
                as_json=as_json,
            )
        )

    @app.command()
    @_at_a_store
    def inspect(
        place: _Place,
        what: Annotated[str, typer.Argument(help="Name of a namespace, or key of an object.")],
        *,
        accounts: _Accounts = None,
        as_json: _Json = False,
    ) -> None:
        """Say what a namespace or an object is: sizes, times and counts, and nothing of what was said."""
        run(
            lambda commands: commands.inspect(
                place, typer.echo, what=what, accounts=accounts or (), as_json=as_json
            )
        )

    @app.command()
    @_at_a_store
    def stats(
        place: _Place,
        *,
        prices: Annotated[
            str | None,
            typer.Option(help="As in writes=5,reads=0.4,gib-month=0.023: per million, per million, per GiB."),
        ] = None,
        metrics: Annotated[
            str | None, typer.Option(help="File with a relayer's /metrics, or - : cost of its requests.")
        ] = None,
        as_json: _Json = False,
    ) -> None:
        """Count what a store holds, how much of it is garbage, and what it costs."""
        run(
            lambda commands: commands.stats(
                place, typer.echo, prices=prices, metrics=metrics, as_json=as_json
            )
        )


def _changing(app: typer.Typer, run: _Run) -> None:
    @app.command()
    @_at_a_store
    def repair(
        place: _Place,
        *,
        namespace: _Name = None,
        accounts: _Accounts = None,
        apply: _Apply = False,
        as_json: _Json = False,
    ) -> None:
        """Make damaged logs readable again, and say what is lost. Stop the relayers before --apply."""
        run(
            lambda commands: commands.repair(
                place,
                typer.echo,
                namespace=namespace,
                accounts=accounts or (),
                apply=apply,
                as_json=as_json,
            )
        )

    @app.command()
    @_at_a_store
    def compact(
        place: _Place,
        *,
        namespace: _Name = None,
        entries: Annotated[int, typer.Option(min=1, help="Leave a tail shorter than this alone.")] = 1,
    ) -> None:
        """Turn the newest entries of logs into segments now; relayers may run."""
        run(lambda commands: commands.compact(place, typer.echo, namespace=namespace, entries=entries))

    @app.command()
    @_at_a_store
    def collect(
        place: _Place,
        *,
        namespace: _Name = None,
        collect_after: Annotated[
            float | None, typer.Option(help="As the relayers of this store have it.")
        ] = None,
        commit_check: Annotated[
            str | None,
            typer.Option(help="As all relayers of this store have it: acknowledged memories depend on it."),
        ] = None,
    ) -> None:
        """Delete what was compacted or replaced, as far as its time has come; relayers may run."""
        more = {"collect_after": collect_after, "commit_check": commit_check}
        run(lambda commands: commands.collect({**place, **more}, typer.echo, namespace=namespace))

    @app.command()
    @_at_a_store
    def upgrade(
        place: _Place,
        *,
        apply: _Apply = False,
    ) -> None:
        """Let relayers of this version write what older ones do not understand; those refuse from then on."""
        run(lambda commands: commands.upgrade(place, typer.echo, apply=apply))


def _backups(app: typer.Typer, run: _Run) -> None:
    @app.command()
    @_at_a_store
    def backup(
        place: _Place,
        *,
        to: Annotated[str, typer.Option(help="Directory, or s3://BUCKET/PREFIX; of this store alone.")],
        to_endpoint_url: _BackupEndpoint = None,
        to_region: _BackupRegion = None,
        keep: Annotated[
            int | None, typer.Option(min=1, help="Destroy all but so many of the newest runs.")
        ] = None,
        as_json: _Json = False,
    ) -> None:
        """Copy what is new to a backup; relayers may run. Exit code 1: something could not be read."""
        target = {"place": to, "endpoint_url": to_endpoint_url, "region": to_region}
        run(lambda commands: commands.backup(place, typer.echo, place=target, keep=keep, as_json=as_json))

    @app.command()
    @_at_a_store
    def restore(
        place: _Place,
        *,
        source: Annotated[str, typer.Option("--from", help="Place that memrelay backup --to was given.")],
        from_endpoint_url: _BackupEndpoint = None,
        from_region: _BackupRegion = None,
        number: Annotated[int | None, typer.Option("--run", min=1, help="Default: the newest.")] = None,
        ledger: Annotated[
            str | None, typer.Option(help="Place of a newer backup, when --from is an old copy.")
        ] = None,
        as_json: _Json = False,
    ) -> None:
        """Bring an empty store to what a backup holds, less what was erased since."""
        origin = {"place": source, "endpoint_url": from_endpoint_url, "region": from_region}
        run(
            lambda commands: commands.restore_backup(
                place, typer.echo, place=origin, ledger=ledger, number=number, as_json=as_json
            )
        )
