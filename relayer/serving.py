"""Running a relayer in this process, from binding its port to the shutdown.

`serve` binds the port, builds the relayer with `relayer.bootstrap.build`, listens, and announces that it is ready. It returns
after a signal, when the requests in progress have been finished.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter

from aiohttp import web

from relayer.bootstrap import STOP_SECONDS, Relayer, build
from relayer.http.server import Listener, RelayerServer
from relayer.process import (
    bind,
    product_version,
    raise_descriptor_limit,
    ready_file,
    spare_the_collector,
    stop_event,
    take_turns,
    tls_context,
    url_of,
)
from relayer.settings.config import RelayerSettings
from relayer.settings.keys import RelayerKey, require_relayer_key
from relayer.telemetry import log, loop_error, name_instance

Say = Callable[[str], None]


async def serve(settings: RelayerSettings, say: Say) -> None:
    """Run a relayer until SIGTERM or SIGINT; a second signal ends the process immediately.

    Raises:
        ConfigurationError: the port is taken, a file is missing, or as `build`.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(loop_error)
    stop, began = stop_event(loop), perf_counter()
    raise_descriptor_limit()
    # The certificate is checked before the port is bound, so that clients do not wait for a relayer that cannot start.
    tls_context(settings)
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(bind(settings))
        watched = [stack.enter_context(bind(settings, monitoring=True))] if settings.monitoring_port else []
        key = require_relayer_key(settings, say)
        relayer = await stack.enter_async_context(_answering(settings, [listening, *watched], key))
        url = url_of(settings, listening.getsockname()[1])
        model = relayer.context.embedder.model.name
        name_instance(listening.getsockname()[1], shared=settings.reuse_port)
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


@asynccontextmanager
async def _answering(
    settings: RelayerSettings, sockets: Sequence[socket.socket], key: RelayerKey
) -> AsyncIterator[Relayer]:
    """Build a relayer and serve requests on sockets, the first of which is its address, while the block runs.

    At the end, requests in progress are finished.
    """
    async with AsyncExitStack() as stack:
        port = sockets[0].getsockname()[1]
        relayer = await stack.enter_async_context(build(settings, key, port=port))
        server = RelayerServer(relayer.handler)
        runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        for listening in sockets:
            await Listener(runner, listening, server, tls_context(settings)).start()
        spare_the_collector()
        take_turns()
        yield relayer
