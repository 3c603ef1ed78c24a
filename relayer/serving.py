"""A relayer that listens: from taking the port to letting go of it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from time import perf_counter

from aiohttp import web

from relayer.bootstrap import STOP_SECONDS, build
from relayer.http.server import Door, RelayerServer
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
from relayer.settings.keys import require_relayer_key
from relayer.telemetry import log, loop_error, name_instance

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
    tls = tls_context(settings)
    listening = bind(settings)
    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        port = listening.getsockname()[1]
        key = require_relayer_key(settings, say)
        relayer = await stack.enter_async_context(build(settings, key, port=port))
        server = RelayerServer(relayer.handler)
        runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await Door(runner, listening, server, tls).start()
        url = url_of(settings, port)
        model = relayer.context.embedder.model.name
        spare_the_collector()
        take_turns()
        name_instance(f"{socket.gethostname()}:{port}")
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
