"""A gateway's plugin in the test's own process over a real relayer, and what is at that relayer afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typed_commands import Done, machine, run_gateway

from gateway_plugin import MemoryPlugin
from gateway_plugin.turn.status import CaptureReport, Injection
from relayer.ports import ObjectStore
from relayer.testing.local_relayer import LocalRelayer, local_relayer, threaded_relayer

# A cold relayer on a busy machine may need more than a turn's two seconds; the deadline is not what is tested.
PATIENCE = 20.0


class PluginSite:
    """One gateway: its plugins, which share a secret and an outbox's folder, and its command line.

    Args:
        folder: everything it writes.
        url: the relayer.
        secret: the gateway's secret.
    """

    def __init__(self, folder: Path, url: str, secret: str) -> None:
        self.environment = machine(folder, url, secret)
        self._made: list[MemoryPlugin] = []

    def plugin(self, **settings: Any) -> MemoryPlugin:
        """Return a plugin with these settings; without any, as a host has it by default."""
        made = MemoryPlugin(settings=settings, environ=dict(self.environment))
        self._made.append(made)
        return made

    def command(self, *arguments: object) -> Done:
        """Type a command of `memrelay-gateway` that must do what it is told."""
        done = run_gateway(self.environment, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def json(self, *arguments: object) -> Any:
        """Type a command with ``--json`` and return what it prints."""
        return json.loads(self.command(*arguments, "--json").stdout)

    def memories(self, agent: str | None = None) -> list[Mapping[str, Any]]:
        """Return an agent's memories, newest first."""
        whose = ["--agent", agent] if agent else []
        listed: list[Mapping[str, Any]] = self.json("list", "--limit", "100", *whose)["memories"]
        return listed

    def texts(self, agent: str | None = None) -> list[str]:
        """Return what an agent's memories say, newest first."""
        return [str(memory["text"]) for memory in self.memories(agent)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for made in self._made:
            made.close()


@contextmanager
def own_relayer(*stores: ObjectStore, **options: Any) -> Iterator[LocalRelayer]:
    """Run a relayer for one test; arguments as `local_relayer` takes them."""
    with threaded_relayer(lambda: local_relayer(*stores, **options)) as relayer:
        yield relayer


def say(plugin: MemoryPlugin, *texts: str, key: str | None = None, answer: str = "Noted.") -> CaptureReport:
    """Say something in one turn, and have it delivered."""
    messages = [{"role": "user", "content": text} for text in texts]
    report = plugin.after_turn([*messages, {"role": "assistant", "content": answer}], session_key=key)
    assert plugin.flush(PATIENCE)
    return report


def recall(plugin: MemoryPlugin, prompt: str, **more: Any) -> Injection:
    """Ask what a turn would be given."""
    return plugin.before_turn(prompt, deadline=PATIENCE, **more)
