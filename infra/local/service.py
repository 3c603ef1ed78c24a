"""``infra/local/up``, ``status`` and ``down``: a whole service on this machine, from generated keys."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import boto3
import typer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from running import Processes
from topology import BUCKET, PORTS, Missing, Part, Topology

from relayer.health import Unhealthy, ask

FAILED, USAGE = 1, 2
PATIENCE = 90.0
STOP_SECONDS = 20.0
FIRST_PORT = 8700
_LAST_LINES = 15
_STEP_SECONDS = 0.1

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


_Data = Annotated[
    Path | None,
    typer.Option(help="Data directory; default ~/.local/state/memrelay-local.", show_default=False),
]


@app.command()
def up(
    *,
    data: _Data = None,
    port: Annotated[
        int | None, typer.Option(help=f"First of {PORTS} ports; default {FIRST_PORT}.", min=1024, max=65000)
    ] = None,
) -> None:
    """Start SeaweedFS, three relayers, nginx and a daily backup on loopback; start again what has ended meanwhile."""
    with _held(data) as (folder, processes):
        alive = processes.alive()
        if alive and port not in {None, processes.port}:
            _fail(f"--port: it runs on {processes.port} already; infra/local/down first", USAGE)
        topology = Topology(folder, port or processes.port or FIRST_PORT)
        topology.prepare()
        store, *relayers, proxy, backup = _parts(topology)
        wanted = [part for part in (store, *relayers, proxy, backup) if part.name not in alive]
        if not alive:
            _check_ports(topology)
        began = time.monotonic()
        try:
            _start(processes, topology, [part for part in (store,) if part in wanted])
            # The first relayer probes a new bucket; the others find its note.
            for group in (relayers[:1], relayers[1:], [proxy]):
                _start(processes, topology, [part for part in group if part in wanted])
            _start(processes, topology, [part for part in (backup,) if part in wanted])
        except _NotUp as error:
            for part in reversed(wanted):
                processes.stop(part.name, STOP_SECONDS)
            _fail(str(error), FAILED)
        took = f"{time.monotonic() - began:.1f} s" if wanted else "nothing to do"
        typer.echo(f"up: {topology.url} ({took})\n\n{_how_to(topology, processes)}")


@app.command()
def status(*, data: _Data = None) -> None:
    """Show each part, and whether it can serve. Exit code 1 when one cannot."""
    with _held(data) as (folder, processes):
        if processes.port is None:
            _fail(f"nothing was started in {folder}; infra/local/up starts it", FAILED)
        topology, alive = Topology(folder, processes.port), processes.alive()
        well = True
        for part in _parts(topology):
            state = (_trouble(part, topology) or "ready") if part.name in alive else "not running"
            well = well and state == "ready"
            pid = str(alive.get(part.name, "-"))
            typer.echo(f"{part.name:<10} {pid:>8}  {part.url}  {state}")
    if not well:
        raise typer.Exit(FAILED)


@app.command()
def down(
    *,
    data: _Data = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the data directory too.")] = False,
) -> None:
    """End what ``up`` started. Memories stay, unless --purge is given."""
    with _held(data) as (folder, processes):
        stopped = [
            name
            for name in ("backup", "nginx", *(f"relayer-{number}" for number in (1, 2, 3)), "store")
            if processes.stop(name, STOP_SECONDS)
        ]
        typer.echo(f"ended: {', '.join(stopped)}" if stopped else "nothing ran")
        if purge and processes.port is not None:
            shutil.rmtree(folder)
            typer.echo(f"removed: {folder}")


class _NotUp(Exception):
    """Raised when a part does not get ready; with the end of its log."""


def _start(processes: Processes, topology: Topology, parts: list[Part]) -> None:
    """Start parts side by side and wait until each answers."""
    began = time.monotonic()
    for part in parts:
        typer.echo(f"{part.name:<10} starts at {part.url}")
        processes.start(part, topology.port)
    for part in parts:
        while _trouble(part, topology):
            if part.name not in processes.alive() or time.monotonic() - began > PATIENCE:
                log = processes.log(part.name)
                last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])
                raise _NotUp(f"{part.name} did not get ready; the end of {log}:\n{last}")
            time.sleep(_STEP_SECONDS)
        typer.echo(f"{part.name:<10} ready after {time.monotonic() - began:.1f} s")


def _trouble(part: Part, topology: Topology) -> str:
    """Return why a running part cannot serve; "" if it can.

    The backup answers nobody: what it does stands in its log and, after a backup, in the metrics.
    """
    if part.name == "backup":
        return ""
    if part.name == "store":
        return "" if _store_answers(part, topology) else "does not answer"
    try:
        ask(part.url, ready=True)
    except Unhealthy as error:
        return str(error)
    return ""


def _store_answers(part: Part, topology: Topology) -> bool:
    """Whether a signed write and its deletion succeed; the server's own health page says yes too early."""
    credentials = topology.credentials()
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=part.url,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10, proxies={}),
    )
    try:
        client.put_object(Bucket=BUCKET, Key="started", Body=b"")
        client.delete_object(Bucket=BUCKET, Key="started")
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True


def _parts(topology: Topology) -> list[Part]:
    try:
        return [topology.store(), *topology.relayers(), topology.proxy(), topology.backup()]
    except Missing as error:
        _fail(str(error), USAGE)


def _check_ports(topology: Topology) -> None:
    for port in topology.ports:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                _fail(
                    f"--port: {port} is in use; {PORTS} free ports from {topology.port} on are needed: choose another "
                    "first one",
                    USAGE,
                )


def _how_to(topology: Topology, processes: Processes) -> str:
    relayers = ", ".join(part.url.rpartition(":")[2] for part in topology.relayers())
    return f"""gateways   export MEMRELAY_URL={topology.url}
           memrelay-gateway remember "I only drink oat milk coffee."
           memrelay-gateway search "How do I take my coffee?"
relayers   127.0.0.1, ports {relayers}; each has /ready and /metrics
store      {topology.store_url}, bucket {BUCKET}
backup     {topology.backup().url}, daily
key        {topology.relayer_key}: without it the store is noise
logs       {processes.log("*")}
end        infra/local/down; infra/local/down --purge removes the memories too"""


@contextmanager
def _held(data: Path | None) -> Iterator[tuple[Path, Processes]]:
    """Let one command at a time work on a data directory."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    folder = (data or state / "memrelay-local").expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _fail(f"another command is at work on {folder}; wait for it to end", FAILED)
        yield folder, Processes(folder)


def _fail(sentence: str, code: int) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    app()
