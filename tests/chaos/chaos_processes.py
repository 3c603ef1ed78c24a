"""The processes that are killed and stopped: SeaweedFS, alone or as a cluster, and relayers. Ended by their ids."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from s3_servers import admin_of, free_ports, identities, objection_of, seaweedfs_alone, weed

from demo.relayer_process import RelayerFailed, RelayerProcess

__all__ = ["Part", "RelayerUnit", "Store", "Victim", "a_cluster", "a_single_server"]

_STORE_PATIENCE = 90.0
_STOP_PATIENCE = 20.0
_RESTART_PAUSE = 0.5


class Victim(Protocol):
    """Something that can be ended and stopped."""

    name: str

    @property
    def up(self) -> bool: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def start(self) -> None: ...


@dataclass
class Part:
    """One process of the store."""

    name: str
    command: Sequence[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(_STOP_PATIENCE)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


@dataclass
class Store:
    """SeaweedFS with one bucket.

    Attributes:
        parts: in the order in which they start.
        gateways: (host, port) of each S3 gateway.
    """

    parts: list[Part]
    gateways: list[tuple[str, int]]

    async def start(self) -> None:
        for part in self.parts:
            await part.start()
        await asyncio.to_thread(self._make_bucket)

    def stop(self) -> None:
        for part in reversed(self.parts):
            part.resume()
            part.kill()

    def _make_bucket(self) -> None:
        """Wait until every gateway takes signed writes; the first ones of a new cluster are refused for a while."""
        end = time.monotonic() + _STORE_PATIENCE
        for host, port in self.gateways:
            client = admin_of(f"http://{host}:{port}", attempts=1, patience=10)
            try:
                while objection_of(client) is not None:
                    if time.monotonic() > end:
                        raise RuntimeError(f"SeaweedFS did not start; see its logs in {self.parts[0].folder}")
                    time.sleep(0.2)
            finally:
                client.close()


def a_single_server(folder: Path) -> Store:
    """Everything in one process."""
    command, url = seaweedfs_alone(folder)
    return Store([Part("seaweedfs", command, folder)], [("127.0.0.1", int(url.rpartition(":")[2]))])


def a_cluster(folder: Path) -> Store:
    """Three masters, three volume servers that keep everything twice, one filer, two gateways.

    One filer, because each keeps the names in a store of its own and hears of the others' later: when one fails over to
    another, a name that was created is free again (docs/operations/s3.md).
    """
    local = ("-ip=127.0.0.1", "-ip.bind=127.0.0.1")
    masters, volumes, filers, gateways = (
        [tuple(free_ports(2)) for _ in range(count)] for count in (3, 3, 1, 2)
    )
    parts: list[Part] = []

    def add(kind: str, number: int, *flags: str) -> None:
        (folder / f"{kind}-{number}").mkdir(parents=True)
        parts.append(Part(f"{kind}-{number}", weed(kind, *flags), folder))

    # SeaweedFS writes an address whose gRPC port is not the usual one as host:port.grpc.
    quorum = ",".join(f"127.0.0.1:{port}.{grpc}" for port, grpc in masters)
    for number, (port, grpc) in enumerate(masters):
        add(
            "master", number, *local, f"-port={port}", f"-port.grpc={grpc}", f"-mdir={folder}/master-{number}",
            f"-peers={quorum}", "-defaultReplication=001", "-telemetry=false", "-volumeSizeLimitMB=64",
        )  # fmt: skip
    for number, (port, grpc) in enumerate(volumes):
        add(
            "volume", number, *local, f"-port={port}", f"-port.grpc={grpc}", f"-dir={folder}/volume-{number}",
            f"-master={quorum}", "-max=30", "-dataCenter=d", "-rack=r",
        )  # fmt: skip
    for number, (port, grpc) in enumerate(filers):
        add(
            "filer", number, *local, f"-port={port}", f"-port.grpc={grpc}", f"-master={quorum}",
            f"-defaultStoreDir={folder}/filer-{number}", "-defaultReplicaPlacement=001",
        )  # fmt: skip
    filer = ",".join(f"127.0.0.1:{port}.{grpc}" for port, grpc in filers)
    credentials = identities(folder)
    for number, (port, grpc) in enumerate(gateways):
        add(
            "s3", number, "-ip.bind=127.0.0.1", f"-port={port}", f"-port.grpc={grpc}", "-port.iceberg=0", "-port.lance=0",
            f"-filer={filer}", f"-config={credentials}",
        )  # fmt: skip
    return Store(parts, [("127.0.0.1", port) for port, _ in gateways])


@dataclass
class RelayerUnit:
    """A relayer that is started again whenever it is not there, as a service manager would.

    ``ended`` tells how it ended when nobody had killed it.
    """

    name: str
    process: RelayerProcess
    ended: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def up(self) -> bool:
        return self.process.url != "" and self._pid is not None

    @property
    def _pid(self) -> int | None:
        try:
            return self.process.pid if self.process.exit_code is None else None
        except RelayerFailed:
            return None

    def notice(self) -> bool:
        """Whether it ended by itself since the last start; that is written down."""
        code = self.process.exit_code
        if code is not None:
            self.ended.append(f"{self.name} ended with {code}: {self.process.log_tail()}")
        return code is not None

    async def start(self) -> None:
        """Start and wait until requests are answered, however often that takes: the store may be down."""
        while True:
            try:
                await asyncio.to_thread(self._start)
            except RelayerFailed:
                await asyncio.sleep(_RESTART_PAUSE)
            else:
                return

    def _start(self) -> None:
        with self._lock:
            self.process.start()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        pid = self._pid
        if pid is not None:
            os.kill(pid, number)
