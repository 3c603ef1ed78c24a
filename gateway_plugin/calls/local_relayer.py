"""The local relayer: started if the settings name no relayer, and shared by all gateways of this user.

Two processes are involved. The relayer serves a data directory below the plugin's state directory, on loopback. A keeper,
``python -m gateway_plugin.calls.local_relayer FOLDER``, starts the relayer, restarts it when it dies, and ends it a minute after
the last gateway has released it. Each gateway that uses the relayer holds a shared lock on a file (`LocalRelayer`); the
operating system releases the lock however the process ends.

A relayer that a person runs takes precedence: if this user's gateway used one at the default address before, or one
answers there now, no local relayer is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp

from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.errors import GatewayError
from gateway_plugin.keys.private_files import (
    config_directory,
    open_lock,
    replace_private,
    state_directory,
    try_lock,
)
from gateway_plugin.settings.model import DEFAULT_URL, PluginSettings
from relayer.wire.calls import doubled

START_SECONDS: Final = 45.0
IDLE_SECONDS: Final = 60.0
"""Seconds for which an unused relayer keeps running, so that a gateway that restarts finds it."""

_HOST: Final = "127.0.0.1"
_USUAL_PORT: Final = int(DEFAULT_URL.rpartition(":")[2])
_LOOK_SECONDS: Final = 1.0
_PAUSE: Final = 0.1
_STOP_SECONDS: Final = 30.0
_TROUBLE: Final = "trouble.json"
_LONGEST_PAUSE: Final = 60.0
_MOST_LOG_BYTES: Final = 1024 * 1024


class LocalRelayerFailed(GatewayError):
    """Raised when no local relayer could be started; the message says what to do."""


def folder_of(environ: Mapping[str, str]) -> Path:
    """Return the directory of the local relayer's data, log and state. Raises `IdentityError` if the user has no home."""
    return state_directory(environ) / "relayer"


def recorded_url(environ: Mapping[str, str]) -> str | None:
    """Return the last URL of the local relayer; None if none was ever started."""
    with contextlib.suppress(GatewayError):
        return recorded_at(folder_of(environ))
    return None


def trouble_of(environ: Mapping[str, str]) -> str:
    """Return a message if the local relayer keeps failing; "" if it does not."""
    with contextlib.suppress(GatewayError, OSError, ValueError, KeyError, TypeError):
        failures = int(json.loads((folder_of(environ) / _TROUBLE).read_text("utf-8"))["failures"])
        return f"the relayer of this machine failed {_times(failures)} in a row and is being restarted"
    return ""


def trouble_for(settings: PluginSettings, environ: Mapping[str, str]) -> str:
    """Return `trouble_of` the local relayer if a gateway with these settings uses it; "" otherwise."""
    uses = is_wanted(settings) or (not settings.disabled and settings.url == recorded_url(environ))
    return trouble_of(environ) if uses else ""


def _times(count: int) -> str:
    return f"{count} {'time' if count == 1 else 'times'}"


def is_wanted(settings: PluginSettings) -> bool:
    """Return whether a gateway with these settings starts a local relayer."""
    named = "url" in settings.model_fields_set
    return settings.relayer.autostart and not named and not settings.disabled and os.name == "posix"


class LocalRelayer:
    """This process's claim on the local relayer, which keeps running while any process holds a claim.

    Args:
        environ: the environment variables that determine the state directory. Variables that configure a relayer are not
            passed on to it.
        idle_seconds: seconds for which a relayer that this object starts keeps running unused.
    """

    def __init__(self, environ: Mapping[str, str], *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._environ = environ
        self._idle_seconds = idle_seconds
        self._claim: int | None = None

    async def ensure(self, seconds: float = START_SECONDS) -> str:
        """Claim the relayer, start it if necessary, and return its URL when it answers.

        Raises:
            LocalRelayerFailed: no relayer could be started, or it did not answer in time.
            IdentityError: the user has no home directory.
        """
        folder = folder_of(self._environ)
        if not (folder / "data").exists() and await self._is_anothers():
            return DEFAULT_URL
        if missing := [name for name in ("msgspec", "usearch") if importlib.util.find_spec(name) is None]:
            fix = "pip install '.[relayer]' in a clone of memrelay with it, or set the URL of a relayer: setting url"
            raise LocalRelayerFailed(
                f"no relayer URL is set, and {sys.executable} cannot run one ({missing[0]} is missing); {fix}"
            )
        await asyncio.to_thread(self._hold, folder)
        if (url := await _answering(folder)) is not None:
            return url
        await asyncio.to_thread(_start_keeper, folder, self._environ, self._idle_seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (url := await _answering(folder)) is not None:
                return url
            await asyncio.sleep(_PAUSE)
        trouble = trouble_of(self._environ)
        raise LocalRelayerFailed(
            f"{trouble or 'the relayer of this machine does not answer'}; see {folder / 'relayer.log'}, or set another URL: setting url"
        )

    def release(self) -> None:
        """Release the claim. A relayer without claims is ended by its keeper."""
        claim, self._claim = self._claim, None
        if claim is not None:
            os.close(claim)

    def _hold(self, folder: Path) -> None:
        if self._claim is not None:
            return
        import fcntl  # noqa: PLC0415 - exists on POSIX only

        claim = open_lock(folder / "users")
        # A keeper that ends its relayer holds this lock exclusively. Waiting for it makes sure that a new one is started.
        fcntl.flock(claim, fcntl.LOCK_SH)
        self._claim = claim

    async def _is_anothers(self) -> bool:
        """Return whether the default address belongs to a relayer that this user runs, now or at other times."""
        with contextlib.suppress(GatewayError):
            if TrustStore(config_directory(self._environ) / "trust.json").pinned(DEFAULT_URL) is not None:
                return True
        return _listens_for_us(_USUAL_PORT) and await _healthy(DEFAULT_URL)


async def _answering(folder: Path) -> str | None:
    try:
        url = str(json.loads((folder / "ready.json").read_text("utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if await _healthy(url) else None


async def _healthy(url: str) -> bool:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http,
            http.get(f"{url}/health") as answer,
        ):
            return bool((await answer.json()).get("status") == "ok")
    except (aiohttp.ClientError, OSError, ValueError, AttributeError):
        return False


def _listens_for_us(port: int) -> bool:
    """Return whether a program of this user listens on a loopback port. Another user's program must not get our memories."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return int(fields[7]) == os.getuid()
    return False


def _start_keeper(folder: Path, environ: Mapping[str, str], idle_seconds: float) -> None:
    with _log(folder) as log:
        # This returns immediately: the keeper forks, so that it outlives the gateway that started it and leaves no zombie.
        subprocess.run(  # noqa: S603 - this interpreter and a module of ours
            [sys.executable, "-m", "gateway_plugin.calls.local_relayer", str(folder), str(idle_seconds)],
            check=False,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(environ), start_new_session=True,
        )  # fmt: skip


@contextlib.contextmanager
def _log(folder: Path) -> Iterator[BinaryIO]:
    """Open the log of keeper and relayer, which contains starts and failures but no memories.

    The log is emptied first if it is longer than 1 MiB.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / "relayer.log", flags, 0o600)
    if os.fstat(descriptor).st_size > _MOST_LOG_BYTES:
        os.ftruncate(descriptor, 0)
    with os.fdopen(descriptor, "ab") as log:
        yield log


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the gateway's secret and without settings meant for another relayer."""
    clean = {name: value for name, value in environ.items() if not name.startswith(("MEMRELAY_", "AWS_"))}
    return clean | {"MEMRELAY_CONFIG": os.devnull}


class _Keeper:
    """Runs the relayer while any gateway holds the lock `users`, and restarts it after increasing pauses when it dies."""

    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self._folder = folder
        self._idle_seconds = idle_seconds
        self._users = open_lock(folder / "users")
        self._told_to_end = False
        self._idle_since: float | None = None

    def run(self) -> int:
        """Run until no gateway uses the relayer any more, and return an exit code."""
        signal.signal(signal.SIGTERM, self._end)
        failures = 0
        while True:
            begun = time.monotonic()
            if self._serve_once():
                self._record_failures(0)
                return 0
            failures = 1 if time.monotonic() - begun > IDLE_SECONDS else failures + 1
            pause = doubled(1.0, failures - 1, _LONGEST_PAUSE)
            # Standard error is the log.
            sys.stderr.write(
                f"the relayer failed {_times(failures)} in a row; the next start is in {pause:.0f} s\n"
            )
            sys.stderr.flush()
            self._record_failures(failures)
            end = time.monotonic() + pause
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, _LOOK_SECONDS))
                if self._told_to_end or self._is_idle():
                    self._record_failures(0)
                    return 0

    def _record_failures(self, count: int) -> None:
        with contextlib.suppress(OSError, GatewayError):
            if count:
                replace_private(self._folder / _TROUBLE, json.dumps({"failures": count}).encode())
            else:
                (self._folder / _TROUBLE).unlink(missing_ok=True)

    def _is_idle(self) -> bool:
        """Return whether no gateway has held the lock `users` for `idle_seconds`.

        If so, the lock stays taken: a gateway that comes now waits until the relayer has ended.
        """
        if not try_lock(self._users):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or time.monotonic()
        if time.monotonic() - self._idle_since >= self._idle_seconds:
            return True
        import fcntl  # noqa: PLC0415 - exists on POSIX only

        fcntl.flock(self._users, fcntl.LOCK_UN)
        return False

    def _end(self, *_: object) -> None:
        self._told_to_end = True

    def _serve_once(self) -> bool:
        """Run a relayer. Return True when it is not needed any more, and False if it ended by itself."""
        with _log(self._folder) as log:
            child = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
                [
                    sys.executable, "-m", "relayer", "serve", "--host", _HOST, "--port", str(self._port()),
                    "--data", str(self._folder / "data"), "--ready-file", str(self._folder / "ready.json"),
                    "--log-format", "json", "--log-level", "warning",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        while not self._told_to_end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_SECONDS)
                return False
            if self._note_address(child.pid):
                self._record_failures(0)
            if self._is_idle():
                break
        child.terminate()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        return True

    def _port(self) -> int:
        """Return the last port, at first the default one; 0, which means any free port, if that port is taken."""
        told = recorded_at(self._folder)
        wanted = int(told.rpartition(":")[2]) if told else _USUAL_PORT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, wanted))
            except OSError:
                return 0
        return wanted

    def _note_address(self, process: int) -> bool:
        """Store the relayer's address. Return whether it was written by the process, which then answers requests."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads((self._folder / "ready.json").read_text("utf-8"))
            url = str(told["url"])
            if url != recorded_at(self._folder):
                replace_private(self._folder / "address.json", json.dumps({"url": url}).encode())
            return bool(told["pid"] == process)
        return False


def recorded_at(folder: Path) -> str | None:
    """Return the last URL of the relayer that uses a directory; None if it had none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "address.json").read_text("utf-8"))["url"])
    return None


def main() -> int:
    """Run the keeper of a directory in the background. Does nothing if the directory has a keeper already."""
    if os.fork():
        return 0
    folder, idle_seconds = Path(sys.argv[1]), float(sys.argv[2])
    lock = open_lock(folder / "keeper")
    if not try_lock(lock):
        return 0
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())  # for a person who wants to end it
    return _Keeper(folder, idle_seconds).run()


if __name__ == "__main__":
    sys.exit(main())
