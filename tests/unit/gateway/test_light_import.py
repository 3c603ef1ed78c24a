from __future__ import annotations

import subprocess
import sys

import pytest
from processes import ran

SERVER_LIBRARIES = (
    "numpy", "msgspec", "usearch", "boto3", "structlog", "onnxruntime", "prometheus_client", "mcp", "starlette",
    "uvicorn",
)  # fmt: skip
HEAVY = (
    "aiohttp", "httpx", "nacl", "cryptography", "sqlite3", "rich.console", "mcp", "relayer.wire.sealing", "gateway_plugin.cli",
    "gateway_plugin.client", "gateway_plugin.plugin", "gateway_plugin.settings.model", "gateway_plugin.commands.run",
)  # fmt: skip
BLOCK = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {SERVER_LIBRARIES!r}:
            raise ModuleNotFoundError(name + ' is a library of an extra', name=name)
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> str:
    done = ran([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plugin_and_its_commands_need_no_library_of_the_server():
    code = (
        BLOCK
        + """
import pkgutil, importlib, gateway_plugin, memrelay, relayer.wire
[getattr(memrelay, name) for name in memrelay.__all__]
from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin
for package in (gateway_plugin, relayer.wire):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f'{package.__name__}.{found.name}')
print(sorted(name for name in sys.modules if name.startswith('relayer.') and not name.startswith('relayer.wire')))
"""
    )
    assert run(code).strip() == "[]"


def test_the_block_of_the_test_above_blocks():
    done = subprocess.run([sys.executable, "-c", BLOCK + "import usearch"], capture_output=True, check=False)
    assert done.returncode != 0


def test_importing_the_package_alone_loads_nothing_heavy():
    loaded = run(
        "import sys, memrelay; print(memrelay.__version__);"
        # A command is made by typer, which loads pydantic where it finds it.
        f"print(sorted({{*{HEAVY!r}, 'pydantic', 'asyncio', 'typer', 'rich'}} & set(sys.modules)))"
    )
    assert loaded.split("\n")[1] == "[]"


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_the_version_is_told_without_what_other_commands_need(option):
    code = f"""
import sys
sys.argv[1:] = ["version", *{option!r}]
from gateway_plugin.__main__ import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(sorted(name for name in {HEAVY!r} if name in sys.modules))
"""
    shown, loaded = run(code).rsplit("\n", 2)[:2]
    assert "memrelay-gateway" in shown
    assert loaded == "[]"


@pytest.mark.parametrize("option", [(), ("--http",)])
def test_what_needs_an_extra_says_what_to_install(option, tmp_path):
    code = f"""{BLOCK}
sys.argv[1:] = ["mcp", *{option!r}]
from gateway_plugin.__main__ import main
main()
"""
    done = ran([sys.executable, "-c", code], env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 2, done.stderr
    assert "pip install '.[mcp]'" in done.stderr


@pytest.mark.parametrize("module", ["relayer", "gateway_plugin"])
def test_a_command_runs_as_a_module_beside_the_package_of_its_name(module):
    done = ran(
        [
            sys.executable,
            "-c",
            f"import memrelay, runpy, sys; sys.argv[1:] = ['--help']; runpy.run_module({module!r}, run_name='__main__')",
        ]
    )
    assert (done.returncode, "Usage:" in done.stdout) == (0, True), done.stderr


def test_the_version_is_the_distributions():
    import tomllib
    from pathlib import Path

    import gateway_plugin

    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert gateway_plugin.__version__ == tomllib.loads(text)["project"]["version"]
    assert dir(gateway_plugin) == sorted(gateway_plugin.__all__)
