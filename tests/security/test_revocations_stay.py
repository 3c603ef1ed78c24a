"""Whoever may write the bucket puts back or deletes one object of an account: what it took back stays taken back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from signed_calls import Gateway, Line

from demo.relayer_process import RelayerProcess
from relayer.wire import codec as base64url
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Revocations, Right

ROOT = RootKeys(b"r" * 32)
THIEF = Gateway(root=ROOT)
CODER = Gateway(root=ROOT, agent="coder", namespaces=("coder",))
OWNER = Gateway(root=ROOT, agent="memrelay-owner", rights=(Right.READ, Right.WRITE, Right.ADMIN))
LISTS = "/v1/account/revocations"


@dataclass
class House:
    """A relayer over a directory, and what an attacker does to the files while it is down."""

    relayer: RelayerProcess
    http: httpx.Client
    put_by: Path

    @property
    def line(self) -> Line:
        return Line(self.http, self.relayer.url)

    @property
    def objects(self) -> list[Path]:
        """The account's own objects."""
        return sorted(file for file in (self.relayer.data / "objects" / "acct").glob("*/*") if file.is_file())

    def remember(self, gateway: Gateway, text: str = "The gate opens at nine.") -> int:
        return self.line.send(gateway, "POST", "/v1/memories", {"items": [{"text": text}]}).status_code

    def read(self, gateway: Gateway) -> httpx.Response:
        return self.line.send(gateway, "GET", "/v1/memories")

    def revoke(self, counter: int, *keys: bytes) -> int:
        listed = Revocations(bytes(ROOT.account_identity.verify_key), counter, agent_keys=keys)
        body = {"revocations": base64url.encode(listed.issue(ROOT.account_identity))}
        return self.line.send(OWNER, "PUT", LISTS, body, memory_key="").status_code

    def keep(self) -> None:
        """Take a copy of the account's objects, as versions or a snapshot would have it."""
        for file in self.objects:
            shutil.copy(file, self.put_by / file.name)

    def restart(self) -> None:
        self.relayer.kill()
        self.relayer.start()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    put_by = tmp_path / "put-by"
    put_by.mkdir()
    with (
        RelayerProcess(tmp_path / "r", arguments=("--rate-limits", "off")) as relayer,
        httpx.Client(trust_env=False, timeout=30) as http,
    ):
        built = House(relayer, http, put_by)
        assert built.remember(THIEF) == built.remember(CODER) == 200
        yield built


def _key(gateway: Gateway) -> bytes:
    return bytes(gateway.identity.verify_key)


@pytest.mark.parametrize("before", [(), (b"o" * 32,)], ids=["the first list", "a later list"])
def test_no_single_object_put_back_brings_a_revoked_agent_in(house: House, before: tuple[bytes, ...]) -> None:
    assert not before or house.revoke(1, *before) == 200
    house.keep()
    assert house.revoke(2, *before, _key(THIEF)) == 200
    assert house.read(THIEF).status_code == 401
    newest = {file: file.read_bytes() for file in house.objects}
    for file, data in newest.items():
        old = house.put_by / file.name
        if old.exists():
            shutil.copy(old, file)
        else:
            file.unlink()
        house.restart()
        assert house.read(THIEF).status_code == 401
        assert house.remember(THIEF) == 401
        assert house.read(CODER).status_code == 200
        file.write_bytes(data)


def test_a_deleted_account_object_lets_nobody_in_until_its_owner_sends_the_list_again(house: House) -> None:
    assert house.revoke(1, _key(THIEF)) == 200
    (account,) = [file for file in house.objects if file.name == "account"]
    account.unlink()
    house.restart()
    assert house.read(THIEF).status_code in {401, 500}
    assert house.remember(THIEF) in {401, 500}
    newcomer = replace(THIEF, agent="newcomer", namespaces=("newcomer",))
    for gateway in (CODER, newcomer):
        answer = house.read(gateway)
        assert (answer.status_code, answer.json()["code"]) == (500, "corrupt_namespace")
        assert "memrelay-gateway keys revoke" in answer.json()["detail"]
        assert house.remember(gateway) == 500
    assert not account.exists()

    shown = house.line.send(OWNER, "GET", LISTS, memory_key="").json()["revocations"]
    assert Revocations.verify(base64url.decode(shown)).agent_keys == (_key(THIEF),)
    assert house.revoke(1, _key(THIEF)) == 200
    assert house.read(CODER).status_code == 200
    assert house.read(THIEF).status_code == 401


def test_an_account_that_took_nothing_back_is_not_begun_anew_over_its_memories(house: House) -> None:
    (account,) = house.objects
    kept = account.read_bytes()
    account.unlink()
    house.restart()
    assert house.read(CODER).json()["code"] == "corrupt_namespace"
    assert house.remember(CODER) == 500
    account.write_bytes(kept)
    house.restart()
    assert house.read(CODER).status_code == 200


def test_both_gone_is_no_way_in_either(house: House) -> None:
    assert house.revoke(1, _key(THIEF)) == 200
    for file in house.objects:
        file.unlink()
    house.restart()
    assert house.read(THIEF).json()["code"] == "corrupt_namespace"
