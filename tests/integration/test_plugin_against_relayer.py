"""The plugin and a real relayer: no part of the way is replaced."""

from __future__ import annotations

import os
import signal
import sys

import aiohttp
import pytest
from processes import CLEAN, ran, wait_until

from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin
from gateway_plugin.calls.clock import SystemClock
from gateway_plugin.calls.trust import TrustStore
from gateway_plugin.client import RelayerClient
from gateway_plugin.files.indexed import IndexRoot, RootKind
from gateway_plugin.keys.identity import RootHolder, identify, parse_session_key
from relayer.wire.schemas import MemoryItem, RecallRequest, RememberRequest
from relayer.wire.sealing import RootKeys

COFFEE = "I only drink oat milk coffee, never after 2 pm."
TURN = [{"role": "user", "content": COFFEE}, {"role": "assistant", "content": "Noted."}]
QUESTION = "How do I take my coffee?"
SECRET = "5a" * 32
# A cold relayer on a busy machine may need more than a turn's two seconds; the deadline is not what is tested here.
PATIENCE = 20.0


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "gateway")}


@pytest.fixture
def identity(secret):
    return identify(
        RootHolder(RootKeys(bytes.fromhex(secret))),
        parse_session_key("agent:researcher:s"),
        default_agent=None,
    )


def test_ten_lines_of_python_remember_and_recall(serve, environ):
    with MemoryPlugin(serve().url, agent="researcher", environ=environ) as memory:
        memory.after_turn(TURN)
        turn = memory.before_turn(QUESTION, deadline=PATIENCE)
    assert turn.status == "ok", turn.detail
    assert COFFEE in turn.prompt


def test_another_process_with_the_same_secret_recalls_it(serve, environ):
    relayer = serve()
    with MemoryPlugin(relayer.url, agent="researcher", secret=SECRET, environ=environ) as memory:
        memory.after_turn(TURN)
    code = (
        "import sys; from gateway_plugin import MemoryPlugin\n"
        f"with MemoryPlugin({relayer.url!r}, agent='researcher') as memory:\n"
        f"    print(memory.before_turn({QUESTION!r}, deadline={PATIENCE}).prompt)"
    )
    environment = CLEAN | environ | {"MEMRELAY_SECRET": SECRET}
    assert COFFEE in ran([sys.executable, "-c", code], env=environment).stdout


def test_a_relayer_killed_under_the_plugin_loses_nothing_that_was_said(serve, environ, tmp_path):
    relayer = serve()
    with MemoryPlugin(relayer.url, secret=SECRET, environ=environ) as memory:
        memory.after_turn(TURN)
        assert memory.flush(PATIENCE)
        relayer.stop(signal.SIGKILL)
        for _ in range(4):
            assert memory.before_turn("What do I drink in the morning?").status == "unavailable"
        news = "My sister Lena moved from Hamburg to Berlin in March."
        assert memory.after_turn([{"role": "user", "content": news}]).status == "queued"
        assert not memory.flush(2)
        assert memory.status().waiting == 1
        serve("--port", relayer.url.rpartition(":")[2], data=relayer.data)
        assert memory.status().paused_seconds <= 1
        wait_until(lambda: memory.before_turn(QUESTION, deadline=PATIENCE).status == "ok")
        assert memory.flush(PATIENCE)
        lena = memory.before_turn("Where does my sister Lena live?", deadline=PATIENCE)
        assert news in lena.text
        coffee = memory.before_turn(QUESTION, deadline=PATIENCE)
        assert COFFEE in coffee.prompt


@pytest.mark.parametrize("ahead", [-7200, 7200])
async def test_a_gateway_whose_clock_is_wrong_is_corrected(shared_relayer, identity, tmp_path, ahead):
    class Wrong(SystemClock):
        def now(self) -> float:
            return super().now() + ahead

    client = RelayerClient(shared_relayer, trust=TrustStore(tmp_path / "trust.json"), clock=Wrong())
    await client.remember(identity, RememberRequest(items=(MemoryItem(text=COFFEE),)))
    found = await client.recall(identity, RecallRequest(query=QUESTION), deadline=PATIENCE)
    await client.aclose()
    assert [hit.text for hit in found.memories] == [COFFEE]


def test_no_text_and_no_secret_reaches_the_relayers_log_or_disk(serve, environ):
    relayer = serve(environment={"MEMRELAY_LOG_LEVEL": "debug"})
    with MemoryPlugin(relayer.url, agent="canary-agent", secret=SECRET, environ=environ) as memory:
        memory.after_turn(TURN, session_key="agent:canary-agent:canary-session")
        assert (
            memory.before_turn(QUESTION, session_key="agent:canary-agent:s", deadline=PATIENCE).status == "ok"
        )
        account = memory.status().account
    relayer.stop()
    log = relayer.log.read_bytes()
    stored = b"".join(path.read_bytes() for path in relayer.data.rglob("*") if path.is_file())
    names = "\n".join(os.fspath(path) for path in relayer.data.rglob("*")).encode()
    secret = bytes.fromhex(SECRET)
    canaries = [
        b"oat milk",
        b"take my coffee",
        b"canary-agent",
        b"canary-session",
        account.encode(),
        secret,
        SECRET.encode(),
    ]
    for where in (log, stored, names):
        assert [canary for canary in canaries if canary in where] == []


@pytest.mark.row("OC-21", level="e2e")
async def test_a_file_of_four_thousand_lines_does_not_hold_up_the_others(serve, environ, tmp_path):
    """One look stores a part of it, in few requests, and all of the file after it; the next looks store the rest."""
    notes = tmp_path / "workspace" / "memory"
    notes.mkdir(parents=True)
    lines = [f"- Crate {number} of the cargo holds {number * 7} bolts." for number in range(4_000)]
    (notes / "long.md").write_text("\n".join(lines))
    (notes / "short.md").write_text("- The cook of the ferry is called Eilika.\n")
    requests = []
    tracing = aiohttp.TraceConfig()

    async def began(_session, _context, params):
        requests.append((params.method, params.url.path))

    tracing.on_request_start.append(began)
    roots = [IndexRoot(RootKind.WORKSPACE, tmp_path / "workspace")]
    async with aiohttp.ClientSession(trace_configs=[tracing]) as http:
        plugin = AsyncMemoryPlugin(serve().url, agent="researcher", environ=environ, http=http)
        async with plugin:
            look = await plugin.look_at_files(roots, session_key="agent:researcher:files")
            found = await plugin.tool("memory_search", {"query": "what is the cook of the ferry called"})
            again = await plugin.look_at_files(roots, session_key="agent:researcher:files")
    assert "Eilika" in found.text
    assert (look.counts["stored"], look.more) == (101, True)
    assert (again.counts["stored"], again.more) == (100, True)
    imports = [path for method, path in requests if method == "POST" and path.endswith("/import")]
    assert len(imports) <= 12
