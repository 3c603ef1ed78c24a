"""The end of an aiohttp server in a test."""

from __future__ import annotations

from aiohttp import web


async def end_runner(runner: web.AppRunner) -> None:
    """Stop a server and break off what is left of its connections.

    aiohttp leaves open what it has not yet sent, and what it accepted while it closed. Such a socket outlives the loop, and the
    warning about it fails whichever test runs when it is collected.
    """
    server = runner.server
    assert server is not None
    transports = [connection.transport for connection in server.connections]
    await runner.cleanup()
    for transport in (*transports, *(connection.transport for connection in server.connections)):
        if transport is not None:
            transport.abort()
