"""Commands whose functions are imported when they run: their options, the errors that they report, and the operator's list.

A function of a command needs the packages of the extra, and a second to be imported, so `deferred_command` imports it when the
command is run or asked for help; ``memrelay --help`` does not need it. Settings become options, generated from the settings'
models, so that they need no list of their own. A failing command prints one sentence, and its exit code says what kind of
failure it is (`explained`). The operator's commands are functions in `operator_work`, those of ``memrelay account`` in
`account_work`; `register` lists them with their summaries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from relayer.errors import KeyProviderUnavailable, RelayerError, StoreUnavailable
from relayer.wire.amounts import show_bytes, show_seconds
from relayer.wire.command_line import STOPPED, UNREACHABLE, USAGE, fail

EXTRA = "pip install '.[relayer]' in a clone of memrelay"
_EXTRA_PACKAGES = frozenset(
    {
        "aiohttp",
        "boto3",
        "botocore",
        "msgspec",
        "numpy",
        "onnxruntime",
        "prometheus_client",
        "pydantic_settings",
        "structlog",
        "usearch",
        "uvloop",
    }
)


@contextmanager
def explained() -> Iterator[None]:
    """Convert errors in the block, and packages that are not installed, to a message and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA_PACKAGES:
            raise
        fail(USAGE, f"{error.name} is not installed; a relayer needs more than the plugin: {EXTRA}")
    except (StoreUnavailable, KeyProviderUnavailable) as error:
        fail(UNREACHABLE, str(error))
    except RelayerError as error:
        fail(USAGE, str(error))
    except KeyboardInterrupt:
        fail(STOPPED, "stopped; it is safe to run it again, and it continues where possible")


def deferred_command(
    app: typer.Typer, where: str, summary: str, settings: Collection[str] | None = (), *, name: str = ""
) -> None:
    """Add a command that takes settings as options, in addition to its own ones; None for all that can be options.

    The command gets them as keyword arguments, None for settings that are not given. Its function and the settings' models need
    the packages of the extra, so both are imported when the command is run or asked for help. ``where`` is
    ``package.module:function``, and ``summary`` the first line of the function's docstring.
    """
    module, _, function = where.partition(":")

    class Command(TyperCommand):
        """The command in the list of commands. Parsing, help and running are delegated to the command with the settings."""

        @cached_property
        def whole(self) -> Any:
            with explained():
                whole = _command(getattr(import_module(module), function), settings)
            self.help = whole.help
            return whole

        def get_params(self, ctx: Any) -> list[Any]:
            return list(self.whole.get_params(ctx))

        def invoke(self, ctx: Any) -> Any:
            return self.whole.invoke(ctx)

    def listed() -> None:
        """Represent the command in the list of commands."""

    app.command(name or function, help=summary, cls=Command)(listed)


def _command(command: Callable[..., None], names: Collection[str] | None) -> Any:
    written = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter for parameter in written if parameter.kind is not inspect.Parameter.VAR_KEYWORD]

    @explained()
    def run(**values: object) -> None:
        command(**values)

    # typer reads this attribute; it is set through `vars`, because type checkers do not know it.
    vars(run)["__signature__"] = inspect.Signature([*own, *_parameters(names)])
    alone = typer.Typer(add_completion=False)
    alone.command(help=command.__doc__)(run)
    return typer.main.get_command(alone)


def _parameters(names: Collection[str] | None) -> Iterator[inspect.Parameter]:
    from relayer.settings.config import GROUPS, SECONDS, SIZE  # noqa: PLC0415 - needs the extra's packages

    amounts = {SECONDS: ("SECONDS|12h", show_seconds), SIZE: ("BYTES|512M", show_bytes)}

    for group in GROUPS:
        for name, field in group.model_fields.items():
            if field.description is None or (names is not None and name not in names):
                continue
            amount = next((amounts[mark] for mark in field.metadata if mark in amounts), None)
            metavar, show = amount or (_choices(field.annotation), _shown)
            option = typer.Option(
                f"--{name.replace('_', '-')}",
                help=field.description + ("" if field.default_factory else _default(field.default, show)),
                metavar=metavar,
                rich_help_panel=inspect.cleandoc(group.__doc__ or "").rstrip("."),
            )
            # Values with a unit are parsed when the settings are validated.
            kind = str if amount else _kind(field.annotation)
            yield inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )


def _kind(annotation: Any) -> Any:
    return next((kind for kind in (bool, int, float, Path) if annotation in (kind, kind | None)), str)


def _choices(annotation: Any) -> str | None:
    """Return the values of a setting that has a fixed set of them, for the help."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is Literal and len(get_args(part)) > 1:
            return "|".join(get_args(part))
    return None


def _default(value: Any, show: Callable[[Any], str]) -> str:
    """Return the default value for the help; "" if the description explains what happens without the setting."""
    if value is None or value is False or value == ():
        return ""
    return f" Default: {show(value)}."


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# The settings that name a store.
STORE_SETTINGS = ("data", "store", "endpoint_url", "region", "config")
# The settings on which it depends when an object may be deleted.
GRACE_SETTINGS = ("collect_after", "commit_check")
_COMMANDS = {
    "verify": "Check the integrity of a store. Exit code 1: objects are damaged or missing.",
    "inspect": "Show sizes, times and counts of a namespace or an object, without its contents.",
    "stats": "Count the objects of a store and its garbage.",
    "repair": "Repair damaged logs and report losses. Stop the relayers before --apply.",
    "compact": "Compact the newest entries of logs into segments; relayers may be running.",
    "collect": "Delete compacted and replaced objects whose grace period is over; relayers may be running.",
    "backup": "Copy new objects to a backup; relayers may be running. Exit code 1: some objects could not be read.",
    "restore": "Restore a backup into an empty store, without memories that were erased since.",
}
_ACCOUNT_COMMANDS = {
    "list_accounts": "List the accounts of a store: what they store, their own limits, and whether they are revoked.",
    "limits": "Set an account's own limits, or show them; relayers apply them within 15 seconds.",
    "revoke": "Refuse all requests of an account until it is undone; running relayers do so within 15 seconds.",
    "export": "Write to a file what this store can show of an account without the keys of its agents.",
    "erase": "Revoke an account and erase all of its namespaces, permanently. Run it again after an interruption.",
}
# Functions that derive the id under which a front stores an account from the id that its clients know, as
# ``package.module:function``. Fronts add theirs when they register their commands.
DERIVED_ACCOUNT_IDS: list[str] = []


def account_commands(app: typer.Typer) -> typer.Typer:
    """Return the group of commands ``memrelay account`` of an application. A front may add commands to it, or replace some."""
    for group in app.registered_groups:
        if group.name == "account" and group.typer_instance is not None:
            return group.typer_instance
    accounts = typer.Typer(no_args_is_help=True, help="Look after the accounts of a store.")
    app.add_typer(accounts, name="account")
    return accounts


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for name, summary in _COMMANDS.items():
        more = GRACE_SETTINGS if name == "collect" else ()
        deferred_command(app, f"relayer.commands.operator_work:{name}", summary, STORE_SETTINGS + more)
    accounts = account_commands(app)
    for function, summary in _ACCOUNT_COMMANDS.items():
        where, name = f"relayer.commands.account_work:{function}", function.removesuffix("_accounts")
        more = GRACE_SETTINGS if function == "erase" else ()
        deferred_command(accounts, where, summary, STORE_SETTINGS + more, name=name)
