"""The operating system side of the relayer process: sockets, TLS, signals, limits, the ready file, and garbage collection."""

from __future__ import annotations

import asyncio
import errno
import gc
import importlib.metadata
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from relayer.errors import ConfigurationError
from relayer.settings.config import RelayerSettings
from relayer.telemetry import log
from relayer.wire.calls import in_url
from relayer.wire.connections import connections_within_files

_MOST_FILES = 65_536
_COLLECTOR = (50_000, 50, 100)
_TURN_SECONDS = 0.0002


def product_version() -> str:
    """Return the installed version; ``0+source`` for a source tree that was never installed."""
    try:
        return importlib.metadata.version("memrelay")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"


def bind(settings: RelayerSettings, *, monitoring: bool = False) -> socket.socket:
    """Bind a socket to ``port``, or to ``monitoring_port``; clients can connect only once the server listens on it.

    Raises:
        ConfigurationError: the address is not this machine's, or the port is taken.
    """
    option, port = ("monitoring-port", settings.monitoring_port) if monitoring else ("port", settings.port)
    host = settings.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"--host: {settings.host} is not an address of this machine") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.reuse_port and not monitoring:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ConfigurationError(
            f"--{option}: {settings.host}:{port} cannot be used ({error.strerror}); is a relayer running already? "
            "Choose another port"
        ) from error
    return listening


def raise_descriptor_limit() -> None:
    """Raise the limit of open files and connections of this process as far as the system allows, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems report a higher limit than they grant. The current limit then remains.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_within(wanted: int) -> int:
    """Return how many connections to allow, so that file descriptors remain for the store and everything else."""
    room = connections_within_files(wanted)
    if room < wanted:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        log.warning("fewer_connections", most=room, wanted=wanted, why=f"the limit of open files is {soft}")
    return room


def free_bytes(directory: Path) -> int:
    """Return the free space of the directory's file system in bytes; 0 if the directory does not exist."""
    try:
        return shutil.disk_usage(directory.expanduser()).free
    except OSError:
        return 0


def spare_the_collector() -> None:
    """Exclude the objects created at start-up from garbage collection, and collect less often than by default.

    A request creates a few hundred objects, which reference counting frees. By default, Python collects after 700 new
    objects, and would scan the records of all open namespaces again and again for cycles that do not exist
    (docs/performance.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)


def take_turns() -> None:
    """Set the interpreter's switch interval to 0.2 ms instead of 5 ms, so that threads release the lock sooner.

    A request needs the interpreter lock about twenty times. While hostile texts were being processed all the time, the 95th
    percentile of recalls was 79 ms with an interval of 1 ms, and 39 ms with this one (``make attacks``). Threads that compute
    all the time lose a tenth of their throughput.
    """
    sys.setswitchinterval(_TURN_SECONDS)


def stop_event(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second signal ends the process immediately."""
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(1)
        log.info("told_to_stop", cause=number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


def cores() -> int:
    """Return the number of CPU cores that this process may use: by its affinity and the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


def tls_context(settings: RelayerSettings) -> ssl.SSLContext | None:
    """Return the TLS context of ``--tls-cert`` and ``--tls-key``; None without them.

    Raises:
        ConfigurationError: a file is missing, or they are not a certificate and its key.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"--tls-cert/--tls-key: {error.strerror or 'not a certificate and its key in PEM'}"
        ) from error
    return context


def url_of(settings: RelayerSettings, port: int) -> str:
    """Return the URL that gateways use."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    return f"{settings.scheme}://{in_url(settings.host)}:{port}"


def check_ready_file(path: Path) -> None:
    """Check before start-up that `ready_file` will be able to write.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    with _ready_draft(path, "") as draft:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        draft.unlink()


@contextmanager
def _ready_draft(path: Path, text: str) -> Iterator[Path]:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        try:
            yield draft
        except OSError:
            draft.unlink()
            raise
    except OSError as error:
        raise ConfigurationError(f"--ready-file: {path} cannot be written ({error.strerror})") from error


@contextmanager
def ready_file(path: Path, url: str) -> Iterator[None]:
    """Provide a file (mode 0600) with URL, process id and version while the block runs, that is, while requests are served.

    The file is written atomically. A symbolic link at the path is not followed: the link itself, or a file of an earlier run,
    is replaced.
    """
    text = json.dumps({"url": url, "pid": os.getpid(), "version": product_version()})
    with _ready_draft(path, text) as draft:
        draft.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
