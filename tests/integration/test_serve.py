"""`memrelay serve` as a process: it starts clearly, ends clearly, and says what it says once."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from processes import Served, run_memrelay, wait_until
from signed_calls import Gateway, Line, begun

CANARY = "the lighthouse keeper collects green umbrellas"


def _call(served: Served, gateway: Gateway, method: str, target: str, body: object = None) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=60) as http:
        return Line(http, served.url).send(gateway, method, target, body)


@pytest.mark.row("MS-15")
def test_a_relayer_remembers_over_a_restart_and_its_log_and_store_keep_the_secret(
    serve: Callable[..., Served],
) -> None:
    gateway = Gateway()
    first = serve("--log-level", "debug")
    item = {"text": CANARY, "source": {"session": "canary-session", "speaker": "Canary Speaker"}}
    answer = _call(first, gateway, "POST", "/v1/memories", {"items": [item]})
    assert answer.status_code == 200, answer.text
    assert first.stop() == 0

    second = serve("--log-level", "debug", data=first.data)
    hits = _call(second, gateway, "POST", "/v1/recall", {"query": "green umbrellas lighthouse"}).json()
    assert [hit["text"] for hit in hits["memories"]] == [CANARY]
    assert second.stop() == 0

    seen = b"".join(path.read_bytes() for path in first.data.rglob("*") if path.is_file())
    seen += first.log.read_bytes() + second.log.read_bytes()
    for secret in (CANARY, "canary-session", "Canary Speaker", gateway.agent, gateway.root.account):
        assert secret.encode() not in seen


def test_the_log_says_what_started_which_process_it_is_and_why_it_stopped(
    serve: Callable[..., Served],
) -> None:
    served = serve()
    answer = httpx.get(f"{served.url}/health", headers={"x-request-id": "my-id"}, trust_env=False)
    assert answer.headers["x-request-id"] == "my-id"
    assert served.stop() == 0
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert [line["status"] for line in lines if line.get("request_id") == "my-id"] == [200]
    named = {line["event"]: line for line in lines}
    order = [line["event"] for line in lines]
    wanted = ["started", "request", "told_to_stop", "stopping", "stopped"]
    assert [event for event in order if event in wanted] == wanted
    started = named["started"]
    assert (started["url"], started["pid"], started["version"]) == (
        served.url,
        served.process.pid,
        served.ready["version"],
    )
    assert str(served.data) in started["store"]
    assert named["told_to_stop"]["cause"] == "SIGTERM"
    instance = f"{socket.gethostname()}:{served.url.rpartition(':')[2]}"
    assert {line["instance"] for line in lines[order.index("started") :]} == {instance}


def test_the_relayer_key_is_made_once_for_its_owner_alone_and_said_once(serve: Callable[..., Served]) -> None:
    first = serve()
    key_file = first.data / "relayer.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    key = key_file.read_text().strip()
    assert first.stop() == 0
    said = first.process.stdout.read()
    assert str(key_file) in said
    assert key not in said
    assert len(said.splitlines()) == 2

    second = serve(data=first.data)
    assert second.stop() == 0
    said = second.process.stdout.read()
    assert key_file.read_text().strip() == key
    assert len(said.splitlines()) == 1
    assert second.url in said


def test_the_ready_file_says_where_and_is_gone_when_nobody_answers(serve: Callable[..., Served]) -> None:
    served = serve()
    assert served.ready["pid"] == served.process.pid
    assert httpx.get(f"{served.url}/ready", trust_env=False).json()["ready"] is True
    assert served.stop(signal.SIGINT) == 0
    assert not served.ready_file.exists()


def test_a_request_under_way_is_finished_before_the_end(serve: Callable[..., Served]) -> None:
    served, gateway = serve(), Gateway()
    with httpx.Client(trust_env=False) as http:
        write = Line(http, served.url).sign(gateway, "POST", "/v1/memories", {"items": [{"text": CANARY}]})
    with begun(served.url, write) as connection:
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: '"stopping"' in served.log.read_text())
        connection.sendall(write.raw)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert served.process.wait(30) == 0
    again = serve(data=served.data)
    assert _call(again, gateway, "GET", "/v1/memories").json()["total"] == 1


class TestRefusals:
    """What cannot work ends at once, with exit code 2 and one line that names setting and fix."""

    def _refused(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        ended = run_memrelay(["serve", *arguments], environment)
        assert ended.returncode == 2, ended.stderr
        assert ended.stdout == ""
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
        return ended.stderr

    def test_a_port_that_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            said = self._refused("--data", str(tmp_path), "--port", port)
        assert "--port" in said
        assert port in said

    @pytest.mark.skipif(os.geteuid() == 0, reason="root can write anywhere")
    def test_a_data_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        assert str(closed) in self._refused("--port", "0", "--data", str(closed / "data"))

    def test_a_relayer_key_of_another_store(self, serve: Callable[..., Served]) -> None:
        served = serve()
        assert served.stop() == 0
        (served.data / "relayer.key").write_text("ab" * 32)
        assert "another relayer key" in self._refused("--port", "0", "--data", str(served.data))
        (served.data / "relayer.key").unlink()
        assert "relayer.key is missing" in self._refused("--port", "0", "--data", str(served.data))
        assert not (served.data / "relayer.key").exists()

    def test_a_certificate_that_is_none(self, tmp_path: Path) -> None:
        file = tmp_path / "cert.pem"
        file.write_text("nothing")
        said = self._refused(
            "--port", "0", "--data", str(tmp_path), "--tls-cert", str(file), "--tls-key", str(file)
        )
        assert "--tls-cert" in said


def test_a_sheet_of_the_relayer_key_can_be_compared_and_shows_a_slip(serve: Callable[..., Served]) -> None:
    served = serve()
    served.stop()
    data = ["--data", str(served.data)]
    sheet = run_memrelay(["keys", "recovery", *data]).stdout
    assert run_memrelay(["keys", "recovery", "--verify", *data], given=sheet).returncode == 0
    slip = re.sub(r"(?m)^2   \w+", "2   slip", sheet)
    ended = run_memrelay(["keys", "recovery", "--verify", *data], given=slip)
    assert ended.returncode == 2
    assert "line 2" in ended.stderr
