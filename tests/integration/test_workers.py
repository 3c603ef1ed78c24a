"""`memrelay serve --workers 2`: one relayer to whoever looks at it, whichever of its processes answers."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey
from processes import Served, run_memrelay, wait_until
from s3_servers import BUCKET, CREDENTIALS, S3Server
from signed_calls import Gateway, Line, Sent

from gateway_plugin import MemoryPlugin
from relayer.http.compat.names import address_of
from relayer.wire import codec as base64url
from relayer.wire.signing import Revocations, Right

TEXT = "The spare key of the boathouse hangs behind the third oar."
QUESTION = "Where does the spare key of the boathouse hang?"


@dataclass
class Workers:
    """A relayer of two workers, and a connection to each of them."""

    served: Served
    lines: dict[int, Line]

    def each(self) -> Iterator[tuple[int, Line]]:
        yield from sorted(self.lines.items())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in events_of(self.served) if event["event"] == name]

    @property
    def processes(self) -> dict[int, int]:
        """The process of each worker, the latest that was started."""
        return {event["worker"]: event["process"] for event in self.events("worker_started")}


def events_of(served: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]


def worker_of(served: Served, answer: httpx.Response) -> int:
    """Return which worker answered, by what it wrote down."""
    wanted = answer.headers["x-request-id"]
    found: list[int] = []

    def is_written() -> bool:
        found.extend(event["worker"] for event in events_of(served) if event.get("request_id") == wanted)
        return bool(found)

    wait_until(is_written)
    return found[0]


@pytest.fixture
def connect() -> Iterator[Callable[[Served], Workers]]:
    with ExitStack() as stack:

        def connected(served: Served) -> Workers:
            lines: dict[int, Line] = {}
            for _ in range(20):
                client = stack.enter_context(
                    httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=1))
                )
                number = worker_of(served, client.get(f"{served.url}/ready"))
                lines.setdefault(number, Line(client, served.url))
                if len(lines) == 2:
                    break
            assert sorted(lines) == [0, 1], "every connection came to one worker"
            return Workers(served, lines)

        yield connected


@pytest.fixture
def two(serve: Callable[..., Served], connect: Callable[[Served], Workers]) -> Workers:
    return connect(serve("--workers", "2"))


def remember(line: Line, gateway: Gateway, text: str = TEXT) -> httpx.Response:
    return line.send(gateway, "POST", "/v1/memories", {"items": [{"text": text}]})


def recalled(line: Line, gateway: Gateway, question: str = QUESTION) -> list[str]:
    answer = line.send(gateway, "POST", "/v1/recall", {"query": question})
    assert answer.status_code == 200, answer.text
    return [hit["text"] for hit in answer.json()["memories"]]


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def is_free(authority: str) -> bool:
    host, _, port = authority.rpartition(":")
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            again.bind((host, int(port)))
        except OSError:
            return False
        return True


def test_two_workers_say_one_line_write_one_ready_file_and_end_with_one_signal(two: Workers) -> None:
    served = two.served
    assert served.ready["pid"] == served.process.pid
    assert sorted(two.processes) == [0, 1]
    assert served.process.pid not in two.processes.values()
    assert served.stop() == 0
    said = [line for line in served.process.stdout.read().splitlines() if "serves" in line]
    assert len(said) == 1
    assert served.url in said[0]
    assert said[0].endswith(", 2 workers")
    assert not served.ready_file.exists()
    assert all(map(is_gone, two.processes.values()))
    assert not two.events("worker_ended")


def test_what_one_worker_acknowledged_is_found_through_the_other_at_once(two: Workers) -> None:
    gateway = Gateway()
    texts: list[str] = []
    for turn in range(6):
        text = f"Parcel {turn} of the boathouse went to shelf {turn + 40}."
        assert remember(two.lines[turn % 2], gateway, text).status_code == 200
        texts.append(text)
        for _, line in two.each():
            listed = line.send(gateway, "GET", "/v1/memories").json()["memories"]
            assert {one["text"] for one in listed} == set(texts)
            assert text in recalled(line, gateway, f"On which shelf is parcel {turn}?")


def test_a_read_that_one_worker_answered_none_answers_again(two: Workers) -> None:
    gateway = Gateway()
    assert remember(two.lines[0], gateway).status_code == 200
    for first, other in ((0, 1), (1, 0)):
        sent: Sent = two.lines[first].sign(gateway, "POST", "/v1/recall", {"query": QUESTION})
        assert two.lines[first].repeat(sent).status_code == 200
        for number in (other, first):
            answer = two.lines[number].repeat(sent)
            assert worker_of(two.served, answer) == number
            assert (answer.status_code, answer.json()["code"]) == (401, "replayed")


def test_a_read_is_not_answered_again_by_a_worker_that_was_started_after_it(
    two: Workers, connect: Callable[[Served], Workers]
) -> None:
    gateway = Gateway()
    assert remember(two.lines[0], gateway).status_code == 200
    sent = two.lines[0].sign(gateway, "POST", "/v1/recall", {"query": QUESTION})
    assert two.lines[0].repeat(sent).status_code == 200
    for process in two.processes.values():
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: len(two.events("worker_started")) == 4)
    for _, line in connect(two.served).each():
        assert line.repeat(sent).json()["code"] == "replayed"


def test_a_nonce_of_a_memwal_client_counts_with_both_workers(two: Workers) -> None:
    key, raw, target = SigningKey.generate(), b'{"query":"boathouse"}', "/api/recall"
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
    sent = Sent("POST", target, raw, headers)
    assert two.lines[1].repeat(sent).status_code == 200
    assert [line.repeat(sent).status_code for _, line in two.each()] == [401, 401]


def test_what_an_account_takes_back_at_one_worker_counts_with_the_other_at_once(two: Workers) -> None:
    gateway = Gateway()
    admin = Gateway(root=gateway.root, agent="admin", rights=(Right.ADMIN,))
    for _, line in two.each():
        assert remember(line, gateway).status_code == 200
    taken_back = Revocations(
        account_key=bytes(gateway.root.account_identity.verify_key),
        counter=1,
        agent_keys=(bytes(gateway.identity.verify_key),),
        serials=(),
    ).issue(gateway.root.account_identity)
    body = {"revocations": base64url.encode(taken_back)}
    answer = two.lines[0].send(admin, "PUT", "/v1/account/revocations", body, memory_key="")
    assert answer.status_code == 200, answer.text
    for number, line in two.each():
        refused = line.send(gateway, "POST", "/v1/recall", {"query": QUESTION})
        assert refused.status_code == 401, f"worker {number} still serves a key that was taken back"


def _recalls(page: str) -> float:
    pattern = r'memrelay_http_requests_total\{code="ok",method="POST",route="/v1/recall",status="200"\} (\S+)'
    found = re.findall(pattern, page)
    assert len(found) <= 1, "a series stands twice on the page"
    return float(found[0]) if found else 0.0


def _figure(page: str, name: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def _page(line: Line) -> str:
    # One that was rendered within a second is shown again.
    time.sleep(1.05)
    answer = line.http.get(f"{line.url}/metrics")
    assert answer.status_code == 200
    return answer.text


def test_metrics_are_those_of_both_workers_whoever_is_asked_and_never_go_back(
    two: Workers, connect: Callable[[Served], Workers]
) -> None:
    gateway = Gateway()
    remember(two.lines[0], gateway)
    for number, times in ((0, 3), (1, 5)):
        for _ in range(times):
            recalled(two.lines[number], gateway)
    for _, line in two.each():
        page = _page(line)
        assert _recalls(page) == 8
        assert 'memrelay_http_request_seconds_count{route="/v1/recall"} 8.0' in page
        assert 'memrelay_ready_check{check="store"} 1.0' in page
        assert (_figure(page, "memrelay_workers"), _figure(page, "memrelay_workers_up")) == (2, 2)
        assert len(re.findall(r'^process_open_fds\{worker="[01]"\} ', page, re.MULTILINE)) == 2
        assert len(re.findall(r"^memrelay_build_info\{.*\} 1\.0$", page, re.MULTILINE)) == 1
    os.kill(two.processes[1], signal.SIGKILL)
    wait_until(lambda: len(two.events("worker_started")) == 3)
    again = connect(two.served)
    recalled(again.lines[1], gateway)
    page = _page(again.lines[0])
    assert _recalls(page) == 9
    assert _figure(page, "memrelay_worker_restarts_total") == 1


def test_a_worker_that_is_killed_is_started_again_and_requests_go_on_meanwhile(
    two: Workers, connect: Callable[[Served], Workers]
) -> None:
    gateway = Gateway()
    remember(two.lines[0], gateway)
    os.kill(two.processes[0], signal.SIGKILL)
    wait_until(lambda: bool(two.events("worker_ended")))
    assert recalled(two.lines[1], gateway) == [TEXT]
    [event] = two.events("worker_ended")
    assert (event["worker"], event["killed_by"]) == (0, "SIGKILL")
    wait_until(lambda: len(two.events("worker_started")) == 3)
    for _, line in connect(two.served).each():
        assert recalled(line, gateway) == [TEXT]
    assert two.served.stop() == 0


def test_a_supervisor_that_is_killed_leaves_no_worker_and_no_port_behind(two: Workers) -> None:
    # One that can do nothing for its own end ends as well.
    os.kill(two.processes[1], signal.SIGSTOP)
    two.served.process.kill()
    wait_until(lambda: all(map(is_gone, two.processes.values())))
    two.served.process.wait(10)
    # The last thread of a process that is gone may still hold what was its own.
    wait_until(lambda: is_free(two.served.authority))


def _begin_write(served: Served, gateway: Gateway, fleet_key: bytes) -> socket.socket:
    """Open a connection and send the head of a write, whose body the worker then waits for."""
    body = json.dumps({"items": [{"text": TEXT}]}).encode()
    headers = gateway.headers(
        "POST", served.authority, "/v1/memories", body, memory_key=gateway.memory_key(fleet_key)
    )
    headers |= {"host": served.authority, "content-length": str(len(body)), "expect": "100-continue"}
    head = "POST /v1/memories HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    host, _, port = served.authority.rpartition(":")
    line = socket.create_connection((host, int(port)), 30)
    line.sendall(head.encode() + b"\r\n")
    assert b"100 Continue" in line.recv(4096)
    return line


def test_a_stop_that_everybody_is_told_of_still_finishes_the_requests_under_way(two: Workers) -> None:
    gateways = [Gateway() for _ in range(4)]
    fleet_key = two.lines[0].fleet_key
    lines = [_begin_write(two.served, gateway, fleet_key) for gateway in gateways]
    # As a service manager does that knows a group of processes, and no supervisor.
    for process in (*two.processes.values(), two.served.process.pid):
        os.kill(process, signal.SIGTERM)
    wait_until(lambda: bool(two.events("stopping")))
    for line in lines:
        line.sendall(json.dumps({"items": [{"text": TEXT}]}).encode())
    for line in lines:
        answer = b""
        while chunk := line.recv(65536):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
        line.close()
    assert two.served.process.wait(30) == 0


def test_the_log_tells_start_and_stop_of_the_whole_and_every_line_has_its_instance(two: Workers) -> None:
    two.served.process.send_signal(signal.SIGTERM)
    assert two.served.process.wait(30) == 0
    (started,), (told,), (_,) = two.events("started"), two.events("told_to_stop"), two.events("stopped")
    assert (started["workers"], started["pid"], started["url"]) == (2, two.served.process.pid, two.served.url)
    assert told["cause"] == "SIGTERM"
    assert len({event.get("instance") for event in events_of(two.served)}) == 1, "lines of one relayer"
    assert started["instance"].endswith(f":{httpx.URL(two.served.url).port}")


def test_a_second_signal_ends_all_of_it_at_once(two: Workers) -> None:
    line = _begin_write(two.served, Gateway(), two.lines[0].fleet_key)
    two.served.process.send_signal(signal.SIGTERM)
    wait_until(lambda: bool(two.events("stopping")))
    two.served.process.send_signal(signal.SIGINT)
    assert two.served.process.wait(5) == 1
    assert all(map(is_gone, two.processes.values()))
    line.close()


def test_nothing_acknowledged_is_lost_while_workers_are_killed(
    two: Workers, connect: Callable[[Served], Workers]
) -> None:
    """Four writers of one namespace, each on connections of its own, while a worker dies every second."""
    gateway, acknowledged, over = Gateway(), set[str](), threading.Event()
    fleet_key, authority = two.lines[0].fleet_key, two.served.authority

    def write(writer: int) -> None:
        for number in range(1_000):
            if over.is_set():
                return
            text = f"Writer {writer} notes that crate {number} has code {writer * 7919 + number * 31}."
            raw = json.dumps({"items": [{"text": text}]}).encode()
            headers = gateway.headers(
                "POST", authority, "/v1/memories", raw, memory_key=gateway.memory_key(fleet_key)
            )
            try:
                answer = httpx.post(
                    f"{two.served.url}/v1/memories", content=raw, headers=headers, trust_env=False, timeout=30
                )
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                acknowledged.add(text)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for kill in range(4):
        time.sleep(1.0)
        os.kill(two.processes[kill % 2], signal.SIGKILL)
        wait_until(lambda kill=kill: len(two.events("worker_started")) >= 3 + kill)
    over.set()
    for writer in writers:
        writer.join(60)
    assert len(acknowledged) > 10
    for _, line in connect(two.served).each():
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


def test_a_relayer_that_cannot_start_says_so_once_and_in_its_exit_code(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "objects").write_text("no directory")
    done = run_memrelay(["serve", "--workers", "2", "--port", "0", "--data", str(data)])
    assert done.returncode == 2
    sentences = [line for line in done.stderr.splitlines() if line.startswith("memrelay: ")]
    assert len(sentences) == 1
    assert "is a file" in sentences[0]
    assert done.stdout.count("serves") == 0


@pytest.mark.parametrize("given", ["0", "65", "many"])
def test_a_number_of_workers_that_is_none_is_refused_by_its_name(given: str) -> None:
    done = run_memrelay(["serve", "--workers", given])
    assert done.returncode == 2
    assert "--workers" in done.stderr


def test_the_plugin_says_and_finds_over_two_workers(two: Workers, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "gateway")}
    turn = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "Noted."}]
    with MemoryPlugin(two.served.url, agent="researcher", secret="5a" * 32, environ=environ) as memory:
        memory.after_turn(turn)
        assert memory.flush(60)
    for _ in range(4):
        with MemoryPlugin(two.served.url, agent="researcher", secret="5a" * 32, environ=environ) as memory:
            assert TEXT in memory.before_turn(QUESTION, deadline=20).text


def test_two_workers_share_a_bucket(
    serve: Callable[..., Served],
    connect: Callable[[Served], Workers],
    seaweed: S3Server,
) -> None:
    seaweed.empty()
    store = ("--store", f"s3://{BUCKET}/workers", "--endpoint-url", seaweed.url)
    served = serve("--workers", "2", *store, environment=CREDENTIALS | {"MEMRELAY_RELAYER_KEY": "ab" * 32})
    workers, gateway = connect(served), Gateway()
    for number, line in workers.each():
        text = f"Worker {number} has put the lantern on hook {number + 5}."
        assert remember(line, gateway, text).status_code == 200
        for _, other in workers.each():
            assert text in recalled(other, gateway, f"On which hook is the lantern of worker {number}?")
    assert served.stop() == 0
