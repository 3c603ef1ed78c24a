"""One directory store in two processes, asked in turn: what one was told, the other must know.

As a script it is one of the processes: it takes calls from standard input and answers on standard output, both pickled.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.ports import CreateOutcome, GetOutcome, ObjectInfo, SwapOutcome

_SIZE = struct.Struct("!Q")


class _Process:
    """The other process of a pair; calls of it are answered in the order in which they end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = iter(range(1 << 62))
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, folder: Path) -> _Process:
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, __file__, str(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )

    async def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        assert self._process.stdin
        data = pickle.dumps((number, method, arguments, named))
        self._process.stdin.write(_SIZE.pack(len(data)) + data)
        await self._process.stdin.drain()
        outcome = await answer
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout
        while head := await self._process.stdout.read(_SIZE.size):
            head += await self._process.stdout.readexactly(_SIZE.size - len(head))
            data = await self._process.stdout.readexactly(_SIZE.unpack(head)[0])
            number, outcome = pickle.loads(data)
            self._waiting.pop(number).set_result(outcome)


class TwoProcesses:
    """An `ObjectStore` whose calls go to one process and the other in turn."""

    def __init__(self, processes: list[_Process], folder: Path) -> None:
        self._next = cycle(processes)
        self.description = str(folder)

    async def get(self, key: str, **named: Any) -> GetOutcome:
        return await next(self._next).call("get", key, **named)

    async def create(self, key: str, data: bytes) -> CreateOutcome:
        return await next(self._next).call("create", key, data)

    async def swap(self, key: str, data: bytes, etag: str) -> SwapOutcome:
        return await next(self._next).call("swap", key, data, etag)

    async def delete(self, key: str) -> None:
        await next(self._next).call("delete", key)

    async def versions(self, key: str) -> int:
        return await next(self._next).call("versions", key)

    async def purge(self, key: str) -> int:
        return await next(self._next).call("purge", key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in await next(self._next).call("list", prefix):
            yield info

    async def close(self) -> None:
        """Its processes end with `two_processes`."""


@asynccontextmanager
async def two_processes(folder: Path) -> AsyncIterator[TwoProcesses]:
    """Start two processes over a directory, and end them."""
    processes = [await _Process.start(folder) for _ in range(2)]
    try:
        yield TwoProcesses(processes, folder)
    finally:
        for process in processes:
            await process.close()


async def _serve(folder: str) -> None:
    store = await DirectoryStore.open(folder, clock=SystemClock())
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    out = sys.stdout.buffer

    async def answer(number: int, method: str, arguments: Any, named: Any) -> None:
        outcome: Any
        try:
            if method == "list":
                outcome = [info async for info in store.list(*arguments)]
            else:
                outcome = await getattr(store, method)(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            outcome = error
        data = pickle.dumps((number, outcome))
        out.write(_SIZE.pack(len(data)) + data)
        out.flush()

    async with asyncio.TaskGroup() as group:
        while head := await reader.read(_SIZE.size):
            head += await reader.readexactly(_SIZE.size - len(head))
            call = pickle.loads(await reader.readexactly(_SIZE.unpack(head)[0]))
            group.create_task(answer(*call))
    await store.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
