"""Settings as options of a command, generated from the settings' models, so that options need no list of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from relayer.commands.console import explained
from relayer.wire.amounts import show_bytes, show_seconds


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
    alone = typer.Typer(add_completion=False)
    alone.command(help=command.__doc__)(_taking(command, [*own, *_parameters(names)]))
    return typer.main.get_command(alone)


def _taking(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return ``command`` as a function with these parameters that reports its errors as `explained` does."""

    @explained()
    def run(**values: object) -> None:
        command(**values)

    # typer reads this attribute; it is set through `vars`, because type checkers do not know it.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


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
