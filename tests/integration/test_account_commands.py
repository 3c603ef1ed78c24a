"""`memrelay account` as it is typed, over the store of two relayers that are running."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from doubles.set_clocks import AheadClock
from processes import CLEAN, wait_until
from typed_commands import Done, run_relayer

from relayer.adapters.directory_store import DirectoryStore
from relayer.testing.local_relayer import RELAYER_KEY, LocalRelayer, SigningGateway, local_relayer
from relayer.wire import codec as base64url
from relayer.wire.signing import Revocations, Right

NEXT_LOOK = 15.0
TEXT = "The spare key of the boathouse hangs behind the third oar."


@dataclass
class House:
    data: Path
    clock: AheadClock
    relayers: list[LocalRelayer]
    gateway: SigningGateway

    @property
    def account(self) -> str:
        return self.gateway.root.account

    async def run(self, *arguments: object, code: int = 0) -> Done:
        environment = {"MEMRELAY_DATA": str(self.data), "HOME": str(self.data.parent), "COLUMNS": "200"}
        done = await asyncio.to_thread(run_relayer, environment, "account", *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    async def document(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.run(*arguments, "--json", code=code)).stdout)
        return found

    async def remember(
        self, at: int, text: str, namespace: str = "researcher", gateway: SigningGateway | None = None
    ) -> httpx.Response:
        relayer, gateway = self.relayers[at], gateway or self.gateway
        key = gateway.memory_key(relayer.fleet_key, namespace=namespace)
        return await relayer.call(
            "POST", "/v1/memories", {"items": [{"text": text}]}, key=key, gateway=gateway
        )

    async def recall(self, at: int, gateway: SigningGateway | None = None) -> httpx.Response:
        relayer, gateway = self.relayers[at], gateway or self.gateway
        key = gateway.memory_key(relayer.fleet_key)
        return await relayer.call(
            "POST", "/v1/recall", {"query": "Where is the key?"}, key=key, gateway=gateway
        )

    async def usage(self, at: int) -> dict[str, Any]:
        answer = await self.relayers[at].call("GET", "/v1/account", key=False, gateway=self.gateway)
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found


@asynccontextmanager
async def _house(folder: Path, **settings: Any) -> AsyncIterator[House]:
    data, clock = folder / "data", AheadClock()
    async with AsyncExitStack() as stack:
        relayers = []
        for _ in range(2):
            store = await DirectoryStore.open(data / "objects", clock=clock)
            stack.push_async_callback(store.close)
            relayers.append(await stack.enter_async_context(local_relayer(store, clock, **settings)))
        key = data / "relayer.key"
        key.write_text(RELAYER_KEY.hex() + "\n")
        key.chmod(0o600)
        yield House(data, clock, relayers, SigningGateway())


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with _house(tmp_path) as house:
        yield house


async def test_every_relayer_refuses_a_revoked_account_within_fifteen_seconds(house: House) -> None:
    other = SigningGateway()
    assert (await house.remember(0, TEXT)).status_code == 200
    assert (await house.remember(0, TEXT, gateway=other)).status_code == 200
    assert (await house.recall(1)).status_code == 200
    done = await house.run("revoke", house.account)
    assert f"{house.account}  (revoked)" in done.stdout
    assert "within 15 seconds" in done.stdout
    house.clock.ahead += NEXT_LOOK
    for at in (0, 1):
        for refused in (await house.recall(at), await house.remember(at, "The fourth oar is new.")):
            assert refused.status_code == 403
            assert refused.json()["code"] == "account_revoked"
            assert "operator" in refused.json()["detail"]
        assert (await house.recall(at, other)).status_code == 200
    # A certificate that the account never issued is told nothing about it.
    forged = await house.relayers[0].call(
        "GET", "/v1/account", key=False, gateway=house.gateway, certificate=other.certificate()
    )
    assert forged.status_code == 401
    rows = {row["account"]: row for row in (await house.document("list"))["accounts"]}
    assert len((await house.document("list"))["accounts"]) == len(rows) == 2
    assert (rows[house.account]["revoked"], rows[other.root.account]["revoked"]) == (True, False)
    at = rows[house.account]["revoked_at"]
    assert (await house.document("revoke", house.account))["revoked_at"] == at
    assert (await house.document("revoke", house.account, "--undo"))["revoked"] is False
    house.clock.ahead += NEXT_LOOK
    for at in (0, 1):
        answer = await house.recall(at)
        assert [hit["text"] for hit in answer.json()["memories"]] == [TEXT]


async def test_every_relayer_applies_an_accounts_own_limits_within_fifteen_seconds(house: House) -> None:
    for number in range(3):
        assert (await house.remember(0, f"Cargo {number} is in hall {number}.")).status_code == 200
    assert (await house.usage(1))["memories"]["limit"] == 1_000_000
    shown = await house.run("limits", house.account, "--memories", "4", "--bytes", "20M")
    assert "20,971,520 bytes, 4 memories" in shown.stdout
    house.clock.ahead += NEXT_LOOK
    for at in (0, 1):
        usage = await house.usage(at)
        limits = [usage[what]["limit"] for what in ("memories", "bytes", "namespaces")]
        assert limits == [4, 20 * 1024 * 1024, 2000]
    assert (await house.remember(0, "Cargo 4 is in hall 4.")).status_code == 200
    refused = await house.remember(1, "Cargo 5 is in hall 5.")
    assert (refused.status_code, refused.json()["code"]) == (409, "quota_exceeded")
    assert "4 memories" in refused.json()["detail"]
    assert "memrelay account limits" in refused.json()["detail"]
    # One limit is changed by itself, and 0 is no limit.
    changed = await house.document("limits", house.account, "--memories", "0")
    assert changed["limits"] == {"bytes": 20 * 1024 * 1024, "namespaces": None, "memories": 0}
    assert (await house.document("limits", house.account))["limits"] == changed["limits"]
    house.clock.ahead += NEXT_LOOK
    assert (await house.remember(1, "Cargo 5 is in hall 5.")).status_code == 200
    assert (await house.usage(1))["memories"]["limit"] is None
    assert (await house.document("limits", house.account, "--default"))["limits"] is None
    house.clock.ahead += NEXT_LOOK
    assert (await house.usage(0))["memories"]["limit"] == 1_000_000


async def test_the_smaller_limit_counts_for_an_account_that_a_file_names(tmp_path: Path) -> None:
    gateway, file = SigningGateway(), tmp_path / "quotas.toml"
    file.write_text(f'["{gateway.root.account}"]\nmemories = 10\nnamespaces = 0\n')
    async with _house(tmp_path, quotas=file) as house:
        house.gateway = gateway
        assert (await house.remember(0, TEXT)).status_code == 200
        for memories, namespaces, counts in ((20, 7, [10, 7]), (5, 0, [5, None])):
            await house.run("limits", house.account, "--memories", memories, "--namespaces", namespaces)
            house.clock.ahead += NEXT_LOOK
            for at in (0, 1):
                usage = await house.usage(at)
                assert [usage[what]["limit"] for what in ("memories", "namespaces")] == counts


async def test_the_list_shows_what_an_account_stores_and_what_was_set(house: House) -> None:
    nothing = await house.run("list")
    assert nothing.stdout == "result    this store has no account\n"
    assert (await house.document("list")) == {"accounts": [], "findings": []}
    for name in ("researcher", "researcher/notes"):
        assert (await house.remember(0, TEXT, name)).status_code == 200
    small = SigningGateway()
    assert (await house.remember(0, "A line.", gateway=small)).status_code == 200
    await house.run("limits", house.account, "--bytes", "1M", "--namespaces", "0")
    first, second = (await house.document("list"))["accounts"]
    assert (first["account"], first["stored_as"]) == (house.account, house.account)
    assert (first["namespaces"], first["memories"]) == (2, 2)
    assert first["bytes"] > second["bytes"] > 0
    assert first["limits"] == {"bytes": 1024 * 1024, "namespaces": 0, "memories": None}
    assert (second["account"], second["limits"], second["revoked_at"]) == (small.root.account, None, None)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+Z", first["created_at"])
    stats = await asyncio.to_thread(run_relayer, {"MEMRELAY_DATA": str(house.data)}, "stats")
    assert f"{first['bytes']:,} of 1,048,576 bytes" in stats.stdout
    head, row, _ = (await house.run("list")).stdout.splitlines()
    assert re.split(r"  +", head) == [
        "account", "first seen", "namespaces", "memories", "bytes", "own limits", "revoked",
    ]  # fmt: skip
    assert row.startswith(f"{house.account}  {first['created_at']}")
    assert row.endswith("1,048,576 bytes, any namespaces  -")


@pytest.mark.tier("all")
async def test_an_account_that_is_erased_is_refused_and_has_nothing_left(house: House) -> None:
    other = SigningGateway()
    for name in ("researcher", "researcher/notes"):
        assert (await house.remember(0, TEXT, name)).status_code == 200
    assert (await house.remember(0, TEXT, gateway=other)).status_code == 200
    unanswered = await house.run("erase", house.account, code=1)
    assert "Erase 2 namespaces" in unanswered.stderr
    assert "nothing was changed" in unanswered.stderr
    assert (await house.recall(1)).status_code == 200
    erased = await house.document("erase", house.account, "--yes")
    assert (erased["namespaces"], erased["waiting_namespaces"], erased["findings"]) == (2, 2, [])
    assert erased["deleted_objects"] >= 4
    assert erased["left_objects"] >= 2
    house.clock.ahead += NEXT_LOOK
    for at in (0, 1):
        assert (await house.recall(at)).json()["code"] == "account_revoked"
        assert (await house.recall(at, other)).status_code == 200
    # Only the other account has keys, and a namespace.
    assert len(list(house.data.glob("objects/ns/*/keyring*"))) == 1
    rows = {row["account"]: row for row in (await house.document("list"))["accounts"] if row["namespaces"]}
    assert rows.keys() == {other.root.account}
    # Run again, it finds the erasures that wait and says the same of what is left.
    again = await house.document("erase", house.account, "--yes")
    assert (again["namespaces"], again["deleted_objects"]) == (2, 0)
    assert again["left_objects"] == erased["left_objects"]
    assert again["revoked_at"] == erased["revoked_at"]


@pytest.mark.tier("all")
async def test_an_erasure_shows_how_long_it_still_waits_for_the_relayers(house: House) -> None:
    # The account has no namespace, so the wait is all that there is to show.
    await house.run("limits", house.account, "--memories", "100")
    environment = {"MEMRELAY_DATA": str(house.data), "TTY_COMPATIBLE": "1"}
    done = await asyncio.to_thread(run_relayer, environment, "account", "erase", house.account, "--yes")
    assert done.returncode == 0, done.stderr
    shown = {int(percent) for percent in re.findall(r"(\d+)%", done.stderr)}
    assert len([percent for percent in shown if 0 < percent < 100]) >= 10


@pytest.mark.tier("all")
async def test_what_is_left_is_deleted_by_a_later_run_once_no_relayer_uses_it(house: House) -> None:
    assert (await house.remember(0, TEXT)).status_code == 200
    short = ("--yes", "--collect-after", "1s", "--commit-check", "always")
    erased = await house.document("erase", house.account, *short)
    assert (erased["namespaces"], erased["waiting_namespaces"], erased["left_objects"]) == (1, 0, 0)
    assert not [file for file in house.data.glob("objects/ns/**/*") if file.is_file()]
    nothing = await house.run("erase", house.account, *short)
    assert "0 namespaces, 0 objects deleted" in nothing.stdout
    assert "nothing but the record" in nothing.stdout


@pytest.mark.tier("all")
async def test_an_erasure_that_was_killed_is_finished_by_the_next_run(house: House) -> None:
    names = [f"researcher/{number}" for number in range(3)]
    for name in names:
        assert (await house.remember(0, TEXT, name)).status_code == 200
    manifests = len(list(house.data.glob("objects/ns/*/manifest")))
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relayer", "account", "erase", house.account, "--yes"),
        env=CLEAN | {"MEMRELAY_DATA": str(house.data)},
        stdout=asyncio.subprocess.DEVNULL,
    )
    await asyncio.to_thread(
        wait_until, lambda: len(list(house.data.glob("objects/ns/*/manifest"))) < manifests
    )
    killed.kill()
    assert await killed.wait() == -signal.SIGKILL
    # This relayer still admits the account for some seconds.
    assert (await house.remember(0, "Written meanwhile.", "researcher/late")).status_code == 200
    done = await house.document("erase", house.account, "--yes")
    assert done["namespaces"] == len(names) + 1
    assert done["findings"] == []
    assert not list(house.data.glob("objects/ns/*/manifest"))
    assert not list(house.data.glob("objects/ns/*/keyring*"))


@pytest.mark.tier("all")
async def test_a_namespace_that_cannot_be_read_is_named_and_the_others_are_erased(house: House) -> None:
    names = [f"researcher/{number}" for number in range(4)]
    for name in names:
        assert (await house.remember(0, TEXT, name)).status_code == 200
    manifests = sorted(house.data.glob("objects/ns/*/manifest"))
    pointer = sorted(house.data.glob("objects/acct/*/ns/*"))[1]
    whole = pointer.read_bytes()
    pointer.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    broken = await house.document("erase", house.account, "--yes", code=1)
    assert broken["namespaces"] == 3
    assert [finding["flaw"] for finding in broken["findings"]] == ["damaged"]
    assert len([file for file in manifests if file.exists()]) == 1
    pointer.write_bytes(whole)
    done = await house.document("erase", house.account, "--yes")
    assert (done["namespaces"], done["findings"]) == (4, [])
    assert not [file for file in manifests if file.exists()]


async def test_an_export_has_texts_only_where_the_relayer_keeps_the_key(house: House, tmp_path: Path) -> None:
    other, plain = SigningGateway(), "The tide table hangs in the boathouse."
    assert (await house.remember(0, TEXT)).status_code == 200
    assert (await house.remember(0, "A line of another account.", gateway=other)).status_code == 200
    gone = (await remember_in_clear(house, "The old tide table was wet.")).json()["memories"][0]["id"]
    assert (await remember_in_clear(house, plain)).status_code == 200
    place = house.gateway.memory_key(house.relayers[0].fleet_key, namespace="researcher/plain", secret=b"")
    forgotten = await house.relayers[0].call(
        "DELETE", f"/v1/memories/{gone}", key=place, gateway=house.gateway
    )
    assert forgotten.status_code == 200
    await house.run("limits", house.account, "--memories", "100")
    serial, key = bytes(range(16)), bytes(range(32))
    identity = house.gateway.root.account_identity
    revoked = Revocations(bytes(identity.verify_key), 1, (key,), (serial,)).issue(identity)
    admin = dataclasses.replace(house.gateway, rights=tuple(Right))
    body = {"revocations": base64url.encode(revoked)}
    answer = await house.relayers[0].call("PUT", "/v1/account/revocations", body, key=False, gateway=admin)
    assert answer.status_code == 200
    out = tmp_path / "account.jsonl"
    told = await house.run("export", house.account, "--out", out)
    assert f"{out}: 2 namespaces, 2 memories" in told.stdout
    assert "texts of 1 namespaces of custody agent" in told.stdout
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    account, *spaces, end = rows
    assert (account["type"], account["account"], account["limits"]["memories"]) == (
        "account",
        house.account,
        100,
    )
    assert account["revoked_agent_keys"] == [key.hex()]
    assert account["revoked_certificates"] == [serial.hex()]
    named = {row["name"]: row for row in spaces if row["type"] == "namespace"}
    assert {name: (row["custody"], row["memories"]) for name, row in named.items()} == {
        "researcher": ("agent", 1),
        "researcher/plain": ("relayer", 2),
    }
    assert all(row["bytes"] > 0 and row["created_at"] and row["last_entry_at"] for row in named.values())
    memories = [row for row in spaces if row["type"] == "memory"]
    assert [(row["namespace"], row["text"], row["state"]) for row in memories] == [
        ("researcher/plain", "The old tide table was wet.", "forgotten"),
        ("researcher/plain", plain, "live"),
    ]
    assert (end["type"], end["namespaces"], end["memories"], end["findings"]) == ("end", 2, 2, 0)
    written = out.read_text()
    assert TEXT not in written
    assert other.root.account not in written
    assert "another account" not in written


async def remember_in_clear(house: House, text: str) -> httpx.Response:
    """Store a memory in a namespace of custody relayer, as a plain HTTP client does."""
    body = {"items": [{"text": text}], "namespace": "researcher/plain"}
    return await house.relayers[0].call("POST", "/v1/memories", body, key=False, gateway=house.gateway)


async def test_an_export_replaces_no_file_and_leaves_none_behind_when_it_fails(
    house: House, tmp_path: Path
) -> None:
    assert (await house.remember(0, TEXT)).status_code == 200
    out = tmp_path / "account.jsonl"
    out.write_text("mine")
    there = await house.run("export", house.account, "--out", out, code=2)
    assert "exists already" in there.stderr
    assert out.read_text() == "mine"
    assert (
        "cannot be written"
        in (await house.run("export", house.account, "--out", tmp_path / "no/where.jsonl", code=2)).stderr
    )
    unknown = "0x" + "ab" * 32
    assert (
        "no such account"
        in (await house.run("export", unknown, "--out", tmp_path / "new.jsonl", code=2)).stderr
    )
    assert names_of_exports(tmp_path) == ["account.jsonl"]


def names_of_exports(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if "jsonl" in file.name]


async def test_an_export_of_a_damaged_account_says_what_is_missing(house: House, tmp_path: Path) -> None:
    for text in ("The tide table hangs in the boathouse.", "The oars are in the shed."):
        assert (await remember_in_clear(house, text)).status_code == 200
    entry = max(house.data.glob("objects/ns/*/wal/*"))
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    out = tmp_path / "account.jsonl"
    told = await house.document("export", house.account, "--out", out, code=1)
    assert (told["memories"], len(told["findings"])) == (1, 1)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in rows if row["type"] == "memory"] == [
        "The tide table hangs in the boathouse."
    ]
    assert rows[-1]["findings"] == 1


async def test_a_long_export_shows_its_progress_on_a_terminal(house: House, tmp_path: Path) -> None:
    for name in ("researcher", "researcher/notes"):
        assert (await house.remember(0, TEXT, name)).status_code == 200
    environment = {"MEMRELAY_DATA": str(house.data), "HOME": str(tmp_path), "TTY_COMPATIBLE": "1"}
    words = ("account", "export", house.account, "--out", tmp_path / "account.jsonl")
    done = await asyncio.to_thread(run_relayer, environment, *words)
    assert "exporting" in done.stderr
    assert "100%" in done.stderr


async def test_mistakes_are_named(house: House) -> None:
    unknown = "0x" + "ab" * 32
    assert "no such account" in (await house.run("erase", unknown, "--yes", code=2)).stderr
    for command in ("erase", "limits", "revoke"):
        assert "64 hex digits" in (await house.run(command, "0x12", code=2)).stderr
    assert "--default" in (await house.run("limits", unknown, "--default", "--memories", 1, code=2)).stderr
    assert "--bytes" in (await house.run("limits", unknown, "--bytes", "many", code=2)).stderr
    # An account may be limited before its first request.
    early = await house.run("limits", house.account, "--namespaces", 1)
    assert "nothing else of the account" in early.stdout
    assert (await house.remember(0, TEXT)).status_code == 200
    refused = await house.remember(0, TEXT, "researcher/notes")
    assert refused.json()["code"] == "quota_exceeded"
