"""What is installed as memrelay is imported as memrelay: the names of the plugin that others may use."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

import gateway_plugin
import memrelay
from gateway_plugin import client, errors, memory, plugin
from gateway_plugin.settings import model as settings

PUBLIC = (memory, plugin, client, settings, errors)
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-api.md").read_text("utf-8")


def test_every_name_is_the_one_of_the_public_module_that_has_it() -> None:
    for name in set(memrelay.__all__) - {"__version__"}:
        places = [module for module in PUBLIC if name in vars(module)]
        assert places, name
        assert all(getattr(memrelay, name) is getattr(place, name) for place in places)


def test_every_error_of_the_plugin_is_a_name() -> None:
    assert set(errors.__all__) <= set(memrelay.__all__)


def test_the_old_import_goes_on_working() -> None:
    from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin

    assert (MemoryPlugin, AsyncMemoryPlugin) == (memrelay.MemoryPlugin, memrelay.AsyncMemoryPlugin)
    assert memrelay.__version__ == gateway_plugin.__version__


def test_there_are_no_other_names() -> None:
    assert dir(memrelay) == sorted(memrelay.__all__)
    with pytest.raises(AttributeError, match="no attribute 'LoopThread'"):
        memrelay.LoopThread  # noqa: B018


def test_it_is_installed_and_the_command_of_the_same_name_is_the_relayers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "memrelay" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert (ROOT / "memrelay" / "py.typed").exists()
    assert project["project"]["scripts"]["memrelay"] == "relayer.__main__:main"


def test_every_name_stands_on_its_page() -> None:
    assert [name for name in memrelay.__all__ if f"`{name}`" not in PAGE] == []


def test_the_class_that_is_not_asynchronous_names_its_arguments_and_does_what_the_other_does() -> None:
    both = [
        inspect.signature(one.__init__).parameters
        for one in (memrelay.MemoryPlugin, memrelay.AsyncMemoryPlugin)
    ]
    assert [(name, one.kind, one.default) for name, one in both[0].items()] == [
        (name, one.kind, one.default) for name, one in both[1].items()
    ]
    missing = {name for name in vars(memrelay.AsyncMemoryPlugin) if not name.startswith("_")} - set(
        dir(memrelay.MemoryPlugin)
    )
    assert missing == {
        "aclose",
        "due_intents",
        "intent",
        "start",
        "look_at_files",
        "outage",
        "own_key",
    }  # of hosts' adapters, or done by making and closing one


def test_a_session_is_warmed_by_code_that_is_not_asynchronous(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    with memrelay.MemoryPlugin("http://127.0.0.1:1", secret="5e" * 32, environ=environment) as plugin:
        assert plugin.warm(session_key="agent:main:main") == "unavailable"
