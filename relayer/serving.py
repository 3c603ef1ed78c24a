"""A relayer that listens: from taking the port to letting go of it; alone in its process, or as one of several workers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from aiohttp import web

from relayer.bootstrap import STOP_SECONDS, Relayer, build
from relayer.http.server import Door, RelayerServer
from relayer.ports import Embedder
from relayer.process import (
    bind,
    product_version,
    raise_descriptor_limit,
    ready_file,
    spare_the_collector,
    stop_event,
    stop_of_worker,
    take_turns,
    tls_context,
    url_of,
)
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import require_relayer_key
from relayer.telemetry import log, loop_error, name_instance
from relayer.worker_line import WorkerLine

Say = Callable[[str], None]


async def serve(settings: RelayerSettings, say: Say) -> None:
    """Run a relayer until SIGTERM or SIGINT; a second signal ends the process at once.

    Args:
        settings: checked.
        say: prints one line for people.

    Raises:
        ConfigurationError: the port is taken, a file is missing, or as `build`.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(loop_error)
    stop, began = stop_event(loop), perf_counter()
    raise_descriptor_limit()
    # Before the port is taken: whoever waits for it to answer should not wait for a mistake.
    tls_context(settings)
    listening = bind(settings)
    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        key = require_relayer_key(settings, say)
        relayer = await stack.enter_async_context(_answering(settings, listening, key))
        url = url_of(settings, listening.getsockname()[1])
        model = relayer.context.embedder.model.name
        name_instance(listening.getsockname()[1])
        log.info(
            "started",
            version=product_version(),
            url=url,
            store=relayer.context.ports.store.description,
            model=model,
            pid=os.getpid(),
        )
        say(
            f"memrelay {product_version()} serves {url}, store {relayer.context.ports.store.description}, model {model}"
        )
        if settings.ready_file is not None:
            stack.enter_context(ready_file(settings.ready_file, url))
        await stop.wait()
        relayer.readiness.drain()
        log.info("stopping", within_seconds=STOP_SECONDS)
    log.info("stopped", version=product_version(), served_seconds=round(perf_counter() - began, 1))


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker is started with; all of it was made before the fork.

    Attributes:
        settings: of the whole relayer.
        line: to the supervisor.
        listening: bound; the same for all workers.
        key: the relayer's.
        embedder: loaded; None where the settings name an endpoint.
    """

    settings: RelayerSettings
    line: WorkerLine
    listening: socket.socket
    key: bytes
    embedder: Embedder | None


async def work(start: Start) -> None:
    """Be one of a relayer's workers until SIGTERM, or until the supervisor is gone; raises as `build`."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(loop_error)
    stop, line = stop_of_worker(loop), start.line
    await line.open(stop)
    async with AsyncExitStack() as stack:
        if start.embedder is not None:
            stack.push_async_callback(start.embedder.close)
        settings = share_of(start.settings, line.seat.shared.workers)
        relayer = await stack.enter_async_context(
            _answering(settings, start.listening, start.key, line=line, embedder=start.embedder)
        )
        line.ready(store=relayer.context.ports.store.description, model=relayer.context.embedder.model.name)
        await stop.wait()
        relayer.readiness.drain()


def share_of(settings: RelayerSettings, workers: int) -> RelayerSettings:
    """Return the settings of one of so many workers: what bounds the relayer as a whole is divided, and rounded up.

    Rates, budgets of models and what was answered already the workers count together (`relayer.lib.shared`); quotas are
    kept in the store, which is one.
    """

    def share(most: int) -> int:
        return -(-most // workers)

    shares = {
        "cache_bytes": share(settings.cache_bytes),
        "connections": share(settings.connections),
        "connections_per_address": share(settings.most_per_address),
        "model_at_once": share(settings.model_at_once),
    }
    return settings.model_copy(update=shares)


@asynccontextmanager
async def _answering(
    settings: RelayerSettings,
    listening: socket.socket,
    key: bytes,
    *,
    line: WorkerLine | None = None,
    embedder: Embedder | None = None,
) -> AsyncIterator[Relayer]:
    """Put a relayer together that answers on a socket; in the end requests under way are finished."""
    async with AsyncExitStack() as stack:
        port = listening.getsockname()[1]
        relayer = await stack.enter_async_context(
            build(settings, key, port=port, embedder=embedder, line=line)
        )
        server = RelayerServer(relayer.handler)
        runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        seat = None if line is None else line.seat
        await Door(runner, listening, server, tls_context(settings), seat).start()
        spare_the_collector()
        take_turns()
        yield relayer
