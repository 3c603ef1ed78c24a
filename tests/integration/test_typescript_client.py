"""The TypeScript client and its middleware, against a real relayer, and together with the Python client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typed_commands import machine, run_gateway
from typescript_package import PACKAGE, build, run, runtime

from demo.relayer_process import RelayerProcess
from gateway_plugin.memory import Memory

_SECRET = "5a" * 32
_PROGRAM = """
import { Memory, MemoryTrustStore } from "./dist/index.js";
const [url, secret] = process.argv.slice(1);
const memory = new Memory({ url, secret, trust: new MemoryTrustStore(), agent: "support", user: "Ana Õ" });
const known = [];
for await (const one of memory.list()) known.push({ text: one.text, tags: one.tags, metadata: one.metadata });
await memory.add("My cat is called Minka.", { tags: ["pets"], metadata: { ticket: 2 } });
process.stdout.write(JSON.stringify(known));
"""
# As on the page: without a secret, a URL or a trust store of its own.
_PACKED_PROGRAM = """
import { Memory } from "memrelay";
const memory = new Memory({ agent: "shop", user: "ana" });
const added = await memory.add("I'm allergic to peanuts", { tags: ["health"], metadata: { ticket: 4711 } });
const [hit] = await memory.search("am I allergic to peanuts?", { where: { ticket: 4711 } });
const refused = await memory.search("").catch((error) => `${error.name} ${error.field}`);
await memory.erase(added.id);
const left = await memory.search("am I allergic to peanuts?");
console.log(JSON.stringify([added.status, hit.id === added.id, hit.text, hit.tags, refused, left.length]));
"""
# The arguments with which each runtime runs a program, with no more rights than it needs.
_RUNTIMES = {
    "node": [],
    "deno": ["run", "--no-prompt", "--allow-net=127.0.0.1", "--allow-env", "--allow-read", "--allow-write"],
    "bun": ["run"],
}


@pytest.fixture(scope="module")
def built() -> None:
    build()


@pytest.fixture(scope="module")
def relayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayerProcess]:
    with RelayerProcess(tmp_path_factory.mktemp("typescript")) as process:
        yield process


@pytest.mark.usefixtures("built")
def test_its_own_tests_pass(relayer: RelayerProcess) -> None:
    tests = [str(path) for path in sorted((PACKAGE / "test").glob("*.test.mjs"))]
    ended = run(["node", "--test", *tests], MEMRELAY_TEST_URL=relayer.url)
    assert ended.returncode == 0, ended.stdout[-5000:]
    assert "# skipped 0" in ended.stdout or "skipped 0" in ended.stdout


@pytest.mark.usefixtures("built")
def test_python_and_typescript_read_what_the_other_stored(relayer: RelayerProcess, tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    with Memory(agent="support", user="Ana Õ", url=relayer.url, secret=_SECRET, environ=environ) as memory:
        memory.add("My dog is called Rex.", tags=["pets"], metadata={"ticket": 1})
        ended = run(["node", "--input-type=module", "--eval", _PROGRAM, relayer.url, _SECRET])
        assert ended.returncode == 0, ended.stderr[-2000:]
        assert json.loads(ended.stdout) == [
            {"text": "My dog is called Rex.", "tags": ["pets"], "metadata": {"ticket": 1}}
        ]
        (cat,) = memory.list(where={"ticket": 2})
        assert (cat.text, cat.tags, cat.metadata) == ("My cat is called Minka.", ("pets",), {"ticket": 2})
        assert memory.users() == ("Ana Õ",)


@pytest.mark.usefixtures("built")
def test_typescript_goes_on_after_a_rotation_of_the_keys(relayer: RelayerProcess, tmp_path: Path) -> None:
    secret = "5b" * 32
    program = ["node", "--input-type=module", "--eval", _PROGRAM, relayer.url, secret]
    assert run(program).returncode == 0
    rotated = run_gateway(
        machine(tmp_path, relayer.url, secret), "keys", "rotate", "--agent", "support", "--reseal", "--yes"
    )
    assert "namespaces of agent support with new keys: 1" in rotated.stdout, rotated.stderr
    ended = run(program)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert [one["text"] for one in json.loads(ended.stdout)] == ["My cat is called Minka."]


@pytest.fixture(scope="module")
def packed(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the packed client installed."""
    project = tmp_path_factory.mktemp("project")
    (project / "package.json").write_text('{"private": true, "type": "module"}')
    (project / "program.js").write_text(_PACKED_PROGRAM)
    made = run(["npm", "pack", "--silent", "--pack-destination", str(project)])
    assert made.returncode == 0, made.stderr
    (package,) = project.glob("memrelay-*.tgz")
    command = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefer-offline",
        str(package),
    ]
    installed = run(command, folder=project)
    if installed.returncode:
        pytest.skip(f"its packages cannot be installed here: {installed.stderr.strip()[-200:]}")
    return project


@pytest.mark.parametrize("name", _RUNTIMES)
def test_the_packed_client_adds_searches_and_erases(
    name: str, packed: Path, relayer: RelayerProcess, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    more = {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DENO_NO_UPDATE_CHECK": "1",
    }
    access = {"MEMRELAY_URL": relayer.url, "MEMRELAY_SECRET": os.urandom(32).hex()}
    ended = run([runtime(name), *_RUNTIMES[name], "program.js"], folder=packed, **more, **access)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert json.loads(ended.stdout) == [
        "stored",
        True,
        "I'm allergic to peanuts",
        ["health"],
        "InvalidInput query",
        0,
    ]
    trusted = json.loads((tmp_path / "config/memrelay/trust.json").read_text())
    assert list(trusted["relayers"]) == [relayer.url]
