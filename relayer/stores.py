"""The object store that the settings name: how it is opened, and how its guarantees are checked.

`opened_store` opens a directory or a bucket, and `ports_over` combines it with everything else that logs need. `key_provider`
returns the provider of a relayer key, and `rotate_key` replaces that key. `check_promises` probes a bucket at start-up, and
`probe_store` does so for ``memrelay store probe``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from relayer.access.store_keys import older_versions, rotate_relayer_key
from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.errors import BrokenPromise
from relayer.log.objects import TRUST_MS, LogPorts
from relayer.operator.probe import probe, probe_erasure, probe_unless_known
from relayer.ports import Clock, KeyProvider, ObjectStore, Randomness
from relayer.process import product_version
from relayer.settings.config import RelayerSettings, objects_directory
from relayer.settings.keys import RelayerKey
from relayer.telemetry import log


@asynccontextmanager
async def opened_store(
    settings: RelayerSettings, clock: Clock, *, read_only: bool = False
) -> AsyncIterator[ObjectStore]:
    """Open the store that the settings name while the block runs.

    With ``read_only``, opening a directory writes nothing in it, so that a full or read-only disk can be read.

    Raises:
        StoreError: it cannot be used. No request is sent to a bucket yet.
    """
    address = settings.bucket
    if address is None:
        store: ObjectStore = await DirectoryStore.open(
            objects_directory(settings.data), clock=clock, read_only=read_only
        )
    else:
        from relayer.adapters.s3_store import S3Store  # noqa: PLC0415 - boto3 costs 23 MiB, for buckets only

        store = await S3Store.open(
            address.bucket,
            prefix=address.prefix,
            clock=clock,
            endpoint_url=settings.endpoint_url,
            region=settings.region,
        )
    try:
        yield store
    finally:
        await store.close()


def ports_over(
    store: ObjectStore, settings: RelayerSettings, store_key: bytes, clock: Clock, randomness: Randomness
) -> LogPorts:
    """Return the ports of the logs: the store, clock, randomness, and the keys derived from the store key."""
    trust_ms = 0 if settings.commit_check == "always" else TRUST_MS
    return LogPorts(store, clock, randomness, RelayerKeys.derive(store_key), trust_ms)


def key_provider(relayer_key: RelayerKey, randomness: Randomness) -> KeyProvider:
    """Return the provider that wraps store keys under a relayer key."""
    if isinstance(relayer_key, bytes):
        return LocalKey(relayer_key, randomness)
    if relayer_key.scheme == "vault":
        from relayer.adapters.vault_key import VaultKey  # noqa: PLC0415 - aiohttp's client, for Vault only

        return VaultKey(relayer_key.name)
    from relayer.adapters.aws_key import AwsKey  # noqa: PLC0415 - boto3 costs 23 MiB, for AWS only

    return AwsKey(relayer_key.name)


async def rotate_key(
    settings: RelayerSettings, current: RelayerKey, new: RelayerKey
) -> tuple[bool, int | None]:
    """Replace the relayer key of the store that the settings name. Its relayers may be running.

    Returns:
        Whether anything was written, and how many older versions of the wrapped store key the bucket keeps, which the
        current key still opens; None if the bucket does not list its versions.

    Raises:
        WrongRelayerKey: neither key opens the store.
        StoreError: the store cannot be used.
    """
    clock, randomness = SystemClock(), SystemRandomness()
    async with opened_store(settings, clock) as store:
        providers = (key_provider(key, randomness) for key in (current, new))
        changed = await rotate_relayer_key(store, clock, *providers)
        return changed, await older_versions(store)


async def check_promises(settings: RelayerSettings, ports: LogPorts) -> None:
    """Probe the guarantees of a bucket before memories are stored in it; a directory store checks its own when it is opened.

    Raises:
        BrokenPromise: the bucket lacks guarantees that the log needs, and ``single_relayer`` is not set.
        StoreError: the bucket cannot be probed.
    """
    if settings.probe == "off":
        log.warning("store_not_probed", why="probe is off")
        return
    try:
        report = await probe_unless_known(ports, product_version(), always=settings.probe == "always")
    except BrokenPromise as error:
        if not settings.single_relayer:
            raise
        log.warning("store_breaks_promises", what=str(error), why_go_on="single_relayer is set")
        return
    if report is None:
        # The bucket was probed lately. Versioning may have been turned on since, or the credentials may differ.
        missing = await probe_erasure(ports.store, ports.randomness)
    else:
        missing = report.missing
        log.info("store_probed", races=report.races, undecided=report.undecided, requests=report.requests)
    if missing is not None:
        log.warning("erasing_needs_more", what=missing)


async def probe_store(settings: RelayerSettings, say: Callable[[str, str], None]) -> dict[str, object]:
    """Probe the guarantees of the store that the settings name.

    Args:
        settings: the validated settings.
        say: called with each finding: its kind (``store``, ``kept``, ``missing`` or ``result``) and its text.

    Returns:
        The number of requests, those of them without a clear response, the seconds, and what permanent deletion lacks.

    Raises:
        BrokenPromise: the store lacks guarantees that the log needs.
        StoreError: it cannot be probed.
    """
    clock = SystemClock()
    async with opened_store(settings, clock) as store:
        say("store", store.description)
        began = clock.monotonic()
        report = await probe(
            store,
            SystemRandomness(),
            kept=partial(say, "kept"),
        )
        seconds = clock.monotonic() - began
        if report.missing is not None:
            say("missing", f"erasing needs more: {report.missing}")
        counted = f"{report.requests} requests in {seconds:.1f} s, {report.undecided} without a clear answer"
        say("result", f"this store can hold the log ({counted})")
        return {
            "requests": report.requests,
            "undecided": report.undecided,
            "seconds": round(seconds, 3),
            "missing": report.missing,
        }
