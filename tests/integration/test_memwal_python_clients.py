"""MemWal's own Python client against a relayer, unmodified, in four versions; nothing else can be reached from it.

Each version is installed once below ~/.cache/memrelay-tests; where no registry answers, its tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey
from processes import ran

from relayer.fronts.memwal.contract import address_of
from relayer.testing.local_relayer import local_relayer, threaded_relayer

VERSIONS = ("0.1.4", "0.1.8", "0.1.12", "0.2.1")
# What its middleware plugs into; the newest version is tried with it.
FRAMEWORK = "langchain-core==1.0.0"
_SCENARIO = Path(__file__).parents[1] / "memwal_scenario.py"


def _installed(name: str, *packages: str) -> Path:
    below = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memrelay-tests"
    place = below / name
    if (place / "done").exists():
        return place
    below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=below) as draft:
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target"]
        found = ran([*command, f"{draft}/whole", *packages], timeout=110)
        if found.returncode:
            pytest.skip(f"{name} cannot be installed here: {found.stderr.strip()[-200:]}")
        # Whole or not at all: another process may be importing from there by now.
        with contextlib.suppress(OSError):
            Path(draft, "whole").rename(place)
        (place / "done").touch()
    return place


@pytest.fixture(scope="module")
def relayer_url() -> Iterator[str]:
    with threaded_relayer(lambda: local_relayer(real_model=True, rate_limits="off")) as relayer:
        yield relayer.url


@cache
def _run(url: str, version: str, *more: str) -> Any:
    key = SigningKey.generate()
    paths = [str(_installed(f"memwal-{version}", "--no-deps", f"memwal=={version}"))]
    if version == VERSIONS[-1] and not more:
        paths.append(str(_installed("memwal-middleware", FRAMEWORK)))
    command = [
        sys.executable,
        str(_SCENARIO),
        url,
        bytes(key).hex(),
        address_of(bytes(key.verify_key)),
        *more,
    ]
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    ended = ran(command, env=environment | {"PYTHONPATH": os.pathsep.join(paths)}, timeout=110)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.row("MW-45", level="e2e")
@pytest.mark.row("MW-38", level="e2e")
@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_call_of_the_python_client_works_unmodified(relayer_url: str, version: str) -> None:
    told = _run(relayer_url, version)
    assert told["health"]["status"] == "ok"
    assert told["waited"]["blob_id"]
    assert told["remembered"]["blob_id"] != told["waited"]["blob_id"]
    # Older ones sleep before they ask.
    assert told["seconds"] < (5 if version in VERSIONS[:2] else 1)
    assert [one["status"] for one in told["bulk"]["results"]] == ["done", "done"]
    assert told["recall"]["results"][0]["text"] == "I am allergic to peanuts."
    assert [one["text"] for one in told["pets"]["results"]] == ["The cat is Tom."]
    if "near" in told:
        assert [one["text"] for one in told["near"]["results"]] == ["I am allergic to peanuts."]
    assert (told["analyzed"]["succeeded"], told["analyzed"]["failed"]) == (1, 0)
    assert "peanuts" in told["asked"]["answer"]
    assert told["restored"]["total"] == told["restored"]["skipped"] == 3
    assert told["embedded"] > 100
    assert told["found"]["results"][0]["blob_id"] == told["manual"]["blob_id"]
    assert told["at_once"] == 20
    if "namespaces" in told:
        names = {one["name"]: one["memory_count"] for one in told["namespaces"]["namespaces"]}
        assert names == {"default": 4, "pets": 1, "trip": 1}
        assert told["recent"]["results"][0]["text"] == "The car is red."
        assert all(one["score"] is not None for one in told["weighted"]["results"])
        assert told["unknown"]["status"] == "not_found"


@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_python_client_says_what_is_wrong(relayer_url: str, version: str) -> None:
    told = _run(relayer_url, version)["refused"]
    assert "Error" in told["intruder"]
    if version in {"0.1.12", "0.2.1"}:
        assert told["late"].startswith("MemWalClockDriftError")
    else:
        assert "Error" in told["late"]


@pytest.mark.row("MW-45", level="e2e")
def test_its_middleware_finds_and_saves(relayer_url: str) -> None:
    for version in VERSIONS:
        told = _run(relayer_url, version)["middleware"]
        assert "I am allergic to peanuts." in told["openai"]
        assert any("oolong" in text for text in told["saved"])
        if version == VERSIONS[-1]:
            assert "I am allergic to peanuts." in told["langchain"]


@pytest.mark.row("MW-45", level="e2e")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_sync_client_works(relayer_url: str, version: str) -> None:
    assert _run(relayer_url, version, "sync") == ["The sync client wrote this."]


@pytest.mark.row("MW-41", level="e2e")
@pytest.mark.row("MW-37", level="e2e")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_in_a_loop_is_told_to_wait_and_a_heard_request_is_not_answered_twice(version: str) -> None:
    with threaded_relayer(lambda: local_relayer(compat_limits="20/600/6000")) as relayer:
        told = _run(relayer.url, version, "limited")
    # A point comes back every three seconds.
    assert 20 <= told["passed"] <= 30
    assert "429" in told["error"] or "rate limit" in told["error"].lower()
    # Refused as heard before, or before that as too many: the charge comes first.
    assert told["again"] in {401, 429}
