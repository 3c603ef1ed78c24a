"""The shape of the code: lines and modules per floor, files on the paths that matter, detours; `make shape` prints it.

The paths are counted by running them: a relayer and a plugin work in this process, each on threads of their own, and the
interpreter tells of every call. Nothing here is a test: it is looked at when a change is read.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import secrets
import socket
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self

import structlog
from aiohttp import web
from rich.console import Console
from rich.table import Table

from gateway_plugin import MemoryPlugin
from relayer.bootstrap import build
from relayer.http.server import Listener, RelayerServer
from relayer.settings.config import RelayerSettings

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("relayer", "gateway_plugin")
SMALL = 80
_HERE = f"{ROOT}/"
_BESIDE = "relayer/lib/scheduler.py:"  # maintenance, which has its turn whenever a path leaves one


@dataclass(slots=True)
class Road:
    """What one use case ran through: files in the order of their first call, and how often it went back."""

    files: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    returns: int = 0
    detours: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, chain: tuple[str, ...], before: str | None) -> None:
        """Count a call: ``chain`` holds the callers that are ours, outermost first, and then the called function."""
        file = _file(chain[-1])
        if file != before:
            self.changes += 1
            self.returns += file in self.files
        self.files[file] = self.files.get(file, 0) + 1
        for start in range(len(chain) - 2, -1, -1):
            if _file(chain[start]) == file:
                through = chain[start:]
                if len({_file(one) for one in through}) > 1:
                    self.detours[through] += 1
                return


def _file(function: str) -> str:
    return function.partition(":")[0]


class Recorder:
    """Follows calls on all threads while a path is being recorded; the plugin's threads and the relayer's apart."""

    def __init__(self) -> None:
        self._last: dict[int, str] = {}
        self.plugin, self.relayer = Road(), Road()
        self.on = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.on or event != "call":
            return
        name = _ours(frame)
        if name is None:
            return
        chain = [name]
        caller = frame.f_back
        while caller is not None:
            one = _ours(caller)
            if one is not None:
                chain.append(one)
            caller = caller.f_back
        if chain[-1].startswith(_BESIDE):
            return
        thread = threading.get_ident()
        at_plugin = chain[-1].startswith("gateway_plugin/") or _of_plugin(threading.current_thread().name)
        path = self.plugin if at_plugin else self.relayer
        path.add(tuple(reversed(chain)), self._last.get(thread))
        self._last[thread] = _file(name)

    @contextmanager
    def recording(self) -> Iterator[tuple[Road, Road]]:
        """Record what runs in the block; gives the plugin's and the relayer's path."""
        self.plugin, self.relayer, self._last = Road(), Road(), {}
        self.on = True
        try:
            yield self.plugin, self.relayer
        finally:
            self.on = False


def _of_plugin(thread: str) -> bool:
    return thread == "MainThread" or thread.startswith("memrelay-")


def _ours(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    if not name.startswith(_HERE):
        return None
    file = name[len(_HERE) :]
    return f"{file}:{frame.f_code.co_name}" if file.startswith(PACKAGES) else None


class _Relayer:
    """A relayer over a directory, on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(),), name="relayer"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(60):
            raise RuntimeError("the relayer did not start in a minute")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        port = self._listening.getsockname()[1]
        settings = RelayerSettings(data=self._folder, port=port, accounts="open")
        async with AsyncExitStack() as stack:
            relayer = await stack.enter_async_context(build(settings, secrets.token_bytes(32), port=port))
            server = RelayerServer(relayer.handler)
            runner = web.ServerRunner(server)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await Listener(runner, self._listening, server).start()
            self._ready.set()
            await self._stop.wait()


def paths() -> dict[str, Road]:
    """Run recall, remember, before_turn and after_turn warm, and return what each ran through."""
    recorder = Recorder()
    found: dict[str, Road] = {}
    threading.setprofile(recorder)
    with tempfile.TemporaryDirectory(prefix="memrelay-shape-") as folder:
        with (
            _Relayer(Path(folder) / "data") as relayer,
            MemoryPlugin(relayer.url, agent="shape", environ={"HOME": folder}) as plugin,
        ):
            sys.setprofile(recorder)
            _turn(plugin, "I keep bees on the roof of the town hall.")
            plugin.before_turn("Where do I keep my bees?")
            with recorder.recording() as (of_plugin, of_relayer):
                plugin.before_turn("What is on the roof of the town hall?")
            found["before_turn"], found["recall"] = of_plugin, of_relayer
            with recorder.recording() as (_, of_relayer):
                plugin.tool("memory_store", {"text": "The heating is serviced by Kowalski every October."})
            found["remember"] = of_relayer
            with recorder.recording() as (of_plugin, of_relayer):
                _turn(plugin, "My sister Clara moved to Porto in March.")
            found["after_turn"], found["capture"] = of_plugin, of_relayer
            sys.setprofile(None)
        threading.setprofile(None)
    return found


def _turn(plugin: MemoryPlugin, text: str) -> None:
    plugin.after_turn([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}])
    plugin.flush()


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the two packages."""

    name: str
    lines: int
    importers: int

    @property
    def floor(self) -> str:
        """The package it lies in, or the root of its distribution."""
        first, _, rest = self.name.partition(".")
        return f"{first}.{rest.partition('.')[0]}" if "." in rest else first


def modules() -> list[Module]:
    """Count lines and importers of every module that is not a bare package."""
    files = {_dotted(file): file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for target in _imported(node):
                if target in files and target != name:
                    importers[target].add(name)
    sizes = {name: len(file.read_text("utf-8").splitlines()) for name, file in files.items()}
    return [Module(name, size, len(importers[name])) for name, size in sizes.items()]


def _dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def main() -> None:
    """Print everything."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    console = Console(width=150)
    found = modules()
    floors = Table("floor", "modules", "lines", title="Lines and modules per floor")
    for column in floors.columns[1:]:
        column.justify = "right"
    for floor in sorted({module.floor for module in found}):
        there = [module for module in found if module.floor == floor]
        floors.add_row(floor, str(len(there)), f"{sum(module.lines for module in there):,}")
    floors.add_section()
    floors.add_row("all", str(len(found)), f"{sum(module.lines for module in found):,}")
    console.print(floors)
    single = sorted(
        (one for one in found if one.importers == 1 and 3 < one.lines < SMALL), key=lambda one: one.name
    )
    console.print(f"\n{len(single)} modules under {SMALL} lines have one importer:")
    console.print(", ".join(f"{one.name} ({one.lines})" for one in single), "\n")
    roads = paths()
    table = Table(
        "path",
        "files",
        "changes of file",
        "back to one visited",
        title="Paths, warm, counted by running them",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, road in roads.items():
        table.add_row(name, str(len(road.files)), str(road.changes), str(road.returns))
    console.print(table)
    console.print("\nThe longest detours: calls that leave a file and come back to it")
    detours = {chain: name for name, road in roads.items() for chain in road.detours}
    for chain in sorted(detours, key=lambda one: (-len(one), one))[:10]:
        console.print(f"  {detours[chain]}, {len(chain)} calls: " + " > ".join(chain), highlight=False)


if __name__ == "__main__":
    main()
