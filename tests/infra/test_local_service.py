"""`infra/local/up` as a person would use it: store, three relayers and a proxy, two gateways, a kill, and an end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from processes import alive, wait_until
from service_of_this_machine import Service, service_at

from gateway_plugin import MemoryPlugin

# Five servers start one after another, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

SECRET = "5a" * 32
COFFEE = "I only drink oat milk coffee, never after 2 pm."
QUESTION = "How do I take my coffee?"
PATIENCE = 20.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_at(tmp_path_factory.mktemp("service") / "data") as made:
        yield made


@pytest.fixture
def gateways(service: Service, tmp_path: Path) -> Iterator[tuple[MemoryPlugin, MemoryPlugin]]:
    """Two gateways of one account, each with a disk of its own."""
    one, two = ({"HOME": str(tmp_path / name), "XDG_CONFIG_HOME": str(tmp_path / name)} for name in "12")
    with (
        MemoryPlugin(service.url, agent="a", secret=SECRET, environ=one) as first,
        MemoryPlugin(service.url, agent="a", secret=SECRET, environ=two) as second,
    ):
        yield first, second


def _recall(gateway: MemoryPlugin, question: str = QUESTION) -> str:
    turn = gateway.before_turn(question, deadline=PATIENCE)
    assert turn.status in {"ok", "empty"}, turn.detail
    return turn.prompt


def test_what_one_gateway_remembers_another_recalls_whatever_relayer_dies(
    service: Service, gateways: tuple[MemoryPlugin, MemoryPlugin]
) -> None:
    first, second = gateways
    first.after_turn([{"role": "user", "content": COFFEE}, {"role": "assistant", "content": "Noted."}])
    assert first.flush(PATIENCE)
    for number, gateway in enumerate((second, first, second)):
        assert COFFEE in _recall(gateway, f"{QUESTION} Asked {number} times.")
    [serving] = [name for name, count in service.recalls().items() if count]

    os.kill(service.pids()[serving], signal.SIGKILL)
    wait_until(lambda: serving not in service.pids())
    assert service.command("status")[0] == 1
    assert COFFEE in _recall(second, f"{QUESTION} Asked again.")
    [other] = [name for name, count in service.recalls().items() if count]
    assert other != serving

    code, said = service.command("up")
    assert code == 0, said
    assert f"{serving}  starts" in said
    assert "store      starts" not in said

    def back() -> bool:
        # nginx asks a relayer that failed it again after five seconds.
        _recall(second, f"{QUESTION} {os.urandom(4).hex()}")
        return service.recalls()[serving] > 0

    wait_until(back)


def test_metrics_and_bodies_that_are_too_large_stop_at_the_proxy(service: Service) -> None:
    answers = [
        httpx.get(f"{service.url}/metrics", trust_env=False),
        httpx.post(f"{service.url}/v1/recall", content=b"x" * 2_400_000, trust_env=False),
    ]
    assert [answer.json()["code"] for answer in answers] == ["not_found", "too_large"]
    assert all(answer.headers["x-request-id"] for answer in answers)


def test_up_a_second_time_changes_nothing_and_moves_nowhere(service: Service) -> None:
    before = service.pids()
    assert len(before) == 6
    code, said = service.command("up")
    assert code == 0, said
    assert "nothing to do" in said
    code, said = service.command("up", "--port", str(service.port + 100))
    assert code == 2
    assert "--port" in said
    assert service.pids() == before


def test_a_port_that_is_taken_is_named_before_anything_starts(service: Service, tmp_path: Path) -> None:
    other = Service(tmp_path / "other", service.port)
    code, said = other.command("up", "--port", str(service.port))
    assert code == 2
    assert f"--port: {service.port} is in use" in said
    assert other.pids() == {}


def test_keys_are_the_owner_s_alone(service: Service) -> None:
    secrets = [service.data / name for name in ("relayer.key", "credentials.json", "s3.json")]
    assert [file.stat().st_mode & 0o777 for file in secrets] == [0o600] * 3


def test_down_ends_every_process_and_purge_leaves_nothing(service: Service) -> None:
    # The last test of the service, which it ends.
    pids = service.pids()
    assert len(pids) == 6
    code, said = service.command("down", "--purge")
    assert code == 0, said
    assert not [name for name, pid in pids.items() if alive(pid)]
    assert not _mentioning(str(service.data))
    assert not service.data.exists()
    assert "nothing ran" in service.command("down")[1]


def test_a_process_id_that_is_somebody_else_s_by_now_is_left_alone(tmp_path: Path) -> None:
    state = f'{{"port": 8700, "processes": {{"nginx": {{"pid": {os.getpid()}, "started": "1"}}}}}}'
    (tmp_path / "state.json").write_text(state)
    service = Service(tmp_path, 8700)
    assert "nothing ran" in service.command("down")[1]


def _mentioning(text: str) -> list[str]:
    """Return the command lines on this machine that name a path."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if text in line else []
    return found
