"""A store, a data directory and logs in the hands of a stranger: nothing of what was said, and by whom, is readable.

Canaries go in by every door (memories, turns, queries, vectors, names, refused requests), at the most talkative log
level and in both log formats; then every byte that the relayer wrote is searched for each of them in many encodings.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import httpx
import numpy as np
import pytest
from signed_calls import Gateway, encode

from demo.checks import TraceSearch, views
from demo.relayer_process import RelayerProcess
from gateway_plugin.plugin import AsyncMemoryPlugin
from gateway_plugin.turn.gates import HostTurn
from relayer.access.store_keys import StoredKey
from relayer.adapters.local_embedder import LocalEmbedder
from relayer.adapters.local_key import LocalKey
from relayer.adapters.system import SystemRandomness
from relayer.crypto import NamespaceKeys, RelayerKeys
from relayer.domain.namespace import Keyring, decode
from relayer.domain.operations import Put, Stored, decode_entry, decode_operation, decode_record
from relayer.errors import WrongNamespaceKey
from relayer.wire import codec as base64url
from relayer.wire.codec import UnsealError
from relayer.wire.sealing import ObjectType, RootKeys, SealingKey, context, key_id_of, unseal

AGENTS = ("canary-agent-amsel", "canary-agent-bussard")
SESSION = "canary-session-dompfaff"
SENDER = "canary-sender-eisvogel"
HOST = "canary-host-fasan"
TRANSCRIPT = "canary-transcript-gimpel"
REFERENCE = "canary-reference-habicht"
QUERY = "Which canary query words about kingfishers were whispered at the quay?"
REFUSED = "canary refused field with ibises and jackdaws"
PATH = "canary-path-kuckuck"
IDEMPOTENCY = "canary-idempotency-lerche"
TOOL = "canary-tool-milan"

DIMENSION = 384
# The plugin's, so that both write into the same namespaces.
GENERATION = 1


def memory_text(agent: str) -> str:
    return f"The smuggler of {agent} hides marzipan submarines below the third lighthouse since October."


def turn_text(agent: str) -> str:
    return f"I decided that {agent} buys nineteen velvet parachutes in Thessaloniki on 14 March 2027."


def answer_text(agent: str) -> str:
    return f"well, does {agent} like purple marmalade on top?"


@cache
def vector_of(agent: str) -> np.ndarray:
    """Return a vector that agrees with the memory's text, or the relayer would not keep it, and is not the one it computes."""

    async def embedded() -> np.ndarray:
        embedder = LocalEmbedder("multilingual")
        await embedder.load()
        rows = await embedder.embed([memory_text(agent)])
        await embedder.close()
        return rows[0]

    noise = np.random.default_rng(len(agent) + 17).normal(scale=0.1 / DIMENSION**0.5, size=DIMENSION)
    raw = (asyncio.run(embedded()) + noise).astype("<f4")
    return raw / np.float32(np.linalg.norm(raw))


def vector_blobs(vector: np.ndarray) -> Iterator[bytes]:
    """Every way in which a vector might lie around, in pieces of sixteen bytes."""
    scaled = vector / np.abs(vector).max()
    for encoded in (
        vector.astype("<f4"), vector.astype("<f2"), vector.astype("<f8"),
        np.round(scaled * 127).astype("i1"), np.round(vector * 127).astype("i1"),
    ):  # fmt: skip
        raw = encoded.tobytes()
        yield from (raw[start : start + 16] for start in range(0, len(raw) - 15, 16))


@dataclass(frozen=True)
class Loot:
    """Everything that a relayer left on its disk, and the keys that its operators and gateways hold."""

    data: Path
    logs: tuple[Path, ...]
    root: RootKeys

    @property
    def objects(self) -> Path:
        return self.data / "objects"

    @property
    def relayer_keys(self) -> RelayerKeys:
        provider = LocalKey(
            bytes.fromhex((self.data / "relayer.key").read_text().strip()), SystemRandomness()
        )
        stored = StoredKey.decode((self.objects / "relayer").read_bytes())
        return RelayerKeys.derive(asyncio.run(stored.unwrap(provider)))

    def files(self) -> list[Path]:
        return [path for path in sorted(self.data.rglob("*")) if path.is_file()]


def work(url: str, root: RootKeys, *, round_number: int) -> None:
    """Use every route, well and badly, as both agents."""
    with httpx.Client(trust_env=False, timeout=60) as http:
        fleet_key = base64url.decode(http.get(url + "/v1/keys").json()["keys"][0]["public_key"])
        authority = url.removeprefix("http://")

        def send(gateway: Gateway, method: str, target: str, body=None, **broken) -> httpx.Response:
            raw = encode(body)
            agent_keys = gateway.root.agent(gateway.agent)
            key = gateway.memory_key(
                fleet_key,
                generation=GENERATION,
                secret=agent_keys.namespace_secret(gateway.agent, GENERATION),
            )
            headers = gateway.headers(method, authority, target, raw, memory_key=key, **broken)
            return http.request(method, url + target, content=raw, headers=headers)

        for agent in AGENTS:
            gateway = Gateway(root=root, agent=agent, namespaces=(agent, f"{agent}/*"))
            source = {
                "host": HOST, "session": SESSION, "speaker": SENDER, "transcript": TRANSCRIPT, "reference": REFERENCE,
                "message_ids": [f"{SESSION}-message"],
            }  # fmt: skip
            item = {"text": memory_text(agent), "vector": vector_of(agent).tolist(), "source": source}
            stored = send(
                gateway, "POST", "/v1/memories",
                {"items": [item], "idempotency_key": f"{IDEMPOTENCY}-{round_number}"},
            )  # fmt: skip
            assert stored.status_code == 200, stored.text
            turns = [
                {"role": "user", "text": turn_text(agent), "speaker": SENDER, "id": f"{SESSION}-turn"},
                {"role": "assistant", "text": answer_text(agent), "calls": [TOOL]},
            ]
            turn = {"turns": turns, "host": HOST, "session": SESSION, "store_transcript": True}
            analyzed = send(gateway, "POST", "/v1/analyze", turn)
            assert analyzed.status_code in {200, 202}, analyzed.text
            kept = send(gateway, "POST", "/v1/transcript", {"session": SESSION})
            assert all(said in kept.text for said in (turn_text(agent), answer_text(agent), TOOL))
            found = send(gateway, "POST", "/v1/recall", {"query": QUERY, "floor": 0, "explain": True})
            assert memory_text(agent) in found.text
            near = send(gateway, "POST", "/v1/recall", {"vector": vector_of(agent).tolist(), "floor": 0})
            assert near.json()["memories"][0]["text"] == memory_text(agent)
            memory = stored.json()["memories"][0]["id"]
            for target in ("/v1/memories", f"/v1/memories/{memory}", "/v1/namespaces"):
                assert send(gateway, "GET", target).status_code == 200
            # What is refused must not be written down either.
            assert send(gateway, "POST", "/v1/recall", {"query": QUERY, REFUSED: REFUSED}).status_code == 422
            assert send(gateway, "GET", f"/v1/memories?cursor={PATH}").status_code == 422
            assert send(gateway, "GET", f"/v1/memories/{PATH}").status_code == 404
            assert send(gateway, "GET", f"/{PATH}/{agent}").status_code == 404
            assert send(gateway, "POST", "/v1/recall", REFUSED.encode()).status_code == 400
            stranger = replace(gateway, root=RootKeys(secrets.token_bytes(32)))
            wrong = send(
                gateway, "POST", "/v1/recall", {"query": QUERY}, identity=stranger.root.agent(agent).identity
            )
            assert wrong.status_code == 401


async def live(url: str, folder: Path, root: RootKeys) -> None:
    """A turn through the plugin, with everything that a host tells."""
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    host = HostTurn(host=HOST, sender=SENDER, chat_id=SENDER)
    async with AsyncMemoryPlugin(url, secret=root.root.hex(), environ=environ) as plugin:
        for agent in AGENTS:
            key = f"agent:{agent}:{SESSION}"
            said = [{"role": "user", "content": turn_text(agent), "id": f"{SESSION}-1", "name": SENDER}]
            assert (await plugin.after_turn(said, session_key=key, host=host)).status == "queued"
            assert await plugin.flush(30)
            injection = await plugin.before_turn(
                "Where does the agent buy velvet parachutes?", session_key=f"{key}-2", host=host, deadline=30
            )
            assert "parachutes" in injection.text


@pytest.fixture(scope="module")
def loot(tmp_path_factory: pytest.TempPathFactory) -> Loot:
    folder = tmp_path_factory.mktemp("loot")
    root = RootKeys(secrets.token_bytes(32))
    logs = []
    for number, log_format in enumerate(("json", "console")):
        arguments = ("--rate-limits", "off", "--log-level", "debug", "--log-format", log_format)
        relayer = RelayerProcess(folder / log_format, data=folder / "data", arguments=arguments)
        with relayer:
            work(relayer.url, root, round_number=number)
            asyncio.run(live(relayer.url, folder / log_format, root))
        logs.append(relayer.log)
    return Loot(folder / "data", tuple(logs), root)


def traces(loot: Loot) -> TraceSearch:
    texts = [*map(memory_text, AGENTS), *map(turn_text, AGENTS), *map(answer_text, AGENTS), QUERY, REFUSED]
    names = [
        *AGENTS,
        SESSION,
        SENDER,
        HOST,
        TRANSCRIPT,
        REFERENCE,
        PATH,
        IDEMPOTENCY,
        TOOL,
        loot.root.account[2:],
    ]
    secret_bytes = [loot.root.root, *(loot.root.agent(agent).secret for agent in AGENTS)]
    secret_bytes += [loot.root.agent(agent).namespace_secret(agent, GENERATION) for agent in AGENTS]
    secret_bytes.append(bytes.fromhex(loot.root.account[2:]))
    numbers = [f"{value!r}"[:9] for agent in AGENTS for value in vector_of(agent)[:8].tolist()]
    blobs = [blob for agent in AGENTS for blob in vector_blobs(vector_of(agent))]
    return TraceSearch(texts, [*names, *numbers], [*blobs, *secret_bytes])


@pytest.mark.row("MW-32", level="e2e")
def test_no_canary_is_readable_in_anything_that_the_relayer_stored(loot):
    searched = traces(loot)
    files = loot.files()
    assert sum(path.stat().st_size for path in files) > 20_000
    for path in files:
        assert not searched.found_in(path.read_bytes(), words=True), path.name
        assert not searched.found_in(str(path.relative_to(loot.data)).encode()), path.name


@pytest.mark.row("MW-43", level="e2e")
def test_no_canary_is_readable_in_any_log_even_at_its_most_talkative(loot):
    searched = traces(loot)
    for log in loot.logs:
        content = log.read_bytes()
        # One line at least for every request of the workload: the search is not over an empty file.
        assert content.count(b"\n") > 20
        assert not searched.found_in(content)


def test_the_key_of_the_relayer_is_in_no_log_and_in_no_object(loot):
    key = bytes.fromhex((loot.data / "relayer.key").read_text().strip())
    searched = TraceSearch([], [], [key])
    for path in [*loot.logs, *(path for path in loot.files() if path.name != "relayer.key")]:
        assert not searched.found_in(path.read_bytes()), path.name


@pytest.mark.parametrize("start", range(3))
def test_the_search_would_find_a_canary_in_every_encoding(loot, start):
    rng = random.Random(start)
    text = memory_text(AGENTS[0])[start : start + 44]
    vector = vector_of(AGENTS[1])
    plain = [
        text.encode(),
        text.encode("utf-16-le"),
        text.encode("utf-16-be"),
        AGENTS[1].encode(),
        loot.root.root,
    ]
    plain += [vector.astype(kind).tobytes() for kind in ("<f4", "<f2")]
    plain.append(np.round(vector / np.abs(vector).max() * 127).astype("i1").tobytes())
    searched = traces(loot)
    for item in plain:
        padded = bytes(start) + item
        for hidden in (
            item,
            item.hex().encode(),
            item.hex().upper().encode(),
            base64url.encode(padded).encode(),
        ):
            # UTF-16 inside another encoding is two steps, which nothing in the product could take.
            if hidden is not item and item in plain[1:3]:
                continue
            assert searched.found_in(rng.randbytes(500) + b" " + hidden + b" " + rng.randbytes(500))
    assert not searched.found_in(rng.randbytes(50_000), words=True)
    assert len(list(views(b""))) == 3


def incarnations(loot: Loot) -> dict[str, list[Path]]:
    """Object files by namespace."""
    return {folder.name: [path for path in sorted(folder.rglob("*")) if path.is_file()] for folder in (loot.objects / "ns").iterdir()}  # fmt: skip


def kind_of(path: Path) -> ObjectType:
    if path.name == "keyring":
        return ObjectType.KEYRING
    return ObjectType.ENTRY if path.parent.name == "wal" else ObjectType.MANIFEST


def open_outer(loot: Loot, path: Path, key: SealingKey) -> bytes:
    """Open the outer layer with everything that a thief could know but the key: account, place and kind."""
    place = path.relative_to(loot.objects)
    return unseal(key, kind_of(path), context(kind_of(path), loot.root.account, bytes.fromhex(place.parts[1]), place.as_posix()), path.read_bytes())  # fmt: skip


def keys_of(loot: Loot, agent: str, paths: list[Path]) -> NamespaceKeys:
    """An agent's keys for a namespace, or `WrongNamespaceKey`; it takes the relayer's key to read the keyring."""
    [ring] = [path for path in paths if kind_of(path) is ObjectType.KEYRING]
    keyring = decode(open_outer(loot, ring, loot.relayer_keys.metadata), Keyring)
    secret = loot.root.agent(agent).namespace_secret(agent, GENERATION)
    incarnation = bytes.fromhex(ring.parent.name)
    return NamespaceKeys.open(secret, keyring, account=loot.root.account, incarnation=incarnation)


def records(loot: Loot, paths: list[Path]) -> list[Stored]:
    entries = [
        decode_entry(open_outer(loot, path, loot.relayer_keys.metadata))
        for path in paths
        if kind_of(path) is ObjectType.ENTRY
    ]
    operations = [decode_operation(raw) for entry in entries for raw in entry.operations]
    return [operation.stored for operation in operations if isinstance(operation, Put)]


@pytest.mark.row("MW-32", level="e2e")
def test_each_agent_s_keys_open_that_agent_s_records_and_no_others(loot):
    opened: dict[str, list[str]] = {agent: [] for agent in AGENTS}
    everything = 0
    for paths in incarnations(loot).values():
        owners = []
        stored = records(loot, paths)
        everything += len(stored)
        for agent in AGENTS:
            try:
                keys = keys_of(loot, agent, paths)
            except WrongNamespaceKey:
                continue
            owners.append(agent)
            opened[agent] += [
                decode_record(keys.unseal_record(item.record, item.sealed)).text for item in stored
            ]
            # The agent's keys of this namespace on the records of all others, whatever key they name.
            for others in incarnations(loot).values():
                if others != paths:
                    for item in records(loot, others):
                        _stays_shut(keys, item)
        assert len(owners) == 1
    assert everything >= 4
    for agent, other in zip(AGENTS, reversed(AGENTS), strict=True):
        assert memory_text(agent) in opened[agent]
        assert not any(other in text for text in opened[agent])


def _stays_shut(keys: NamespaceKeys, item: Stored) -> None:
    for key, sealed in ((keys.payload, item.sealed), (keys.vector, item.vector), (keys.index, item.sealed)):
        if not sealed:
            continue  # a turn that was kept word for word has no vector
        claimed = replace(key, key_id=key_id_of(sealed))
        for kind in (ObjectType.RECORD, ObjectType.VECTOR):
            for account in (keys.account, ""):
                place = context(kind, account, keys.incarnation, item.record)
                with pytest.raises(UnsealError):
                    unseal(claimed, kind, place, sealed)


@pytest.mark.row("MW-32", level="e2e")
def test_without_the_key_of_the_relayer_no_agent_s_key_opens_any_object(loot):
    tried = 0
    secrets_held = [loot.root.root]
    for agent in AGENTS:
        keys = loot.root.agent(agent)
        secrets_held += [keys.secret, keys.outbox_key, bytes(keys.identity)]
        secrets_held.append(keys.namespace_secret(agent, GENERATION))
    for paths in incarnations(loot).values():
        for path in paths:
            # With the relayer's key it opens: the place is right, so that what fails below fails for the key.
            open_outer(loot, path, loot.relayer_keys.metadata)
            for secret in secrets_held:
                with pytest.raises(UnsealError):
                    open_outer(loot, path, SealingKey(key_id_of(path.read_bytes()), secret))
                tried += 1
    assert tried > 50


@pytest.mark.row("MW-32", level="e2e")
def test_the_key_of_the_relayer_alone_opens_no_record(loot):
    metadata = loot.relayer_keys.metadata
    for name, paths in incarnations(loot).items():
        for item in records(loot, paths):
            claimed = replace(metadata, key_id=key_id_of(item.sealed))
            place = context(ObjectType.RECORD, loot.root.account, bytes.fromhex(name), item.record)
            with pytest.raises(UnsealError):
                unseal(claimed, ObjectType.RECORD, place, item.sealed)


def test_only_the_owner_can_read_the_files(loot):
    if sys.platform == "win32":
        pytest.skip("file modes are POSIX")
    for path in loot.files():
        assert path.stat().st_mode & 0o077 == 0, path
