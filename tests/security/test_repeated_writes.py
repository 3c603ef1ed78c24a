"""A recorded write is sent once more, byte for byte, to either of two relayers: it does nothing that it did not do before."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from signed_calls import Gateway, Line, Sent

from demo.relayer_process import RelayerProcess
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Right

TEXTS = ["The kettle is red.", "The window faces the sea.", "The spare key hangs in the shed."]
LATER = "The ferry leaves at noon."
EVERYTHING = {"everything": True}


@dataclass
class House:
    """Two relayers over one store, and an agent of its own for each test."""

    relayers: tuple[RelayerProcess, ...]
    http: httpx.Client
    gateway: Gateway

    @property
    def lines(self) -> list[Line]:
        return [Line(self.http, relayer.url) for relayer in self.relayers]

    def send(self, method: str, target: str, body: Any = None) -> dict[str, Any]:
        answer = self.lines[0].send(self.gateway, method, target, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def remember(self, *texts: str) -> list[str]:
        body = {"items": [{"text": text} for text in texts]}
        return [memory["id"] for memory in self.send("POST", "/v1/memories", body)["memories"]]

    def record(self, method: str, target: str, body: Any = None) -> tuple[list[Sent], httpx.Response]:
        """Send a request; returns what can be sent again, one for each relayer, with the answer.

        The authority is signed: what is sent to the other relayer is signed for it, under the same nonce, as behind a proxy.
        """
        nonce, key = secrets.token_bytes(16), self.gateway.memory_key(self.lines[0].fleet_key)
        certificate, created = self.gateway.certificate(), self.gateway.now
        given = {"nonce": nonce, "memory_key": key, "certificate": certificate, "created": created}
        sent = [line.sign(self.gateway, method, target, body, **given) for line in self.lines]
        return sent, self.lines[0].repeat(sent[0])

    def replay(self, sent: list[Sent]) -> list[httpx.Response]:
        """Send it again: to the relayer that had it, to the other one, and to the first after a restart."""
        answers = [line.repeat(one) for line, one in zip(self.lines, sent, strict=True)]
        self.relayers[0].kill()
        self.relayers[0].start()
        return [*answers, self.lines[0].repeat(sent[0])]

    def live(self) -> set[str]:
        return {memory["text"] for memory in self.send("GET", "/v1/memories")["memories"]}

    def changes(self) -> list[tuple[str, str, int]]:
        found = self.send("GET", "/v1/changes?limit=100")["changes"]
        return [(change["change"], change["id"], change["seq"]) for change in found]


@pytest.fixture(scope="module")
def relayers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RelayerProcess, ...]]:
    folder = tmp_path_factory.mktemp("two")
    arguments = ("--rate-limits", "off")
    with (
        RelayerProcess(folder / "a", arguments=arguments, data=folder / "data") as one,
        RelayerProcess(folder / "b", arguments=arguments, data=folder / "data") as two,
    ):
        yield one, two


@pytest.fixture
def house(relayers: tuple[RelayerProcess, ...]) -> Iterator[House]:
    rights = (Right.READ, Right.WRITE, Right.ADMIN)
    gateway = Gateway(root=RootKeys(secrets.token_bytes(32)), rights=rights)
    with httpx.Client(trust_env=False, timeout=30) as http:
        yield House(relayers, http, gateway)


@pytest.mark.parametrize("mode", ["forget", "erase"])
def test_a_repeated_deletion_takes_nothing_that_was_stored_since(house: House, mode: str) -> None:
    house.remember(*TEXTS)
    sent, first = house.record("POST", "/v1/memories/delete", EVERYTHING | {"mode": mode})
    assert first.json()["matched"] == 3
    house.remember(LATER)
    for answer in house.replay(sent):
        assert answer.status_code == 200
        for field in ("matched", "forgotten", "remaining", "ids", "erased"):
            assert answer.json().get(field) == first.json().get(field)
    assert house.live() == {LATER}


@pytest.mark.parametrize("mode", ["forget", "erase"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_repeated_deletion_that_found_nothing_still_finds_nothing(
    house: House, mode: str, *, exists: bool
) -> None:
    if exists:
        house.send("DELETE", f"/v1/memories/{house.remember(TEXTS[0])[0]}?mode=erase")
    sent, first = house.record("POST", "/v1/memories/delete", EVERYTHING | {"mode": mode})
    assert first.json()["matched"] == 0
    house.remember(LATER)
    assert [answer.json()["matched"] for answer in house.replay(sent)] == [0, 0, 0]
    assert house.live() == {LATER}


def test_a_repeated_deletion_leaves_alone_what_was_restored_since(house: House) -> None:
    ids = house.remember(*TEXTS)
    sent, first = house.record("POST", "/v1/memories/delete", EVERYTHING)
    house.send("POST", f"/v1/memories/{ids[0]}/restore")
    for answer in house.replay(sent):
        assert answer.json()["forgotten"] == first.json()["forgotten"] == 3
    assert house.live() == {TEXTS[0]}


def test_a_repeated_forgetting_does_not_undo_a_restore(house: House) -> None:
    (memory,) = house.remember(TEXTS[0])
    effective, _ = house.record("DELETE", f"/v1/memories/{memory}")
    without_effect, answer = house.record("DELETE", f"/v1/memories/{memory}")
    assert answer.status_code == 200
    house.send("POST", f"/v1/memories/{memory}/restore")
    assert [answer.status_code for answer in house.replay(effective)] == [200] * 3
    house.replay(without_effect)
    assert house.live() == {TEXTS[0]}


def test_a_repeated_restore_does_not_undo_a_forgetting(house: House) -> None:
    (memory,) = house.remember(TEXTS[0])
    without_effect, answer = house.record("POST", f"/v1/memories/{memory}/restore")
    assert answer.status_code == 200
    house.send("DELETE", f"/v1/memories/{memory}")
    effective, _ = house.record("POST", f"/v1/memories/{memory}/restore")
    house.send("DELETE", f"/v1/memories/{memory}")
    assert [answer.status_code for answer in house.replay(effective)] == [200] * 3
    house.replay(without_effect)
    assert house.live() == set()


def test_a_restore_that_was_refused_is_refused_again(house: House) -> None:
    (old,) = house.remember(TEXTS[0])
    new = house.send("POST", f"/v1/memories/{old}/supersede", {"text": TEXTS[1]})["id"]
    house.send("DELETE", f"/v1/memories/{new}")
    sent, first = house.record("POST", f"/v1/memories/{old}/restore")
    assert first.json()["code"] == "stale_head"
    house.send("POST", f"/v1/memories/{new}/restore")
    assert [answer.json()["code"] for answer in house.replay(sent)] == ["stale_head"] * 3
    assert house.live() == {TEXTS[1]}


def test_a_repeated_consolidation_takes_nothing_that_it_did_not_take(house: House) -> None:
    said = [{"role": "user", "text": "The staging database is called heron."}]
    house.send("POST", "/v1/analyze", {"turns": said})
    house.remember("Our staging database is called heron.")
    proposals = house.send("POST", "/v1/consolidation", {})["proposals"]
    goes = proposals[0]["goes"]["id"]
    house.send("DELETE", f"/v1/memories/{goes}")
    sent, first = house.record("POST", "/v1/consolidation/take", {"proposals": [proposals[0]["id"]]})
    assert first.json()["proposals"][0]["status"] == "stale"
    house.send("POST", f"/v1/memories/{goes}/restore")
    before = house.live()
    assert {answer.json()["proposals"][0]["status"] for answer in house.replay(sent)} == {"stale"}
    assert house.live() == before


@pytest.mark.parametrize("write", ["remember", "import", "analyze", "supersede", "pin", "erase"])
def test_every_other_write_is_done_once(house: House, write: str) -> None:
    (memory,) = house.remember(TEXTS[0])
    turn = {"role": "user", "text": "I decided on 5 May that the harbour office keeps the spare key."}
    method, target, body = {
        "remember": ("POST", "/v1/memories", {"items": [{"text": LATER}]}),
        "import": ("POST", "/v1/import", {"memories": [{"text": LATER}]}),
        "analyze": ("POST", "/v1/analyze", {"turns": [turn]}),
        "supersede": ("POST", f"/v1/memories/{memory}/supersede", {"text": LATER}),
        "pin": ("POST", f"/v1/memories/{memory}/supersede", {"pinned": True}),
        "erase": ("DELETE", f"/v1/memories/{memory}?mode=erase", None),
    }[write]
    sent, first = house.record(method, target, body)
    assert first.status_code == 200, first.text
    if write == "erase":
        house.remember(TEXTS[0])
    before = house.changes(), house.live()
    for answer in house.replay(sent):
        assert answer.status_code == 200, answer.text
        for field in ("memories", "id"):
            assert answer.json().get(field) == first.json().get(field)
    assert (house.changes(), house.live()) == before
