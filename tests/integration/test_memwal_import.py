"""``memrelay-gateway import --from memwal``: what a MemWal service has of somebody, read through its API and kept as an agent's."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memwal_calls import MemWalCaller
from typed_commands import machine, run_gateway

from relayer.fronts.memwal.contract import address_of
from relayer.telemetry import configure
from relayer.testing.local_relayer import local_relayer


@pytest.fixture(autouse=True)
def quiet():
    """Relayers of this process keep their lines out of what a command prints."""
    configure("json", "error", io.StringIO())


@pytest.fixture
async def service():
    """A service, and somebody who has memories there."""
    async with local_relayer(rate_limits="off") as relayer:
        caller = MemWalCaller(relayer)
        for begin in range(0, 120, 20):
            items = [
                {"text": f"Fact {number}: crate {number} is in hall {number % 7}."}
                for number in range(begin, begin + 20)
            ]
            assert (await caller.post("/api/remember/bulk", {"items": items})).status_code == 202
        await caller.remember("The cat is Tom.", namespace="pets")
        yield caller


@pytest.fixture
async def here(tmp_path: Path):
    """A machine with a relayer of its own: types a command, and lists an agent's memories."""
    async with local_relayer(rate_limits="off") as relayer:
        environment = machine(tmp_path, relayer.url, os.urandom(32).hex())

        async def typed(*arguments: str, code: int = 0, **more: str) -> Any:
            done = await asyncio.to_thread(run_gateway, environment | more, *arguments)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout if not code else done.stdout + done.stderr

        typed.home, typed.environment = Path(environment["HOME"]), environment
        yield typed


def variables(caller: MemWalCaller) -> dict[str, str]:
    return {
        "MEMWAL_PRIVATE_KEY": bytes(caller.key).hex(),
        "MEMWAL_ACCOUNT_ID": address_of(bytes(caller.key.verify_key)),
        "MEMWAL_SERVER_URL": caller.relayer.url,
    }


async def listed(typed, agent: str) -> tuple[int, set[str]]:
    """How many memories an agent has, and the texts of the newest hundred."""
    told = json.loads(await typed("list", "--json", "--agent", agent, "--limit", "100"))
    return told["total"], {one["text"] for one in told["memories"]}


async def test_the_service_may_be_named_without_an_option_and_by_either_program(service, here) -> None:
    named = json.loads(await here("import", "memwal", "--dry-run", "--json", **variables(service)))
    assert named["found"] == 121
    other = Path(sys.executable).parent / "memrelay"
    done = await asyncio.to_thread(
        subprocess.run,
        [other, "import", "memwal", "--dry-run", "--json"],
        env=here.environment | variables(service),
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == named


@pytest.mark.row("MW-53", level="e2e")
async def test_all_namespaces_come_and_a_second_time_changes_nothing(service, here) -> None:
    told = await here("import", "--from", "memwal", **variables(service))
    assert "pets: 1 added" in told or "pets: 1 found" in told
    total, kept = await listed(here, "main")
    assert total == 120
    assert any(text.startswith("Fact ") for text in kept)
    assert await listed(here, "main/pets") == (1, {"The cat is Tom."})
    again = json.loads(await here("import", "--from", "memwal", "--json", **variables(service)))
    assert again["found"] == 121
    assert again["problems"] == []
    assert (await listed(here, "main"))[0] == 120
    assert bytes(service.key).hex() not in told


@pytest.mark.row("MW-53", level="e2e")
async def test_the_file_of_its_mcp_package_serves_as_well_and_one_namespace_can_be_named(
    service, here
) -> None:
    named = variables(service)
    saved = {
        "delegatePrivateKey": named["MEMWAL_PRIVATE_KEY"],
        "accountId": named["MEMWAL_ACCOUNT_ID"],
        "relayerUrl": named["MEMWAL_SERVER_URL"],
    }
    (here.home / ".memwal").mkdir(parents=True)
    (here.home / ".memwal" / "credentials.json").write_text(json.dumps(saved))
    told = await here("import", "--from", "memwal", "--namespace", "pets", "--agent", "writer", "--dry-run")
    assert "pets: 1 found" in told
    assert await listed(here, "writer/pets") == (0, set())
    await here("import", "--from", "memwal", "--namespace", "pets", "--agent", "writer")
    assert await listed(here, "writer/pets") == (1, {"The cat is Tom."})
    assert await listed(here, "writer") == (0, set())


@pytest.mark.parametrize(
    ("arguments", "more", "named"),
    [
        (("--from", "memwal"), {}, "MEMWAL_PRIVATE_KEY"),
        (("--from", "memwal"), {"MEMWAL_PRIVATE_KEY": "short"}, "MEMWAL_PRIVATE_KEY"),
        (("--from", "memwal"), {"MEMWAL_PRIVATE_KEY": "ab" * 32}, "MEMWAL_ACCOUNT_ID"),
        (("--from", "memwal", "a.md"), {}, "--from"),
        (("--namespace", "pets", "a.md"), {}, "--namespace"),
        ((), {}, "PATH"),
    ],
)
async def test_what_does_not_go_together_or_is_missing_is_named(here, arguments, more, named) -> None:
    assert named in await here("import", *arguments, code=2, **more)


async def test_a_service_that_refuses_the_key_or_does_not_answer_says_so(service, here) -> None:
    foreign = variables(service) | {"MEMWAL_PRIVATE_KEY": "ab" * 32}
    assert "refuses this key (401)" in await here("import", "--from", "memwal", code=1, **foreign)
    nowhere = variables(service) | {"MEMWAL_SERVER_URL": "http://127.0.0.1:9"}
    assert "no MemWal service answers" in await here("import", "--from", "memwal", code=1, **nowhere)
