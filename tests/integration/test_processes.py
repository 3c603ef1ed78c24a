"""Several relayer processes on one port: `memrelay serve --reuse-port` side by side, and `--workers`, which starts them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from border import revocations_of
from nacl.signing import SigningKey
from processes import Served, alive, run_memrelay, wait_until
from s3_servers import free_ports
from signed_calls import Gateway, Line, Sent, begun

from gateway_plugin import MemoryPlugin
from relayer.fronts.memwal.contract import address_of
from relayer.wire import codec as base64url
from relayer.wire.signing import Right

TEXT = "The spare key of the boathouse hangs behind the third oar."
WRITTEN = {"items": [{"text": TEXT}]}
QUESTION = "Where does the spare key of the boathouse hang?"


def events_of(served: Served, name: str = "") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
    return [event for event in found if not name or event["event"] == name]


class OnePort:
    """Connections to the processes that share a port: one for each process, told apart by who logged a request."""

    def __init__(self, url: str, *served: Served) -> None:
        self.url, self.served = url, served
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()

    def process_of(self, answer: httpx.Response) -> int:
        wanted, found = answer.headers["x-request-id"], list[int]()

        def is_written() -> bool:
            for one in self.served:
                found.extend(
                    event["process"] for event in events_of(one) if event.get("request_id") == wanted
                )
            return bool(found)

        wait_until(is_written)
        return found[0]

    def lines(self, count: int) -> dict[int, Line]:
        """Connect until each of so many processes has answered on a connection of its own."""
        lines: dict[int, Line] = {}
        # The kernel chooses by the connection's ports: 40 at one of two are a chance of one in 10^12.
        for _ in range(40):
            client = self._stack.enter_context(
                httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=1))
            )
            lines.setdefault(self.process_of(client.get(f"{self.url}/ready")), Line(client, self.url))
            if len(lines) == count:
                return lines
        pytest.fail(f"every connection came to one of {sorted(lines)}")


@pytest.fixture
def connect() -> Iterator[Callable[..., OnePort]]:
    with ExitStack() as stack:

        def connected(url: str, *served: Served) -> OnePort:
            port = OnePort(url, *served)
            stack.callback(port.close)
            return port

        yield connected


@pytest.fixture
def pair(serve: Callable[..., Served], connect: Callable[..., OnePort]) -> Callable[..., OnePort]:
    """Starts two relayers by hand on one port."""

    def start(*arguments: str) -> OnePort:
        [port] = free_ports(1)
        both = [serve("--reuse-port", "--port", str(port), *arguments) for _ in range(2)]
        assert both[0].url == both[1].url
        return connect(both[0].url, *both)

    return start


def remember(line: Line, gateway: Gateway, text: str = TEXT) -> httpx.Response:
    return line.send(gateway, "POST", "/v1/memories", {"items": [{"text": text}]})


def recalled(line: Line, gateway: Gateway, question: str = QUESTION) -> list[str]:
    answer = line.send(gateway, "POST", "/v1/recall", {"query": question})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()["memories"]]


def test_two_processes_answer_on_one_port_and_find_what_the_other_stored(
    pair: Callable[..., OnePort],
) -> None:
    lines, gateway = pair().lines(2), Gateway()
    for number, line in enumerate(lines.values()):
        text = f"Parcel {number} of the boathouse went to shelf {number + 40}."
        assert remember(line, gateway, text).status_code == 200
        for other in lines.values():
            assert text in recalled(other, gateway, f"On which shelf is parcel {number}?")


def test_one_process_is_killed_and_the_other_answers_and_a_stop_is_orderly(
    pair: Callable[..., OnePort],
) -> None:
    port, gateway = pair(), Gateway()
    lines = port.lines(2)
    first, second = port.served
    assert remember(lines[first.process.pid], gateway).status_code == 200
    first.process.kill()
    first.process.wait(30)
    assert recalled(lines[second.process.pid], gateway) == [TEXT]
    # New connections, too: the kernel asks no process that is gone.
    assert list(port.lines(1)) == [second.process.pid]
    assert second.stop() == 0
    assert [event["event"] for event in events_of(second)][-1] == "stopped"


def test_without_reuse_port_a_second_relayer_is_refused_the_port(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    served = serve("--reuse-port")
    taken = ["--port", served.authority.rpartition(":")[2], "--data", str(tmp_path / "other")]
    for more in ([], ["--workers", "2"]):
        done = run_memrelay(["serve", *taken, *more])
        assert done.returncode == 2
        assert "--port" in done.stderr


def test_a_quota_admits_what_it_says_in_all(pair: Callable[..., OnePort]) -> None:
    lines, gateway = (
        list(pair("--quota-memories", "200", "--rate-limits", "off").lines(2).values()),
        Gateway(),
    )
    kept = 0
    for turn in range(50):
        for number, line in enumerate(lines):
            items = [
                {"text": f"Crate {turn}-{number}-{item} weighs {turn * 97 + item} kilos."}
                for item in range(4)
            ]
            answer = line.send(gateway, "POST", "/v1/memories", {"items": items})
            if answer.status_code == 200:
                kept += 4
            else:
                assert (answer.status_code, answer.json()["code"]) == (409, "quota_exceeded")
    assert 196 <= kept <= 200


def test_what_an_account_takes_back_at_one_process_counts_at_the_other_within_15_seconds(
    pair: Callable[..., OnePort],
) -> None:
    first, second = pair().lines(2).values()
    gateway = Gateway()
    admin = Gateway(root=gateway.root, agent="admin", rights=(Right.ADMIN,))
    for line in (first, second):
        assert remember(line, gateway).status_code == 200
    body = {"revocations": base64url.encode(revocations_of(gateway))}
    began = time.monotonic()
    assert first.send(admin, "PUT", "/v1/account/revocations", body, memory_key="").status_code == 200
    assert first.send(gateway, "POST", "/v1/recall", {"query": QUESTION}).status_code == 401
    wait_until(lambda: second.send(gateway, "POST", "/v1/recall", {"query": QUESTION}).status_code == 401)
    assert time.monotonic() - began < 16


def test_each_process_answers_a_read_once_and_a_write_is_stored_once(pair: Callable[..., OnePort]) -> None:
    first, second = pair().lines(2).values()
    gateway = Gateway()
    write = first.sign(gateway, "POST", "/v1/memories", {"items": [{"text": TEXT}]})
    stored = [line.repeat(write) for line in (first, second, first)]
    assert [answer.status_code for answer in stored] == [200, 200, 200]
    assert len({answer.json()["memories"][0]["id"] for answer in stored}) == 1
    read = first.sign(gateway, "POST", "/v1/recall", {"query": QUESTION})
    answers = [line.repeat(read) for line in (first, second, first, second)]
    assert [answer.status_code for answer in answers] == [200, 200, 401, 401]
    assert answers[2].json()["code"] == "replayed"
    assert [hit["text"] for hit in answers[1].json()["memories"]] == [TEXT]


def memwal(key: SigningKey, target: str, body: dict[str, Any]) -> Sent:
    raw = json.dumps(body).encode()
    nonce, stamp, account = str(uuid.uuid4()), str(int(time.time())), address_of(bytes(key.verify_key))
    message = ".".join((stamp, "POST", target, hashlib.sha256(raw).hexdigest(), nonce, account))
    headers = {
        "content-type": "application/json",
        "x-public-key": bytes(key.verify_key).hex(),
        "x-signature": key.sign(message.encode()).signature.hex(),
        "x-timestamp": stamp,
        "x-nonce": nonce,
        "x-account-id": account,
    }
    return Sent("POST", target, raw, headers)


def memwal_texts(line: Line, key: SigningKey) -> list[str]:
    answer = line.repeat(memwal(key, "/api/list", {"namespace": "default"}))
    assert answer.status_code == 200, answer.text
    return [one["text"] for one in answer.json()["memories"]]


def test_a_memwal_write_that_is_repeated_at_another_process_is_stored_once(
    pair: Callable[..., OnePort],
) -> None:
    first, second = pair().lines(2).values()
    bodies: dict[str, dict[str, Any]] = {
        "/api/remember": {"text": TEXT},
        "/api/remember/bulk": {"items": [{"text": TEXT}, {"text": "The oars are in the shed."}]},
        "/api/analyze": {"text": TEXT},
    }
    for target, body in bodies.items():
        key = SigningKey.generate()
        write = memwal(key, target, body)
        answers = [line.repeat(write) for line in (first, second, first)]
        assert [answer.status_code for answer in answers] == [202, 202, 401], target
        jobs = [answer.json().get("job_ids") or answer.json()["job_id"] for answer in answers[:2]]
        assert jobs[0] == jobs[1], target
        texts = memwal_texts(second, key)
        assert TEXT in texts, target
        assert len(texts) == len(set(texts)), target


def test_a_memwal_deletion_that_is_repeated_at_another_process_deletes_nothing_new(
    pair: Callable[..., OnePort], tmp_path: Path
) -> None:
    port = pair()
    first, second = port.lines(2).values()
    key = SigningKey.generate()
    assert first.repeat(memwal(key, "/api/remember", {"text": TEXT})).status_code == 202
    cleared = memwal(key, "/api/forget", {"namespace": "default"})
    assert first.repeat(cleared).json()["deleted"] == 1
    assert first.repeat(memwal(key, "/api/remember", {"text": TEXT})).status_code == 202
    assert second.repeat(cleared).status_code == 401
    assert memwal_texts(second, key) == [TEXT]
    # Another request to the same end is another deletion.
    assert second.repeat(memwal(key, "/api/forget", {"namespace": "default"})).json()["deleted"] == 1
    assert first.repeat(memwal(key, "/api/remember", {"text": TEXT})).status_code == 202
    for line in (first, second):
        assert line.repeat(cleared).status_code == 401
    assert memwal_texts(first, key) == [TEXT]
    assert [served.stop() for served in port.served] == [0, 0]
    # What the deletions left in the store is in order, and goes into a backup and back.
    for command in (
        ["verify", "--data", str(tmp_path / "data")],
        ["backup", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "backup")],
    ):
        done = run_memrelay(command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_monitoring_port_shows_one_process_whatever_the_shared_port_says(
    serve: Callable[..., Served], connect: Callable[..., OnePort]
) -> None:
    port, *own = free_ports(3)
    both = [serve("--reuse-port", "--port", str(port), "--monitoring-port", str(one)) for one in own]
    lines, gateway = connect(both[0].url, *both).lines(2), Gateway()
    assert remember(lines[both[0].process.pid], gateway).status_code == 200
    for _ in range(3):
        recalled(lines[both[0].process.pid], gateway)
    recalls = r'memrelay_http_requests_total\{code="ok",method="POST",route="/v1/recall",status="200"\} (\S+)'
    counted = []
    for one in own:
        assert httpx.get(f"http://127.0.0.1:{one}/ready", trust_env=False).status_code == 200
        page = httpx.get(f"http://127.0.0.1:{one}/metrics", trust_env=False).text
        counted.append([float(number) for number in re.findall(recalls, page)])
    assert counted == [[3.0], []]
    # What gateways sign names the shared port; nothing signed is accepted here.
    body = json.dumps({"query": QUESTION}).encode()
    headers = gateway.headers("POST", f"127.0.0.1:{own[0]}", "/v1/recall", body, memory_key="")
    refused = httpx.post(
        f"http://127.0.0.1:{own[0]}/v1/recall", content=body, headers=headers, trust_env=False
    )
    assert refused.status_code in (401, 421)


# --workers


def processes_of(served: Served) -> dict[int, int]:
    """The process of each number, the latest that was started."""
    return {event["number"]: event["process"] for event in events_of(served, "process_started")}


def is_free(authority: str) -> bool:
    host, _, port = authority.rpartition(":")
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            again.bind((host, int(port)))
        except OSError:
            return False
        return True


def test_workers_say_one_line_write_one_ready_file_and_end_with_one_signal(
    serve: Callable[..., Served],
) -> None:
    served = serve("--workers", "2")
    assert served.ready["pid"] == served.process.pid
    running = processes_of(served)
    assert sorted(running) == [0, 1]
    # The first one alone until it answers: keys and store are made once.
    order = [
        event["event"] for event in events_of(served) if event["event"] in {"process_started", "started"}
    ]
    assert order[:3] == ["process_started", "started", "process_started"]
    assert served.stop() == 0
    said = served.process.stdout.read().splitlines()
    assert [line.endswith(", 2 processes") for line in said if "serves" in line] == [True]
    assert sum("created the relayer key" in line for line in said) == 1
    assert not served.ready_file.exists()
    assert not any(map(alive, running.values()))
    assert not events_of(served, "process_ended")


def test_a_worker_that_is_killed_is_started_again_and_requests_go_on_meanwhile(
    serve: Callable[..., Served], connect: Callable[..., OnePort]
) -> None:
    served, gateway = serve("--workers", "2"), Gateway()
    port, running = connect(served.url, served), processes_of(served)
    lines = port.lines(2)
    assert remember(lines[running[0]], gateway).status_code == 200
    os.kill(running[0], signal.SIGKILL)
    assert recalled(lines[running[1]], gateway) == [TEXT]
    wait_until(lambda: len(events_of(served, "process_started")) == 3)
    [ended] = events_of(served, "process_ended")
    assert (ended["number"], ended["exit_code"]) == (0, -signal.SIGKILL)
    wait_until(lambda: len(events_of(served, "started")) == 3)
    for line in port.lines(2).values():
        assert recalled(line, gateway) == [TEXT]
    assert served.stop() == 0


def test_a_launcher_that_is_killed_leaves_no_process_and_no_port_behind(serve: Callable[..., Served]) -> None:
    served = serve("--workers", "2")
    served.process.kill()
    served.process.wait(10)
    wait_until(lambda: not any(map(alive, processes_of(served).values())))
    wait_until(lambda: is_free(served.authority))


def test_a_stop_finishes_the_requests_under_way(serve: Callable[..., Served]) -> None:
    served = serve("--workers", "2")
    with httpx.Client(trust_env=False) as http:
        writes = [Line(http, served.url).sign(Gateway(), "POST", "/v1/memories", WRITTEN) for _ in range(4)]
    lines = [begun(served.url, one) for one in writes]
    served.process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(events_of(served, "stopping")) == 2)
    for line, one in zip(lines, writes, strict=True):
        line.sendall(one.raw)
    for line in lines:
        answer = b""
        while chunk := line.recv(65536):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        line.close()
    assert served.process.wait(30) == 0


def test_a_second_signal_ends_all_of_it_at_once(serve: Callable[..., Served]) -> None:
    served = serve("--workers", "2")
    with httpx.Client(trust_env=False) as http:
        write = Line(http, served.url).sign(Gateway(), "POST", "/v1/memories", WRITTEN)
    with begun(served.url, write):
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(events_of(served, "stopping")) == 2)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(5) == 1
    assert not any(map(alive, processes_of(served).values()))


# httpx leaves the socket of a connection that was reset to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_acknowledged_is_lost_while_processes_are_killed(
    serve: Callable[..., Served], connect: Callable[..., OnePort]
) -> None:
    """Four writers of one namespace, each request on a connection of its own, while processes die."""
    served = serve("--workers", "2")
    port, gateway, over = connect(served.url, served), Gateway(), threading.Event()
    acknowledged = set[str]()
    [first] = list(port.lines(1).values())
    fleet_key = first.fleet_key

    def write(writer: int) -> None:
        for number in range(1_000):
            if over.is_set():
                return
            text = f"Writer {writer} notes that crate {number} has code {writer * 7919 + number * 31}."
            raw = json.dumps({"items": [{"text": text}]}).encode()
            headers = gateway.headers(
                "POST", served.authority, "/v1/memories", raw, memory_key=gateway.memory_key(fleet_key)
            )
            url = f"{served.url}/v1/memories"
            try:
                answer = httpx.post(url, content=raw, headers=headers, trust_env=False, timeout=30)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                acknowledged.add(text)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for kill in range(3):
        before = len(acknowledged)
        wait_until(lambda before=before: len(acknowledged) > before + 5)
        os.kill(processes_of(served)[kill % 2], signal.SIGKILL)
        wait_until(lambda kill=kill: len(events_of(served, "process_started")) >= 3 + kill)
    over.set()
    for writer in writers:
        writer.join(60)
    wait_until(lambda: len(events_of(served, "process_started")) == 5)
    latest = set(processes_of(served).values())
    wait_until(
        lambda: latest <= {event["process"] for event in events_of(served, "started") if "process" in event}
    )
    for line in port.lines(2).values():
        kept: list[str] = []
        cursor = ""
        while True:
            page = line.send(gateway, "GET", f"/v1/memories?limit=100{cursor}").json()
            kept += [one["text"] for one in page["memories"]]
            if not page.get("next_cursor"):
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert acknowledged <= set(kept)
        assert len(kept) == len(set(kept)), "a memory stands twice"


def test_a_first_process_that_cannot_start_says_so_once_and_in_the_exit_code(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "objects").write_text("no directory")
    done = run_memrelay(["serve", "--workers", "2", "--port", "0", "--data", str(data)])
    assert done.returncode == 2
    sentences = [line for line in done.stderr.splitlines() if line.startswith("memrelay: ")]
    assert len(sentences) == 1
    assert "is a file" in sentences[0]
    assert "serves" not in done.stdout


@pytest.mark.parametrize("given", ["0", "65", "many"])
def test_a_number_of_workers_that_is_none_is_refused_by_its_name(given: str) -> None:
    done = run_memrelay(["serve", "--workers", given])
    assert done.returncode == 2
    assert "--workers" in done.stderr


def test_the_plugin_says_and_finds_over_two_workers(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve("--workers", "2")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "gateway")}
    turn = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "Noted."}]
    with MemoryPlugin(served.url, agent="researcher", secret="5a" * 32, environ=environ) as memory:
        memory.after_turn(turn)
        assert memory.flush(60)
    for _ in range(4):
        with MemoryPlugin(served.url, agent="researcher", secret="5a" * 32, environ=environ) as memory:
            assert TEXT in memory.before_turn(QUESTION, deadline=20).text
