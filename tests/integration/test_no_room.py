"""A store without room: a real relayer whose files may not grow beyond a limit of the operating system."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from processes import CLEAN, wait_for
from signed_calls import Gateway, Line

LIMIT = 64 * 1024
SMALL = "The spare key of the boathouse hangs behind the third oar."
LARGE = "a long story about the harbour " * 2000


@pytest.fixture
def cramped(tmp_path: Path):
    ready, log = tmp_path / "ready.json", tmp_path / "log.txt"
    command = [sys.executable, "-m", "relayer", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    with log.open("w") as sink:
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready), "--log-level", "error"],
            stdout=subprocess.DEVNULL,
            stderr=sink,
            env=CLEAN,
        )
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    yield wait_for(ready, process, log)["url"]
    process.kill()
    process.wait(30)


def test_a_write_without_room_is_refused_whole_and_everything_else_goes_on(cramped: str) -> None:
    with httpx.Client(trust_env=False, timeout=60) as http:
        line, gateway = Line(http, cramped), Gateway()

        def remember(*texts: str) -> httpx.Response:
            return line.send(gateway, "POST", "/v1/memories", {"items": [{"text": text} for text in texts]})

        assert remember(SMALL).status_code == 200
        refused = remember(LARGE, LARGE[::-1], "a small one beside it")
        assert (refused.status_code, refused.json()["code"]) == (507, "store_full")
        assert remember("A second small note.").status_code == 200
        listed = line.send(gateway, "GET", "/v1/memories").json()
    assert [memory["text"] for memory in listed["memories"]] == ["A second small note.", SMALL]
    assert httpx.get(f"{cramped}/ready", trust_env=False).json()["ready"]
