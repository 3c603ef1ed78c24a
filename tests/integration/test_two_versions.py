"""Two versions over one store: the older one refuses what it does not understand, changes nothing, and recovers (I12)."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plugin_site import PluginSite, own_relayer
from processes import CLEAN, Served, ran, run_memrelay, wait_for

from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.errors import RelayerRefused
from gateway_plugin.keys.identity import Identity, RootHolder, identify, parse_session_key
from relayer.wire.schemas import MemoryItem, RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys

NEWER = Path(__file__).with_name("newer_memrelay.py")
VARIANTS = ["manifest", "entry", "operation"]
TEXT = "the blue kettle stands on the third shelf"


def newer(data: Path, *arguments: str) -> str:
    done = ran([sys.executable, NEWER, *arguments], env=CLEAN | {"MEMRELAY_DATA": str(data)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def serve_newer(tmp_path: Path) -> Iterator[Callable[[str, Path], str]]:
    """Starts a relayer of the version to come; returns its URL."""
    started: list[subprocess.Popen[str]] = []

    def start(variant: str, data: Path) -> str:
        ready, log = tmp_path / "newer.json", tmp_path / "newer.txt"
        command = [sys.executable, str(NEWER), variant, "serve", "--port", "0", "--ready-file", str(ready)]
        with log.open("w") as sink:
            process = subprocess.Popen(
                command, stderr=sink, stdout=sink, text=True, env=CLEAN | {"MEMRELAY_DATA": str(data)}
            )
        started.append(process)
        url: str = wait_for(ready, process, log)["url"]
        return url

    yield start
    for process in started:
        process.kill()
        process.wait(30)


@pytest.fixture
def identity() -> Identity:
    holder = RootHolder(RootKeys(secrets.token_bytes(32)))
    return identify(holder, parse_session_key("agent:researcher:main"), default_agent=None)


def client_of(url: str, folder: Path) -> RelayerClient:
    return RelayerClient(url, trust=TrustStore(folder / "trust.json"))


async def remember(url: str, folder: Path, identity: Identity, text: str) -> None:
    async with client_of(url, folder) as client:
        await client.remember(identity, RememberRequest(items=(MemoryItem(text=text),)))


async def recall(url: str, folder: Path, identity: Identity) -> list[str]:
    async with client_of(url, folder) as client:
        answer = await client.recall(identity, RecallRequest(query="where is the blue kettle", floor=0.0))
        return [hit.text for hit in answer.memories]


def objects(data: Path) -> dict[str, bytes]:
    folder = data / "objects" / "ns"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_newer(variant: str, data: Path) -> None:
    newer(data, variant, "write")


@pytest.mark.parametrize("variant", VARIANTS)
async def test_an_older_relayer_refuses_changes_nothing_and_recovers_after_the_upgrade(
    variant: str,
    serve: Callable[..., Served],
    serve_newer: Callable[[str, Path], str],
    identity: Identity,
    tmp_path: Path,
) -> None:
    older = serve()
    await remember(older.url, tmp_path, identity, TEXT)
    make_newer(variant, older.data)
    if variant == "manifest":
        # A warm relayer reads the manifest every ten minutes, and until then both versions write what both understand.
        await remember(older.url, tmp_path, identity, "both versions understand this entry")
        older.stop()
        older = serve(data=older.data)
    before = objects(older.data)
    for ask in (
        recall(older.url, tmp_path, identity),
        remember(older.url, tmp_path, identity, "what must not be written"),
    ):
        with pytest.raises(RelayerRefused) as refused:
            await ask
        assert (refused.value.status, refused.value.code) == (503, "upgrade_required")
    older.stop()
    assert objects(older.data) == before
    url = serve_newer(variant, older.data)
    assert TEXT in await recall(url, tmp_path, identity)
    await remember(url, tmp_path, identity, "the kettle is on the table now")
    assert len(await recall(url, tmp_path, identity)) >= 2


@pytest.mark.parametrize("variant", VARIANTS)
async def test_an_operator_of_the_older_version_is_told_and_changes_nothing(
    variant: str, serve: Callable[..., Served], identity: Identity, tmp_path: Path
) -> None:
    relayer = serve()
    await remember(relayer.url, tmp_path, identity, TEXT)
    relayer.stop()
    make_newer(variant, relayer.data)
    before = objects(relayer.data)
    environment = {"MEMRELAY_DATA": str(relayer.data)}
    for command in (["verify"], ["compact"], ["repair", "--apply"], ["backup", "--to", str(tmp_path / "to")]):
        done = run_memrelay(command, environment)
        assert (done.returncode, done.stderr) == (1, ""), command
        assert "this relayer knows 1" in done.stdout or "newer version" in done.stdout, command
    assert objects(relayer.data) == before


# Two gateways with one secret write at once: every turn arrives, and each once.
TURNS = 12


@pytest.fixture(scope="module")
def relayer():
    with own_relayer() as running:
        yield running


@pytest.mark.parametrize("folders", [1, 2], ids=["one machine", "two machines"])
def test_what_both_capture_arrives_once(relayer, tmp_path, folders):
    secret = secrets.token_hex(32)
    sites = [PluginSite(tmp_path / f"home-{number % folders}", relayer.url, secret) for number in range(2)]
    texts = [
        [f"Gateway {name} saw ship number {turn} pass the harbour light." for turn in range(TURNS)]
        for name in "AB"
    ]
    # What both are told is captured by both where they share no outbox, and stored once.
    both = "The harbour light was painted red by Ingeborg in spring."
    gate = threading.Barrier(2)

    def work(number: int) -> None:
        plugin = sites[number].plugin()
        gate.wait()
        for text in (*texts[number], both):
            plugin.after_turn([{"role": "user", "content": text}], session_key=f"agent:main:s{number}")
        assert plugin.flush(60)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with sites[0], sites[1]:
        found = sites[0].texts("main")
        assert sorted(found) == sorted([*texts[0], *texts[1], both])
