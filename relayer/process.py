"""What the process needs of its machine: a port, a certificate, signals, a ready file, a patient collector."""

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
from relayer.wire.connections import connections_within_files
from relayer.wire.loopback import in_url

_MOST_FILES = 65_536
_COLLECTOR = (50_000, 50, 100)
_TURN_SECONDS = 0.0002


def product_version() -> str:
    """Return the installed version; a source tree that was never installed has none."""
    try:
        return importlib.metadata.version("memrelay")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"


def bind(settings: RelayerSettings) -> socket.socket:
    """Take ``port``; nobody can connect before the site starts to listen.

    Raises:
        ConfigurationError: the address is not this machine's, or the port is taken.
    """
    return _bound(settings, "port", settings.port, shared=settings.reuse_port)


def bind_monitoring(settings: RelayerSettings) -> socket.socket:
    """Take ``monitoring_port``; raises as `bind`."""
    return _bound(settings, "monitoring-port", settings.monitoring_port, shared=False)


def _bound(settings: RelayerSettings, option: str, port: int, *, shared: bool) -> socket.socket:
    """Return a socket that has a port.

    Raises:
        ConfigurationError: the address is not this machine's, or the port is taken.
    """
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
        if shared:
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
    """Let this process have as many files and connections open as the machine allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems promise more than they give; what is there already has to do then.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_within(wanted: int) -> int:
    """Return how many connections there may be, so that descriptors are left for the store and for everything else."""
    room = connections_within_files(wanted)
    if room < wanted:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        log.warning("fewer_connections", most=room, wanted=wanted, why=f"the limit of open files is {soft}")
    return room


def free_bytes(directory: Path) -> int:
    """Return how much can still be written there; 0 when the directory is gone."""
    try:
        return shutil.disk_usage(directory.expanduser()).free
    except OSError:
        return 0


def spare_the_collector() -> None:
    """Leave what start-up made out of garbage collection, and collect less often than after every 700 objects.

    A request makes a few hundred objects that reference counting frees; the defaults would scan every open namespace's
    records again and again for cycles that are not there (docs/performance.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)


def take_turns() -> None:
    """Let a thread that computes give way to the event loop after 0.2 ms, not five: a request takes some twenty turns.

    Beside hostile texts that are read all the time, recalls took 79 ms at the 95th percentile with 1 ms, 39 ms with this
    (``make attacks``). It costs threads that compute all the time a tenth of their work.
    """
    sys.setswitchinterval(_TURN_SECONDS)


def stop_event(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second signal ends the process at once."""
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
    """Return how many cores this process may keep busy: by its affinity, and by what its control group is allowed."""
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


def tls_context(settings: RelayerSettings) -> ssl.SSLContext | None:
    """Return the context of ``--tls-cert`` and ``--tls-key``, or None without them.

    Raises:
        ConfigurationError: a file is missing, or not a certificate and its key.
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
    """Return the address that gateways use."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    return f"{settings.scheme}://{in_url(settings.host)}:{port}"


def check_ready_file(path: Path) -> None:
    """Try whether `ready_file` could write, before anything is begun; raises `ConfigurationError` if not."""
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
    """Say in a file (0600) that requests are answered; others never see half of it, and it is gone when they are not.

    No link is followed: what has the name, a file that an earlier run left or a link, is replaced itself.
    """
    text = json.dumps({"url": url, "pid": os.getpid(), "version": product_version()})
    with _ready_draft(path, text) as draft:
        draft.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
