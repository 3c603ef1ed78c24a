"""`memrelay serve` over a bucket: the bucket is all that lasts, and a store that cannot hold the log is refused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from processes import Served, run_memrelay
from s3_servers import BUCKET, CREDENTIALS, SECRET_KEY, S3Server
from scripted_s3 import CarelessS3, Reply, ScriptedS3, refusal, serving

from gateway_plugin import MemoryPlugin
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.keys.identity import RootHolder, identify, parse_session_key
from relayer.wire.schemas import MemoryItem, RememberRequest
from relayer.wire.sealing import RootKeys
from relayer.wire.sheet import RELAYER_SHEET

RELAYER_KEY = "ab" * 32
SECRET = "5a" * 32
COFFEE = "I only drink oat milk coffee, never after 2 pm."
QUESTION = "How do I take my coffee?"
PATIENCE = 20.0
# Of the developer's own machine, nothing may be found.
ENVIRONMENT = CREDENTIALS | {"MEMRELAY_RELAYER_KEY": RELAYER_KEY}


@pytest.fixture
def in_bucket(serve: Callable[..., Served], seaweed: S3Server, tmp_path: Path) -> Callable[..., Served]:
    """Starts relayers over the bucket, each on a data directory of its own."""
    seaweed.empty()
    count = iter(range(9))

    def start(*arguments: str, prefix: str = "team/a") -> Served:
        store = ("--store", f"s3://{BUCKET}/{prefix}", "--endpoint-url", seaweed.url)
        return serve(*store, *arguments, data=tmp_path / f"data-{next(count)}", environment=ENVIRONMENT)

    return start


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "gateway")}


def _plugin(relayer: Served, environ: dict[str, str]) -> MemoryPlugin:
    return MemoryPlugin(relayer.url, agent="researcher", secret=SECRET, environ=environ)


def _remember(relayer: Served, environ: dict[str, str], text: str = COFFEE) -> None:
    with _plugin(relayer, environ) as memory:
        memory.after_turn([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}])
        assert memory.flush(PATIENCE)


def _recall(relayer: Served, environ: dict[str, str], question: str = QUESTION) -> str:
    with _plugin(relayer, environ) as memory:
        turn = memory.before_turn(question, deadline=PATIENCE)
    assert turn.status in {"ok", "empty"}, turn.detail
    return turn.prompt


@pytest.mark.row("MW-50", level="e2e")
def test_after_a_kill_another_relayer_without_the_old_one_s_disk_has_everything(
    in_bucket: Callable[..., Served], environ: dict[str, str], seaweed: S3Server
) -> None:
    first = in_bucket()
    _remember(first, environ)
    assert COFFEE in _recall(first, environ)
    first.stop(signal.SIGKILL)

    second = in_bucket()
    assert second.data != first.data
    # The gateway pinned the relayer's identity, which comes from the key and not from the machine.
    assert COFFEE in _recall(second, environ)
    assert httpx.get(f"{second.url}/ready", trust_env=False).json()["ready"] is True
    assert second.stop() == 0

    keys = [row["Key"] for row in seaweed.admin.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert all(key.startswith("team/a/") for key in keys)
    stored = b"".join(seaweed.admin.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys)
    for secret in (b"coffee", b"oat milk", b"researcher", bytes.fromhex(RELAYER_KEY)):
        assert secret not in stored
    for log in (first.log, second.log):
        assert SECRET_KEY not in log.read_text()
        assert RELAYER_KEY not in log.read_text()
    # The probe of the first start spared the second one.
    assert first.log.read_text().count('"store_probed"') == 1
    assert '"store_probed"' not in second.log.read_text()


async def test_writers_at_two_relayers_lose_nothing_to_each_other(
    in_bucket: Callable[..., Served], tmp_path: Path
) -> None:
    trust = TrustStore(tmp_path / "trust.json")
    one, two = (RelayerClient(in_bucket("--probe", "off").url, trust=trust) for _ in range(2))
    who = identify(
        RootHolder(RootKeys(bytes.fromhex(SECRET))),
        parse_session_key("agent:researcher:s"),
        default_agent=None,
    )

    async def write(client: RelayerClient, number: int) -> None:
        await client.remember(
            who, RememberRequest(items=(MemoryItem(text=f"Canary number {number} sings."),))
        )

    async with asyncio.TaskGroup() as group:
        for number in range(24):
            group.create_task(write((one, two)[number % 2], number))
    wanted = {f"Canary number {number} sings." for number in range(24)}
    for client in (one, two):
        listed = await client.list_memories(who, limit=100)
        assert {memory.text for memory in listed.memories} == wanted
        assert listed.total == len(wanted)
        await client.aclose()


def test_another_prefix_of_the_bucket_is_another_deployment(
    in_bucket: Callable[..., Served], environ: dict[str, str]
) -> None:
    _remember(in_bucket("--probe", "off"), environ)
    assert _recall(in_bucket("--probe", "off", prefix="team/b"), environ) == ""


@pytest.fixture
def careless() -> Iterator[CarelessS3]:
    with serving(CarelessS3) as server:
        yield server


def _over(url: str) -> list[str]:
    return ["--store", f"s3://{BUCKET}", "--endpoint-url", url]


def _serve(url: str, *arguments: str, data: Path) -> tuple[int, str]:
    ended = run_memrelay(["serve", "--port", "0", *_over(url), "--data", str(data), *arguments], ENVIRONMENT)
    return ended.returncode, ended.stderr


def test_a_single_relayer_may_go_on_and_says_so(careless: CarelessS3, serve: Callable[..., Served]) -> None:
    served = serve(*_over(careless.url), "--single-relayer", environment=ENVIRONMENT)
    assert '"store_breaks_promises"' in served.log.read_text()
    assert httpx.get(f"{served.url}/ready", trust_env=False).json()["ready"] is True


def test_single_relayer_forgives_a_broken_promise_and_no_missing_permission(tmp_path: Path) -> None:
    with serving(ScriptedS3) as server:
        server.will_answer(*[refusal(403, "AccessDenied")] * 3)
        code, said = _serve(server.url, "--single-relayer", data=tmp_path)
    assert code == 2
    assert "s3:ListBucket" in said


def test_a_bucket_s_relayer_must_be_given_its_key(tmp_path: Path) -> None:
    (tmp_path / "relayer.key").write_text("cd" * 32)
    (tmp_path / "relayer.key").chmod(0o600)
    ended = run_memrelay(
        ["serve", "--port", "0", "--store", f"s3://{BUCKET}", "--data", str(tmp_path)], CREDENTIALS
    )
    assert ended.returncode == 2
    assert "MEMRELAY_RELAYER_KEY_FILE" in ended.stderr
    assert "memrelay keys make" in ended.stderr


class TestStoreProbe:
    def _probe(self, url: str, bucket: str = BUCKET) -> tuple[int, list[str], str]:
        ended = run_memrelay(
            ["store", "probe", "--store", f"s3://{bucket}/x", "--endpoint-url", url], CREDENTIALS
        )
        return ended.returncode, ended.stdout.splitlines(), ended.stderr

    def test_a_good_store_is_told_promise_by_promise(self, seaweed: S3Server) -> None:
        code, said, complaint = self._probe(seaweed.url)
        assert (code, complaint) == (0, "")
        assert [line.split()[0] for line in said] == ["store", *["kept"] * 5, "result"]
        assert not seaweed.admin.list_objects_v2(Bucket=BUCKET, Prefix="x/").get("Contents")

    def test_a_bucket_that_is_not_there_is_a_matter_of_settings(self, seaweed: S3Server) -> None:
        code, _, complaint = self._probe(seaweed.url, "nowhere")
        assert code == 2
        assert "no such bucket" in complaint

    def test_a_server_that_only_fails_is_neither_good_nor_broken(self) -> None:
        with serving(ScriptedS3) as server:
            server.will_answer(*[Reply(500)] * 9)
            code, said, _ = self._probe(server.url)
        assert code == 3
        assert said[-1].startswith("silent")

    def test_a_directory_can_be_probed_too(self, tmp_path: Path) -> None:
        ended = run_memrelay(["store", "probe", "--data", str(tmp_path)])
        assert ended.returncode == 0, ended.stderr
        assert str(tmp_path) in ended.stdout


def test_a_made_key_is_the_owner_s_alone_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "relayer"
    made = run_memrelay(["keys", "make", str(file)])
    assert made.returncode == 0, made.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    key = file.read_text()
    assert key.strip() not in made.stdout
    again = run_memrelay(["keys", "make", str(file)])
    assert again.returncode == 2
    assert file.read_text() == key
    sheet = run_memrelay(["keys", "recovery"], {"MEMRELAY_RELAYER_KEY_FILE": str(file)})
    assert RELAYER_SHEET.read(sheet.stdout) == bytes.fromhex(key)
