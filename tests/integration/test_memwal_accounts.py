"""Accounts of MemWal's clients from the command line: made, given keys, revoked, listed; and what their clients are configured with."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from memwal_calls import MemWalCaller
from nacl.signing import SigningKey
from typed_commands import Done, run_relayer

from relayer.adapters.directory_store import DirectoryStore
from relayer.adapters.system import SystemClock
from relayer.fronts.memwal.contract import address_of
from relayer.testing.local_relayer import RELAYER_KEY, LocalRelayer, local_relayer, threaded_relayer


@asynccontextmanager
async def _over(folder: Path) -> AsyncIterator[LocalRelayer]:
    store = await DirectoryStore.open(folder / "objects", clock=SystemClock())
    async with local_relayer(store) as relayer:
        yield relayer
    await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that a relayer has begun."""
    folder = tmp_path / "data"
    with threaded_relayer(lambda: _over(folder)):
        pass
    key = folder / "relayer.key"
    key.write_text(RELAYER_KEY.hex() + "\n")
    key.chmod(0o600)
    return folder


def memrelay(*arguments: object, data: Path) -> Done:
    place = data.parent
    environment = {"MEMRELAY_DATA": str(data), "HOME": str(place), "XDG_CONFIG_HOME": str(place / "config")}
    return run_relayer(environment, *arguments)


def _stats(relayer: LocalRelayer, key: SigningKey, account: str) -> int:
    caller = MemWalCaller(relayer, key, account)
    headers = caller.headers("POST", "/api/stats", b"{}")
    return httpx.post(relayer.url + "/api/stats", content=b"{}", headers=headers, trust_env=False).status_code


@pytest.mark.row("MW-37", level="e2e")
def test_an_account_is_made_given_keys_and_revoked(data: Path) -> None:
    made = memrelay("account", "create", "--label", "laptop", data=data)
    assert made.returncode == 0, made.stderr
    [account] = set(re.findall(r"0x[0-9a-f]{64}", made.stdout))
    printed = memrelay("account", "env", "--account", account, "--url", "http://127.0.0.1:8787", data=data)
    given = dict(line.removeprefix("export ").split("=", 1) for line in printed.stdout.splitlines())
    assert given["MEMWAL_ACCOUNT_ID"] == account
    assert given["MEMWAL_SERVER_URL"] == "http://127.0.0.1:8787"
    first, second = SigningKey(bytes.fromhex(given["MEMWAL_PRIVATE_KEY"])), SigningKey.generate()
    public = bytes(second.verify_key).hex()
    added = memrelay("account", "add-key", account, "--key", public, "--label", "phone", data=data)
    assert "phone" in added.stdout
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, first, account) == 200
        assert _stats(relayer, second, account) == 200
        assert _stats(relayer, SigningKey.generate(), account) == 401
    listed = json.loads(memrelay("account", "list", "--json", data=data).stdout)
    [one] = listed["accounts"]
    assert (one["account"], [key["label"] for key in one["keys"]]) == (account, ["laptop", "phone"])
    # Limits are set by the id that clients know, too.
    assert memrelay("account", "limits", account, "--memories", "5", data=data).returncode == 0
    [limited] = json.loads(memrelay("account", "list", "--json", data=data).stdout)["accounts"]
    assert (limited["account"], limited["limits"]["memories"]) == (account, 5)
    assert limited["stored_as"] != account
    assert memrelay("account", "revoke", account, "--key", public, data=data).returncode == 0
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, first, account) == 200
        assert _stats(relayer, second, account) == 401
    assert "(revoked)" in memrelay("account", "revoke", account, data=data).stdout
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, first, account) == 401
    # Another key does not bring a revoked account back, and its keys sign again once that is lifted.
    again = memrelay("account", "add-key", account, "--key", public, data=data)
    assert "(revoked)" in again.stdout
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, second, account) == 401
    assert memrelay("account", "revoke", account, "--undo", data=data).returncode == 0
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, first, account) == 200
    assert memrelay("verify", data=data).returncode == 0


@pytest.mark.row("MW-37", level="e2e")
def test_the_account_of_a_key_alone_can_be_revoked_before_it_was_ever_registered(data: Path) -> None:
    key = SigningKey.generate()
    account = address_of(bytes(key.verify_key))
    memrelay("account", "revoke", account, data=data)
    with threaded_relayer(lambda: _over(data)) as relayer:
        assert _stats(relayer, key, account) == 401


def test_what_is_wrong_is_said_in_a_sentence(data: Path) -> None:
    unknown = memrelay("account", "add-key", "0x" + "ab" * 32, "--key", "cd" * 32, data=data)
    assert (unknown.returncode, "account create" in unknown.stderr) == (2, True)
    short = memrelay("account", "revoke", "0x12", data=data)
    assert (short.returncode, "64 hex digits" in short.stderr) == (2, True)
    key = memrelay("account", "create", "--key", "xyz", data=data)
    assert (key.returncode, "--key" in key.stderr) == (2, True)


@pytest.mark.row("MW-48")
def test_credentials_of_the_mcp_package_are_for_their_owner_alone(data: Path) -> None:
    done = memrelay("account", "credentials", "--url", "http://127.0.0.1:8787/", data=data)
    assert done.returncode == 0, done.stderr
    file = data.parent / ".memwal" / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = json.loads(file.read_text())
    key = SigningKey(bytes.fromhex(told["delegatePrivateKey"]))
    assert told["version"] == 1
    assert told["delegatePublicKeyHex"] == bytes(key.verify_key).hex()
    assert told["accountId"] == told["delegateAddress"] == address_of(bytes(key.verify_key))
    assert told["relayerUrl"] == "http://127.0.0.1:8787"
    assert told["delegatePrivateKey"] not in done.stdout
    again = memrelay("account", "credentials", data=data)
    assert (again.returncode, "--replace" in again.stderr) == (2, True)
    replaced = memrelay("account", "credentials", "--replace", data=data)
    assert replaced.returncode == 0
    assert json.loads(file.read_text())["accountId"] == told["accountId"], "the key in its file stays"
