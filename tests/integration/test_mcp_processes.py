"""The MCP server as a client starts it: the real program over standard streams and over HTTP, with a relayer of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from typed_commands import machine, run_gateway

PROGRAM = Path(sys.executable).with_name("memrelay-gateway")
COFFEE = "I only drink oat milk coffee, never after 2 pm."
MODES = ["auto", "legacy"]
# A process starts in two seconds; on a machine that is busy, it may take many.
START_SECONDS = 90
CLIENTS = ["claude-code", "cursor", "codex", "vscode", "zed"]
pytestmark = pytest.mark.tier("all")


@pytest.fixture
def site(tmp_path, shared_relayer):
    """A machine's environment with a secret of its own."""
    return machine(tmp_path, shared_relayer, os.urandom(32).hex()) | {"PATH": os.environ["PATH"]}


def started(environment, *arguments, command=str(PROGRAM), mode="auto", stderr=None):
    parameters = StdioServerParameters(command=command, args=["mcp", *arguments], env=environment)
    return Client(stdio_client(parameters, errlog=stderr or sys.stderr), mode=mode)


async def typed(environment, *arguments):
    """Run a command, whose own event loop this test's must not be."""
    return await asyncio.to_thread(run_gateway, environment, *arguments)


def saved_in(environment, name="mcp-credentials.json"):
    """Return a private file's bytes, None where there is none, once it is known that nobody else may read it."""
    file = Path(environment["XDG_CONFIG_HOME"], "memrelay", name)
    if not file.exists():
        return None
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_bytes()


def put_back(environment, content):
    file = Path(environment["XDG_CONFIG_HOME"], "memrelay", "mcp-credentials.json")
    file.write_bytes(content)
    file.chmod(0o600)


def without_settings(environment):
    return {name: value for name, value in environment.items() if not name.startswith("MEMRELAY_")}


def text_of(result):
    (content,) = result.content
    return content.text


@pytest.mark.row("MW-46", level="e2e")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_starts_it_remembers_and_recalls(site, mode):
    async with started(site, mode=mode) as client:
        assert {"memory_search", "memwal_recall"} <= {one.name for one in (await client.list_tools()).tools}
        assert (
            text_of(await client.call_tool("memory_store", {"text": COFFEE})) == f"Stored 1 fact(s): {COFFEE}"
        )
    # Another process, another name of the same tool, the same memory.
    async with started(site, mode=mode) as client:
        found = await client.call_tool("memwal_recall", {"query": "how do I take my coffee"})
        assert text_of(found).startswith("<memrelay-memories>\n")
        assert f"] {COFFEE}\n" in text_of(found)
        prompt = await client.get_prompt("recall", {"query": "how do I take my coffee"})
        assert COFFEE in prompt.messages[0].content.text
        (read,) = (await client.read_resource("memory://recent")).contents
        assert COFFEE in read.text


async def test_two_agents_of_one_machine_never_see_each_other(site):
    async with started(site, "--agent", "coder") as coder, started(site, "--agent", "writer") as writer:
        kept = (await coder.call_tool("memory_store", {"text": COFFEE})).structured_content["id"]
        for name, arguments in (
            ("memory_search", {"query": "oat milk coffee"}),
            ("memory_search", {"query": "oat milk coffee", "namespace": "coder"}),
            ("memory_get", {"ref": kept}),
            ("memory_list", {}),
        ):
            assert COFFEE not in text_of(await writer.call_tool(name, arguments)), name
        assert COFFEE in text_of(await coder.call_tool("memory_get", {"ref": kept}))


@pytest.mark.row("MW-47", level="e2e")
async def test_an_option_wins_over_a_variable_and_ours_over_memwals(site, tmp_path):
    here = site["MEMRELAY_URL"]
    nowhere = "http://127.0.0.1:9"
    bare = {name: value for name, value in site.items() if name != "MEMRELAY_URL"}
    choices = (
        (bare | {"MEMWAL_SERVER_URL": here, "MEMWAL_NAMESPACE": "garden"}, (), "default/garden"),
        (
            bare
            | {
                "MEMWAL_SERVER_URL": nowhere,
                "MEMRELAY_URL": here,
                "MEMWAL_NAMESPACE": "a",
                "MEMRELAY_MCP_NAMESPACE": "b",
            },
            (),
            "default/b",
        ),
        (
            bare | {"MEMRELAY_URL": nowhere, "MEMRELAY_MCP_NAMESPACE": "b"},
            ("--relayer", here, "--ns", "c"),
            "default/c",
        ),
        (
            bare | {"MEMRELAY_STAGING_URL": here, "MEMRELAY_URL": nowhere},
            ("--staging", "--agent", "coder"),
            "coder",
        ),
    )
    for environment, options, namespace in choices:
        async with started(environment, *options) as client:
            told = (await client.call_tool("memory_status", {})).structured_content
        assert (told["relayer"], told["namespace"]) == (here, namespace)


@pytest.mark.row("MW-47", level="e2e")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--local", "--relayer", "http://127.0.0.1:1"), "give one of them"),
        (("--prod",), "MEMRELAY_PROD_URL is not set"),
        (("--namespace", ""), "--namespace: "),
        (("--http", "--host", "0.0.0.0"), "--host: only this machine"),
        (("--agent", "memrelay-owner"), "owner"),
        (("--http", "--agent-per-client"), "mcp token"),
        (("--login", "--logout"), "give one of them"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_to_write(site, options, said):
    refused = run_gateway(site, "mcp", *options)
    assert refused.returncode == 2
    assert said in refused.stderr


@pytest.mark.row("MW-47", level="e2e")
async def test_debug_lines_tell_of_calls_and_of_no_text(site, tmp_path):
    with (tmp_path / "stderr").open("w+") as stderr:
        async with started(site | {"MEMWAL_MCP_DEBUG": "1"}, stderr=stderr) as client:
            await client.call_tool("memory_store", {"text": COFFEE})
        stderr.seek(0)
        said = stderr.read()
    assert "memrelay mcp: tools/call memory_store: ok" in said
    assert "oat milk" not in said


async def test_settings_that_are_wrong_are_told_of_with_every_call(site):
    async with started(site | {"MEMRELAY_URL": "ftp://nowhere"}) as client:
        result = await client.call_tool("memory_search", {"query": "coffee"})
    assert result.is_error
    assert "url: is not a URL" in text_of(result)


@contextlib.asynccontextmanager
async def served(environment, *options):
    """Run ``mcp --http`` and yield its URL; it ends by the signal of a service manager."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM),
        "mcp",
        "--http",
        "--port",
        str(port),
        *options,
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        while b"MCP at" not in (line := await asyncio.wait_for(process.stderr.readline(), START_SECONDS)):
            assert line, "it ended"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), START_SECONDS)
    assert process.returncode == 0


@contextlib.asynccontextmanager
async def streamed(url, token):
    """An older client, over the stream of events that came before Streamable HTTP."""
    headers = {"Authorization": f"Bearer {token}"}
    transport = sse_client(url.replace("/mcp", "/sse"), headers=headers)
    async with Client(transport, mode="legacy") as client:
        yield client


@contextlib.asynccontextmanager
async def found(url, token, *, mode="auto", **headers):
    headers = {"Authorization": f"Bearer {token}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def again_with(environment, reply):
    command = [str(PROGRAM), "mcp", "login", "--pair"]
    return subprocess.run(command, input=reply, env=environment, capture_output=True, text=True, check=False)


def token_for(site, agent):
    done = run_gateway(site, "mcp", "token", "--agent", agent)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.row("MW-46", level="e2e")
@pytest.mark.parametrize("mode", MODES)
async def test_over_http_each_token_has_an_agent_and_none_sees_another(site, mode):
    coder, writer = token_for(site, "coder"), token_for(site, "writer")
    async with (
        served(site) as url,
        found(url, coder, mode=mode) as one,
        found(url, writer, mode=mode) as other,
        found(url, coder, mode=mode, X_MemWal_Namespace="work") as work,
    ):
        kept = (await one.call_tool("memory_store", {"text": COFFEE})).structured_content["id"]
        await work.call_tool("memwal_remember", {"text": "The staging database is called heron."})
        for arguments in ({"query": "oat milk coffee"}, {"query": "oat milk coffee", "namespace": "coder"}):
            assert COFFEE not in text_of(await other.call_tool("memory_search", arguments))
        with pytest.raises(MCPError):
            await other.read_resource(f"memory://{kept}")
        assert COFFEE in text_of(await one.call_tool("memory_search", {"query": "oat milk coffee"}))
        assert "heron" not in text_of(await one.call_tool("memory_list", {}))
        status = (await work.call_tool("memory_status", {})).structured_content
        assert (status["agent"], status["namespace"], status["memories"]) == ("coder", "coder/work", 1)


@pytest.mark.row("MW-46", level="e2e")
async def test_an_older_client_is_served_over_a_stream_of_events(site):
    coder, writer = token_for(site, "coder"), token_for(site, "writer")
    async with served(site) as url:
        async with streamed(url, coder) as one, streamed(url, writer) as other:
            await one.call_tool("memory_store", {"text": COFFEE})
            assert COFFEE in text_of(await one.call_tool("memwal_recall", {"query": "oat milk coffee"}))
            assert COFFEE not in text_of(await other.call_tool("memory_list", {}))
        headers = {"authorization": f"Bearer {coder}"}
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            assert (await http.get(url.replace("/mcp", "/sse"))).status_code == 401
            async with http.stream("GET", url.replace("/mcp", "/sse"), headers=headers) as events:
                lines = events.aiter_lines()
                while not (line := await anext(lines)).startswith("data:"):
                    pass
                place = url.replace("/mcp", line.removeprefix("data:").strip())
                stolen = {"authorization": f"Bearer {writer}"}
                hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                assert (await http.post(place, json=hello, headers=stolen)).status_code in {403, 404}
                assert (await http.post(place, json=hello, headers=headers)).status_code == 202


@pytest.mark.row("MW-46", level="e2e")
async def test_http_answers_no_stranger_no_browser_and_no_other_sessions_token(site):
    coder, writer = token_for(site, "coder"), token_for(site, "writer")
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    accept = {"accept": "application/json, text/event-stream"}

    def bearer(token):
        return accept | {"authorization": f"Bearer {token}"}

    async with served(site) as url, httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        for headers in (accept, bearer("x" * 43), accept | {"authorization": f"Basic {coder}"}):
            refused = await http.post(url, json=hello, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == -32001
            assert refused.headers["www-authenticate"].startswith("Bearer ")
        page = await http.post(url, json=hello, headers=bearer(coder) | {"origin": "https://evil.example"})
        assert page.status_code == 403
        rebound = await http.post(url, json=hello, headers=bearer(coder) | {"host": "evil.example"})
        assert rebound.status_code == 421
        opened = await http.post(url, json=hello, headers=bearer(coder))
        assert opened.status_code == 200
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        stolen = await http.post(url, json=listing, headers=bearer(writer) | session)
        assert stolen.status_code == 403
        mine = await http.post(url, json=listing, headers=bearer(coder) | session)
        assert mine.status_code == 200


@pytest.mark.row("MW-48", level="e2e")
async def test_a_token_opens_only_so_many_sessions_and_one_that_ends_makes_room(site):
    coder, writer = token_for(site, "coder"), token_for(site, "writer")
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip

    async with served(site) as url, httpx2.AsyncClient(trust_env=False, timeout=30) as http:

        async def opened(token):
            headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
            return await http.post(url, json=hello, headers=headers)

        answers = [await opened(coder) for _ in range(17)]
        assert [one.status_code for one in answers] == [200] * 16 + [429]
        assert answers[-1].json()["error"]["code"] == -32000
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await opened(writer)).status_code == 200
        ended = {"authorization": f"Bearer {coder}", "mcp-session-id": answers[0].headers["mcp-session-id"]}
        assert (await http.delete(url, headers=ended)).status_code == 200
        assert (await opened(coder)).status_code == 200


@pytest.mark.row("MW-48", level="e2e")
async def test_a_token_that_is_taken_back_is_refused_at_once(site):
    token = token_for(site, "coder")
    assert token.encode() not in saved_in(site, "mcp-tokens.json")
    async with served(site) as url:
        async with found(url, token) as client:
            await client.list_tools()
        (listed,) = json.loads((await typed(site, "mcp", "token", "--list", "--json")).stdout)
        assert (listed["agent"], token in json.dumps(listed)) == ("coder", False)
        assert (await typed(site, "mcp", "token", "--revoke", listed["id"])).returncode == 0
        with pytest.raises(BaseExceptionGroup):
            async with found(url, token):
                pass
        # And a new one is good without a restart.
        async with found(url, token_for(site, "coder")) as client:
            assert (await client.list_tools()).tools


@pytest.mark.parametrize("mode", MODES)
async def test_over_http_a_cancelled_call_ends_and_the_next_is_answered(site, mode):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        silent = site | {"MEMRELAY_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        token = token_for(site, "coder")
        async with served(silent) as url, found(url, token, mode=mode) as client:
            await client.list_tools()
            deaf.settimeout(START_SECONDS)
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "memory_search", {"query": "coffee"})
                line, _ = await asyncio.to_thread(deaf.accept)
                begun = time.monotonic()
                group.cancel_scope.cancel()
            line.settimeout(10)
            with line:
                # The server lets go of the relayer, long before its own deadline.
                while await asyncio.to_thread(line.recv, 65536):
                    pass
            assert time.monotonic() - begun < 10
            assert (await client.list_tools()).tools


def block_of(client, *options, site):
    done = run_gateway(site, "mcp", "config", "--for", client, *options)
    assert done.returncode == 0, done.stderr
    if client == "codex":
        return tomllib.loads(done.stdout)["mcp_servers"]["memrelay"]
    section = {"vscode": "servers", "zed": "context_servers"}.get(client, "mcpServers")
    return json.loads(done.stdout)[section]["memrelay"]


async def test_what_the_blocks_start_is_a_server_that_works(site):
    options = ("--agent", "coder", "--relayer", site["MEMRELAY_URL"])
    blocks = [block_of(client, *options, site=site) for client in CLIENTS]
    starts = {(block["command"], *block["args"]) for block in blocks}
    # However a client spells it, it starts the same: once is enough to see that it works.
    ((command, *arguments),) = starts
    assert Path(command).is_absolute()
    parameters = StdioServerParameters(
        command=command,
        args=arguments,
        env=without_settings(site) | {"MEMRELAY_SECRET": site["MEMRELAY_SECRET"]},
    )
    async with Client(parameters) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        assert "memory_search" in names
        assert "memwal_recall" not in names
        status = (await client.call_tool("memory_status", {})).structured_content
    assert (status["relayer"], status["agent"]) == (site["MEMRELAY_URL"], "coder")


async def test_what_the_blocks_find_is_a_server_that_works(site):
    token = token_for(site, "coder")
    async with served(site) as url:
        port = url.split(":")[2].partition("/")[0]
        blocks = {client: block_of(client, "--http", "--port", port, site=site) for client in CLIENTS}
        assert token not in json.dumps(blocks)
        assert blocks.pop("codex") == {"url": url, "bearer_token_env_var": "MEMRELAY_MCP_TOKEN"}
        for block in blocks.values():
            assert block["headers"]["Authorization"].startswith("Bearer ")
            async with found(block["url"], token) as connected:
                assert (await connected.list_tools()).tools


def test_the_documents_blocks_are_those_that_are_printed(site):
    page = Path(__file__).parents[2].joinpath("docs", "hosts", "mcp.md").read_text("utf-8")
    for client in CLIENTS:
        block = block_of(client, site=site) | {"command": "memrelay-gateway"}
        block["args"] = block["args"][: block["args"].index("--relayer")]
        if client == "codex":
            assert f"args = {json.dumps(block['args'])}" in page
        else:
            assert f'{{"memrelay": {json.dumps(block)}}}' in page


@pytest.mark.row("MW-48", level="e2e")
async def test_a_server_that_runs_takes_up_the_keys_of_a_login(site):
    async with started(without_settings(site) | {"MEMRELAY_URL": site["MEMRELAY_URL"]}) as client:
        # It has made a secret of its own, as on a machine that is new to memory.
        assert (await client.call_tool("memory_status", {})).structured_content["agent"] == "main"
        assert (await typed(site, "mcp", "login", "--agent", "coder")).returncode == 0
        assert not (await client.call_tool("memwal_login", {})).is_error
        assert (await client.call_tool("memory_status", {})).structured_content["agent"] == "coder"


@pytest.mark.row("MW-48", level="e2e")
async def test_a_login_saves_one_agents_keys_and_a_server_uses_them(site, tmp_path):
    done = await typed(site, "mcp", "login", "--agent", "coder", "--label", "laptop")
    assert done.returncode == 0, done.stderr
    assert "saved: agent coder" in done.stdout
    assert site["MEMRELAY_SECRET"].encode() not in saved_in(site)
    known = json.loads(saved_in(site))
    assert (known["version"], known["agent"], known["relayer"], known["label"]) == (
        1,
        "coder",
        site["MEMRELAY_URL"],
        "laptop",
    )
    # Whoever has no secret but these keys is that agent, at that relayer.
    bare = without_settings(site)
    async with started(bare) as client:
        status = (await client.call_tool("memory_status", {})).structured_content
        assert (status["agent"], status["relayer"]) == ("coder", site["MEMRELAY_URL"])
        assert not (await client.call_tool("memory_store", {"text": COFFEE})).is_error
    assert saved_in(site, "secret") is None
    async with started(bare, "--agent", "writer") as client:
        result = await client.call_tool("memory_search", {"query": "coffee"})
        assert result.is_error
        assert "mcp login --agent NAME" in text_of(result)


@pytest.mark.row("MW-48", level="e2e")
def test_a_login_that_fails_changes_nothing(site):
    assert run_gateway(site, "mcp", "login", "--agent", "coder").returncode == 0
    before = saved_in(site)
    nowhere = run_gateway(site, "mcp", "login", "--agent", "writer", "--relayer", "http://127.0.0.1:9")
    assert nowhere.returncode == 3
    assert "what was saved before stays" in nowhere.stderr
    assert run_gateway(site, "mcp", "login", "--agent", "writer", "--relayer", "ftp://x").returncode == 2
    # The agent's keys were taken back: the relayer refuses them.
    assert run_gateway(site, "keys", "revoke", "--agent", "writer", "--yes").returncode == 0
    refused = run_gateway(site, "mcp", "login", "--agent", "writer")
    assert (refused.returncode, "what was saved before stays" in refused.stderr) == (1, True)
    assert saved_in(site) == before


@pytest.mark.row("MW-48", level="e2e")
async def test_keys_that_are_refused_are_kept_and_the_model_is_told_what_to_do(site):
    assert (await typed(site, "mcp", "login", "--agent", "coder")).returncode == 0
    before = saved_in(site)
    assert (await typed(site, "keys", "revoke", "--agent", "coder", "--yes")).returncode == 0
    bare = without_settings(site)
    async with started(bare) as client:
        assert (await client.list_tools()).tools
        for name in ("memory_search", "memwal_recall", "memwal_login"):
            result = await client.call_tool(name, {"query": "coffee"})
            assert result.is_error
            assert "401" in text_of(result)
            assert "memrelay-gateway mcp login" in text_of(result)
    assert saved_in(site) == before


@pytest.mark.row("MW-48", level="e2e")
async def test_a_logout_takes_the_keys_back_at_the_relayer(site, tmp_path):
    assert (await typed(site, "mcp", "login", "--agent", "coder")).returncode == 0
    copy = saved_in(site)
    assert "do it: --yes" in (await typed(site, "mcp", "logout")).stdout
    assert saved_in(site) == copy
    away = without_settings(site)
    elsewhere = await typed(away, "mcp", "logout", "--yes")
    assert (elsewhere.returncode, "keys revoke --certificate" in elsewhere.stderr) == (1, True)
    assert saved_in(site) == copy
    done = await typed(site, "mcp", "logout", "--yes")
    assert done.returncode == 0, done.stderr
    assert saved_in(site) is None
    # A thief's copy is worth nothing.
    put_back(site, copy)
    async with started(away) as client:
        assert "401" in text_of(await client.call_tool("memory_search", {"query": "coffee"}))


@pytest.mark.row("MW-48", level="e2e")
async def test_a_machine_without_the_secret_asks_for_keys_and_only_it_can_read_the_reply(site, tmp_path):
    other = machine(tmp_path / "laptop", site["MEMRELAY_URL"], "") | {"PATH": os.environ["PATH"]}
    del other["MEMRELAY_SECRET"]
    asking = await asyncio.create_subprocess_exec(
        str(PROGRAM), "mcp", "login", "--pair", "--agent", "coder",
        env=other, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    lines = [await asyncio.wait_for(asking.stdout.readline(), START_SECONDS) for _ in range(3)]
    code = lines[1].decode().split()[-1]
    reply = run_gateway(site, "mcp", "approve", "--agent", "coder", code)
    assert reply.returncode == 0, reply.stderr
    said, errors = await asyncio.wait_for(asking.communicate(reply.stdout.encode()), START_SECONDS)
    assert asking.returncode == 0, errors
    assert b"saved: agent coder" in said
    async with started({name: value for name, value in other.items() if name != "MEMRELAY_URL"}) as client:
        assert not (await client.call_tool("memory_store", {"text": COFFEE})).is_error
    assert saved_in(other, "secret") is None
    # The reply of one question opens nothing for another, and no line of it shows the secret.
    saved = json.loads(saved_in(other))
    assert saved["secret"] not in reply.stdout
    again = await asyncio.to_thread(again_with, other, reply.stdout)
    assert again.returncode == 2
    assert "no reply to the code above" in again.stderr
    assert json.loads(saved_in(other)) == saved
