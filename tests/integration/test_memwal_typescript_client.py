"""MemWal's own TypeScript client, of the version that the registry has, against a relayer with ``--compat-legacy``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from nacl.signing import SigningKey
from processes import ran

from relayer.fronts.memwal.contract import address_of
from relayer.testing.local_relayer import local_relayer, threaded_relayer

VERSION = "0.0.1"
_NAME = "@mysten-incubation/memwal"
_SCENARIO = Path(__file__).parents[1] / "memwal_scenario.mjs"


def _installed() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memrelay-tests"
    place = cache / f"memwal-npm-{VERSION}"
    module = place / "node_modules" / _NAME / "dist" / "memwal.js"
    if module.exists():
        return module
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing, and with it MemWal's TypeScript client")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as draft:
        # Its peers are optional, and several hundred megabytes.
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
        found = ran([npm, "install", "--prefix", draft, *options, f"{_NAME}@{VERSION}"], timeout=110)
        if found.returncode:
            pytest.skip(f"it cannot be installed here: {found.stderr.strip()[-200:]}")
        if not module.exists():
            shutil.copytree(draft, place, dirs_exist_ok=True, symlinks=True)
    return module


@pytest.mark.row("MW-44", level="e2e")
@pytest.mark.row("MW-38", level="e2e")
def test_the_typescript_client_of_before_nonces_works_where_it_is_let_in() -> None:
    module, key = _installed(), SigningKey.generate()
    account = address_of(bytes(key.verify_key))
    with threaded_relayer(lambda: local_relayer(real_model=True, compat_legacy=True)) as relayer:
        ended = subprocess.run(
            ["node", str(_SCENARIO), str(module), relayer.url, bytes(key).hex(), account],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        told = json.loads(ended.stdout)
        assert told["reached"] == [relayer.url]
    assert told["health"]["status"] == "ok"
    assert told["remembered"]["owner"] == account
    assert told["recalled"]["results"][0]["text"] == "I am allergic to peanuts."
    assert told["elsewhere"] == {"results": [], "total": 0}
    assert told["analyzed"]["total"] == len(told["analyzed"]["facts"]) == 1
    assert told["analyzed"]["facts"][0]["blob_id"]
    assert told["embedded"] > 100
    assert told["manual"]["blob_id"] == "kept-on-walrus"
    assert [one["blob_id"] for one in told["found"]["results"]] == ["kept-on-walrus"]
    assert told["restored"]["total"] == 3
    assert "401" in told["intruder"]


@pytest.mark.row("MW-44", level="e2e")
def test_without_that_it_is_told_to_be_renewed() -> None:
    module, key = _installed(), SigningKey.generate()
    with threaded_relayer(local_relayer) as relayer:
        ended = subprocess.run(
            [
                "node",
                str(_SCENARIO),
                str(module),
                relayer.url,
                bytes(key).hex(),
                address_of(bytes(key.verify_key)),
            ],
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert ended.returncode == 1
    assert "(426)" in ended.stderr
