"""Real S3 servers on free ports of this machine: SeaweedFS, and moto as a fast second. Ended by their process ids."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from relayer.adapters.s3_store.client import Client

# A server usually answers within two seconds; on old data and a busy machine it may take twenty.
PATIENCE = 30.0
BUCKET = "memories"
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"
READER_KEY = "test-reader-key"
# What makes every client in a process or test use these credentials and look for no others.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True)
class S3Server:
    """A server with one bucket, and a client that may do everything there."""

    url: str
    admin: Any

    def empty(self) -> None:
        """Remove everything from the bucket, the folders too that SeaweedFS makes and would keep for a while."""
        for page in self.admin.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for key in [row["Key"] for row in page.get("Contents", ())]:
                self.admin.delete_object(Bucket=BUCKET, Key=key)
                for above in list(PurePosixPath(key).parents)[:-1]:
                    self.admin.delete_object(Bucket=BUCKET, Key=f"{above}/")


def admin_of(url: str, *, attempts: int = 2, patience: float = PATIENCE) -> Any:
    """Return a client that may do everything at a server."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": attempts}, read_timeout=patience),
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that the system gives to outgoing connections."""
    free: list[int] = []
    while len(free) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            free += [port] if port not in free else []
    return free


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS in one process."""
    command, url = seaweedfs_alone(folder)
    with _running(command, folder / "seaweedfs.log", url) as server:
        yield server


class MortalSeaweed:
    """SeaweedFS over one folder and port, to be killed and started again; ``close`` it."""

    def __init__(self, folder: Path) -> None:
        self._command, self.url = seaweedfs_alone(folder)
        self._log = folder / "seaweedfs.log"
        self._admin = admin_of(self.url)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start, and wait until a signed write and read succeed; returns how many seconds that took."""
        began = time.monotonic()
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL
            )
        _wait(self._admin, self._process, self._log)
        return time.monotonic() - began

    def kill(self) -> None:
        """End it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(PATIENCE)

    def close(self) -> None:
        self.kill()
        self._admin.close()


def weed(command: str, *flags: str) -> list[str]:
    return [str(Path(sys.executable).with_name("weed")), command, *flags]


def identities(folder: Path) -> Path:
    """Write the file that says who may do what at SeaweedFS."""
    identity = {
        "name": "admin",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": READER_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Read", "List"],
    }
    file = folder / "s3.json"
    file.write_text(json.dumps({"identities": [identity, reader]}))
    return file


def seaweedfs_alone(folder: Path) -> tuple[list[str], str]:
    """Return command and URL; it would listen everywhere and report home if it were not told otherwise."""
    ports = free_ports(8)
    (folder / "data").mkdir(parents=True)
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    listening = [
        flag
        for name, port, grpc in zip(names, ports[::2], ports[1::2], strict=True)
        for flag in (f"-{name}={port}", f"-{name}.grpc={grpc}")
    ]
    command = weed(
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *listening,
        f"-s3.config={identities(folder)}",
        "-master.telemetry=false",
        "-webdav=false",
        "-admin.ui=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    )
    return command, f"http://127.0.0.1:{ports[6]}"


@contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    """Moto's server: quick to start, checks no signatures."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, folder / "moto.log", f"http://127.0.0.1:{port}") as server:
        yield server


@contextmanager
def _running(command: list[str], log: Path, url: str) -> Iterator[S3Server]:
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    admin = admin_of(url)
    try:
        _wait(admin, process, log)
        yield S3Server(url, admin)
    finally:
        admin.close()
        process.kill()
        process.wait(PATIENCE)


def _wait(admin: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server can be used; its own health page says yes too early."""
    end = time.monotonic() + PATIENCE
    while (error := objection_of(admin)) is not None:
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail(f"the S3 server did not start ({error}): {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def objection_of(admin: Any) -> Exception | None:
    """Make the bucket, and return why a signed write and read in it fail; None if they succeed."""
    try:
        with suppress(admin.exceptions.BucketAlreadyExists, admin.exceptions.BucketAlreadyOwnedByYou):
            admin.create_bucket(Bucket=BUCKET)
        admin.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
        admin.get_object(Bucket=BUCKET, Key="ready")["Body"].close()
        admin.delete_object(Bucket=BUCKET, Key="ready")
    except (BotoCoreError, ClientError) as error:
        return error
    return None


class KeptClient:
    """A client that several stores use, one after the other: closing one of those gives back what is its own alone."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.endpoint_url = client.endpoint_url
        self.ask = client.ask

    def close(self) -> None:
        """Do nothing."""
