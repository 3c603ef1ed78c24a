"""A new relayer key for a store in use: running relayers go on, later starts and restores need the new key."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from processes import CLEAN, Served, run_memrelay
from s3_servers import CREDENTIALS, S3Server
from typed_commands import Done, machine, run_gateway, run_relayer

TEXT = "The spare key lies under the blue flowerpot"
LATER = "The gate code changes every spring"
ANOTHER_KEY = "belongs to another relayer key"


class Site:
    """A store, the relayers over it, and a gateway with memories in it."""

    def __init__(self, serve: Callable[..., Served], tmp_path: Path, secret: str) -> None:
        self.folder = tmp_path
        self.data = tmp_path / "data"
        self.old, self.new = self.data / "relayer.key", tmp_path / "new.key"
        self.start = serve
        self._secret = secret

    def serve(self, key: Path | None = None) -> Served:
        environment = {} if key is None else {"MEMRELAY_RELAYER_KEY_FILE": str(key)}
        return self.start("--accounts", "open", data=self.data, environment=environment)

    def gateway(self, relayer: Served, *arguments: str) -> Done:
        # The port differs at each start, and the gateway keeps the relayer's identity by its address: a new one each time.
        place = self.folder / f"gateway-{relayer.process.pid}"
        return run_gateway(machine(place, relayer.url, self._secret), *arguments)

    def remember(self, relayer: Served, text: str) -> None:
        done = self.gateway(relayer, "remember", text)
        assert done.returncode == 0, done.stderr

    def recalls(self, relayer: Served, text: str) -> bool:
        return text in self.gateway(relayer, "search", text).stdout

    def memrelay(self, *arguments: object, key: Path | None = None, data: Path | None = None) -> Done:
        environment = {"MEMRELAY_DATA": str(data or self.data)}
        if key is not None:
            environment["MEMRELAY_RELAYER_KEY_FILE"] = str(key)
        return run_relayer(environment, *arguments)

    def rotate(self, *options: str) -> Done:
        return self.memrelay("keys", "rotate", "--new-key-file", self.new, *options)

    def refused(self, key: Path) -> str:
        """Start a relayer that must not start; return what it prints."""
        before = self.objects()
        place = ["--port", "0", "--data", str(self.data)]
        done = run_memrelay(["serve", *place], {"MEMRELAY_RELAYER_KEY_FILE": str(key)})
        assert (done.returncode, self.objects()) == (2, before)
        return done.stderr

    def objects(self) -> dict[str, bytes]:
        files = (path for path in (self.data / "objects").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files}


@pytest.fixture
def site(serve: Callable[..., Served], tmp_path: Path, secret: str) -> Site:
    made = Site(serve, tmp_path, secret)
    assert made.memrelay("keys", "make", made.new).returncode == 0
    return made


def test_a_running_relayer_goes_on_and_the_next_start_needs_the_new_key(site: Site) -> None:
    relayer = site.serve()
    site.remember(relayer, TEXT)
    identity = httpx.get(f"{relayer.url}/v1/keys", trust_env=False).json()["identity"]
    done = site.rotate()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"replace the old key by {site.new}" in done.stdout
    assert httpx.get(f"{relayer.url}/ready", trust_env=False).json()["ready"]
    site.remember(relayer, LATER)
    assert site.recalls(relayer, TEXT)
    assert relayer.stop() == 0
    said = site.refused(site.old)
    assert ANOTHER_KEY in said
    assert "memrelay keys rotate" in said
    again = site.serve(site.new)
    # Gateways know a relayer by its identity: it is the same.
    assert httpx.get(f"{again.url}/v1/keys", trust_env=False).json()["identity"] == identity
    assert site.recalls(again, TEXT)
    assert site.recalls(again, LATER)
    environment = {"MEMRELAY_DATA": str(site.data), "MEMRELAY_NEW_RELAYER_KEY_FILE": str(site.new)}
    once_more = run_relayer(environment, "keys", "rotate")
    assert (once_more.returncode, "the new key opened the store already" in once_more.stdout) == (0, True)
    verified = site.memrelay("verify", key=site.new)
    assert verified.returncode == 0, verified.stdout
    assert ANOTHER_KEY in site.memrelay("verify").stderr


def test_a_key_that_opens_nothing_replaces_nothing(site: Site, tmp_path: Path) -> None:
    assert site.serve().stop() == 0
    other = tmp_path / "other.key"
    site.memrelay("keys", "make", other)
    before = site.objects()
    done = site.memrelay("keys", "rotate", "--new-key-file", site.new, key=other)
    assert (done.returncode, ANOTHER_KEY in done.stderr) == (2, True)
    missing = site.memrelay("keys", "rotate")
    assert (missing.returncode, "--new-key-file" in missing.stderr) == (2, True)
    assert site.objects() == before


def test_the_new_key_s_sheet_brings_the_new_key_back(site: Site, tmp_path: Path) -> None:
    assert site.serve().stop() == 0
    assert site.rotate().returncode == 0
    sheet, back = tmp_path / "sheet.txt", tmp_path / "back.key"
    sheet.write_text(site.memrelay("keys", "recovery", key=site.new).stdout)
    assert site.memrelay("keys", "recover", back, "--sheet", sheet).returncode == 0
    assert site.serve(back).stop() == 0


def test_a_backup_is_opened_by_the_key_of_its_time(site: Site, tmp_path: Path) -> None:
    relayer = site.serve()
    site.remember(relayer, TEXT)
    early, late = tmp_path / "early", tmp_path / "late"
    for place in (early, late):
        assert site.memrelay("backup", "--to", place).returncode == 0
    assert site.rotate().returncode == 0
    site.remember(relayer, LATER)
    assert relayer.stop() == 0
    done = site.memrelay("backup", "--to", late, key=site.new)
    assert done.returncode == 0, done.stderr
    # Nothing that was copied before is copied again.
    assert int(done.stdout.partition("copied    ")[2].split()[0]) < 8
    for place, right, wrong in ((early, site.old, site.new), (late, site.new, site.old)):
        fresh = tmp_path / f"fresh-{place.name}"
        refused = site.memrelay("restore", "--from", place, key=wrong, data=fresh)
        assert (refused.returncode, ANOTHER_KEY in refused.stderr) == (2, True)
        assert not [path for path in fresh.rglob("relayer") if path.is_file()]
        assert site.memrelay("restore", "--from", place, key=right, data=fresh).returncode == 0
        assert site.memrelay("verify", key=right, data=fresh).returncode == 0
    # With the newer ledger, the old copy is opened by the new key.
    fresh = tmp_path / "fresh-both"
    both = site.memrelay("restore", "--from", early, "--ledger", late, key=site.new, data=fresh)
    assert both.returncode == 0, both.stderr
    site.data = fresh
    assert site.recalls(site.serve(site.new), TEXT)


def test_a_rotation_that_is_killed_leaves_a_store_that_exactly_one_key_opens(site: Site, rounds: int) -> None:
    relayer = site.serve()
    site.remember(relayer, TEXT)
    keys = [site.old, site.new]

    def rotation() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "relayer", "keys", "rotate", "--new-key-file", str(keys[1])],
            env=CLEAN | {"MEMRELAY_DATA": str(site.data), "MEMRELAY_RELAYER_KEY_FILE": str(keys[0])},
            stdout=subprocess.DEVNULL,
        )

    began = time.monotonic()
    assert rotation().wait(60) == 0
    took = time.monotonic() - began
    keys.reverse()
    for number in range(3 * rounds):
        process = rotation()
        # The write is near the end; kills are spread over the second half.
        time.sleep(took * (0.5 + 0.5 * number / (3 * rounds)))
        process.kill()
        process.wait(30)
        opening = [key for key in keys if site.memrelay("inspect", "relayer", key=key).returncode == 0]
        assert len(opening) == 1
        if opening == keys[1:]:
            keys.reverse()
    assert site.memrelay("keys", "rotate", "--new-key-file", keys[1], key=keys[0]).returncode == 0
    assert site.recalls(relayer, TEXT)
    assert relayer.stop() == 0
    assert ANOTHER_KEY in site.refused(keys[0])
    assert site.recalls(site.serve(keys[1]), TEXT)


def test_older_versions_of_a_bucket_are_named(site: Site, moto_server: S3Server, tmp_path: Path) -> None:
    moto_server.empty()
    bucket = f"versioned-{secrets.token_hex(4)}"
    moto_server.admin.create_bucket(Bucket=bucket)
    moto_server.admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old = tmp_path / "old.key"
    site.memrelay("keys", "make", old)
    environment = CREDENTIALS | {
        "MEMRELAY_STORE": f"s3://{bucket}/team",
        "MEMRELAY_ENDPOINT_URL": moto_server.url,
        "MEMRELAY_PROBE": "off",
        "MEMRELAY_RELAYER_KEY_FILE": str(old),
    }
    assert site.start(environment=environment).stop() == 0
    done = run_relayer(environment, "keys", "rotate", "--new-key-file", site.new, "--json")
    assert (done.returncode, json.loads(done.stdout)["older_versions"]) == (0, 1), done.stderr
    done = run_relayer(environment, "keys", "rotate", "--new-key-file", site.new)
    assert "the bucket keeps 1 older versions of the object relayer" in done.stdout
