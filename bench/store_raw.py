"""One S3 request after the other by each client library, with nothing of a relayer around it: the yardstick.

``boto3`` is what a relayer uses. obstore is a client written in Rust that a relayer cannot use, because it does not hand
over the time of an answer (docs/adr/0032-boto3-in-threads.md); it shows what is left to gain.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec

from bench.stats import percentile
from relayer.adapters.s3_store import Timeouts
from relayer.adapters.s3_store.client import Client, NoSuccess

__all__ = ["BOTO3", "OBSTORE", "RawClient", "RawSample", "raw_clients"]

BOTO3 = "boto3"
OBSTORE = "obstore"
_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class RawSample:
    """One round of one kind of request: latencies in seconds, and CPU seconds of this process for each."""

    latencies: list[float]
    cpu: float

    @property
    def rate(self) -> float:
        """Requests a second, one after the other."""
        return len(self.latencies) / sum(self.latencies)

    @property
    def p50(self) -> float:
        """Median latency in seconds."""
        return percentile(self.latencies, 0.5)


@dataclass(frozen=True, slots=True)
class RawClient:
    """Two requests of one library: a conditional create, and a read of what is absent."""

    create: Callable[[str, bytes], None]
    read_absent: Callable[[str], None]
    close: Callable[[], None]

    def creates(self, size: int, count: int) -> RawSample:
        """Create ``count`` objects of ``size`` bytes."""
        prefix, data = f"raw/{secrets.token_hex(8)}", [secrets.token_bytes(size) for _ in range(count)]
        return _timed(lambda at: self.create(f"{prefix}/{at:012d}", data[at]), count)

    def reads_absent(self, count: int) -> RawSample:
        """Ask ``count`` times for an object that is not there, as a recall asks for the log's next entry."""
        key = f"raw/{secrets.token_hex(8)}"
        return _timed(lambda _: self.read_absent(key), count)


def raw_clients(bucket: str, url: str) -> dict[str, RawClient]:
    """Return every client that is installed, by name; credentials come from the environment."""
    found = {BOTO3: _of_boto3(Client(bucket, url, None, _CONNECTIONS, Timeouts()))}
    if find_spec(OBSTORE) is not None:
        found[OBSTORE] = _of_obstore(bucket, url)
    return found


def _of_boto3(client: Client) -> RawClient:
    def create(key: str, data: bytes) -> None:
        client.ask("put_object", Key=key, Body=data, IfNoneMatch="*")

    def read_absent(key: str) -> None:
        with suppress(NoSuccess):
            client.ask("get_object", Key=key)
            raise RuntimeError("the object is there")

    return RawClient(create, read_absent, client.close)


def _of_obstore(bucket: str, url: str) -> RawClient:
    import obstore  # noqa: PLC0415 - no part of what a relayer needs
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=10)}
    store = S3Store(
        bucket,
        endpoint=url,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={**once, "backoff": {"base": 2}},
    )

    def create(key: str, data: bytes) -> None:
        obstore.put(store, key, data, mode="create", use_multipart=False)

    def read_absent(key: str) -> None:
        with suppress(FileNotFoundError):
            obstore.get(store, key)
            raise RuntimeError("the object is there")

    return RawClient(create, read_absent, lambda: None)


def _timed(ask: Callable[[int], None], count: int) -> RawSample:
    latencies: list[float] = []
    cpu = time.process_time()
    for at in range(count):
        began = time.perf_counter()
        ask(at)
        latencies.append(time.perf_counter() - began)
    return RawSample(latencies, (time.process_time() - cpu) / count)
