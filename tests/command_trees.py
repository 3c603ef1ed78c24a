"""Every command of `memrelay` and `memrelay-gateway`, as its program declares it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from gateway_plugin.cli import app as gateway_app
from relayer.cli import app as relayer_app

APPS = {"memrelay": relayer_app, "memrelay-gateway": gateway_app}


@dataclass(frozen=True)
class Declared:
    """A command as it is typed, and as typer has it."""

    typed: str
    command: Any

    def parameters(self) -> list[Any]:
        """Return its options and arguments."""
        context = self.command.make_context(self.typed, [], resilient_parsing=True)
        return list(self.command.get_params(context))

    def options(self) -> dict[str, Any]:
        """Return its options by each of their names."""
        return {
            name: one
            for one in self.parameters()
            if one.param_type_name == "option"
            for name in (*one.opts, *one.secondary_opts)
        }


def declared() -> list[Declared]:
    """Return every command of both programs, hidden ones too; a group that runs by itself is one."""
    return [one for program, app in APPS.items() for one in _below(program, typer.main.get_command(app))]


def _below(typed: str, command: Any) -> Iterator[Declared]:
    inner = getattr(command, "commands", None)
    if inner is None or command.invoke_without_command:
        yield Declared(typed, command)
    for name, one in (inner or {}).items():
        yield from _below(f"{typed} {name}", one)
