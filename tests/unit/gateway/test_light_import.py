from __future__ import annotations

import subprocess
import sys

SERVER_LIBRARIES = (
    "aiohttp",
    "numpy",
    "msgspec",
    "usearch",
    "boto3",
    "structlog",
    "onnxruntime",
    "prometheus_client",
)
BLOCK = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {SERVER_LIBRARIES!r}:
            raise ImportError(name + ' is a library of the server')
sys.meta_path.insert(0, Blocked())
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plugin_and_its_commands_need_no_library_of_the_server():
    code = (
        BLOCK
        + """
import pkgutil, importlib, gateway_plugin, relayer.wire
from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin
for package in (gateway_plugin, relayer.wire):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f'{package.__name__}.{found.name}')
print(sorted(name for name in sys.modules if name.startswith('relayer.') and not name.startswith('relayer.wire')))
"""
    )
    assert run(code).strip() == "[]"


def test_the_block_of_the_test_above_blocks():
    done = subprocess.run([sys.executable, "-c", BLOCK + "import aiohttp"], capture_output=True, check=False)
    assert done.returncode != 0


def test_importing_the_package_alone_loads_nothing_heavy():
    loaded = run(
        "import sys, gateway_plugin; print(gateway_plugin.__version__);"
        "print(sorted({'httpx', 'pydantic', 'nacl', 'cryptography', 'asyncio', 'typer', 'rich'} & set(sys.modules)))"
    )
    assert loaded.split("\n")[1] == "[]"


def test_the_version_is_the_distributions():
    import tomllib
    from pathlib import Path

    import gateway_plugin

    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert gateway_plugin.__version__ == tomllib.loads(text)["project"]["version"]
    assert dir(gateway_plugin) == sorted(gateway_plugin.__all__)
