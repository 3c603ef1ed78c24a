"""The bridge as a process: standard input and output belong to the protocol, and everything else goes to standard error."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from gateway_plugin.bridge.server import BridgeServer, Host

__all__ = ["run_bridge"]


def run_bridge(host: Host) -> None:
    """Serve a host until it closes its side or this process is told to end."""
    # Whatever a library prints must not get among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    asyncio.run(_serve(host, answers))


async def _serve(host: Host, answers: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), sys.stdin.buffer
    )
    outgoing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(answers, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(outgoing, protocol, None, loop)

    async def write(line: bytes) -> None:
        # A host that is gone reads nothing; the end of its input tells us so.
        if not outgoing.is_closing():
            writer.write(line)
            await writer.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        # Closing our end of the input reads as the host's closing it.
        loop.add_signal_handler(number, incoming.close)
    try:
        await BridgeServer(host, reader.read, write).serve()
    finally:
        incoming.close()
        outgoing.close()
