"""A relayer key that is in AWS KMS (moto's server) or in Vault's Transit engine (a server that speaks its documented API)."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox
from nacl.utils import random
from processes import Served, run_memrelay
from s3_servers import CREDENTIALS, S3Server
from typed_commands import Done, machine, run_gateway, run_relayer

TEXT = "The spare key lies under the blue flowerpot"
TOKEN = "hvs.a-token-of-the-tests"
ANOTHER_KEY = "belongs to another relayer key"


@dataclass
class Vault:
    """Vault's API of the Transit engine: ``/v1/{mount}/encrypt/{name}`` and ``.../decrypt/{name}``.

    Responses are those of https://developer.hashicorp.com/vault/api-docs/secret/transit and of its page of errors.
    """

    keys: dict[str, SecretBox] = field(default_factory=dict)
    sealed: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        _, _, mount, operation, name = path.split("/", 4)
        if token != TOKEN or mount != "transit" or name not in self.keys:
            return 403, {"errors": ["1 error occurred:\n\t* permission denied\n\n"]}
        if operation == "encrypt":
            sealed = self.keys[name].encrypt(base64.b64decode(body["plaintext"]))
            return 200, {
                "data": {"ciphertext": f"vault:v1:{base64.b64encode(sealed).decode()}", "key_version": 1}
            }
        prefix, _, sealed_text = body["ciphertext"].rpartition(":")
        if prefix != "vault:v1":
            return 400, {"errors": ["invalid ciphertext: no prefix"]}
        try:
            plain = self.keys[name].decrypt(base64.b64decode(sealed_text))
        except CryptoError:
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


@pytest.fixture
def vault() -> Iterator[Vault]:
    at = Vault({name: SecretBox(random(32)) for name in ("memrelay", "other")})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, document = at.answer(self.path, self.headers.get("x-vault-token", ""), body)
            content = json.dumps({"request_id": "1", **document}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    at.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield at
    server.shutdown()
    thread.join()
    server.server_close()


class Site:
    """A store in a data directory, whose relayer key is in a service."""

    def __init__(
        self, serve: Callable[..., Served], tmp_path: Path, secret: str, environment: dict[str, str]
    ) -> None:
        self.folder, self.data = tmp_path, tmp_path / "data"
        self.environment = environment
        self._serve = serve
        self._secret = secret

    def serve(self, key: str) -> Served:
        environment = self.environment | {"MEMRELAY_RELAYER_KEY": key}
        return self._serve("--accounts", "open", data=self.data, environment=environment)

    def gateway(self, relayer: Served, *arguments: str) -> Done:
        place = self.folder / f"gateway-{relayer.process.pid}"
        return run_gateway(machine(place, relayer.url, self._secret), *arguments)

    def memrelay(self, key: str, *arguments: object, **more: str) -> Done:
        environment = {"MEMRELAY_DATA": str(self.data), "MEMRELAY_RELAYER_KEY": key}
        return run_relayer(self.environment | environment | more, *arguments)

    def rotate(self, old: str, new: str) -> Done:
        file = self.folder / "new.key"
        file.write_text(f"{new}\n")
        file.chmod(0o600)
        return self.memrelay(old, "keys", "rotate", "--new-key-file", file)

    def refused(self, key: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Start a relayer that must not start."""
        environment = self.environment | {"MEMRELAY_RELAYER_KEY": key} | more
        done = run_memrelay(["serve", "--port", "0", "--data", str(self.data)], environment)
        assert done.returncode
        assert TOKEN not in done.stdout + done.stderr
        return done

    def check_life(self, first: str, second: str, local: str) -> None:
        """Use a store whose key is in a service, and rotate it to another key there, and out of the service."""
        relayer = self.serve(first)
        assert self.gateway(relayer, "remember", TEXT).returncode == 0
        assert not (self.data / "relayer.key").exists()
        rotated = self.rotate(first, second)
        assert (rotated.returncode, rotated.stderr) == (0, "")
        assert TEXT in self.gateway(relayer, "search", TEXT).stdout
        assert relayer.stop() == 0
        again = self.serve(second)
        assert TEXT in self.gateway(again, "search", TEXT).stdout
        assert again.stop() == 0
        done = self.memrelay(second, "backup", "--to", self.folder / "backup")
        assert done.returncode == 0, done.stderr
        restored = {"MEMRELAY_DATA": str(self.folder / "restored")}
        done = self.memrelay(second, "restore", "--from", self.folder / "backup", **restored)
        assert done.returncode == 0, done.stderr
        assert self.memrelay(second, "verify", **restored).returncode == 0
        assert "it has no sheet" in self.memrelay(second, "keys", "recovery").stderr
        assert self.rotate(second, local).returncode == 0
        assert ANOTHER_KEY in self.refused(second).stderr
        last = self.serve(local)
        assert TEXT in self.gateway(last, "search", TEXT).stdout


@pytest.fixture
def in_vault(serve: Callable[..., Served], tmp_path: Path, secret: str, vault: Vault) -> Site:
    return Site(serve, tmp_path, secret, {"VAULT_ADDR": vault.url, "VAULT_TOKEN": TOKEN})


def test_a_key_in_vault_opens_a_store_and_is_rotated(in_vault: Site, vault: Vault) -> None:
    in_vault.check_life("vault:memrelay", "vault:transit/other", "cd" * 32)
    assert "/v1/transit/encrypt/memrelay" in vault.asked


def test_another_key_in_vault_opens_nothing(in_vault: Site) -> None:
    assert in_vault.serve("vault:memrelay").stop() == 0
    before = (in_vault.data / "objects/relayer").read_bytes()
    assert ANOTHER_KEY in in_vault.refused("vault:other").stderr
    assert (in_vault.data / "objects/relayer").read_bytes() == before
    assert ANOTHER_KEY in in_vault.rotate("vault:other", "ab" * 32).stderr


def test_what_is_wrong_with_vault_is_named_and_nothing_is_written(in_vault: Site, vault: Vault) -> None:
    denied = in_vault.refused("vault:unknown")
    assert (denied.returncode, "permission denied" in denied.stderr, "VAULT_TOKEN" in denied.stderr) == (
        2,
        True,
        True,
    )
    assert "VAULT_TOKEN" in in_vault.refused("vault:memrelay", VAULT_TOKEN="wrong").stderr
    assert "use https" in in_vault.refused("vault:memrelay", VAULT_ADDR="http://192.0.2.1").stderr
    assert "VAULT_ADDR: give" in in_vault.refused("vault:memrelay", VAULT_ADDR="").stderr
    vault.sealed = True
    sealed = in_vault.refused("vault:memrelay")
    assert (sealed.returncode, "Vault is sealed" in sealed.stderr) == (3, True)
    silent = in_vault.refused("vault:memrelay", VAULT_ADDR="http://127.0.0.1:9")
    assert (silent.returncode, "does not respond" in silent.stderr) == (3, True)
    assert not (in_vault.data / "objects/relayer").exists()


@pytest.fixture
def in_aws(
    serve: Callable[..., Served], tmp_path: Path, secret: str, moto_server: S3Server, s3_credentials: None
) -> Site:
    environment = CREDENTIALS | {"AWS_ENDPOINT_URL_KMS": moto_server.url, "AWS_DEFAULT_REGION": "eu-west-1"}
    return Site(serve, tmp_path, secret, environment)


@pytest.fixture
def aws_keys(moto_server: S3Server, s3_credentials: None) -> list[str]:
    """Two keys in AWS KMS, as configured: by alias, and by ARN in another region."""
    near = boto3.client("kms", "eu-west-1", endpoint_url=moto_server.url)
    created = near.create_key()["KeyMetadata"]
    near.create_alias(AliasName=f"alias/{created['KeyId']}", TargetKeyId=created["KeyId"])
    far = boto3.client("kms", "us-east-2", endpoint_url=moto_server.url).create_key()["KeyMetadata"]
    return [f"awskms:alias/{created['KeyId']}", f"awskms:{far['Arn']}"]


def test_a_key_in_aws_kms_opens_a_store_and_is_rotated(in_aws: Site, aws_keys: list[str]) -> None:
    in_aws.check_life(*aws_keys, "cd" * 32)


def test_what_is_wrong_with_aws_kms_is_named_and_nothing_is_written(
    in_aws: Site, aws_keys: list[str]
) -> None:
    unknown = in_aws.refused("awskms:alias/none")
    assert (unknown.returncode, "NotFoundException" in unknown.stderr) == (2, True)
    assert "kms:Decrypt" in unknown.stderr
    silent = in_aws.refused(aws_keys[0], AWS_ENDPOINT_URL_KMS="http://127.0.0.1:9")
    assert (silent.returncode, "AWS KMS could not be asked" in silent.stderr) == (3, True)
    assert not (in_aws.data / "objects/relayer").exists()
