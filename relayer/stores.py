"""The store of the settings: opened, and tried before memories are entrusted to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock, SystemRandomness
from relayer.crypto import RelayerKeys
from relayer.errors import BrokenPromise
from relayer.log.objects import TRUST_MS, Layout, LogPorts
from relayer.operator.probe import probe, probe_erasure, probe_unless_known
from relayer.ports import Clock, ObjectStore, Randomness
from relayer.process import product_version
from relayer.settings.config import RelayerSettings, objects_directory
from relayer.telemetry import log


async def open_store(settings: RelayerSettings, clock: Clock) -> ObjectStore:
    """Open the store that the settings name; the caller closes it.

    Args:
        settings: checked.
        clock: for honest times.

    Raises:
        StoreError: it cannot be used. A bucket is asked nothing yet.
    """
    address = settings.bucket
    if address is None:
        return await DirectoryStore.open(objects_directory(settings.data), clock=clock)
    # boto3 takes its time and memory; a relayer over a directory has no use for it.
    from relayer.adapters.s3_store import S3Store  # noqa: PLC0415 - boto3 costs 23 MiB, for buckets only

    return await S3Store.open(
        address.bucket,
        clock=clock,
        endpoint_url=settings.endpoint_url,
        region=settings.region,
    )


def layout_of(settings: RelayerSettings) -> Layout:
    """Return where in the store this deployment's objects are."""
    address = settings.bucket
    return Layout() if address is None else Layout(address.prefix)


def ports_over(
    store: ObjectStore, settings: RelayerSettings, relayer_key: bytes, clock: Clock, randomness: Randomness
) -> LogPorts:
    """Return what the logs of these settings work with."""
    trust_ms = 0 if settings.commit_check == "always" else TRUST_MS
    return LogPorts(store, clock, randomness, RelayerKeys.derive(relayer_key), layout_of(settings), trust_ms)


async def check_promises(settings: RelayerSettings, ports: LogPorts) -> None:
    """Probe a bucket before memories are entrusted to it; the directory store does so by itself.

    Raises:
        BrokenPromise: it cannot hold the log, and several relayers may be meant to share it.
        StoreError: it cannot be tried.
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
        # What was probed lately may keep versions since, or other credentials may be in use.
        missing = await probe_erasure(ports.store, ports.randomness, prefix=ports.layout.at("probe"))
    else:
        missing = report.missing
        log.info("store_probed", races=report.races, undecided=report.undecided, requests=report.requests)
    if missing is not None:
        log.warning("erasing_needs_more", what=missing)


async def probe_store(settings: RelayerSettings, say: Callable[[str, str], None]) -> dict[str, object]:
    """Try what the store of these settings promises, and return what was seen: numbers, seconds, what erasing lacks.

    Args:
        settings: which store.
        say: told of each thing as it is found: a word, ``store``, ``kept``, ``missing`` or ``result``, and what it is about.

    Raises:
        BrokenPromise: it cannot hold the log.
        StoreError: it cannot be tried.
    """
    clock = SystemClock()
    store = await open_store(settings, clock)
    try:
        say("store", store.description)
        began = clock.monotonic()
        report = await probe(
            store,
            SystemRandomness(),
            prefix=layout_of(settings).at("probe"),
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
    finally:
        await store.close()
