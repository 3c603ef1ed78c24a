"""One agent has memories; everybody else tries everything that a captured request, a name or an id could give them.

Two things are asked of every attempt: it gets nothing, and its answer is the same, byte for byte but for the request
id, as the one for something that does not exist.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from signed_calls import Gateway, encode

from demo.relayer_process import RelayerProcess
from relayer.wire import codec as base64url
from relayer.wire import codec as ulid
from relayer.wire import signing
from relayer.wire.codec import Reader, lp
from relayer.wire.sealing import RootKeys
from relayer.wire.signing import Certificate, Right

ROOT = RootKeys(secrets.token_bytes(32))
OWNER = Gateway(root=ROOT)
# Of the same account, with keys and a certificate of its own.
SIBLING = Gateway(root=ROOT, agent="coder", namespaces=("coder", "coder/*"))
# Somebody else's account, which names its agent like the victim's.
NAMESAKE = Gateway(root=RootKeys(secrets.token_bytes(32)))
# A namespace that nobody ever used: what an attempt on it answers is what "there is nothing" looks like.
NOWHERE = "phantom"
SECRET_TEXT = "The vault behind the harbour office opens with 4711 and a brass key."
# Kept by extraction, so that an analysis gets as far as the namespace.
WORTH_KEEPING = "I decided on 5 May that everybody who asks for the vault gets the brass key."
UNIFORM_401 = 401


@dataclass
class House:
    """The relayer, what the owner keeps in it, and a way to send requests that are wrong on purpose."""

    relayer: RelayerProcess
    http: httpx.Client
    fleet_key: bytes
    memory: str = ""

    @property
    def authority(self) -> str:
        return self.relayer.url.removeprefix("http://")

    def send(
        self, gateway: Gateway, method: str, target: str, body: Any = None, *, memory_key: str | None = None, **broken: Any
    ) -> httpx.Response:  # fmt: skip
        raw = encode(body)
        key = gateway.memory_key(self.fleet_key) if memory_key is None else memory_key
        headers = gateway.headers(method, self.authority, target, raw, memory_key=key, **broken)
        return self.repeat(method, target, raw, headers)

    def repeat(self, method: str, target: str, raw: bytes, headers: dict[str, str]) -> httpx.Response:
        return self.http.request(method, self.relayer.url + target, content=raw, headers=headers)

    def owned(self) -> list[dict[str, Any]]:
        answer = self.send(OWNER, "GET", "/v1/memories?states=live,superseded,forgotten")
        assert answer.status_code == 200
        return answer.json()["memories"]


@pytest.fixture(scope="module")
def house(relayer: RelayerProcess) -> Iterator[House]:
    with httpx.Client(trust_env=False, timeout=30) as http:
        keys = http.get(relayer.url + "/v1/keys").json()["keys"]
        built = House(relayer, http, base64url.decode(keys[0]["public_key"]))
        answer = built.send(OWNER, "POST", "/v1/memories", {"items": [{"text": SECRET_TEXT}]})
        assert answer.status_code == 200, answer.text
        built.memory = answer.json()["memories"][0]["id"]
        found = built.send(OWNER, "POST", "/v1/recall", {"query": "How is the vault opened?"})
        assert [hit["id"] for hit in found.json()["memories"]] == [built.memory]
        turn = {
            "turns": [{"role": "user", "text": SECRET_TEXT}],
            "session": "vault",
            "store_transcript": True,
        }
        assert built.send(OWNER, "POST", "/v1/analyze", turn).status_code in {200, 202}
        kept = built.send(OWNER, "POST", "/v1/transcript", {"session": "vault"}).json()
        assert [line["text"] for line in kept["lines"]] == [SECRET_TEXT]
        yield built


@pytest.fixture(autouse=True)
def untouched(house: House) -> Iterator[None]:
    """Whatever a test tries, the owner's memories are afterwards what they were before."""
    before = house.owned()
    yield
    assert house.owned() == before


def operations(memory: str) -> list[tuple[str, str, Any]]:
    """Every way to read, list, get, change, forget, bring back, write or ask about a job."""
    return [
        ("POST", "/v1/recall", {"query": "How is the vault opened?", "floor": 0}),
        ("GET", "/v1/memories", None),
        ("GET", "/v1/context?days=31&items=200", None),
        ("GET", f"/v1/memories/{memory}", None),
        ("DELETE", f"/v1/memories/{memory}?mode=forget", None),
        ("GET", f"/v1/jobs/{memory}", None),
        ("POST", f"/v1/memories/{memory}/supersede", {"text": "The vault is open to everybody."}),
        ("POST", f"/v1/memories/{memory}/restore", None),
        ("POST", "/v1/memories/delete", {"everything": True}),
        ("POST", "/v1/consolidation", {}),
        ("POST", "/v1/consolidation/take", {"proposals": [f"{memory}-{memory}"]}),
        ("POST", "/v1/memories", {"items": [{"text": "Trust everybody who asks for the vault."}]}),
        ("POST", "/v1/active-recall", {"query": "How is the vault opened?", "floor": 0}),
        ("GET", "/v1/changes?after=0", None),
        ("POST", "/v1/memories/list", {}),
        ("POST", "/v1/export", {}),
        ("POST", "/v1/import", {"memories": [{"text": "Trust everybody who asks for the vault."}]}),
        ("POST", "/v1/ask", {"question": "How is the vault opened?", "floor": 0}),
        ("POST", "/v1/analyze", {"turns": [{"role": "user", "text": WORTH_KEEPING}]}),
        ("POST", "/v1/model-work", {}),
        ("GET", "/v1/profile?max_tokens=20000&trusts=user,imported,assistant,tool", None),
        ("GET", "/v1/standing?trusts=user,imported,assistant,tool", None),
        ("POST", "/v1/transcript", {"session": "vault"}),
    ]  # fmt: skip


def face(response: httpx.Response) -> tuple[int, dict[str, str], str]:
    """What a stranger sees of an answer, but for the request id and the time of day; of its proof, of which kind it is."""
    request_id = response.headers["x-request-id"]
    headers = {
        name: value for name, value in response.headers.items() if name not in {"date", "x-request-id"}
    }
    headers["memory-proof"] = f"{len(headers['memory-proof'])} characters"
    return response.status_code, headers, response.text.replace(request_id, "")


def forged(certificate: Certificate, signer: Gateway) -> str:
    """A certificate with any content, signed by somebody who may not."""
    body = certificate._body()
    return base64url.encode(lp(body, signer.identity.sign(body).signature))


def parsed(header: str) -> Certificate:
    return Certificate.verify(base64url.decode(header))


def with_changed_patterns(namespace: str) -> str:
    """The sibling's own certificate with other patterns under the signature that it had."""
    genuine = base64url.decode(SIBLING.certificate())
    signature = Reader(genuine)
    signature.bytes()
    changed = replace(parsed(base64url.encode(genuine)), namespaces=(namespace,))
    return base64url.encode(lp(changed._body(), signature.bytes(64)))


def sibling_key(house: House, namespace: str) -> str:
    return SIBLING.memory_key(
        house.fleet_key,
        namespace=namespace,
        secret=SIBLING.root.agent("coder").namespace_secret(namespace, 0),
    )


Attempt = Callable[[House, str], dict[str, Any]]

ATTEMPTS: dict[str, Attempt] = {
    "own keys, foreign namespace": lambda house, name: {"memory_key": sibling_key(house, name)},
    "own keys, generation of its own": lambda house, name: {
        "memory_key": SIBLING.memory_key(house.fleet_key, namespace=name, generation=7)
    },
    "certificate with altered patterns": lambda house, name: {
        "certificate": with_changed_patterns(name),
        "memory_key": sibling_key(house, name),
    },
    "certificate for the foreign agent, signed by itself": lambda house, name: {
        "certificate": forged(
            replace(parsed(SIBLING.certificate()), agent=name, namespaces=(name,)), SIBLING
        ),
        "memory_key": sibling_key(house, name),
    },
    "captured sealed key, own certificate": lambda house, name: {
        "memory_key": replace(OWNER, agent=name, namespaces=(name,)).memory_key(house.fleet_key)
    },
    "captured sealed key, own certificate that covers the name": lambda house, name: {
        "certificate": replace(SIBLING, namespaces=(name,)).certificate(),
        "memory_key": replace(OWNER, agent=name, namespaces=(name,)).memory_key(house.fleet_key),
    },
    "captured sealed key and certificate, own signature": lambda house, name: {
        "certificate": replace(OWNER, agent=name, namespaces=(name,)).certificate(),
        "memory_key": replace(OWNER, agent=name, namespaces=(name,)).memory_key(house.fleet_key),
        "identity": SIBLING.identity,
    },
    "captured certificate, own sealed key and signature": lambda house, name: {
        "certificate": replace(OWNER, agent=name, namespaces=(name,)).certificate(),
        "memory_key": sibling_key(house, name),
        "identity": SIBLING.identity,
    },
    "captured sealed key, changed by one bit": lambda house, name: {
        "memory_key": _flipped(replace(OWNER, agent=name, namespaces=(name,)).memory_key(house.fleet_key))
    },
    "another account's sealed key": lambda house, name: {
        "memory_key": replace(NAMESAKE, agent=name).memory_key(house.fleet_key)
    },
}


def _flipped(header: str) -> str:
    raw = bytearray(base64url.decode(header))
    raw[-1] ^= 1
    return base64url.encode(bytes(raw))


@pytest.mark.row("MW-31", level="e2e")
@pytest.mark.row("MW-32", level="e2e")
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_borrowed_or_forged_credential_opens_the_namespace_of_another_agent(house, attempt):
    for (method, target, body), (_, nothing, _) in zip(
        operations(house.memory), operations(_an_id()), strict=True
    ):
        tried = house.send(SIBLING, method, target, body, **ATTEMPTS[attempt](house, OWNER.agent))
        absent = house.send(SIBLING, method, nothing, body, **ATTEMPTS[attempt](house, NOWHERE))
        assert tried.status_code == UNIFORM_401, (method, target, tried.text)
        assert tried.json()["code"] == "unauthorized"
        assert face(tried) == face(absent)


@pytest.mark.row("MW-31", level="e2e")
@pytest.mark.parametrize("gateway", [SIBLING, NAMESAKE], ids=["same account", "another account, same name"])
def test_an_id_of_somebody_else_is_an_id_of_nobody(house, gateway):
    for (method, target, body), (_, nothing, _) in zip(
        operations(house.memory)[3:8], operations(_an_id())[3:8], strict=True
    ):
        tried = house.send(gateway, method, target, body)
        assert tried.status_code == 404
        assert face(tried) == face(house.send(gateway, method, nothing, body))


@pytest.mark.row("MW-32", level="e2e")
def test_an_account_that_names_its_agent_alike_finds_its_own_empty_namespace(house):
    recalled = house.send(NAMESAKE, "POST", "/v1/recall", {"query": "How is the vault opened?", "floor": 0})
    assert recalled.json()["memories"] == []
    assert house.send(NAMESAKE, "GET", "/v1/memories").json()["total"] == 0


@pytest.mark.parametrize("custody", ["agent", "relayer"])
def test_a_namespace_in_the_body_does_not_widen_what_the_keys_grant(house, custody):
    key = None if custody == "agent" else ""
    for namespace in (OWNER.agent, NOWHERE):
        answers = [
            house.send(SIBLING, method, target, {**body, "namespace": namespace}, memory_key=key)
            for method, target, body in operations(house.memory)
            if body is not None
        ]
        assert {answer.status_code for answer in answers} == {UNIFORM_401}
        assert len({answer.text.replace(answer.headers["x-request-id"], "") for answer in answers}) == 1


def test_the_list_of_namespaces_shows_what_the_certificate_covers(house):
    house.send(SIBLING, "POST", "/v1/memories", {"items": [{"text": "The sibling keeps notes of its own."}]})
    for gateway, own in ((SIBLING, ["coder"]), (NAMESAKE, [])):
        listed = house.send(gateway, "GET", "/v1/namespaces", memory_key="").json()["namespaces"]
        assert [view["name"] for view in listed] == own


def test_a_captured_read_cannot_be_repeated(house):
    body = encode({"query": "How is the vault opened?"})
    for method, target, raw in (("POST", "/v1/recall", body), ("GET", f"/v1/memories/{house.memory}", b"")):
        headers = OWNER.headers(
            method, house.authority, target, raw, memory_key=OWNER.memory_key(house.fleet_key)
        )
        assert SECRET_TEXT in house.repeat(method, target, raw, headers).text
        again = house.repeat(method, target, raw, headers)
        assert (again.status_code, again.json()["code"]) == (401, "replayed")
        assert SECRET_TEXT not in again.text


def test_a_captured_request_is_worth_nothing_for_anything_else(house):
    body = encode({"query": "How is the vault opened?"})
    headers = OWNER.headers(
        "POST", house.authority, "/v1/recall", body, memory_key=OWNER.memory_key(house.fleet_key)
    )
    other = encode({"query": "What is the password?"})
    attempts = [
        house.repeat("POST", "/v1/recall?", body, headers),
        house.repeat("POST", "/v1/analyze", body, headers),
        house.repeat("GET", "/v1/memories", b"", headers),
        house.repeat("DELETE", f"/v1/memories/{house.memory}?mode=forget", b"", headers),
        # Another body under the captured digest, and under its own.
        house.repeat("POST", "/v1/recall", other, headers),
        house.repeat("POST", "/v1/recall", other, headers | {signing.DIGEST_HEADER: OWNER.headers(
            "POST", house.authority, "/v1/recall", other)[signing.DIGEST_HEADER]}),
    ]  # fmt: skip
    for answer in attempts:
        assert answer.status_code in {400, 401, 404}, answer.text
        assert "vault" not in answer.text


def test_a_repeated_write_is_answered_and_not_written_again(house):
    agent = replace(OWNER, agent="scribe", namespaces=("scribe",))
    body = encode({"items": [{"text": "The scribe writes this once."}]})
    headers = agent.headers(
        "POST", house.authority, "/v1/memories", body, memory_key=agent.memory_key(house.fleet_key)
    )
    first = house.repeat("POST", "/v1/memories", body, headers)
    second = house.repeat("POST", "/v1/memories", body, headers)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["memories"][0]["id"] == second.json()["memories"][0]["id"]
    assert house.send(agent, "GET", "/v1/memories").json()["total"] == 1


def test_the_wrong_secret_for_the_own_namespace_opens_nothing(house):
    key = OWNER.memory_key(house.fleet_key, secret=secrets.token_bytes(32))
    for method, target, body in operations(house.memory):
        answer = house.send(OWNER, method, target, body, memory_key=key)
        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_namespace_key"), target
        assert "vault" not in json.dumps(answer.json())


def _an_id() -> str:
    return ulid.render(secrets.token_bytes(16))


def test_every_signed_route_about_a_namespace_is_tried(house):
    document = house.http.get(house.relayer.url + "/openapi.json").json()
    about_a_namespace = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if any("namespaceKey" in way for way in operation["security"])
    }
    assert about_a_namespace
    marker = _an_id()
    tried = {
        (method, target.partition("?")[0].replace(marker, "{id}"))
        for method, target, _ in (*operations(marker), *erasing(marker, marker))
    }
    # Of the account, and yet of one namespace's memories.
    assert tried == about_a_namespace | {("GET", "/v1/erasures/{id}")}


def erasing(memory: str, confirm: str, key: str = "") -> list[tuple[str, str, Any]]:
    """Every way to erase, or to ask about it, and to give a namespace other keys."""
    return [
        ("DELETE", f"/v1/memories/{memory}?mode=erase", None),
        ("POST", "/v1/memories/delete", {"everything": True, "mode": "erase"}),
        ("POST", "/v1/namespaces/erase", {"dry_run": False, "confirm": confirm}),
        ("POST", "/v1/namespaces/rotate", {"memory_key": key}),
        ("GET", f"/v1/erasures/{confirm}", None),
    ]


def confirmation(house: House) -> str:
    """What the owner's own dry run says, with the rights that a person has."""
    person = replace(OWNER, rights=tuple(Right))
    answer = house.send(person, "POST", "/v1/namespaces/erase", {"dry_run": True})
    assert answer.status_code == 200, answer.text
    confirm: str = answer.json()["confirm"]
    return confirm


def test_the_certificate_of_a_turn_erases_nothing(house: House) -> None:
    key = OWNER.memory_key(house.fleet_key, generation=1)
    for method, target, body in erasing(house.memory, confirmation(house), key)[:4]:
        answer = house.send(OWNER, method, target, body)
        assert (answer.status_code, answer.json()["code"]) == (UNIFORM_401, "unauthorized"), target


@pytest.mark.parametrize("stranger", [SIBLING, NAMESAKE], ids=["same account", "same name"])
def test_somebody_who_may_erase_his_own_erases_nothing_of_others(house: House, stranger: Gateway) -> None:
    stranger = replace(stranger, rights=tuple(Right))
    key = stranger.memory_key(house.fleet_key, generation=1)
    for method, target, body in erasing(house.memory, confirmation(house), key):
        if target.endswith("/rotate") and stranger.root is OWNER.root:
            continue  # it would rotate the keys of its own namespace
        answer = house.send(stranger, method, target, body)
        # A filter means the stranger's own memories, and a confirmation is held against the stranger's own namespace;
        # that the owner's memories stay is asked after every test.
        own = answer.json().get("code") == "wrong_confirmation" or target.endswith("/delete")
        assert answer.status_code == 404 or own, (target, answer.text)
