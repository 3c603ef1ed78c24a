"""The TypeScript client in Chromium: a page of another origin uses a real relayer that lists it, and only then."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias
from urllib.parse import urlencode

import pytest
from typescript_package import build

from demo.relayer_process import RelayerProcess

_ROOT = Path(__file__).parents[2]
_PAGE = "clients/typescript/test/browser/page.html"
_SECONDS = 90
Browse: TypeAlias = Callable[..., dict[str, Any]]


class _Pages(ThreadingHTTPServer):
    """Serves the files of the repository, and keeps what a page posts."""

    results: queue.Queue[dict[str, Any]]


class _PageRequest(SimpleHTTPRequestHandler):
    server: _Pages

    def __init__(self, *arguments: Any) -> None:
        # The system's table may lack the last one, and a browser loads no script of another type.
        self.extensions_map = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript"}
        super().__init__(*arguments, directory=str(_ROOT))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()
        self.server.results.put(json.loads(body))

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def pages() -> Iterator[_Pages]:
    with _Pages(("127.0.0.1", 0), _PageRequest) as server:
        server.results = queue.Queue()
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def relayer(pages: _Pages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayerProcess]:
    listed = f"http://localhost:{pages.server_port}"
    with RelayerProcess(tmp_path_factory.mktemp("browser"), arguments=("--page-origins", listed)) as process:
        yield process


@pytest.fixture(scope="module")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("Chromium is not installed; apt-get install chromium brings it")
    build()
    return found


@pytest.fixture
def browse(chromium: str, pages: _Pages, relayer: RelayerProcess, tmp_path: Path) -> Browse:
    """Opens the page at a host with a query, and returns what it posts."""

    def opened(host: str, run: str, **query: str) -> dict[str, Any]:
        given = urlencode({"run": run, "relayer": relayer.url, "secret": "5c" * 32, **query})
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"]
        command += [
            f"--user-data-dir={tmp_path / 'profile'}",
            f"http://{host}:{pages.server_port}/{_PAGE}?{given}",
        ]
        with (tmp_path / "chromium.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            return pages.results.get(timeout=_SECONDS)
        except queue.Empty:
            pytest.fail(f"the page posted nothing: {(tmp_path / 'chromium.log').read_text()[-2000:]}")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)

    return opened


def test_a_listed_page_adds_searches_changes_and_deletes(browse: Browse, relayer: RelayerProcess) -> None:
    told = browse("localhost", "./memories.mjs")
    assert told == {
        "added": "stored",
        "found": [True, "I am allergic to peanuts.", ["health"], {"ticket": 4711}],
        "texts": ["I am allergic to peanuts and soy."],
        "left": 0,
        "refused": "RelayerRefused not_found",
        "known": [],
        "pinned": [f"memrelay:{relayer.url}"],
    }


def test_a_process_object_of_a_bundler_makes_no_difference(browse: Browse) -> None:
    told = browse("localhost", "./memories.mjs", process="1", secret="5d" * 32)
    assert (told["added"], told["left"]) == ("stored", 0)


def test_a_page_that_is_not_listed_is_refused_and_stores_nothing(
    browse: Browse, relayer: RelayerProcess
) -> None:
    told = browse("127.0.0.1", "./memories.mjs", secret="5e" * 32)
    failed = told["failed"]
    assert failed.startswith(f"RelayerUnreachable: no relayer answers at {relayer.url}"), told
    assert "--page-origins do not list http://127.0.0.1:" in failed
    again = browse("localhost", "./memories.mjs", secret="5e" * 32)
    assert again["added"] == "stored"


@pytest.mark.parametrize(
    ("pin", "expected"), [("00" * 32, "another identity"), ("?", "damaged")], ids=["another", "damaged"]
)
def test_a_page_refuses_a_relayer_that_its_last_visit_did_not_pin(
    browse: Browse, pin: str, expected: str
) -> None:
    failed = browse("localhost", "./memories.mjs", pin=pin)["failed"]
    assert failed.startswith("RelayerUntrusted: ")
    assert expected in failed


def test_a_later_visit_knows_the_relayer(browse: Browse, relayer: RelayerProcess) -> None:
    told = browse("localhost", "./memories.mjs", secret="5f" * 32, again="60" * 32)
    assert (told["added"], told["known"]) == ("stored", [f"memrelay:{relayer.url}"])


def test_a_browser_has_the_bytes_of_the_vectors(browse: Browse) -> None:
    told = browse("localhost", "./node.mjs")
    assert len(told) >= 10, told
    assert {name: error for name, error in told.items() if error is not None} == {}
